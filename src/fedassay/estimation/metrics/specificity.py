"""Specificity: of the negative rows, the share that is not flagged."""

from __future__ import annotations

from fedassay.estimation.shares import TRUE_NEGATIVE_RATE
from fedassay.metrics import MetricRecord

SPECIFICITY = MetricRecord(
    name="specificity",
    title="specificity",
    sentence="of the negative rows, the share that is not flagged",
    order=50,
    parts=("threshold", "operating-point"),
    target=0.05,
    range=(0.0, 1.0),
    estimate=TRUE_NEGATIVE_RATE,
)
