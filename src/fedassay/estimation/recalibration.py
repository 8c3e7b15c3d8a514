"""Logistic regression on a histogram: fits of calibrators, and the calibration intercept and slope that judge them.

The log-likelihood Σ_b p_b η_b - c_b log(1 + e^{η_b}), η = offset + β^T x, is linear in the counts, so noise
leaves its gradient unbiased. The influence of one more row in a leaf is A^{-1} x (y - μ), A = Σ c μ(1-μ) x x^T
(the sandwich estimator: it holds although the model is only an approximation).

The intercept and the slope are those of logit P(y=1) = a + b·logit(s) (Cox 1958; Van Calster et al. 2019).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.special import expit, logit

from fedassay.estimation.evidence import ENOUGH, Evidence, dot
from fedassay.estimation.intervals import unbounded
from fedassay.estimation.metric import LEVEL, Metric, Undefined, estimator
from fedassay.estimation.ratios import EPSILON
from fedassay.protocol.arrays import Floats

_STEPS = 100
_TOLERANCE = 1e-7
_SMALLEST_STEP = 1e-6
_LARGEST_NOISE = 0.5
"""Largest shift of logits by noise alone; a calibrator with a larger one says nothing."""

_NO_MAXIMUM = "the likelihood has no maximum that can be found"


@dataclass(frozen=True, kw_only=True, eq=False)
class Logistic:
    """Fitted logistic regression. `design` has one row per coefficient and one column per leaf."""

    evidence: Evidence
    design: Floats
    coefficients: Floats
    offset: Floats | float = 0.0

    @classmethod
    def fit(cls, evidence: Evidence, design: Floats, offset: Floats | float = 0.0) -> Logistic:
        """Maximise the likelihood by Newton's method, halving steps that would not improve it.

        Raises `Undefined` if there is no maximum: the scores separate the classes, do not vary, or drown in
        noise.
        """
        here = cls(evidence=evidence, design=design, coefficients=np.zeros(len(design)), offset=offset)
        for _ in range(_STEPS):
            step = np.asarray(np.linalg.solve(here.information, here.gradient), dtype=np.float64)
            if np.abs(step).max() <= _TOLERANCE * (1 + np.abs(here.coefficients).max()):
                return here._moved(step)  # quadratic convergence: this one is right to the last digits
            here = here._improved(step)
        raise Undefined(here._words(_NO_MAXIMUM))

    def _moved(self, step: Floats) -> Logistic:
        return replace(self, coefficients=self.coefficients + step)

    def _improved(self, step: Floats) -> Logistic:
        size = 1.0
        while (reached := self._moved(size * step)).log_likelihood < self.log_likelihood:
            size /= 2
            if size < _SMALLEST_STEP:
                raise Undefined(self._words(_NO_MAXIMUM))
        return reached

    def _words(self, reason: str) -> str:
        return reason if self.evidence.exact else f"not enough evidence: under privacy noise {reason}"

    @cached_property
    def logits(self) -> Floats:
        """Logits η, per leaf."""
        return np.asarray(self.offset + self.coefficients @ self.design)

    @cached_property
    def means(self) -> Floats:
        """Fitted probabilities μ, per leaf."""
        return np.asarray(expit(self.logits))

    @cached_property
    def log_likelihood(self) -> float:
        """Log-likelihood of all rows."""
        rest = np.logaddexp(0, self.logits)
        return self.evidence.total(self.logits - rest, -rest)

    @cached_property
    def gradient(self) -> Floats:
        """Derivative of the log-likelihood by the coefficients."""
        residuals = self.evidence.positives - self.evidence.counts * self.means
        return np.asarray(np.einsum("ib,b->i", self.design, residuals))

    @cached_property
    def information(self) -> Floats:
        """Information A, minus the second derivative; positive definite, or there is no maximum here."""
        weights = self.evidence.counts * self.means * (1 - self.means)
        A = np.einsum("ib,jb,b->ij", self.design, self.design, weights)
        if np.linalg.eigvalsh(A)[0] <= 1e-13 * max(1.0, float(np.trace(A))):
            raise Undefined(self._words("the scores do not vary enough to fit it"))
        return np.asarray(A)

    @cached_property
    def influence(self) -> tuple[Floats, Floats]:
        """Change of each coefficient by a further positive (negative) row in each leaf."""
        direction = np.linalg.solve(self.information, self.design)
        return direction * (1 - self.means), -direction * self.means

    @cached_property
    def optimism(self) -> float:
        """Optimism tr(A^{-1} J), J the covariance of the gradient, sampling and privacy (Takeuchi 1976)."""
        e, by_positive, by_negative = self.evidence, *self.influence
        basis = np.linalg.cholesky(self.information).T
        # With U = A^{1/2} A^{-1} x (y - μ), tr(A^{-1} J) is the sum of the variances of U's coordinates.
        of_positive, of_negative = basis @ by_positive, basis @ by_negative
        return sum(
            e.sampling_variance(up, down) + e.privacy_variance(up, down)
            for up, down in zip(of_positive, of_negative, strict=True)
        )

    def require_little_noise(self) -> Logistic:
        """Return this fit, if privacy noise moves the logit of a typical row by less than one half."""
        e = self.evidence
        if e.exact:
            return self
        # The mean over rows of Var(η) is tr(Cov(β) Σ c x x^T)/n; x x^T is made positive by least eigenvalues.
        second = np.einsum("ib,jb,b->ij", self.design, self.design, e.counts) / e.rows
        values, vectors = np.linalg.eigh(second)
        basis = (vectors * np.sqrt(np.maximum(values, 0.0))).T
        by_positive, by_negative = self.influence
        variance = sum(
            e.privacy_variance(up, down)
            for up, down in zip(basis @ by_positive, basis @ by_negative, strict=True)
        )
        if math.sqrt(variance) > _LARGEST_NOISE:
            raise Undefined(
                f"not enough evidence: privacy noise moves a calibrated logit by {math.sqrt(variance):.2g} "
                f"(standard deviation), at most {_LARGEST_NOISE:g} is allowed"
            )
        return self


def require_overlap(evidence: Evidence) -> None:
    """Raise unless the classes overlap: else the likelihood grows with the slope for ever. Noise hides that."""
    if not evidence.exact:
        return
    if np.count_nonzero(evidence.counts) < 2:
        raise Undefined("all scores fall into one bin, so no slope can be fitted")
    positives, negatives = np.flatnonzero(evidence.positives), np.flatnonzero(evidence.negatives)
    if positives[0] >= negatives[-1] or negatives[0] >= positives[-1]:
        raise Undefined("the scores separate the classes, so the likelihood has no maximum")


# --- calibration intercept and slope ------------------------------------------------------------------------


@estimator
def calibration_intercept(evidence: Evidence, *, level: float = LEVEL) -> Metric:
    """Estimate the intercept with the slope fixed at 1: calibration in the large, 0 for a calibrated model."""
    evidence.require_classes()
    fit = Logistic.fit(evidence, np.ones((1, evidence.leaves)), _logits(evidence.scores))
    return _coefficient(fit, level=level)


@estimator
def calibration_slope(evidence: Evidence, *, level: float = LEVEL) -> Metric:
    """Estimate the slope with a free intercept: 1 for a calibrated model, below 1 if scores are too extreme.

    Edge cases: no value if all scores fall into one bin, or if they separate the classes.
    """
    evidence.require_classes()
    require_overlap(evidence)
    if np.ptp(evidence.scores) == 0:
        raise Undefined("all rows get the same calibrated score, so no slope can be fitted")
    x = _logits(evidence.scores)
    design = np.stack([np.ones_like(x), x])
    if not evidence.exact:
        # Noise in the outermost bins can flatten the fit, and a flat fit looks precise: judge it at slope 1.
        (shift,) = Logistic.fit(evidence, design[:1], x).coefficients
        at_one = Logistic(evidence=evidence, design=design, coefficients=np.array([shift, 1.0]))
        _require_little_noise(at_one)
    return _coefficient(Logistic.fit(evidence, design), level=level)


def _logits(scores: Floats) -> Floats:
    return np.asarray(logit(np.clip(scores, EPSILON, 1 - EPSILON)))


def _coefficient(fit: Logistic, *, level: float) -> Metric:
    """Return the last coefficient, with its interval."""
    _require_little_noise(fit)
    by_positive, by_negative = fit.influence
    estimate = fit.evidence.estimate(
        float(fit.coefficients[-1]), by_positive[-1], by_negative[-1], discretisation=_binning_bound(fit)
    )
    return unbounded(estimate, level=level)


def _require_little_noise(fit: Logistic) -> None:
    by_positive, by_negative = fit.influence
    deviation = math.sqrt(fit.evidence.privacy_variance(by_positive[-1], by_negative[-1]))
    if ENOUGH * deviation > 1:
        raise Undefined(
            f"not enough evidence: privacy noise with standard deviation {deviation:.2g} could turn a 1 into "
            "a 0"
        )


def _binning_bound(fit: Logistic) -> float:
    """Return the change of the coefficient, to first order, if every row moves to the worst place in its bin."""
    e, sloping = fit.evidence, len(fit.design) > 1
    here, ends = _logits(e.scores), _logits(np.stack(e.ends))
    reach = np.abs(ends - here).max(axis=0)
    inverse = np.linalg.inv(fit.information)[-1]
    # d/dx of A^{-1} x (y - μ(x)): through the regressors (if the score is one) and through μ.
    slope = fit.coefficients[-1] if sloping else 1.0
    through_mean = inverse @ fit.design * fit.means * (1 - fit.means) * slope
    total = 0.0
    for label, counts in ((1.0, e.positives), (0.0, e.negatives)):
        own = inverse[-1] * (label - fit.means) if sloping else 0.0
        total += dot(counts, np.abs(own - through_mean) * reach)
    return max(0.0, total)
