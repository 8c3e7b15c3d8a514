"""Metrics over all rows: how well scores rank, how well calibrated they are, and proper losses."""

from __future__ import annotations

import math

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


# --- Brier score --------------------------------------------------------------------------------------------

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


# --- prevalence ---------------------------------------------------------------------------------------------

PREVALENCE = MetricRecord(
    name="prevalence",
    title="prevalence",
    sentence="the share of the rows that are positive",
    order=210,
    parts=("rows",),
    range=(0.0, 1.0),
    estimate=Named("fedassay.estimation.ratios:prevalence"),
)


# --- observed over expected ---------------------------------------------------------------------------------

OBSERVED_EXPECTED_RATIO = MetricRecord(
    name="observed_expected_ratio",
    title="observed / expected",
    sentence="positive rows over the sum of the scores; 1 for a model that is calibrated in the large",
    order=280,
    parts=("rows",),
    range=(0.0, math.inf),
    scale="log",
    forest=True,
    estimate=Named("fedassay.estimation.ratios:observed_expected_ratio"),
)


# --- calibration intercept ----------------------------------------------------------------------------------

CALIBRATION_INTERCEPT = MetricRecord(
    name="calibration_intercept",
    title="calibration intercept",
    short="cal. intercept",
    sentence="by how much the logits of the scores are too low in all; 0 for a calibrated model",
    order=260,
    parts=("rows",),
    target=0.2,
    scale="identity",
    estimate=Named("fedassay.estimation.recalibration:calibration_intercept"),
)


# --- calibration slope --------------------------------------------------------------------------------------

CALIBRATION_SLOPE = MetricRecord(
    name="calibration_slope",
    title="calibration slope",
    short="cal. slope",
    sentence="the slope of labels on the logits of scores; 1 for a calibrated model, less if scores are too extreme",
    order=270,
    parts=("rows",),
    target=0.2,
    scale="identity",
    headline=True,
    forest=True,
    estimate=Named("fedassay.estimation.recalibration:calibration_slope"),
)


# --- expected calibration error over equi-depth buckets -----------------------------------------------------

EXPECTED_CALIBRATION_ERROR = MetricRecord(
    name="expected_calibration_error",
    title="calibration error (ECE, equi-depth)",
    short="ECE",
    sentence="the mean distance of frequencies from scores, over buckets with equally many rows",
    order=240,
    parts=("rows",),
    range=(0.0, 1.0),
    target=0.02,
    bucketed=True,
    estimate=Named("fedassay.estimation.calibration_error:expected_calibration_error"),
    expected=Named("fedassay.estimation.calibration_error:expected_error_of_calibrated"),
)


# --- expected calibration error over buckets of equal width -------------------------------------------------

EXPECTED_CALIBRATION_ERROR_UNIFORM = MetricRecord(
    name="expected_calibration_error_uniform",
    title="calibration error (ECE, uniform)",
    short="ECE, uniform",
    sentence="the mean distance of frequencies from scores, over buckets of equal width",
    order=250,
    parts=("rows",),
    range=(0.0, 1.0),
    bucketed=True,
    estimate=Named("fedassay.estimation.calibration_error:expected_calibration_error_uniform"),
)


# --- the Hosmer-Lemeshow test of calibration ----------------------------------------------------------------

HOSMER_LEMESHOW = MetricRecord(
    name="hosmer_lemeshow",
    title="Hosmer-Lemeshow",
    sentence="a chi-squared test of whether scores are probabilities",
    order=290,
    parts=("rows",),
    range=(0.0, math.inf),
    test=True,
    estimate=Named("fedassay.estimation.calibration_error:hosmer_lemeshow"),
)
