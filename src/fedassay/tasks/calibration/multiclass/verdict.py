"""Whether to use a multiclass calibrator: better than the model on held-out rows, and no accuracy lost."""

from __future__ import annotations

import math
from collections.abc import Mapping

from fedassay.estimation.metric import Metric
from fedassay.tasks.calibration.multiclass.paired import ORDER_KEPT, Paired
from fedassay.tasks.calibration.verdict import Verdict

LARGEST_FALL = 0.01
"""Of the accuracy: a calibrator that loses more is not recommended, whatever else it does."""

FEWEST_ROWS = 10
"""Held-out rows that the model has right, and as many that it has wrong: intervals of fewer mean nothing."""

_WORDS = {"log_loss": "log loss", "brier_score": "Brier score"}
_CLEAR = 2.0
_MORE = "more held-out rows or a larger epsilon would help"


def verdict(differences: Mapping[str, Metric], paired: Paired) -> Verdict:
    """Judge by the paired differences (after less before) of log loss, Brier score and accuracy.

    Recommended if the whole interval of the log loss or of the Brier score lies below 0, neither of them above 0, the
    log loss is not estimated to rise (where no noise blurs it), and the accuracy does not fall by more than 1 %: not in
    the estimate, and if that is a fall at all, or under noise, not within the interval of its change either.

    Guarantee: a calibrator that lowers neither expected loss is recommended with probability at most 1 - level, as far
    as the two intervals keep their level. With fewer than 10 held-out rows that the model has right, or 10 that it has
    wrong, they do not, and nothing is recommended. Under noise the losses are those with bounded changes.
    """
    log, accuracy, private = differences["log_loss"], differences["accuracy"], paired.noise.variance > 0
    if log.interval is None or accuracy.value is None or accuracy.interval is None:
        return _no(f"{log.reason or accuracy.reason}{'; ' + _MORE if private else ''}")
    few = _too_few(paired)
    if few:
        return _no(few)
    falls = f"on held-out rows the accuracy {_by(accuracy, percent=True)}"
    unclear = f"{falls}, so that a fall of more than 1 % cannot be ruled out{_why(accuracy)}"
    if accuracy.value < -LARGEST_FALL:
        drowned = private and accuracy.interval[1] > -LARGEST_FALL
        return _no(unclear if drowned else f"{falls}, an estimated fall of more than 1 %")
    losses = {name: differences[name] for name in _WORDS}
    for name, metric in losses.items():
        if metric.interval is not None and metric.interval[0] > 0:
            return _no(f"on held-out rows the {_WORDS[name]} {_by(metric)}, which is worse")
    if not any(metric.interval is not None and metric.interval[1] < 0 for metric in losses.values()):
        return _no(f"on held-out rows the {_changes(losses)}, no improvement beyond the intervals{_why(log)}")
    if accuracy.interval[0] < -LARGEST_FALL and (private or accuracy.value < 0):
        return _no(unclear)
    if not private and log.value is not None and log.value > 0:
        return _no(
            f"on held-out rows the {_changes(losses)}: a few rows lose a lot, which the Brier score hardly sees"
        )
    also = ORDER_KEPT if "note" in accuracy.details else f"the accuracy {_by(accuracy, percent=True)}"
    return Verdict(recommended=True, reason=f"Recommended: on held-out rows the {_changes(losses)}; {also}.")


def _no(reason: str) -> Verdict:
    return Verdict(recommended=False, reason=f"Not recommended: {reason}.")


def _too_few(paired: Paired) -> str:
    """Which rows there are too few of, if so; noise has the benefit of two standard deviations."""
    counts = {"right": paired.rows - paired.wrong, "wrong": paired.wrong}
    slack = _CLEAR * math.sqrt(paired.variance(paired.totals.wrong) + paired.variance(paired.totals.rows))
    for name, count in counts.items():
        if count + slack < FEWEST_ROWS:
            return (
                f"not enough evidence, the model has {max(0.0, count):.0f} of {paired.rows:.0f} held-out rows {name}, "
                f"and {FEWEST_ROWS} are needed to judge; hold out more rows"
            )
    return ""


def _why(metric: Metric) -> str:
    """What most of the uncertainty is, and what would help."""
    if (metric.privacy or 0.0) > (metric.sampling or 0.0):
        return f"; most of the uncertainty is privacy noise, {_MORE}"
    return "; more held-out rows would tell more"


def _changes(losses: Mapping[str, Metric]) -> str:
    return " and the ".join(f"{_WORDS[name]} {_by(metric)}" for name, metric in losses.items())


def _by(metric: Metric, *, percent: bool = False) -> str:
    assert metric.value is not None
    assert metric.interval is not None
    shown = [
        f"{100 * number:+.2g} %" if percent else f"{number:+.2g}"
        for number in (metric.value, *metric.interval)
    ]
    return f"changes by {shown[0]} ({metric.level:.0%} interval {shown[1]} to {shown[2]})"
