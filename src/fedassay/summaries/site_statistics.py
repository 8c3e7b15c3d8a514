"""What one site alone says about a model: an estimate and its variance, on the scale on which sites are pooled.

These are the estimators of an evaluation (`fedassay.tasks.evaluation`), written for the exact histogram of one
site; a test holds both to the same numbers. They are here because a site computes them itself when nobody else
may see its histogram.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

Floats = NDArray[np.float64]

SMALLEST_CLASS = 10
"""A site with fewer rows of either class is left out: its variance would say nothing."""

LEAST_VARIANCE, LARGEST_VARIANCE, LARGEST_VALUE = 2.0**-38, 2.0**10, 2.0**6
"""What an estimate may be; beyond these bounds its site is left out. A smaller variance than the least is not one
of many rows (it would take more than 10^9 of them) but of rows that are all alike."""

_EPSILON = float(np.finfo(np.float64).eps)
_STEPS, _TOLERANCE = 60, 1e-9


class SiteEstimate(NamedTuple):
    """A value and its sampling variance."""

    value: float
    variance: float


class SiteCounts(NamedTuple):
    """The exact histogram of one site: positives and negatives per bin, and the score that stands for it."""

    positives: Floats
    negatives: Floats
    scores: Floats


Estimator = Callable[[SiteCounts], SiteEstimate | None]


def site_estimate(metric: str, counts: SiteCounts) -> SiteEstimate | None:
    """The site's estimate of one of `ESTIMATORS`, or None if it has none to give.

    None: fewer than `SMALLEST_CLASS` rows of a class, a metric that does not exist on these rows (an AUC of 0 or
    1 has no logit, a slope needs classes that overlap), or numbers beyond the bounds above.

    Examples
    --------
    >>> scores = np.array([0.2, 0.8])
    >>> counts = SiteCounts(np.array([10.0, 30.0]), np.array([30.0, 10.0]), scores)
    >>> round(site_estimate("brier_score", counts).value, 3)
    0.19
    >>> site_estimate("roc_auc", SiteCounts(np.array([0.0, 9.0]), np.array([40.0, 0.0]), scores)) is None
    True
    """
    if min(counts.positives.sum(), counts.negatives.sum()) < SMALLEST_CLASS:
        return None
    estimate = ESTIMATORS[metric](counts)
    if estimate is None or not all(math.isfinite(number) for number in estimate):
        return None
    if abs(estimate.value) > LARGEST_VALUE or not LEAST_VARIANCE <= estimate.variance <= LARGEST_VARIANCE:
        return None
    return estimate


def _variance(counts: SiteCounts, by_positive: Floats, by_negative: Floats) -> float:
    """The multinomial variance of a function with these derivatives: Σ c g² - (Σ c g)²/n."""
    p, n, _ = counts
    first = _dot(p, by_positive) + _dot(n, by_negative)
    second = _dot(p, by_positive**2) + _dot(n, by_negative**2)
    return second - first**2 / float(p.sum() + n.sum())


def _dot(a: Floats, b: Floats) -> float:
    return float(np.einsum("i,i->", a, b))


def _roc_auc(counts: SiteCounts) -> SiteEstimate | None:
    """The logit of the AUC, ties counting half, with DeLong's variance carried to that scale."""
    p, n, _ = counts
    P, N = float(p.sum()), float(n.sum())
    beaten, beating = (np.cumsum(n) - n / 2) / N, (P - np.cumsum(p) + p / 2) / P
    A = _dot(p, beaten) / P
    if not 0 < A < 1:
        return None
    variance = _variance(counts, (beaten - A) / P, (beating - A) / N)
    return SiteEstimate(float(logit(A)), variance / (A * (1 - A)) ** 2)


def _brier_score(counts: SiteCounts) -> SiteEstimate:
    """The mean of (score - label)²."""
    p, n, s = counts
    rows = float(p.sum() + n.sum())
    value = (_dot(p, (1 - s) ** 2) + _dot(n, s**2)) / rows
    return SiteEstimate(value, _variance(counts, ((1 - s) ** 2 - value) / rows, (s**2 - value) / rows))


def _observed_expected_ratio(counts: SiteCounts) -> SiteEstimate | None:
    """The logarithm of positives over the sum of scores."""
    p, n, s = counts
    P, E = float(p.sum()), _dot(p + n, s)
    if E <= 0:
        return None
    # The derivative of log P - log E.
    return SiteEstimate(math.log(P / E), _variance(counts, 1 / P - s / E, -s / E))


def _calibration_intercept(counts: SiteCounts) -> SiteEstimate | None:
    """Calibration in the large: logit P(y=1) = a + logit s."""
    x = _logits(counts.scores)
    return _logistic(counts, np.ones((1, len(x))), offset=x)


def _calibration_slope(counts: SiteCounts) -> SiteEstimate | None:
    """The slope b in logit P(y=1) = a + b·logit s."""
    x = _logits(counts.scores)
    return _logistic(counts, np.stack([np.ones_like(x), x]), offset=np.zeros_like(x))


def _logits(scores: Floats) -> Floats:
    return np.asarray(logit(np.clip(scores, _EPSILON, 1 - _EPSILON)))


def _logistic(counts: SiteCounts, design: Floats, *, offset: Floats) -> SiteEstimate | None:
    """The last coefficient of a logistic regression, with its sandwich variance; None if it has no maximum."""
    p, n, _ = counts
    used = (p > 0) | (n > 0)
    p, n, X, offset = p[used], n[used], design[:, used], offset[used]

    def likelihood(beta: Floats) -> float:
        eta = offset + beta @ X
        return _dot(p, eta) - _dot(p + n, np.logaddexp(0, eta))

    beta = np.zeros(len(X))
    for _ in range(_STEPS):
        means = expit(offset + beta @ X)
        information = np.einsum("ib,jb,b->ij", X, X, (p + n) * means * (1 - means))
        if np.linalg.eigvalsh(information)[0] <= 1e-12 * max(1.0, float(np.trace(information))):
            return None
        step = np.linalg.solve(information, np.einsum("ib,b->i", X, p - (p + n) * means))
        if float(np.abs(step).max()) <= _TOLERANCE * (1 + float(np.abs(beta).max())):
            direction = np.linalg.solve(information, X)[-1]
            # A row's influence on the coefficient is A^{-1} x (y - μ).
            variance = _variance(SiteCounts(p, n, p), direction * (1 - means), -direction * means)
            return SiteEstimate(float(beta[-1] + step[-1]), variance)
        reached = likelihood(beta)
        while likelihood(beta + step) < reached and float(np.abs(step).max()) > _TOLERANCE:
            step = step / 2
        beta = beta + step
    return None


ESTIMATORS: Mapping[str, Estimator] = {
    "roc_auc": _roc_auc,
    "brier_score": _brier_score,
    "calibration_intercept": _calibration_intercept,
    "calibration_slope": _calibration_slope,
    "observed_expected_ratio": _observed_expected_ratio,
}
"""Metric to its estimator. The AUC is pooled on the logit scale, the ratio on the log scale, others as they are."""
