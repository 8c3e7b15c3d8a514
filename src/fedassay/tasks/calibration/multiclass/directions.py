"""Descent directions for a strongly convex function within bounds, from its gradient and the known part of its
curvature. Pure: no sums are asked for here.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from scipy.optimize import lsq_linear

from fedassay.protocol.arrays import Floats

_KEPT = 20
"""Number of pairs of steps and changes of the gradient that are kept."""

_SCALE = 0.1
"""Scale below which the minimum may be at 0 or less, which no division reaches."""

_ALIKE = 0.5
"""Part of a step; two models that differ by more are both too simple to choose between them."""

_ROUNDING = 1e-14
"""Part of the largest eigenvalue below which eigenvalues are rounding errors."""

_REACH = 10.0
"""Bound on a first try, times (1 + largest parameter): models of flat functions put the minimum far away."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Direction:
    """Step that stays within the bounds, its part to try first, and the largest possible decrease of the function.

    `decrease` is the prediction of the quadratic model for the whole step if Hessians are known, and otherwise an upper
    bound on the distance of the function from its minimum. `hidden` is a possible further decrease along directions
    whose curvature cannot be distinguished from rounding; the step does not move along them.
    """

    step: Floats
    decrease: float
    first: float
    hidden: float = 0.0


@dataclass(frozen=True, kw_only=True, eq=False)
class Curvature(ABC):
    """Known curvature. Parameters are within [least, most]; curvature is at least `ridge`."""

    least: float
    most: float
    ridge: float

    @abstractmethod
    def direction(self, theta: Floats, gradient: Floats, hessian: Floats | None) -> Direction:
        """Return the next direction; the gradient is negative along the step, unless the step is zero."""

    def learned(self, step: Floats, change: Floats, hessian: Floats | None) -> Self:
        """Update after a step, from the change of the gradient along it and the Hessian at its start."""
        return self

    def _reach(self, theta: Floats, step: Floats) -> float:
        far = float(np.abs(step).max())
        return min(1.0, _REACH * (1 + float(np.abs(theta).max())) / far) if far else 1.0


@dataclass(frozen=True, kw_only=True, eq=False)
class Hessians(Curvature):
    """Newton's method: the minimum of the quadratic model within the bounds."""

    def direction(self, theta: Floats, gradient: Floats, hessian: Floats | None) -> Direction:
        """See `Curvature`."""
        assert hessian is not None
        values, vectors = np.linalg.eigh(hessian)
        # Rounding hides small curvature. The known part is put back; curvature within rounding is taken to be
        # large, so that noise in the gradient does not become a step.
        floor = _ROUNDING * float(values[-1])
        rounded = values < floor if floor > self.ridge else np.zeros(len(values), dtype=bool)
        values = np.maximum(values, max(self.ridge, floor))
        along = vectors.T @ gradient
        step = -(vectors @ (along / values))
        low, high = self.least - theta, self.most - theta
        if np.any((step < low) | (step > high)):
            # min g·d + d·Hd/2 is the least-squares problem |H^{1/2} d + H^{-1/2} g|²/2.
            root = np.sqrt(values)
            found = lsq_linear(root[:, None] * vectors.T, -along / root, bounds=(low, high), method="bvls")
            step = np.clip(found.x, low, high)
        decrease = -float(gradient @ step + 0.5 * np.sum(values * (vectors.T @ step) ** 2))
        if (
            not decrease > 0
        ):  # at the minimum, or where rounding leaves nothing of the model: along the gradient
            step = np.clip(-gradient / values[-1], low, high)
            decrease = -0.5 * float(gradient @ step)
        hidden = self._hidden(theta, gradient, vectors[:, rounded])
        return Direction(step=step, decrease=decrease, first=self._reach(theta, step), hidden=hidden)

    def _hidden(self, theta: Floats, gradient: Floats, flat: Floats) -> float:
        """Bound the decrease along these directions by strong convexity: at most |gradient|²/(2 ridge)."""
        held = ((theta <= self.least) & (gradient > 0)) | ((theta >= self.most) & (gradient < 0))
        along = flat.T @ np.where(held, 0.0, gradient)
        return float(along @ along) / (2 * self.ridge)


