"""Predicted positives: how many rows would be acted upon."""

from __future__ import annotations

from fedassay.estimation.shares import ROWS, Ratio
from fedassay.metrics import MetricRecord

PREDICTED_POSITIVES = MetricRecord(
    name="predicted_positives",
    title="predicted positives",
    sentence="the share of all rows at or above the threshold",
    order=190,
    parts=("operating-point",),
    range=(0.0, 1.0),
    estimate=Ratio(numerator=(1, 0, 1, 0), denominator=ROWS, counted="rows"),
)
