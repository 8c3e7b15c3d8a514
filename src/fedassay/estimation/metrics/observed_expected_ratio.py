"""Observed over expected: positive rows over the sum of the scores."""

from __future__ import annotations

import math

from fedassay.cards import Named
from fedassay.metrics import MetricRecord

OBSERVED_EXPECTED_RATIO = MetricRecord(
    name="observed_expected_ratio",
    title="observed / expected",
    sentence="positive rows over the sum of the scores; 1 for a model that is calibrated in the large",
    order=280,
    parts=("rows",),
    range=(0.0, math.inf),
    scale="log",
    forest=True,
    estimate=Named("fedassay.estimation.ratios:observed_expected_ratio"),
)