@dataclass(frozen=True, kw_only=True, eq=False)
class ScaleStep(Hessians):
    """Newton's method for a single parameter s, which also uses the last point, and that s is a scale.

    The derivative g rises with s, so that s is a function of g, known with its derivative 1/h at two points: where the
    cubic through them has g = 0 is nearer to the minimum than Newton's step from either (Hermite interpolation).

    A scale that is too large is divided, not reduced, by a step in its logarithm: far too large a scale has lost its
    curvature, and Newton's step would lead beyond 0. With t = log s, the second derivative by t is h s² + g s, and
    g s/(h s² + g s) = r/(1 + r) with r = -step/s.
    """

    last: tuple[float, float, float] | None = None
    """Step from the last point, the change of g along it, and h at the last point."""

    def learned(self, step: Floats, change: Floats, hessian: Floats | None) -> Self:
        """See `Curvature`."""
        assert hessian is not None
        return replace(self, last=(float(step[0]), float(change[0]), float(hessian[0, 0])))

    def direction(self, theta: Floats, gradient: Floats, hessian: Floats | None) -> Direction:
        """See `Curvature`."""
        newton = super().direction(theta, gradient, hessian)
        assert hessian is not None
        s, d = float(theta[0]), float(newton.step[0])
        through_both = self._interpolated(float(gradient[0]), float(hessian[0, 0]))
        if d and abs(through_both / d - 1) < _ALIKE:
            return replace(newton, first=through_both / d)
        if s < _SCALE or d >= 0:
            return newton
        r = -d / s
        return replace(newton, first=-math.expm1(-r / (1 + r)) / r)

    def _interpolated(self, g: float, h: float) -> float:
        """Return the step to where the cubic has g = 0; NaN if there is no last point."""
        if self.last is None or self.last[1] == 0:
            return math.nan
        step, change, before = self.last
        t = 1 - g / change
        return float(
            -step * (1 + 2 * t) * (1 - t) ** 2 + change * (t * (1 - t) ** 2 / before - t**2 * (1 - t) / h)
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Pairs(Curvature):
    """L-BFGS: curvature from the last steps and the changes of the gradient along them.

    Bounds are kept by leaving out parameters that are held at a bound, and by cutting the rest of the step; if the cut
    step leads upwards, the gradient itself is followed, cut, which never does.

    Reference: Nocedal and Wright, Numerical Optimization, 2006, Algorithm 7.4.
    """

    steps: tuple[Floats, ...] = ()
    changes: tuple[Floats, ...] = ()

    def learned(self, step: Floats, change: Floats, hessian: Floats | None) -> Self:
        """See `Curvature`. Changes that no convex function has (other rows answered) are left out."""
        if float(step @ change) <= 0.5 * self.ridge * float(step @ step):
            return self
        return replace(self, steps=(*self.steps, step)[-_KEPT:], changes=(*self.changes, change)[-_KEPT:])

    def direction(self, theta: Floats, gradient: Floats, hessian: Floats | None) -> Direction:
        """See `Curvature`."""
        held = ((theta <= self.least) & (gradient > 0)) | ((theta >= self.most) & (gradient < 0))
        free = np.where(held, 0.0, gradient)
        # Strong convexity: f(x) >= f + g·(x - theta) + ridge |x - theta|²/2, minimised over x within the bounds.
        decrease = float(free @ free) / (2 * self.ridge)
        step = self._cut(theta, np.where(held, 0.0, -self._times_inverse(free)))
        if not float(gradient @ step) < 0:
            step = self._cut(theta, -free)
        return Direction(step=step, decrease=decrease, first=self._first(theta, step))

    def _first(self, theta: Floats, step: Floats) -> float:
        if self.steps or not step.any():
            return self._reach(theta, step)
        return min(1.0, 1.0 / float(np.abs(step).sum()))

    def _cut(self, theta: Floats, step: Floats) -> Floats:
        return np.asarray(np.clip(theta + step, self.least, self.most) - theta)

    def _times_inverse(self, gradient: Floats) -> Floats:
        pairs = [(s, y, 1 / float(s @ y)) for s, y in zip(self.steps, self.changes, strict=True)]
        q, weights = gradient, []
        for s, y, rho in reversed(pairs):
            weights.append(rho * float(s @ q))
            q = q - weights[-1] * y
        if pairs:
            s, y, rho = pairs[-1]
            q = q / (rho * float(y @ y))
        for (s, y, rho), weight in zip(pairs, reversed(weights), strict=True):
            q = q + (weight - rho * float(y @ q)) * s
        return np.asarray(q)
