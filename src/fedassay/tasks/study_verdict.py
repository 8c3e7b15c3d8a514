"""What the tasks of a study say together, in a few sentences that are computed from their results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

Results = Mapping[str, Any]

_OF_CLASSES = ("binary", "lac", "aps", "raps")
"""Conformity scores of classes: sets of others are intervals."""

NEAR = (0.8, 1.25)
"""Where the intervals of the calibration slope and of observed over expected must lie, for probabilities to be called
right: that no calibrator was better may only mean that there were too few rows to tell."""


def verdict(outcomes: Sequence[tuple[str, Results]]) -> dict[str, Any]:
    """Whether the model needs calibration, and all verdicts in words.

    ``needs_calibration`` is true if a calibrator is better on held-out rows, false if none is and the probabilities are
    shown to be nearly right (`NEAR`), and None if nobody looked or nobody can tell.

    Parameters
    ----------
    outcomes : the kind of each task and its results, in the order of the study.
    """
    needs, advice = _advice(outcomes)
    sentences = [advice] if advice else []
    for kind, results in outcomes:
        sentences += _SENTENCES.get(kind, _nothing)(results)
    return {"needs_calibration": needs, "text": " ".join(sentences)}


def _advice(outcomes: Sequence[tuple[str, Results]]) -> tuple[bool | None, str]:
    """What to do about the probabilities, by the last calibration; nothing if there was none."""
    tried = [results for kind, results in outcomes if kind in ("calibrate", "calibrate-classes")]
    if not tried:
        return None, ""
    if tried[-1]["recommended"] and tried[-1].get("calibrator") is not None:
        return True, "Calibrate the model before its probabilities are used."
    seen = next((results for kind, results in outcomes if kind == "evaluate"), None)
    if seen is None:
        return None, "No calibrator was shown to be better than the model's own probabilities."
    slope, ratio = seen["calibration_slope"], seen["observed_expected_ratio"]
    if all(_near(metric) for metric in (slope, ratio)):
        return False, (
            "Use the model's probabilities as they are: calibration slope and observed over expected are between "
            f"{NEAR[0]:g} and {NEAR[1]:g}, and no calibrator was shown to be better."
        )
    if slope.get("interval") is None:
        return None, "Too little is known to say whether the model needs calibration."
    low, high = slope["interval"]
    return None, (
        "It cannot be told whether the model needs calibration: no calibrator was shown to be better, but its "
        f"calibration slope may be anything from {low:.2f} to {high:.2f}."
    )


def _near(metric: Results) -> bool:
    ends = metric.get("interval")
    return ends is not None and NEAR[0] <= ends[0] and ends[1] <= NEAR[1]


def _nothing(results: Results) -> list[str]:
    return []


def _evaluated(results: Results) -> list[str]:
    auc, slope = results["roc_auc"], results["calibration_slope"]
    if auc["value"] is None:
        return [f"How well it ranks rows cannot be said: {auc['reason']}."]
    said = [f"It ranks rows with an AUC of {_shown(auc)}."]
    if slope.get("interval") is not None:
        low, high = slope["interval"]
        if high < 1:
            said.append(
                f"Its probabilities are too extreme: over all rows the calibration slope is {_shown(slope)}."
            )
        elif low > 1:
            said.append(
                f"Its probabilities are not extreme enough: over all rows the calibration slope is {_shown(slope)}."
            )
    return said


def _evaluated_classes(results: Results) -> list[str]:
    accuracy = results["accuracy"]
    return [] if accuracy["value"] is None else [f"It is right for {_shown(accuracy)} of the rows."]


def _calibrated(results: Results) -> list[str]:
    """The reason, with a subject: it begins with whether the calibrator is recommended."""
    reason = str(results["reason"])
    what = "The calibrator" if results.get("method") is None else f"The {results['method']} calibrator"
    for begins, is_it in (("Recommended: ", "is recommended"), ("Not recommended: ", "is not recommended")):
        if reason.startswith(begins):
            return [f"{what} {is_it}: {reason.removeprefix(begins)}"]
    return [reason]


def _conformal(results: Results) -> list[str]:
    promise, level = results["guarantee"], results["level"]
    what = "Prediction sets" if results["score"]["name"] in _OF_CLASSES else "Prediction intervals"
    if results.get("infinite"):
        return [
            f"{what} of the level {level:g} are of no use: each holds everything, as {results['reason']}."
        ]
    if promise["kind"] == "none":
        said = f"{what} promise nothing for the level {level:g}"
    elif promise["kind"] == "marginal":
        said = f"{what} hold the truth of a new row with probability at least {level:g}"
    else:
        said = f"{what} cover at least {level:g} of new rows, with confidence {promise['confidence']:g}"
    coverage = (results.get("held_out") or {}).get("coverage") or {"value": None}
    if coverage["value"] is None:
        return [f"{said}."]
    return [f"{said}; a sample of held-out rows estimates {_shown(coverage)}."]


_SENTENCES: Mapping[str, Callable[[Results], list[str]]] = {
    "evaluate": _evaluated,
    "evaluate-classes": _evaluated_classes,
    "calibrate": _calibrated,
    "calibrate-classes": _calibrated,
    "conformal": _conformal,
}


def _shown(metric: Mapping[str, Any]) -> str:
    ends = metric.get("interval")
    return f"{metric['value']:.3f}" + ("" if ends is None else f" ({ends[0]:.3f} to {ends[1]:.3f})")
