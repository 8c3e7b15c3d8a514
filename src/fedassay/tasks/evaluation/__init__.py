"""Evaluation of binary classifiers: one released score histogram, every standard metric with its interval."""

from __future__ import annotations

from fedassay.tasks.evaluation.evaluate import Evaluate
from fedassay.tasks.evaluation.metric import Metric
from fedassay.tasks.evaluation.sites import with_site_names
from fedassay.tasks.evaluation.stored import metrics_at

__all__ = ["Evaluate", "Metric", "metrics_at", "with_site_names"]
