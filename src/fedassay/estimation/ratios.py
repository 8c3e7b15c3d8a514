"""Metrics that are a ratio of two sums over rows: prevalence, observed/expected, Brier score, log loss."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedassay.estimation.evidence import Evidence
from fedassay.estimation.intervals import Estimate, bounded, positive, unbounded
from fedassay.estimation.metric import LEVEL, Metric, Undefined, estimator
from fedassay.protocol.arrays import Floats

EPSILON = float(np.finfo(np.float64).eps)
"""Distance from 0 and 1 at which scikit-learn's log loss clips probabilities."""

CLEAR = 2.0
"""Least log loss that is reported, in privacy standard errors above zero."""


@estimator
def prevalence(evidence: Evidence, *, level: float = LEVEL) -> Metric:
    """Estimate the share of positive rows. Exact up to sampling and noise: bins do not matter."""
    n = evidence.require_rows()
    v = evidence.positive_rows / n
    ones = np.ones(evidence.leaves)
    return bounded(evidence.estimate(v, (1 - v) / n * ones, -v / n * ones), size=n, level=level)


@estimator
def observed_expected_ratio(evidence: Evidence, *, level: float = LEVEL) -> Metric:
    """Estimate positive rows over the sum of scores; 1 for a model that is calibrated in the large.

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


# --- losses -------------------------------------------------------------------------------------------------

Costs = tuple[Floats, Floats]
"""Costs of a positive and of a negative row, per leaf."""


@dataclass(frozen=True, kw_only=True)
class Loss:
    """Loss of a score for a positive and for a negative row; monotone in the score."""

    of_positive: Callable[[Floats], Floats]
    of_negative: Callable[[Floats], Floats]

    def of(self, scores: Floats) -> Costs:
        """Return both costs, per leaf."""
        return self.of_positive(scores), self.of_negative(scores)

    def mean(self, evidence: Evidence) -> Estimate:
        """Estimate the mean over rows."""
        lower, upper = evidence.ends
        return mean_cost(evidence, self.of(evidence.scores), (self.of(lower), self.of(upper)))


def mean_cost(evidence: Evidence, here: Costs, ends: tuple[Costs, Costs]) -> Estimate:
    """Estimate the mean over rows of a cost, with the bound from what it is at the ends of the leaves."""
    n = evidence.rows
    value = evidence.total(*here) / n
    spreads = (np.maximum(np.abs(ends[0][k] - here[k]), np.abs(ends[1][k] - here[k])) for k in (0, 1))
    # Linear in the counts, so unbiased under noise; a negative total shows that the bound drowns in it.
    bound = max(0.0, evidence.total(*spreads) / n)
    return evidence.estimate(value, (here[0] - value) / n, (here[1] - value) / n, discretisation=bound)


def _clipped(scores: Floats) -> Floats:
    return np.clip(scores, EPSILON, 1 - EPSILON)


BRIER = Loss(of_positive=lambda s: (1 - s) ** 2, of_negative=lambda s: s**2)
LOG = Loss(of_positive=lambda s: -np.log(_clipped(s)), of_negative=lambda s: -np.log1p(-_clipped(s)))


@estimator
def brier_score(evidence: Evidence, *, level: float = LEVEL) -> Metric:
    """Estimate the mean of (score - label)², each row counted at the midpoint of its bin."""
    n = evidence.require_rows()
    return bounded(BRIER.mean(evidence), size=n, level=level)


@estimator
def log_loss(evidence: Evidence, *, level: float = LEVEL) -> Metric:
    """Estimate the mean negative log-likelihood, with scores clipped as scikit-learn clips them.

    A single row can weigh up to 36, so privacy noise in the outermost bins weighs as much: a few thousand
    rows are needed at ε = 1. Below that the answer is "not enough evidence".
    """
    evidence.require_rows()
    estimate = LOG.mean(evidence)
    if estimate.value < CLEAR * math.sqrt(estimate.privacy_variance):
        raise Undefined(
            f"not enough evidence: the estimate {estimate.value:.2g} is below {CLEAR:.0f} standard "
            f"deviations of the privacy noise ({math.sqrt(estimate.privacy_variance):.2g})"
        )
    return unbounded(estimate, level=level, lowest=0.0)
