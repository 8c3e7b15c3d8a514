"""Precision: of the rows predicted positive, the share that is."""

from __future__ import annotations

from fedassay.estimation.shares import Ratio
from fedassay.metrics import MetricRecord

PRECISION = MetricRecord(
    name="precision",
    title="precision",
    sentence="of the rows called positive, the share that is",
    order=30,
    parts=("threshold", "operating-point"),
    target=0.05,
    range=(0.0, 1.0),
    estimate=Ratio(numerator=(1, 0, 0, 0), denominator=(1, 0, 1, 0), counted="rows predicted positive"),
)
