"""Whether to use a calibrator: only if it is better than the model on held-out rows, beyond its interval."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fedassay.estimation.metric import Metric
from fedassay.tasks.calibration.losses import BRIER, LOG

_WORDS = {BRIER.name: "Brier score", LOG.name: "log loss"}


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Whether the calibrator is recommended, and why, in one sentence."""

    recommended: bool
    reason: str


FEWEST_ROWS = 20
"""Held-out rows of each class below which no calibrator is recommended: intervals of so few mean nothing."""


def verdict(differences: Mapping[str, Metric], *, positives: float, negatives: float) -> Verdict:
    """Judge by the paired differences (after minus before) of the log loss and the Brier score.

    Recommended if the whole interval of the log loss lies below 0 and that of the Brier score does not lie
    above 0. Where noise leaves no log loss, the Brier score decides. Guarantee: a calibrator that does not
    lower the expected loss is recommended with probability at most (1 - level)/2, as far as the interval
    keeps its level; with fewer than 20 held-out rows of a class it does not, and nothing is recommended.
    """
    log, brier = differences[LOG.name], differences[BRIER.name]
    deciding, name = (log, LOG.name) if log.interval is not None else (brier, BRIER.name)
    if deciding.interval is None:
        return Verdict(recommended=False, reason=f"Not recommended: {deciding.reason}.")
    fewest = min(positives, negatives)
    if fewest < FEWEST_ROWS:
        return Verdict(
            recommended=False,
            reason=f"Not recommended: not enough evidence, the smaller class has about {max(0.0, fewest):.0f} "
            f"held-out rows, and {FEWEST_ROWS} are needed to judge.",
        )
    if brier.interval is not None and brier.interval[0] > 0:
        return Verdict(
            recommended=False, reason=f"Not recommended: on held-out rows the {_change(BRIER.name, brier)}."
        )
    if deciding.interval[1] < 0:
        also = "" if name == BRIER.name or brier.interval is None else f"; the {_change(BRIER.name, brier)}"
        return Verdict(
            recommended=True, reason=f"Recommended: on held-out rows the {_change(name, deciding)}{also}."
        )
    return Verdict(
        recommended=False,
        reason=f"Not recommended: on held-out rows the {_change(name, deciding)}, which is not an improvement "
        "beyond the interval.",
    )


def _change(name: str, metric: Metric) -> str:
    assert metric.value is not None
    assert metric.interval is not None
    low, high = metric.interval
    return f"{_WORDS[name]} changes by {metric.value:+.2g} ({metric.level:.0%} interval {low:+.2g} to {high:+.2g})"
