"""Calibration intercept and slope: logistic recalibration of the score (Cox 1958; Van Calster et al. 2019).

The model is logit P(y=1) = a + b·logit(s), fitted by maximum likelihood on the histogram. Standard errors
come from the influence function of a row, A^{-1} x (y - μ) with A = Σ μ(1-μ) x x^T (the sandwich estimator),
so they hold although the model is only an approximation.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import expit, logit

from fedassay.estimation.evidence import ENOUGH, Evidence, dot
from fedassay.estimation.intervals import unbounded
from fedassay.estimation.metric import LEVEL, Metric, Undefined, estimator
from fedassay.estimation.ratios import EPSILON
from fedassay.protocol.arrays import Floats

_STEPS = 60
_TOLERANCE = 1e-6
_SMALLEST_STEP = 1e-6


@estimator
def calibration_intercept(evidence: Evidence, *, level: float = LEVEL) -> Metric:
    """The intercept with the slope fixed at 1: calibration in the large, 0 for a calibrated model."""
    evidence.require_classes()
    logits = _logits(evidence.scores)
    return _fit(evidence, np.ones((1, len(logits))), offset=logits, coordinate=0, level=level)


@estimator
def calibration_slope(evidence: Evidence, *, level: float = LEVEL) -> Metric:
    """The slope with a free intercept: 1 for a calibrated model, below 1 if scores are too extreme.

    Edge cases: no value if all scores fall into one bin, or if they separate the classes.
    """
    evidence.require_classes()
    logits = _logits(evidence.scores)
    if evidence.exact:
        _require_overlap(evidence)
    design = np.stack([np.ones_like(logits), logits])
    if not evidence.exact:
        # Noise in the outermost bins can flatten the fit, and a flat fit looks precise: judge the noise at
        # slope 1.
        shift = _newton(evidence, design[:1], logits)
        _require_little_noise(evidence, *_influence(evidence, design, shift[0] + logits, np.zeros(2), 1))
    return _fit(evidence, design, offset=np.zeros_like(logits), coordinate=1, level=level)


def _require_overlap(evidence: Evidence) -> None:
    """Without overlap of the classes the likelihood grows with the slope for ever."""
    if np.count_nonzero(evidence.counts) < 2:
        raise Undefined("all scores fall into one bin, so no slope can be fitted")
    positives, negatives = np.flatnonzero(evidence.positives), np.flatnonzero(evidence.negatives)
    if positives[0] >= negatives[-1] or negatives[0] >= positives[-1]:
        raise Undefined("the scores separate the classes, so the likelihood has no maximum")


def _logits(scores: Floats) -> Floats:
    return np.asarray(logit(np.clip(scores, EPSILON, 1 - EPSILON)))


def _fit(evidence: Evidence, design: Floats, *, offset: Floats, coordinate: int, level: float) -> Metric:
    """One coefficient of the logistic regression, with its interval."""
    beta = _newton(evidence, design, offset)
    by_positive, by_negative = _influence(evidence, design, offset, beta, coordinate)
    _require_little_noise(evidence, by_positive, by_negative)
    bound = _binning_bound(evidence, design, offset, beta, coordinate)
    value = float(beta[coordinate])
    return unbounded(evidence.estimate(value, by_positive, by_negative, discretisation=bound), level=level)


def _influence(
    evidence: Evidence, design: Floats, offset: Floats, beta: Floats, coordinate: int
) -> tuple[Floats, Floats]:
    """What one more positive or negative row in each leaf adds to a coefficient: A^{-1} x (y - μ)."""
    means = expit(offset + beta @ design)
    direction = np.linalg.solve(_information(evidence, design, means), design)[coordinate]
    return direction * (1 - means), -direction * means


def _require_little_noise(evidence: Evidence, by_positive: Floats, by_negative: Floats) -> None:
    deviation = math.sqrt(evidence.privacy_variance(by_positive, by_negative))
    if ENOUGH * deviation > 1:
        raise Undefined(
            f"not enough evidence: privacy noise with standard deviation {deviation:.2g} could turn a 1 into "
            "a 0"
        )


def _information(evidence: Evidence, design: Floats, means: Floats) -> Floats:
    information = np.einsum("ib,jb,b->ij", design, design, evidence.counts * means * (1 - means))
    if np.linalg.eigvalsh(information)[0] <= 1e-12 * max(1.0, float(np.trace(information))):
        raise Undefined(
            "the scores do not vary enough to fit it"
            if evidence.exact
            else "not enough evidence: under privacy noise the likelihood has no maximum"
        )
    return np.asarray(information)


def _newton(evidence: Evidence, design: Floats, offset: Floats) -> Floats:
    """Maximise the likelihood by Newton's method, with halved steps where a full one would not improve it."""
    beta = np.zeros(len(design))
    value = _log_likelihood(evidence, offset)
    for _ in range(_STEPS):
        means = expit(offset + beta @ design)
        gradient = np.einsum("ib,b->i", design, evidence.positives - evidence.counts * means)
        step = np.linalg.solve(_information(evidence, design, means), gradient)
        if np.abs(step).max() <= _TOLERANCE * (1 + np.abs(beta).max()):
            return np.asarray(beta + step)  # quadratic convergence: this one is right to the last digits
        size = 1.0
        while (reached := _log_likelihood(evidence, offset + (beta + size * step) @ design)) < value:
            size /= 2
            if size < _SMALLEST_STEP:
                raise Undefined("not enough evidence: the likelihood has no maximum that can be found")
        beta, value = beta + size * step, reached
    raise Undefined("not enough evidence: the likelihood has no maximum that can be found")


def _log_likelihood(evidence: Evidence, eta: Floats) -> float:
    return evidence.total(eta - np.logaddexp(0, eta), -np.logaddexp(0, eta))


def _binning_bound(
    evidence: Evidence, design: Floats, offset: Floats, beta: Floats, coordinate: int
) -> float:
    """How far the coefficient moves, to first order, if every row moves to the worst place in its bin."""
    here, (lower, upper) = _logits(evidence.scores), map(_logits, evidence.ends)
    reach = np.maximum(upper - here, here - lower)
    means = expit(offset + beta @ design)
    inverse = np.linalg.inv(_information(evidence, design, means))[coordinate]
    direction, weights = inverse @ design, means * (1 - means)
    total = 0.0
    for label, counts in ((1.0, evidence.positives), (0.0, evidence.negatives)):
        # d/dx of A^{-1} x (y - μ(x)): through the regressors (if the score is one) and through μ.
        own = inverse[-1] * (label - means) if len(design) > 1 else 0.0
        slope = beta[-1] if len(design) > 1 else 1.0
        total += dot(counts, np.abs(own - direction * weights * slope) * reach)
    return max(0.0, total)
