"""Metrics of a classifier with several classes: pure functions of a `ClassEvidence`, over all rows."""

from __future__ import annotations

import math
from typing import Any

from fedassay.protocol.cards import Named
from fedassay.protocol.metrics import MetricRecord


def _record(name: str, **more: Any) -> MetricRecord:
    """Make the record of the estimator of this name."""
    place: Named[Any] = Named(f"fedassay.tasks.evaluation.class_evidence:{name}")
    return MetricRecord(name=name, parts=("rows",), estimate=place, **more)


ACCURACY = _record(
    "accuracy",
    title="accuracy",
    sentence="the share of the rows whose most probable class is the true one",
    order=10,
    range=(0.0, 1.0),
    target=0.02,
    headline=True,
)
ROC_AUC = _record(
    "roc_auc",
    title="AUC (mean of classes)",
    sentence="the mean over classes of their AUC, each against the rest",
    order=20,
    range=(0.0, 1.0),
    target=0.02,
    headline=True,
)
LOG_LOSS = _record(
    "log_loss",
    title="log loss",
    sentence="the mean negative log-likelihood of the true class",
    order=30,
    range=(0.0, math.inf),
    target=0.05,
)
BRIER_SCORE = _record(
    "brier_score",
    title="Brier score (0 to 2)",
    sentence="the mean squared distance of probabilities from the true class",
    order=40,
    range=(0.0, 2.0),
    target=0.01,
)
EXPECTED_CALIBRATION_ERROR = _record(
    "expected_calibration_error",
    title="expected calibration error (ECE, top label)",
    sentence="the mean distance of the confidence in the most probable class from how often it is right",
    order=50,
    short="ECE",
    range=(0.0, 1.0),
    target=0.02,
    headline=True,
)
CLASSWISE_CALIBRATION_ERROR = _record(
    "classwise_calibration_error",
    title="classwise calibration error",
    sentence="the mean over classes of their calibration errors; every class counts alike",
    order=60,
    short="classwise ECE",
    range=(0.0, 1.0),
)
