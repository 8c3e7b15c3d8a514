"""Brier score: the mean squared distance of probabilities from the true class."""

from __future__ import annotations

from fedassay.cards import Named
from fedassay.metrics import MetricRecord

BRIER_SCORE = MetricRecord(
    name="brier_score",
    title="Brier score (0 to 2)",
    sentence="the mean squared distance of probabilities from the true class",
    order=40,
    parts=("rows",),
    range=(0.0, 2.0),
    target=0.01,
    estimate=Named("fedassay.tasks.evaluation.class_evidence:brier_score"),
)
