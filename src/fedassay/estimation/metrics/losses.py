"""Proper losses: the Brier score and the log loss."""

from __future__ import annotations

import math

from fedassay.protocol.cards import Named
from fedassay.protocol.metrics import MetricRecord

BRIER_SCORE = MetricRecord(
    name="brier_score",
    title="Brier score",
    short="Brier",
    sentence="the mean squared distance of scores from labels",
    order=220,
    parts=("rows",),
    range=(0.0, 1.0),
    target=0.01,
    scale="identity",
    estimate=Named("fedassay.estimation.ratios:brier_score"),
)


# --- log loss -----------------------------------------------------------------------------------------------

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
