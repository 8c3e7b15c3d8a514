"""Expected calibration error of the most probable class."""

from __future__ import annotations

from fedassay.cards import Named
from fedassay.metrics import MetricRecord

EXPECTED_CALIBRATION_ERROR = MetricRecord(
    name="expected_calibration_error",
    title="expected calibration error (ECE, top label)",
    sentence="the mean distance of the confidence in the most probable class from how often it is right",
    order=50,
    parts=("rows",),
    short="ECE",
    range=(0.0, 1.0),
    target=0.02,
    headline=True,
    estimate=Named("fedassay.tasks.evaluation.class_evidence:expected_calibration_error"),
)
