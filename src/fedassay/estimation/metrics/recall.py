"""Recall: of the positive rows, the share that is found."""

from __future__ import annotations

from fedassay.estimation.shares import TRUE_POSITIVE_RATE
from fedassay.metrics import MetricRecord

RECALL = MetricRecord(
    name="recall",
    title="recall (sensitivity)",
    short="recall (sens.)",
    sentence="of the positive rows, the share that is found",
    order=40,
    parts=("threshold", "operating-point"),
    target=0.05,
    range=(0.0, 1.0),
    estimate=TRUE_POSITIVE_RATE,
)
