"""Expected calibration error over equi-depth buckets."""

from __future__ import annotations

from fedassay.cards import Named
from fedassay.metrics import MetricRecord

EXPECTED_CALIBRATION_ERROR = MetricRecord(
    name="expected_calibration_error",
    title="calibration error (ECE, equi-depth)",
    short="ECE",
    sentence="the mean distance of frequencies from scores, over buckets with equally many rows",
    order=240,
    parts=("rows",),
    range=(0.0, 1.0),
    target=0.02,
    bucketed=True,
    estimate=Named("fedassay.estimation.calibration_error:expected_calibration_error"),
    expected=Named("fedassay.estimation.calibration_error:expected_error_of_calibrated"),
)
