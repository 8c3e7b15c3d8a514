"""Metrics of decisions at a threshold, from the four counts of the confusion matrix."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fedassay.estimation.metric import LEVEL, Metric, estimator
from fedassay.estimation.shares import (
    FALSE_NEGATIVE_RATE,
    FALSE_POSITIVE_RATE,
    ROWS,
    TRUE_NEGATIVE_RATE,
    TRUE_POSITIVE_RATE,
    Ratio,
)
from fedassay.protocol.cards import Named
from fedassay.protocol.metrics import MetricRecord

if TYPE_CHECKING:
    from fedassay.estimation.confusion import Confusion

PRECISION = MetricRecord(
    name="precision",
    title="precision",
    sentence="of the rows called positive, the share that is",
    order=30,
    parts=("threshold", "operating-point"),
    target=0.05,
    range=(0.0, 1.0),
    estimate=Ratio(numerator=(1, 0, 0, 0), denominator=(1, 0, 1, 0), counted="rows predicted positive"),
)


# --- recall -------------------------------------------------------------------------------------------------

RECALL = MetricRecord(
    name="recall",
    title="recall (sensitivity)",
    short="recall (sens.)",
    sentence="of the positive rows, the share that is found",
    order=40,
    parts=("threshold", "operating-point"),
    target=0.05,
    range=(0.0, 1.0),
    estimate=TRUE_POSITIVE_RATE,
)


# --- specificity --------------------------------------------------------------------------------------------

SPECIFICITY = MetricRecord(
    name="specificity",
    title="specificity",
    sentence="of the negative rows, the share that is not flagged",
    order=50,
    parts=("threshold", "operating-point"),
    target=0.05,
    range=(0.0, 1.0),
    estimate=TRUE_NEGATIVE_RATE,
)


# --- negative predictive value ------------------------------------------------------------------------------

NEGATIVE_PREDICTIVE_VALUE = MetricRecord(
    name="negative_predictive_value",
    title="negative predictive value",
    short="NPV",
    sentence="of the rows called negative, the share that is",
    order=100,
    parts=("threshold",),
    range=(0.0, 1.0),
    target=0.05,
    estimate=Ratio(numerator=(0, 0, 0, 1), denominator=(0, 1, 0, 1), counted="rows predicted negative"),
)


# --- accuracy -----------------------------------------------------------------------------------------------

ACCURACY = MetricRecord(
    name="accuracy",
    title="accuracy",
    sentence="the share of the rows that are called what they are",
    order=20,
    parts=("threshold",),
    target=0.02,
    range=(0.0, 1.0),
    estimate=Ratio(numerator=(1, 0, 0, 1), denominator=ROWS, counted="rows"),
)


# --- balanced accuracy --------------------------------------------------------------------------------------


@estimator
def balanced_accuracy(confusion: Confusion, *, level: float = LEVEL) -> Metric:
    """Estimate (TP/P + TN/N)/2, with an interval from those of recall and specificity.

    Edge case: no value without rows of both classes, where scikit-learn averages over the classes that are there.
    """
    return confusion.mean(TRUE_POSITIVE_RATE, TRUE_NEGATIVE_RATE, level=level)


BALANCED_ACCURACY = MetricRecord(
    name="balanced_accuracy",
    title="balanced accuracy",
    short="balanced acc.",
    sentence="the mean of recall and specificity, so that both classes count the same",
    order=80,
    parts=("threshold",),
    range=(0.0, 1.0),
    target=0.02,
    estimate=balanced_accuracy,
)


# --- f1 -----------------------------------------------------------------------------------------------------

F1 = MetricRecord(
    name="f1",
    title="F1",
    sentence="the harmonic mean of precision and recall",
    order=60,
    parts=("threshold",),
    target=0.05,
    range=(0.0, 1.0),
    estimate=Ratio(
        numerator=(2, 0, 0, 0), denominator=(2, 1, 1, 0), counted="rows positive or predicted positive"
    ),
)


# --- matthews correlation coefficient -----------------------------------------------------------------------

ENDS = (-1.0, 1.0)


@estimator
def matthews_corrcoef(confusion: Confusion, *, level: float = LEVEL) -> Metric:
    """Estimate (TP·TN - FP·FN)/√((TP+FP)(TP+FN)(TN+FP)(TN+FN)), the φ coefficient of the 2×2 table (Matthews 1975).

    The interval is Wilson's, stretched to [-1, 1]. Where hardly a row is predicted positive it is too short: with three
    such rows on average, 95 % intervals cover 86 %; with a dozen, 94 %.

    Edge case: no value where all rows are of one class or all decisions are the same; scikit-learn returns 0 there.
    """
    positives = confusion.require("positive rows", (1, 1, 0, 0))
    negatives = confusion.require("negative rows", (0, 0, 1, 1))
    flagged = confusion.require("rows predicted positive", (1, 0, 1, 0))
    others = confusion.require("rows predicted negative", (0, 1, 0, 1))
    TP, FN, FP, TN = (float(count) for count in confusion.counts)
    scale = math.sqrt(positives) * math.sqrt(negatives) * math.sqrt(flagged) * math.sqrt(others)
    value = (TP * TN - FP * FN) / scale
    # d log of each factor of the scale is half of one over it, for the counts in it.
    of_P, of_N, of_flagged, of_others = (value / (2 * one) for one in (positives, negatives, flagged, others))
    return confusion.within(
        value,
        (
            TN / scale - of_P - of_flagged,
            -FP / scale - of_P - of_others,
            -FN / scale - of_N - of_flagged,
            TP / scale - of_N - of_others,
        ),
        ends=ENDS,
        size=min(positives, negatives, flagged, others),
        level=level,
    )


MATTHEWS_CORRCOEF = MetricRecord(
    name="matthews_corrcoef",
    title="Matthews correlation",
    short="MCC",
    sentence="the correlation of decisions and labels; 0 for decisions that know nothing of the label",
    order=90,
    parts=("threshold",),
    range=ENDS,
    target=0.05,
    estimate=matthews_corrcoef,
)


# --- positive likelihood ratio ------------------------------------------------------------------------------


@estimator
def positive_likelihood_ratio(confusion: Confusion, *, level: float = LEVEL) -> Metric:
    """Estimate (TP/P)/(FP/N), with an interval from those of both shares (`intervals.quotient`)."""
    counted = "negative rows predicted positive"
    return confusion.quotient(TRUE_POSITIVE_RATE, FALSE_POSITIVE_RATE, counted=counted, level=level)


POSITIVE_LIKELIHOOD_RATIO = MetricRecord(
    name="positive_likelihood_ratio",
    title="positive likelihood ratio",
    short="LR+",
    sentence="the factor by which being called positive raises the odds of being positive",
    order=110,
    parts=("threshold",),
    range=(0.0, math.inf),
    estimate=positive_likelihood_ratio,
)


# --- negative likelihood ratio ------------------------------------------------------------------------------


@estimator
def negative_likelihood_ratio(confusion: Confusion, *, level: float = LEVEL) -> Metric:
    """Estimate (FN/P)/(TN/N), with an interval from those of both shares (`intervals.quotient`)."""
    counted = "negative rows predicted negative"
    return confusion.quotient(FALSE_NEGATIVE_RATE, TRUE_NEGATIVE_RATE, counted=counted, level=level)


NEGATIVE_LIKELIHOOD_RATIO = MetricRecord(
    name="negative_likelihood_ratio",
    title="negative likelihood ratio",
    short="LR-",
    sentence="the factor by which being called negative lowers the odds of being positive",
    order=120,
    parts=("threshold",),
    range=(0.0, math.inf),
    estimate=negative_likelihood_ratio,
)


# --- predicted positives ------------------------------------------------------------------------------------

PREDICTED_POSITIVES = MetricRecord(
    name="predicted_positives",
    title="predicted positives",
    sentence="the share of all rows at or above the threshold",
    order=190,
    parts=("operating-point",),
    range=(0.0, 1.0),
    estimate=Ratio(numerator=(1, 0, 1, 0), denominator=ROWS, counted="rows"),
)


# --- net benefit of deciding by the model -------------------------------------------------------------------

NET_BENEFIT = MetricRecord(
    name="net_benefit",
    title="net benefit",
    sentence="true positives less false ones at the threshold's odds, per row",
    order=70,
    parts=("threshold", "operating-point"),
    range=(-math.inf, 1.0),
    estimate=Named("fedassay.estimation.confusion:net_benefit"),
)
