"""Metrics that are a ratio of two sums over rows: prevalence, observed/expected, Brier score, log loss."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from fedassay.estimation.evidence import Evidence
from fedassay.estimation.intervals import Estimate, bounded, positive, unbounded
from fedassay.estimation.metric import LEVEL, Metric, Undefined, estimator
from fedassay.protocol.arrays import Floats

EPSILON = float(np.finfo(np.float64).eps)
"""Where scikit-learn's log loss clips probabilities."""

CLEAR = 2.0
"""A log loss is reported if it is at least this many privacy standard errors above zero."""


@estimator
def prevalence(evidence: Evidence, *, level: float = LEVEL) -> Metric:
    """The share of positive rows. Exact up to sampling and noise: bins do not matter."""
    n = evidence.require_rows()
    v = evidence.positive_rows / n
    ones = np.ones(evidence.leaves)
    return bounded(evidence.estimate(v, (1 - v) / n * ones, -v / n * ones), size=n, level=level)


@estimator
def observed_expected_ratio(evidence: Evidence, *, level: float = LEVEL) -> Metric:
    """Positive rows over the sum of scores; 1 for a model that is calibrated in the large.

    Edge case: without a positive row the value is 0, and the upper end is what the rows allow for the
    prevalence.
    """
    n = evidence.require_rows()
    s = evidence.scores
    expected = evidence.total(s, s)
    expected = evidence.require("expected positive rows", expected, evidence.privacy_variance(s, s))
    v = evidence.positive_rows / expected
    spread = evidence.total(evidence.half_widths, evidence.half_widths)
    discretisation = max(0.0, v * spread / max(expected - spread, EPSILON))
    result = evidence.estimate(v, (1 - v * s) / expected, -v * s / expected, discretisation=discretisation)
    if evidence.exact and v == 0:
        most = bounded(Estimate(value=0, sampling_variance=0, privacy_variance=0), size=n, level=level)
        assert most.interval is not None
        return result.metric(0.0, (0.0, most.interval[1] * n / expected), level=level)
    return positive(result, level=level)


@estimator
def brier_score(evidence: Evidence, *, level: float = LEVEL) -> Metric:
    """The mean of (score - label)², each row counted at the midpoint of its bin."""
    n = evidence.require_rows()
    estimate = _mean_loss(evidence, lambda s: (1 - s) ** 2, lambda s: s**2)
    return bounded(estimate, size=n, level=level)


@estimator
def log_loss(evidence: Evidence, *, level: float = LEVEL) -> Metric:
    """The mean negative log-likelihood, with scores clipped as scikit-learn clips them.

    A single row can weigh up to 36, so privacy noise in the outermost bins weighs as much: a few thousand
    rows are needed at ε = 1. Below that the answer is "not enough evidence".
    """
    evidence.require_rows()
    estimate = _mean_loss(
        evidence,
        lambda s: -np.log(np.clip(s, EPSILON, 1 - EPSILON)),
        lambda s: -np.log1p(-np.clip(s, EPSILON, 1 - EPSILON)),
    )
    if estimate.value < CLEAR * math.sqrt(estimate.privacy_variance):
        raise Undefined(
            f"not enough evidence: the estimate {estimate.value:.2g} is below {CLEAR:.0f} standard "
            f"deviations of the privacy noise ({math.sqrt(estimate.privacy_variance):.2g})"
        )
    return unbounded(estimate, level=level, lowest=0.0)


def _mean_loss(
    evidence: Evidence, of_positive: Callable[[Floats], Floats], of_negative: Callable[[Floats], Floats]
) -> Estimate:
    """The mean over rows of a loss that is monotone in the score, with the bound from the bins' edges."""
    n, (lower, upper) = evidence.rows, evidence.ends
    losses, spreads = [], []
    for loss in (of_positive, of_negative):
        here = loss(evidence.scores)
        losses.append(here)
        spreads.append(np.maximum(np.abs(loss(upper) - here), np.abs(loss(lower) - here)))
    v = evidence.total(losses[0], losses[1]) / n
    # Linear in the counts, so unbiased under noise; a negative total says that the bound drowns in it.
    bound = max(0.0, evidence.total(spreads[0], spreads[1]) / n)
    return evidence.estimate(v, (losses[0] - v) / n, (losses[1] - v) / n, discretisation=bound)
