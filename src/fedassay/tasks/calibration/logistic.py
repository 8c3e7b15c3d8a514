"""Logistic regression on a histogram: one design for fitting calibrators and for judging them.

The log-likelihood Σ_b p_b η_b - c_b log(1 + e^{η_b}), η = offset + β^T x, is linear in the counts, so noise
leaves its gradient unbiased. The influence of one more row in a leaf is A^{-1} x (y - μ), A = Σ c μ(1-μ) x x^T
(the sandwich estimator: it holds although the model is only an approximation).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import expit

from fedassay.estimation.evidence import Evidence
from fedassay.estimation.metric import Undefined
from fedassay.protocol.arrays import Floats
from fedassay.summaries.maps import EPSILON, Map
from fedassay.tasks.calibration.binning import supported_scores

_STEPS = 100
_TOLERANCE = 1e-7
_SMALLEST_STEP = 1e-6
_LARGEST_NOISE = 0.5
"""A calibrator whose logits move further, by noise alone, says nothing."""

_NO_MAXIMUM = "the likelihood has no maximum that can be found"


@dataclass(frozen=True, kw_only=True, eq=False)
class Logistic:
    """A fitted logistic regression. `design` has one row per coefficient and one column per leaf."""

    evidence: Evidence
    design: Floats
    offset: Floats
    coefficients: Floats

    @classmethod
    def fit(cls, evidence: Evidence, design: Floats, offset: Floats | None = None) -> Logistic:
        """Maximise the likelihood by Newton's method, halving steps that would not improve it.

        Raises `Undefined` if there is no maximum: the scores separate the classes, do not vary, or drown in
        noise.
        """
        offset = np.zeros(design.shape[1]) if offset is None else offset
        here = cls(evidence=evidence, design=design, offset=offset, coefficients=np.zeros(len(design)))
        for _ in range(_STEPS):
            step = np.asarray(np.linalg.solve(here.information, here.gradient), dtype=np.float64)
            if np.abs(step).max() <= _TOLERANCE * (1 + np.abs(here.coefficients).max()):
                return here._moved(step)  # quadratic convergence: this one is right to the last digits
            here = here._improved(step)
        raise Undefined(here._words(_NO_MAXIMUM))

    def _moved(self, step: Floats) -> Logistic:
        return Logistic(
            evidence=self.evidence,
            design=self.design,
            offset=self.offset,
            coefficients=self.coefficients + step,
        )

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
        """η, per leaf."""
        return np.asarray(self.offset + self.coefficients @ self.design)

    @cached_property
    def means(self) -> Floats:
        """μ, the fitted probability per leaf."""
        return np.asarray(expit(self.logits))

    @cached_property
    def log_likelihood(self) -> float:
        """Of all rows."""
        rest = np.logaddexp(0, self.logits)
        return self.evidence.total(self.logits - rest, -rest)

    @cached_property
    def gradient(self) -> Floats:
        """Its derivative by the coefficients."""
        residuals = self.evidence.positives - self.evidence.counts * self.means
        return np.asarray(np.einsum("ib,b->i", self.design, residuals))

    @cached_property
    def information(self) -> Floats:
        """A, minus its second derivative; positive definite, or there is no maximum here."""
        weights = self.evidence.counts * self.means * (1 - self.means)
        A = np.einsum("ib,jb,b->ij", self.design, self.design, weights)
        if np.linalg.eigvalsh(A)[0] <= 1e-13 * max(1.0, float(np.trace(A))):
            raise Undefined(self._words("the scores do not vary enough to fit it"))
        return np.asarray(A)

    @cached_property
    def influence(self) -> tuple[Floats, Floats]:
        """What one more positive (negative) row in each leaf adds to each coefficient."""
        direction = np.linalg.solve(self.information, self.design)
        return direction * (1 - self.means), -direction * self.means

    @cached_property
    def optimism(self) -> float:
        """tr(A^{-1} J), J the covariance of the gradient, sampling and privacy (Takeuchi 1976)."""
        e, by_positive, by_negative = self.evidence, *self.influence
        basis = np.linalg.cholesky(self.information).T
        # With U = A^{1/2} A^{-1} x (y - μ), tr(A^{-1} J) is the sum of the variances of U's coordinates.
        of_positive, of_negative = basis @ by_positive, basis @ by_negative
        return sum(
            e.sampling_variance(up, down) + e.privacy_variance(up, down)
            for up, down in zip(of_positive, of_negative, strict=True)
        )

    def require_little_noise(self) -> Logistic:
        """This fit, if privacy noise moves the logit of a typical row by less than one half."""
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
    """Without overlap of the classes the likelihood grows with the slope for ever; noise hides it."""
    if not evidence.exact:
        return
    if np.count_nonzero(evidence.counts) < 2:
        raise Undefined("all scores fall into one bin, so no slope can be fitted")
    positives, negatives = np.flatnonzero(evidence.positives), np.flatnonzero(evidence.negatives)
    if positives[0] >= negatives[-1] or negatives[0] >= positives[-1]:
        raise Undefined("the scores separate the classes, so the likelihood has no maximum")


# --- what fitting a calibrator gives ------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """A map with the name of its method and the numbers that describe it.

    `optimism` is by how much the log-likelihood of the rows it was fitted to is expected to exceed that of as
    many new rows: the number of fitted parameters, each counted as often as noise adds to its variance
    (Akaike 1973; Takeuchi 1976 for models that are only approximately true).
    """

    method: str
    map: Map
    parameters: Mapping[str, Any]
    optimism: float = field(repr=False)

    def log_probabilities(self, evidence: Evidence) -> tuple[Floats, Floats] | None:
        """The logarithms of c and 1 - c per leaf; None if the map says 0 or 1 to rows: some row will contradict it."""
        calibrated = self.map(supported_scores(evidence))
        claimed = calibrated[evidence.counts != 0]
        if claimed.min() <= 0 or claimed.max() >= 1:
            return None
        calibrated = np.clip(calibrated, EPSILON, 1 - EPSILON)
        return np.log(calibrated), np.log1p(-calibrated)
