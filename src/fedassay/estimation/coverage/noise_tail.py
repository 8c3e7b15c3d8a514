"""Probability that noise lifts a point too high, from public numbers alone: a bound that holds at every point.

A point's noise is Z = Σ w_i X_i, independent draws X_i of one law with public weights that differ from point to point.
What is known of them: the largest and the smallest Var Z over the points, and the largest |w_i|. Three bounds of
P(Z >= x), of which the smallest counts; proofs are in docs/explanation/private-conformal.md.

- Chernoff's: log E e^{tZ} <= Var Z/(v·w²)·κ(wt), w the largest weight, v and κ the variance and the cumulant generating
  function of one draw, since κ(t)/t² grows with t.
- One half for x > 0, because Z is symmetric.
- Prawitz's smoothing inequality, from the characteristic function of Z, which the same numbers confine: it is close to
  that of a normal variable. It is worth most around zero, where Chernoff's is twice too large or says nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.polynomial import legendre
from numpy.typing import ArrayLike

from fedassay.errors import UsageError
from fedassay.protocol.arrays import AnyFloats

NoiseLaw = Literal["none", "discrete-laplace", "discrete-gaussian", "skellam", "unary"]

SMALLEST = 1e-16
"""Chernoff's bound is tabulated until it is this small."""

STEPS = 100
"""Knots of the table in a standard deviation; between knots the bound is that of the left one."""

NEAR = 8
"""Number of standard deviations up to which Prawitz's bound is used."""

RATIO = 1.03
"""Variances are taken together if they differ by no more than this factor."""

SPARE = 1e-6
"""Amount added to every bound of Prawitz, much more than the error of its integral."""

MOST_KNOTS = 1 << 16

FURTHEST = 200
"""Last frequency of Prawitz's inequality, over the standard deviation; later ones would change little."""

_NODES, _WEIGHTS = legendre.leggauss(32)


