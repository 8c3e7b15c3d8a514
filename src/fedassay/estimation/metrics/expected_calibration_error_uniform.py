"""Expected calibration error over buckets of equal width."""

from __future__ import annotations

from fedassay.cards import Named
from fedassay.metrics import MetricRecord

EXPECTED_CALIBRATION_ERROR_UNIFORM = MetricRecord(
    name="expected_calibration_error_uniform",
    title="calibration error (ECE, uniform)",
    short="ECE, uniform",
    sentence="the mean distance of frequencies from scores, over buckets of equal width",
    order=250,
    parts=("rows",),
    range=(0.0, 1.0),
    bucketed=True,
    estimate=Named("fedassay.estimation.calibration_error:expected_calibration_error_uniform"),
)
