"""F1: the harmonic mean of precision and recall."""

from __future__ import annotations

from fedassay.estimation.shares import Ratio
from fedassay.metrics import MetricRecord

F1 = MetricRecord(
    name="f1",
    title="F1",
    sentence="the harmonic mean of precision and recall",
    order=60,
    parts=("threshold",),
    target=0.05,
    range=(0.0, 1.0),
    estimate=Ratio(
        numerator=(2, 0, 0, 0), denominator=(2, 1, 1, 0), counted="rows positive or predicted positive"
    ),
)
