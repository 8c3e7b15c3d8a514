"""Negative predictive value: of the rows predicted negative, the share that is negative."""

from __future__ import annotations

from fedassay.estimation.shares import Ratio
from fedassay.metrics import MetricRecord

NEGATIVE_PREDICTIVE_VALUE = MetricRecord(
    name="negative_predictive_value",
    title="negative predictive value",
    short="NPV",
    sentence="of the rows called negative, the share that is",
    order=100,
    parts=("threshold",),
    range=(0.0, 1.0),
    target=0.05,
    estimate=Ratio(numerator=(0, 0, 0, 1), denominator=(0, 1, 0, 1), counted="rows predicted negative"),
)
