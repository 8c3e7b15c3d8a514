"""An estimate with its uncertainty: standard errors, intervals, tests and contrasts, whatever it was computed by.

The laws that studentised estimates follow, and their two-sided critical values at any level.

Random scaling divides by a statistic that does not converge: the ratio is |W(1)|/sqrt(∫(W(r) - r W(1))² dr) for a
Brownian motion W, whose value at 1 and whose bridge are independent. With V the integral, P(|W(1)| > c sqrt(V)) follows
from Craig's form of the normal tail, P(|Z| > x) = (2/π)∫_0^{π/2} exp(-x²/(2 sin²φ)) dφ, and the Laplace transform
E exp(-u²V/2) = sqrt(u/sinh u) (Anderson and Darling, 1952):

    P(|W(1)|/sqrt(V) > c) = (2/π) ∫_0^{π/2} sqrt(u/sinh u) dφ,   u = c/sin φ.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

import numpy as np
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import chdtri, ndtr, ndtri, stdtr, stdtrit

from fedassay.errors import UsageError
from fedassay.protocol.arrays import Floats
from fedassay.summaries.regression.moments import Standard

# --- the laws that studentised estimates follow -------------------------------------------------------------


def checked_level(level: float) -> float:
    """Return a level of confidence; raise unless it is strictly between 0 and 1."""
    if not 0 < level < 1:
        raise UsageError(f"level: got {level:g}, expected a number between 0 and 1, such as 0.95.")
    return float(level)


class StudentisedLaw(ABC):
    """A symmetric law of (estimate - truth)/standard error."""

    name: ClassVar[str]

    @abstractmethod
    def critical(self, level: float) -> float:
        """Return the value that the absolute value stays below with this probability."""

    @abstractmethod
    def p_value(self, statistic: float) -> float:
        """Return the probability of an absolute value at least as large as this."""


@dataclass(frozen=True)
class Normal(StudentisedLaw):
    """The standard normal law.

    Examples
    --------
    >>> round(Normal().critical(0.95), 3)
    1.96
    """

    name: ClassVar[str] = "normal"

    def critical(self, level: float) -> float:
        """See `StudentisedLaw`."""
        return float(-ndtri((1 - checked_level(level)) / 2))

    def p_value(self, statistic: float) -> float:
        """See `StudentisedLaw`."""
        return float(2 * ndtr(-abs(statistic)))


@dataclass(frozen=True, kw_only=True)
class StudentT(StudentisedLaw):
    """Student's t with `dof` degrees of freedom, above 0.

    Examples
    --------
    >>> round(StudentT(dof=10).critical(0.95), 3)
    2.228
    """

    name: ClassVar[str] = "t"

    dof: float

    def __post_init__(self) -> None:
        if not 0 < self.dof < math.inf:
            raise UsageError(f"degrees of freedom: got {self.dof:g}, expected a finite number above 0.")

    def critical(self, level: float) -> float:
        """See `StudentisedLaw`."""
        return float(-stdtrit(self.dof, (1 - checked_level(level)) / 2))

    def p_value(self, statistic: float) -> float:
        """See `StudentisedLaw`."""
        return float(2 * stdtr(self.dof, -abs(statistic)))


@dataclass(frozen=True)
class RandomScaling(StudentisedLaw):
    """The law of an estimate that is studentised by random scaling: wider than the normal one, 6.75 for 1.96.

    Critical values are computed, to about ten digits, and agree with the tabulated ones. References: Abadir and
    Paruolo, "Two mixed normal densities from cointegration analysis", Econometrica 65, 1997; Lee, Liao, Seo and Shin,
    "Fast and robust online inference with stochastic gradient descent via random scaling", AAAI 2022.

    Examples
    --------
    >>> round(RandomScaling().critical(0.95), 3)
    6.747
    """

    name: ClassVar[str] = "random-scaling"

    def critical(self, level: float) -> float:
        """See `StudentisedLaw`."""
        return _random_scaling_critical(checked_level(level))

    def p_value(self, statistic: float) -> float:
        """See `StudentisedLaw`."""
        if abs(statistic) > _FAR:
            return 0.0
        return math.exp(_log_tail(abs(statistic)))


_FAR = 1e4
"""Statistic from which the tail is 0 in any arithmetic: it falls like exp(-c/2)."""

_NEGLIGIBLE = 80.0
"""An integrand that has fallen by exp(-40) adds nothing to the sixteen digits of a number."""


def _log_tail(c: float) -> float:
    """Return the logarithm of P(ratio > c), for c >= 0.

    With sin φ = 1/cosh s the peak at the end becomes smooth: dφ = ds/cosh s and u = c cosh s. And
    sqrt(u/sinh u) = exp(-u/2) sqrt(2u/(1 - exp(-2u))), of which exp(-c/2) goes in front of the integral: nothing
    under- or overflows.
    """
    if c == 0:
        return 0.0

    def integrand(s: float) -> float:
        u = c * math.cosh(s)
        return math.exp((c - u) / 2) * math.sqrt(2 * u / -math.expm1(-2 * u)) / math.cosh(s)

    value, _ = quad(integrand, 0, math.acosh(1 + _NEGLIGIBLE / c), epsabs=0, epsrel=1e-11, limit=200)
    return min(0.0, math.log(2 / math.pi * value) - c / 2)


@lru_cache(maxsize=256)
def _random_scaling_critical(level: float) -> float:
    wanted = math.log1p(-level)
    high = 8.0
    while _log_tail(high) > wanted:
        high *= 2
    return float(brentq(lambda c: _log_tail(c) - wanted, 0.0, high, xtol=1e-12, rtol=1e-12))


# --- an estimate with its uncertainty -----------------------------------------------------------------------

__all__ = ["CoefficientEstimate", "Contrast", "Normal", "RandomScaling", "StudentT", "StudentisedLaw"]


_POINTS = 14
"""Simultaneous quantiles are those of 2^14 points of a scrambled Sobol sequence, always the same ones."""

_SEED = 20250


@dataclass(frozen=True, kw_only=True)
class Contrast:
    """A weighted sum of coefficients, and the test of whether it is `value`."""

    estimate: float
    standard_error: float
    law: StudentisedLaw
    value: float = 0.0

    @property
    def statistic(self) -> float:
        """(estimate - value)/standard error; infinite for an error of 0, and 0 if there is no difference either."""
        return float(_studentised(np.array([self.estimate - self.value]), np.array([self.standard_error]))[0])

    @property
    def p_value(self) -> float:
        """Two-sided p-value."""
        return self.law.p_value(self.statistic)

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Return an interval that covers the true sum with this probability."""
        reach = self.law.critical(level) * self.standard_error
        return self.estimate - reach, self.estimate + reach


