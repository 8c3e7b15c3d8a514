"""ROC AUC: how well scores rank positive rows above negative ones."""

from __future__ import annotations

from fedassay.cards import Named
from fedassay.metrics import MetricRecord

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
