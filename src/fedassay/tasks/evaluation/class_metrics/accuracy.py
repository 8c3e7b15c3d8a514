"""Accuracy: the share of rows whose most probable class is the true one."""

from __future__ import annotations

from fedassay.cards import Named
from fedassay.metrics import MetricRecord

ACCURACY = MetricRecord(
    name="accuracy",
    title="accuracy",
    sentence="the share of the rows whose most probable class is the true one",
    order=10,
    parts=("rows",),
    range=(0.0, 1.0),
    target=0.02,
    headline=True,
    estimate=Named("fedassay.tasks.evaluation.class_evidence:accuracy"),
)