@dataclass(frozen=True, kw_only=True, eq=False)
class CoefficientEstimate:
    """Coefficients with a covariance, and the law that (value - truth)/standard error follows.

    Parameters
    ----------
    names : of the coefficients, all different.
    value, covariance : p numbers and p x p numbers, finite; variances are not negative.
    law : `Normal`, `StudentT` or `RandomScaling`. For random scaling `covariance` is the scaling matrix divided by the
        number of rounds: not an estimate of a covariance, but what intervals are made of in the same way.
    withheld : why only values may be reported, because rounds have not arrived (`arrival`); empty if they have.

    Guarantee: intervals cover with the stated probability as far as the law holds; for the normal law that is a limit.

    Examples
    --------
    >>> spread = [[0.25, 0.0], [0.0, 1.0]]
    >>> fit = CoefficientEstimate(names=("a", "b"), value=[1.0, 3.0], covariance=spread, law=Normal())
    >>> fit.intervals(0.95).round(2)
    array([[0.02, 1.98],
           [1.04, 4.96]])
    >>> round(fit.contrast({"b": 1, "a": -1}).p_value, 3)
    0.074
    """

    names: tuple[str, ...]
    value: Floats
    covariance: Floats
    law: StudentisedLaw
    withheld: str = ""

    def __post_init__(self) -> None:
        names, value = tuple(self.names), np.array(self.value, dtype=np.float64)
        covariance = np.array(self.covariance, dtype=np.float64)
        p = len(names)
        if not p or len(set(names)) != p:
            raise UsageError(f"names: got {list(names)}, expected different ones, at least one.")
        if value.shape != (p,) or covariance.shape != (p, p):
            raise UsageError(
                f"estimate: got values of shape {value.shape} and a covariance of shape {covariance.shape}, "
                f"expected {(p,)} and {(p, p)} for {p} names."
            )
        if not np.isfinite(value).all() or not np.isfinite(covariance).all():
            raise UsageError("estimate: got numbers that are not finite, expected finite ones.")
        if (np.diagonal(covariance) < 0).any():
            raise UsageError("covariance: got a negative variance, expected numbers from 0.")
        for name, kept in (("value", value), ("covariance", (covariance + covariance.T) / 2)):
            kept.flags.writeable = False
            object.__setattr__(self, name, kept)
        object.__setattr__(self, "names", names)

    @property
    def standard_errors(self) -> Floats:
        """Square roots of the covariance's diagonal."""
        return np.asarray(np.sqrt(np.diagonal(self.covariance)))

    @property
    def statistics(self) -> Floats:
        """Values in standard errors; infinite for an error of 0, and 0 for 0/0."""
        return _studentised(self.value, self.standard_errors)

    @property
    def p_values(self) -> Floats:
        """Two-sided p-values of the tests that each coefficient is 0."""
        return np.array([self.law.p_value(float(one)) for one in self.statistics])

    def intervals(self, level: float = 0.95) -> Floats:
        """Return one interval for each coefficient, (p, 2): each covers with this probability."""
        return self._around(self.law.critical(level))

    def simultaneous(self, level: float = 0.95) -> Floats:
        """Return intervals, (p, 2), that cover together with this probability. See `simultaneous_critical`."""
        return self._around(self.simultaneous_critical(level))

    def simultaneous_critical(self, level: float = 0.95) -> float:
        """Return the number of standard errors that intervals must reach to cover together.

        Normal and Student t: the quantile of the largest |z_j| under the correlations of the estimates (single-step
        max-t), of 2^14 quasi-random points, always the same ones: within about 0.01 of the exact one for levels up to
        0.99. It is kept between the critical value of a single interval and Bonferroni's, which bound it. For random
        scaling the joint law depends on more than the scaling matrix: Bonferroni.
        """
        single = self.law.critical(level)
        if len(self.names) == 1:
            return single
        bonferroni = self.law.critical(1 - (1 - checked_level(level)) / len(self.names))
        if not isinstance(self.law, Normal | StudentT):
            return bonferroni
        largest = _largest(self.correlation, self.law)
        return float(np.clip(np.quantile(largest, level, method="higher"), single, bonferroni))

    @property
    def correlation(self) -> Floats:
        """Correlation of the estimates; rows and columns of coefficients without an error are 0."""
        errors = self.standard_errors
        inverse = np.divide(1.0, errors, out=np.zeros_like(errors), where=errors > 0)
        return np.asarray(self.covariance * inverse[:, None] * inverse)

    def contrast(self, weights: Mapping[str, float], value: float = 0.0) -> Contrast:
        """Return the sum of coefficients with these weights, and the test of whether it is `value`."""
        unknown = [name for name in weights if name not in self.names]
        if unknown or not weights:
            raise UsageError(
                f"contrast: got {', '.join(map(repr, unknown)) or 'no coefficients'}, "
                f"expected weights of {', '.join(self.names)}."
            )
        w = np.array([float(weights.get(name, 0.0)) for name in self.names])
        if not np.isfinite(w).all() or not np.isfinite(value):
            raise UsageError(f"contrast: got {dict(weights)} and {value:g}, expected finite numbers.")
        return Contrast(
            estimate=float(w @ self.value),
            standard_error=float(np.sqrt(max(0.0, w @ self.covariance @ w))),
            law=self.law,
            value=float(value),
        )

    def translated(self, standard: Standard) -> CoefficientEstimate:
        """Translate an estimate for the rows that `standard` makes of the data into the units of the data."""
        matrix = standard.matrix
        return replace(self, value=standard.back(self.value), covariance=matrix @ self.covariance @ matrix.T)

    def _around(self, critical: float) -> Floats:
        reach = critical * self.standard_errors
        return np.stack([self.value - reach, self.value + reach], axis=1)


def _studentised(value: Floats, errors: Floats) -> Floats:
    certain = np.where(value == 0, 0.0, np.copysign(np.inf, value))
    return np.asarray(np.divide(value, errors, out=certain, where=errors > 0))


def _largest(correlation: Floats, law: Normal | StudentT) -> Floats:
    """Return the largest |z_j| at each of the quasi-random points, for z with this correlation (may be singular)."""
    values, vectors = np.linalg.eigh(correlation)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    from scipy.stats import qmc  # half a second, which no other task should wait for

    p = len(correlation)
    # Points are multiples of 2^-30 below 1, 0 included: in the middle of their cells quantiles are finite.

    points = qmc.Sobol(p + 1, scramble=True, bits=30, seed=_SEED).random_base2(_POINTS) + 2.0**-31
    z = ndtri(points[:, :p]) @ root.T
    found = np.abs(z).max(axis=1)
    if isinstance(law, StudentT):
        found = found / np.sqrt(chdtri(law.dof, points[:, p]) / law.dof)
    return np.asarray(found)
