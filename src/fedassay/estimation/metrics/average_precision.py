"""Average precision: the precision, averaged over the recalls."""

from __future__ import annotations

from fedassay.cards import Named
from fedassay.metrics import MetricRecord

AVERAGE_PRECISION = MetricRecord(
    name="average_precision",
    title="average precision",
    sentence="the precision, averaged over the recalls that thresholds give",
    order=200,
    parts=("rows",),
    range=(0.0, 1.0),
    headline=True,
    estimate=Named("fedassay.estimation.ranking:average_precision"),
)
