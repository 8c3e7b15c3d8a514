"""Brier score: the mean squared distance of scores from labels."""

from __future__ import annotations

from fedassay.cards import Named
from fedassay.metrics import MetricRecord

BRIER_SCORE = MetricRecord(
    name="brier_score",
    title="Brier score",
    short="Brier",
    sentence="the mean squared distance of scores from labels",
    order=220,
    parts=("rows",),
    range=(0.0, 1.0),
    target=0.01,
    scale="identity",
    estimate=Named("fedassay.estimation.ratios:brier_score"),
)
