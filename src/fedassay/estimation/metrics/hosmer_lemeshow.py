"""The Hosmer-Lemeshow test of calibration."""

from __future__ import annotations

import math

from fedassay.cards import Named
from fedassay.metrics import MetricRecord

HOSMER_LEMESHOW = MetricRecord(
    name="hosmer_lemeshow",
    title="Hosmer-Lemeshow",
    sentence="a chi-squared test of whether scores are probabilities",
    order=290,
    parts=("rows",),
    range=(0.0, math.inf),
    test=True,
    estimate=Named("fedassay.estimation.calibration_error:hosmer_lemeshow"),
)
