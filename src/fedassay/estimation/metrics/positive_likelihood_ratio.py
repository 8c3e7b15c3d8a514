"""Positive likelihood ratio: by how much a positive decision raises the odds of a positive label."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fedassay.estimation.metric import LEVEL, Metric, estimator
from fedassay.estimation.shares import FALSE_POSITIVE_RATE, TRUE_POSITIVE_RATE
from fedassay.metrics import MetricRecord

if TYPE_CHECKING:
    from fedassay.estimation.confusion import Confusion


@estimator
def positive_likelihood_ratio(confusion: Confusion, *, level: float = LEVEL) -> Metric:
    """(TP/P)/(FP/N), with an interval from those of both shares (`intervals.quotient`)."""
    counted = "negative rows predicted positive"
    return confusion.quotient(TRUE_POSITIVE_RATE, FALSE_POSITIVE_RATE, counted=counted, level=level)


POSITIVE_LIKELIHOOD_RATIO = MetricRecord(
    name="positive_likelihood_ratio",
    title="positive likelihood ratio",
    short="LR+",
    sentence="the factor by which being called positive raises the odds of being positive",
    order=110,
    parts=("threshold",),
    range=(0.0, math.inf),
    estimate=positive_likelihood_ratio,
)
