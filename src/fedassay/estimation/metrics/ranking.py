"""Metrics of ranking: how well scores order positive rows above negative ones."""

from __future__ import annotations

from fedassay.protocol.cards import Named
from fedassay.protocol.metrics import MetricRecord

ROC_AUC = MetricRecord(
    name="roc_auc",
    title="ROC AUC",
    short="AUC",
    sentence="the probability that a positive row has a higher score than a negative one",
    order=10,
    parts=("rows",),
    range=(0.0, 1.0),
    target=0.02,
    scale="logit",
    headline=True,
    forest=True,
    estimate=Named("fedassay.estimation.ranking:roc_auc"),
    expected=Named("fedassay.estimation.ranking:expected_roc_auc"),
)


# --- average precision --------------------------------------------------------------------------------------

AVERAGE_PRECISION = MetricRecord(
    name="average_precision",
    title="average precision",
    sentence="the precision, averaged over the recalls that thresholds give",
    order=200,
    parts=("rows",),
    range=(0.0, 1.0),
    headline=True,
    estimate=Named("fedassay.estimation.ranking:average_precision"),
)
