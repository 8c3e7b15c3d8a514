"""What the tasks of a study say together, in a few sentences that are computed from their results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Results = Mapping[str, Any]


def verdict(outcomes: Sequence[tuple[str, Results]]) -> dict[str, Any]:
    """Whether the model needs calibration (None if nobody looked, or nobody can tell), and all verdicts in words.

    Parameters
    ----------
    outcomes : the kind of each task and its results, in the order of the study.
    """
    needs = _needs_calibration(outcomes)
    sentences = [_ADVICE[needs]] if needs is not None else []
    for kind, results in outcomes:
        sentences += _SENTENCES.get(kind, _nothing)(results)
    return {"needs_calibration": needs, "text": " ".join(sentences)}


_ADVICE = {
    True: "Calibrate the model before its probabilities are used.",
    False: "Use the model's probabilities as they are: no calibrator was shown to be better.",
}


def _needs_calibration(outcomes: Sequence[tuple[str, Results]]) -> bool | None:
    """What the last calibration says, if it could fit something."""
    said = [
        bool(results["recommended"])
        for kind, results in outcomes
        if kind in ("calibrate", "calibrate-classes") and results.get("calibrator") is not None
    ]
    return said[-1] if said else None


def _nothing(results: Results) -> list[str]:
    return []


def _evaluated(results: Results) -> list[str]:
    auc, slope = results["roc_auc"], results["calibration_slope"]
    said = []
    if auc["value"] is not None:
        said.append(f"It ranks rows with an AUC of {_shown(auc)}.")
    if slope.get("interval") is not None:
        low, high = slope["interval"]
        how = "about as extreme as they should be"
        if high < 1:
            how = "too extreme"
        elif low > 1:
            how = "not extreme enough"
        said.append(f"Its probabilities are {how}: the calibration slope is {_shown(slope)}, 1 is ideal.")
    return said


def _calibrated(results: Results) -> list[str]:
    return [str(results["reason"])]


def _conformal(results: Results) -> list[str]:
    promise, level = results["guarantee"], results["level"]
    if promise["kind"] == "none":
        said = f"Prediction sets promise nothing for the level {level:g}"
    elif promise["kind"] == "marginal":
        said = f"Prediction sets hold the truth of a new row with probability at least {level:g}"
    else:
        said = (
            f"Prediction sets cover at least {level:g} of new rows, with confidence {promise['confidence']:g}"
        )
    coverage = (results.get("held_out") or {}).get("coverage") or {"value": None}
    if coverage["value"] is None:
        return [f"{said}."]
    return [f"{said}; of held-out rows they cover {_shown(coverage)}."]


_SENTENCES = {
    "evaluate": _evaluated,
    "calibrate": _calibrated,
    "calibrate-classes": _calibrated,
    "conformal": _conformal,
}


def _shown(metric: Mapping[str, Any]) -> str:
    ends = metric.get("interval")
    return f"{metric['value']:.3f}" + ("" if ends is None else f" ({ends[0]:.3f} to {ends[1]:.3f})")
