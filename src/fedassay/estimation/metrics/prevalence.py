"""Prevalence: the share of positive rows."""

from __future__ import annotations

from fedassay.cards import Named
from fedassay.metrics import MetricRecord

PREVALENCE = MetricRecord(
    name="prevalence",
    title="prevalence",
    sentence="the share of the rows that are positive",
    order=210,
    parts=("rows",),
    range=(0.0, 1.0),
    estimate=Named("fedassay.estimation.ratios:prevalence"),
)
