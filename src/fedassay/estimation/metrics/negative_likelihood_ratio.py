"""Negative likelihood ratio: by how much a negative decision lowers the odds of a positive label."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fedassay.estimation.metric import LEVEL, Metric, estimator
from fedassay.estimation.shares import FALSE_NEGATIVE_RATE, TRUE_NEGATIVE_RATE
from fedassay.metrics import MetricRecord

if TYPE_CHECKING:
    from fedassay.estimation.confusion import Confusion


@estimator
def negative_likelihood_ratio(confusion: Confusion, *, level: float = LEVEL) -> Metric:
    """(FN/P)/(TN/N), with an interval from those of both shares (`intervals.quotient`)."""
    counted = "negative rows predicted negative"
    return confusion.quotient(FALSE_NEGATIVE_RATE, TRUE_NEGATIVE_RATE, counted=counted, level=level)


NEGATIVE_LIKELIHOOD_RATIO = MetricRecord(
    name="negative_likelihood_ratio",
    title="negative likelihood ratio",
    short="LR-",
    sentence="the factor by which being called negative lowers the odds of being positive",
    order=120,
    parts=("threshold",),
    range=(0.0, math.inf),
    estimate=negative_likelihood_ratio,
)
