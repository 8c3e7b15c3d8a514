"""Balanced accuracy: accuracy where both classes count the same, however rare one is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedassay.estimation.metric import LEVEL, Metric, estimator
from fedassay.estimation.shares import TRUE_NEGATIVE_RATE, TRUE_POSITIVE_RATE
from fedassay.metrics import MetricRecord

if TYPE_CHECKING:
    from fedassay.estimation.confusion import Confusion


@estimator
def balanced_accuracy(confusion: Confusion, *, level: float = LEVEL) -> Metric:
    """(TP/P + TN/N)/2, with an interval from those of recall and specificity.

    Edge case: no value without rows of both classes, where scikit-learn averages over the classes that are there.
    """
    return confusion.mean(TRUE_POSITIVE_RATE, TRUE_NEGATIVE_RATE, level=level)


BALANCED_ACCURACY = MetricRecord(
    name="balanced_accuracy",
    title="balanced accuracy",
    short="balanced acc.",
    sentence="the mean of recall and specificity, so that both classes count the same",
    order=80,
    parts=("threshold",),
    range=(0.0, 1.0),
    target=0.02,
    estimate=balanced_accuracy,
)
