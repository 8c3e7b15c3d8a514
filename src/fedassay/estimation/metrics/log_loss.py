"""Log loss: the mean negative log-likelihood of the labels."""

from __future__ import annotations

import math

from fedassay.cards import Named
from fedassay.metrics import MetricRecord

LOG_LOSS = MetricRecord(
    name="log_loss",
    title="log loss",
    sentence="the mean negative log-likelihood of the labels",
    order=230,
    parts=("rows",),
    range=(0.0, math.inf),
    target=0.05,
    estimate=Named("fedassay.estimation.ratios:log_loss"),
)
