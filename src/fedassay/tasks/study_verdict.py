"""What the tasks of a study say together, in a few sentences that are computed from their results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedassay.documents.kind import KindDocument
from fedassay.tasks.card import KINDS

Results = Mapping[str, Any]
Outcomes = Sequence[tuple[KindDocument, Results]]

NEAR = (0.8, 1.25)
"""Where the intervals of the calibration slope and of observed over expected must lie, for probabilities to be called
right: that no calibrator was better may only mean that there were too few rows to tell."""


def verdict(outcomes: Sequence[tuple[str, Results]]) -> dict[str, Any]:
    """Whether the model needs calibration, and all verdicts in words.

    ``needs_calibration`` is true if a calibrator is better on held-out rows, false if none is and the probabilities are
    shown to be nearly right (`NEAR`), and None if that was not asked or cannot be told.

    Parameters
    ----------
    outcomes : the kind of each task and its results, in the order of the study.
    """
    found = [(KINDS[kind].document.load()(), results) for kind, results in outcomes]
    needs, advice = _advice(found)
    sentences = [
        *([advice] if advice else []),
        *(text for kind, one in found for text in kind.sentences(one)),
    ]
    return {"needs_calibration": needs, "text": " ".join(sentences)}


def _advice(outcomes: Outcomes) -> tuple[bool | None, str]:
    """What to do about the probabilities, by the last calibration; nothing if there was none."""
    tried = [answer for kind, results in outcomes if (answer := kind.recommends(results)) is not None]
    if not tried:
        return None, ""
    if tried[-1]:
        return True, "Calibrate the model before its probabilities are used."
    seen = next((metrics for kind, one in outcomes if (metrics := kind.calibration_metrics(one))), None)
    if seen is None:
        return None, "No calibrator was shown to be better than the model's own probabilities."
    if all(_near(metric) for metric in seen):
        return False, (
            "Use the model's probabilities as they are: calibration slope and observed over expected are between "
            f"{NEAR[0]:g} and {NEAR[1]:g}, and no calibrator was shown to be better."
        )
    slope = seen[0]
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