@dataclass(frozen=True, kw_only=True)
class NoiseTail:
    """Upper bound of P(Z >= x) for the noise Z of every point.

    Parameters
    ----------
    law : the law of one draw; `none` is no noise. `unary` is a sum of reports of which none moves it by more than
        `reach` (Bernstein's inequality); `variance` then includes that of sampling the rows.
    scale : the scale of one draw, as in a release's noise; not used for `none` and `unary`.
    variance : the largest Var Z over the points.
    reach : the largest absolute weight of a draw, over the points.
    least_variance : the smallest Var Z over the points; zero if it is not known, which is safe.

    Examples
    --------
    >>> tail = NoiseTail(law="discrete-gaussian", scale=10.0, variance=400.0, reach=1.0, least_variance=400.0)
    >>> tail.above([-20.0, 0.0, 20.0, 100.0]).round(4)
    array([0.8532, 0.5197, 0.1709, 0.    ])
    """

    law: NoiseLaw
    scale: float = 0.0
    variance: float = 0.0
    reach: float = 1.0
    least_variance: float = 0.0

    def __post_init__(self) -> None:
        if self.law not in get_args(NoiseLaw):
            raise UsageError(f"noise law: got {self.law!r}, expected one of {', '.join(get_args(NoiseLaw))}.")
        numbers = (self.scale, self.variance, self.reach, self.least_variance)
        if not all(math.isfinite(x) and x >= 0 for x in numbers) or self.least_variance > self.variance:
            raise UsageError(
                f"noise: got scale {self.scale:g}, variances {self.least_variance:g} to {self.variance:g} and reach "
                f"{self.reach:g}, expected finite numbers from 0 up, the smaller variance first."
            )
        if not self.exact and (self.reach == 0 or (self.law != "unary" and self.scale == 0)):
            raise UsageError(
                f"noise: got {self.law} with variance {self.variance:g}, expected a scale and a reach above 0."
            )

    @property
    def exact(self) -> bool:
        """True if there is no noise."""
        return self.law == "none" or self.variance == 0

    @property
    def symmetric(self) -> bool:
        """True if -Z has the law of Z."""
        return self.law != "unary"

    def above(self, x: ArrayLike) -> AnyFloats:
        """Return a bound of P(Z >= x), at most 1, not increasing in x."""
        x = np.asarray(x, dtype=np.float64)
        if self.exact:
            return np.where(x <= 0, 1.0, 0.0)
        first, step, values = self._table
        knot = np.floor((x - first) / step).astype(np.int64)
        # A rounded quotient may name a neighbour.
        knot = np.where(first + knot * step > x, knot - 1, knot)
        knot = np.where(first + (knot + 1) * step <= x, knot + 1, knot)
        found = np.where(knot < 0, 1.0, values[np.clip(knot, 0, len(values) - 1)])
        return np.minimum(found, 0.5) * (x > 0) + found * (x <= 0) if self.symmetric else found

    def reach_of(self, probability: float) -> float:
        """Return a number that Z reaches with at most this probability.

        Examples
        --------
        >>> round(NoiseTail(law="discrete-laplace", scale=2.0, variance=7.835, reach=1.0).reach_of(1e-6), 1)
        34.0
        """
        if not SMALLEST <= probability < 1:
            raise UsageError(
                f"probability: got {probability:g}, expected a number from {SMALLEST:g} to below 1."
            )
        if self.exact:
            return math.ulp(0.0)
        first, step, values = self._table
        return float(first + step * int(np.argmax(values <= probability)))

    def integral(self, x: float) -> float:
        """Return at least ∫ of the bound from x to ∞; the bound is 1 left of its knots, and nothing right of them."""
        first, step, values = self._table
        inside = max(0.0, (x - first) / step)
        knot = min(math.floor(inside), len(values))
        part = float(values[knot]) * (knot - inside) if knot < len(values) else 0.0
        return max(0.0, first - x) + step * (float(values[knot:].sum()) + part)

    @property
    def furthest(self) -> float:
        """Point from which the bound is negligible, less than `SMALLEST`."""
        if self.exact:
            return 0.0
        first, step, values = self._table
        return float(first + step * (len(values) - 1))

    @cached_property
    def _table(self) -> _Table:
        """Bound at equally spaced knots, zero among them, made non-increasing."""
        deviation = math.sqrt(self.variance)
        end = deviation
        while self._chernoff(np.array([end]))[0] > SMALLEST:
            end *= 1.2
        # Noise that is nearly always zero has tails of many deviations; coarser knots only make the bound larger.
        step = max(deviation / STEPS, end / MOST_KNOTS)
        below = NEAR * STEPS if self.symmetric else 0
        x = step * np.arange(-below, math.ceil(end / step) + 1)
        bound = np.ones(len(x))
        bound[below + 1 :] = self._chernoff(x[below + 1 :])
        if self.symmetric:
            near = slice(0, min(len(x), 2 * below + 1))
            bound[near] = np.minimum(bound[near], self._smoothed(x[near]))
        return _Table(float(x[0]), step, np.minimum.accumulate(bound))

    # --- Chernoff ---------------------------------------------------------------------------------------

    def _chernoff(self, x: AnyFloats) -> AnyFloats:
        """Return min_t exp(K(t) - tx) for x > 0, over a grid of t."""
        if self.law == "unary":
            return np.asarray(np.exp(-(x**2) / (2 * (self.variance + self.reach * x / 3))))
        return self._chernoff_of(x, self.variance)

    def _chernoff_of(self, x: AnyFloats, variance: float) -> AnyFloats:
        t, kappa = self._generating
        found: AnyFloats = np.full(x.shape, np.inf)
        for rate, value in zip(t / self.reach, kappa * variance, strict=True):
            found = np.minimum(found, value - rate * x)
        return np.asarray(np.exp(np.minimum(found, 0.0)))

    @cached_property
    def _generating(self) -> tuple[AnyFloats, AnyFloats]:
        """Grid of t, and κ(t)/(v w²)."""
        v, w = self.draw_variance, self.reach
        if self.law == "discrete-gaussian":
            t = np.geomspace(1e-4, 1e2, 400) * w / math.sqrt(self.variance)
            return t, self.scale**2 * t**2 / (2 * v * w**2)
        if self.law == "skellam":
            t = np.minimum(np.geomspace(1e-4, 1e2, 400) * w / math.sqrt(self.variance), 50.0)
            return t, (np.cosh(t) - 1) / w**2
        end = math.acosh(1 + 1 / v)  # where the generating function ends
        t = np.minimum(np.geomspace(1e-4, 1e2, 400) * w / math.sqrt(self.variance), end * (1 - 1e-9))
        t = np.concatenate([t, end * (1 - np.geomspace(1e-6, 1, 200)[:-1])])
        return t, -np.log1p(-v * (np.cosh(t) - 1)) / (v * w**2)

    @cached_property
    def draw_variance(self) -> float:
        """Variance of one draw, v."""
        if self.law == "discrete-gaussian":
            x = np.arange(1.0, math.ceil(12 * self.scale) + 12)
            p = np.exp(-(x**2) / (2 * self.scale**2))
            return float(2 * (x**2 * p).sum() / (1 + 2 * p.sum()))
        if self.law == "skellam":
            return self.scale**2
        return 0.5 / math.sinh(0.5 / self.scale) ** 2  # 2a/(1-a)² with a = exp(-1/b)

    # --- Prawitz ----------------------------------------------------------------------------------------

    def _smoothed(self, x: AnyFloats) -> AnyFloats:
        """Return Prawitz's bound for the worst variance; where variances may be small, Chernoff's for those (x > 0)."""
        lowest = max(self.least_variance, self.variance / 20)
        bins = max(1, math.ceil(math.log(self.variance / lowest) / math.log(RATIO)))
        edges = np.geomspace(lowest, self.variance, bins + 1)
        edges[0], edges[-1] = lowest, self.variance
        end = min(math.pi / self.reach, FURTHEST / math.sqrt(self.variance))
        u, weights = self._nodes(end, lowest)
        least, most = self._decay(u)
        low, high = np.exp(-np.outer(most, edges[1:])), np.exp(-np.outer(least, edges[:-1]))
        v = u / end
        of_sine = ((1 - v) / np.tan(np.pi * v) + 1 / np.pi) * weights / end
        of_cosine = (1 - v) * weights / end
        bound = np.empty(len(x))
        for i in range(0, len(x), STEPS):
            part = slice(i, i + STEPS)
            phase = np.outer(x[part], u)
            a = of_sine * np.sin(phase) - of_cosine * np.cos(phase)
            lower = np.maximum(a, 0) @ low - np.maximum(-a, 0) @ high
            bound[part] = np.minimum(1, 0.5 - lower.min(axis=1) + SPARE)
        if self.least_variance < lowest:
            rest = np.ones(len(x))
            rest[x > 0] = np.minimum(0.5, self._chernoff_of(x[x > 0], lowest))
            bound = np.maximum(bound, rest)
        return bound

    def _nodes(self, end: float, variance: float) -> tuple[AnyFloats, AnyFloats]:
        """Return nodes and weights in u, up to `end` or to where no characteristic function matters any more."""
        u = end * np.geomspace(1e-6, 1, 2000)
        gone = self._decay(u)[0] * variance > 40
        last = float(u[int(np.argmax(gone))]) if gone.any() else end
        panels = max(8, math.ceil(NEAR * math.sqrt(self.variance) * last / 20))
        edges = np.linspace(0, last, panels + 1)
        middle, half = (edges[1:] + edges[:-1])[:, None] / 2, np.diff(edges)[:, None] / 2
        return (middle + half * _NODES).ravel(), (half * _WEIGHTS).ravel()

    def _decay(self, u: AnyFloats) -> tuple[AnyFloats, AnyFloats]:
        """Return per unit of Var Z the least and the most that -log of the characteristic function of Z at u can be.

        u²·r(wu)/v for some weights w up to `reach`, with r(u) = -log φ(u)/u², φ that of one draw. For Laplace and
        Skellam draws r falls from v/2. For Gaussian ones it is σ²/2 less what the other terms of the theta function
        add, which is at most a sum of (cosh(cu) - 1)/u² that grows with u.
        """
        v, w = self.draw_variance, self.reach
        if self.law == "skellam":
            return (1 - np.cos(w * u)) / w**2, u**2 / 2
        if self.law == "discrete-laplace":
            return np.log1p(v * (1 - np.cos(w * u))) / (v * w**2), u**2 / 2
        k, square = np.arange(1, 9), self.scale**2
        whole = 1 + 2 * np.exp(-2 * (np.pi * k) ** 2 * square).sum()
        phase = 2 * np.pi * square * np.outer(w * u, k)
        fall = 2 * (np.pi * k) ** 2 * square
        # e^{-fall}(cosh(phase) - 1), without overflow
        terms = np.exp(phase - fall) / 2 + np.exp(-phase - fall) / 2 - np.exp(-fall)
        most = u**2 * square / (2 * v)
        return most - 2 * terms.sum(axis=1) / (whole * v * w**2), most


class _Table(NamedTuple):
    """Table of the bound at `first`, `first + step`, ...; it is 1 below, and that of the last knot beyond."""

    first: float
    step: float
    values: AnyFloats
