"""Log loss: the mean negative log-likelihood of the true class."""

from __future__ import annotations

import math

from fedassay.cards import Named
from fedassay.metrics import MetricRecord

LOG_LOSS = MetricRecord(
    name="log_loss",
    title="log loss",
    sentence="the mean negative log-likelihood of the true class",
    order=30,
    parts=("rows",),
    range=(0.0, math.inf),
    target=0.05,
    estimate=Named("fedassay.tasks.evaluation.class_evidence:log_loss"),
)
