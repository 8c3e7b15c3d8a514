"""Net benefit of deciding by the model."""

from __future__ import annotations

import math

from fedassay.cards import Named
from fedassay.metrics import MetricRecord

NET_BENEFIT = MetricRecord(
    name="net_benefit",
    title="net benefit",
    sentence="true positives less false ones at the threshold's odds, per row",
    order=70,
    parts=("threshold", "operating-point"),
    range=(-math.inf, 1.0),
    estimate=Named("fedassay.estimation.confusion:net_benefit"),
)
