"""Accuracy: the share of rows that are decided rightly."""

from __future__ import annotations

from fedassay.estimation.shares import ROWS, Ratio
from fedassay.metrics import MetricRecord

ACCURACY = MetricRecord(
    name="accuracy",
    title="accuracy",
    sentence="the share of the rows that are called what they are",
    order=20,
    parts=("threshold",),
    target=0.02,
    range=(0.0, 1.0),
    estimate=Ratio(numerator=(1, 0, 0, 1), denominator=ROWS, counted="rows"),
)
