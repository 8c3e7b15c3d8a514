"""Classwise calibration error: the mean over classes of their calibration errors."""

from __future__ import annotations

from fedassay.cards import Named
from fedassay.metrics import MetricRecord

CLASSWISE_CALIBRATION_ERROR = MetricRecord(
    name="classwise_calibration_error",
    title="classwise calibration error",
    sentence="the mean over classes of their calibration errors; every class counts alike",
    order=60,
    parts=("rows",),
    short="classwise ECE",
    range=(0.0, 1.0),
    estimate=Named("fedassay.tasks.evaluation.class_evidence:classwise_calibration_error"),
)
