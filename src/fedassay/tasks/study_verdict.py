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
    needs: bool | None = None
    sentences: list[str] = []
    for kind, results in outcomes:
        if kind in ("calibrate", "calibrate-classes") and results.get("calibrator") is not None:
            needs = bool(results["recommended"])
        sentences += _SENTENCES.get(kind, _nothing)(results)
    return {"needs_calibration": needs, "text": " ".join(sentences)}


def _nothing(results: Results) -> list[str]:
    return []


def _evaluated(results: Results) -> list[str]:
    auc, slope = results["roc_auc"], results["calibration_slope"]
    said = []
    if auc["value"] is not None:
        said.append(f"The model ranks rows with an AUC of {_shown(auc)}.")
    if slope.get("interval") is not None:
        low, high = slope["interval"]
        how = "about as extreme as they should be"
        if high < 1:
            how = "too extreme"
        elif low > 1:
            how = "not extreme enough"
        said.append(f"Its probabilities are {how} (calibration slope {_shown(slope)}; 1 is ideal).")
    return said


def _calibrated(results: Results) -> list[str]:
    return [str(results["reason"])]


def _conformal(results: Results) -> list[str]:
    said = [f"Prediction sets: {results['guarantee']['text']}"]
    coverage = results.get("held_out", {}).get("coverage")
    if isinstance(coverage, Mapping) and coverage.get("value") is not None:
        said.append(f"On held-out rows their coverage is {_shown(coverage)}.")
    return said


_SENTENCES = {
    "evaluate": _evaluated,
    "calibrate": _calibrated,
    "calibrate-classes": _calibrated,
    "conformal": _conformal,
}


def _shown(metric: Mapping[str, Any]) -> str:
    ends = metric.get("interval")
    return f"{metric['value']:.3f}" + ("" if ends is None else f" ({ends[0]:.3f} to {ends[1]:.3f})")
