"""ROC AUC: the mean over classes of how well each is ranked above the rest."""

from __future__ import annotations

from fedassay.cards import Named
from fedassay.metrics import MetricRecord

ROC_AUC = MetricRecord(
    name="roc_auc",
    title="AUC (mean of classes)",
    sentence="the mean over classes of their AUC, each against the rest",
    order=20,
    parts=("rows",),
    range=(0.0, 1.0),
    target=0.02,
    headline=True,
    estimate=Named("fedassay.tasks.evaluation.class_ranking:mean_auc"),
)
