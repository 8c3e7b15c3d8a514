"""Metrics of a classifier with several classes: pure functions of a `ClassEvidence`."""

from __future__ import annotations

import math

from fedassay.protocol.cards import Named
from fedassay.protocol.metrics import MetricRecord

ACCURACY = MetricRecord(
    name="accuracy",
    title="accuracy",
    sentence="the share of the rows whose most probable class is the true one",
    order=10,
    parts=("rows",),
    range=(0.0, 1.0),
    target=0.02,
    headline=True,
    estimate=Named("fedassay.tasks.evaluation.class_evidence:accuracy"),
)


# --- brier score --------------------------------------------------------------------------------------------

BRIER_SCORE = MetricRecord(
    name="brier_score",
    title="Brier score (0 to 2)",
    sentence="the mean squared distance of probabilities from the true class",
    order=40,
    parts=("rows",),
    range=(0.0, 2.0),
    target=0.01,
    estimate=Named("fedassay.tasks.evaluation.class_evidence:brier_score"),
)


# --- classwise calibration error ----------------------------------------------------------------------------

CLASSWISE_CALIBRATION_ERROR = MetricRecord(
    name="classwise_calibration_error",
    title="classwise calibration error",
    sentence="the mean over classes of their calibration errors; every class counts alike",
    order=60,
    parts=("rows",),
    short="classwise ECE",
    range=(0.0, 1.0),
    estimate=Named("fedassay.tasks.evaluation.class_evidence:classwise_calibration_error"),
)


# --- expected calibration error of the most probable class --------------------------------------------------

EXPECTED_CALIBRATION_ERROR = MetricRecord(
    name="expected_calibration_error",
    title="expected calibration error (ECE, top label)",
    sentence="the mean distance of the confidence in the most probable class from how often it is right",
    order=50,
    parts=("rows",),
    short="ECE",
    range=(0.0, 1.0),
    target=0.02,
    headline=True,
    estimate=Named("fedassay.tasks.evaluation.class_evidence:expected_calibration_error"),
)


# --- log loss -----------------------------------------------------------------------------------------------

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


# --- rOC AUC ------------------------------------------------------------------------------------------------

ROC_AUC = MetricRecord(
    name="roc_auc",
    title="AUC (mean of classes)",
    sentence="the mean over classes of their AUC, each against the rest",
    order=20,
    parts=("rows",),
    range=(0.0, 1.0),
    target=0.02,
    headline=True,
    estimate=Named("fedassay.tasks.evaluation.multiclass:mean_auc"),
)
