"""Pooled optimum of a scaling calibrator, through sums: the optimum that a solver with all rows would find.

With f(theta) = Σ_i loss_i(theta) + (ridge/2) n ||theta - theta_0||², n the number of rows and theta_0 the identity map,
every family is convex in theta (`summaries.multiclass.losses`) and the ridge makes f strongly convex: there is one
minimum, separable data included, and the shift that does not affect the softmax stays where it was. A class that no row
has is finite too: vector and matrix scaling make it as improbable as the ridge allows.

Each step asks for one sum over all clients: rows, loss, gradient and (up to 420 parameters) Hessian at the public
theta. The distribution of rows over clients has no influence on the result.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fedassay.errors import UsageError
from fedassay.protocol.arrays import Floats
from fedassay.protocol.vocabulary import Part, Released, Step, Sum
from fedassay.summaries.maps import LARGEST_PARAMETER
from fedassay.summaries.multiclass.calibrator_sums import MOST_NEWTON, ScalingSums
from fedassay.summaries.multiclass.losses import FAMILIES, Family, LossSums
from fedassay.summaries.multiclass.maps import LOGIT_MAPS
from fedassay.summaries.multiclass.scaling_maps import LogitMap
from fedassay.tasks.calibration.multiclass.directions import Curvature, Direction, Hessians, Pairs, ScaleStep

RIDGE = 1e-6
"""Penalty per row: small against the curvature of any direction that rows determine."""

TOLERANCE = 1e-10
"""Part of the objective; a fit ends where the objective can fall by no more."""

NEWTON_SUMS, GRADIENT_SUMS = 40, 400
"""Largest number of sums that a fit asks for: with Hessians, and without."""

_FLOOR = 1e-14
"""Tolerance per row: the objective is not known more exactly, due to rounding."""

_ROUGH, _LARGE = 1e-4, 0.02
"""Thresholds for rough sums, which are right to about 1e-6 per row: a step that is expected to gain this part of a mean
loss above 0.02 may use them, and the step from there is then as good as the last step."""

_HIDDEN = 100.0
"""Largest hidden decrease, in tolerances: only the ridge bounds it, and it is mostly far less."""

_SUFFICIENT = 1e-4
_SMALLEST_STEP = 2.0**-40


@dataclass(frozen=True, kw_only=True)
class Fit:
    """Fitted map and the record of its fit.

    `loss_before` (to six digits) and `loss` are mean log losses of the rows, at the identity map and at this map;
    `objective` is the mean loss with the penalty. None is a value that the way of fitting does not reveal. `reason` is
    empty if the fit converged; otherwise it says why it ended early, and the map is the best one found. `clients` is
    the number that answered, with or without rows in this part, and `sums` the number of times they were asked. `noise`
    describes the privacy noise in the data of the fit.
    """

    map: LogitMap
    rows: float | None = None
    clients: int
    loss_before: float | None = None
    loss: float | None = None
    objective: float | None = None
    sums: int
    reason: str = ""
    noise: Mapping[str, Any] = field(default_factory=dict)

    @property
    def converged(self) -> bool:
        """True if this is the optimum."""
        return not self.reason


@dataclass(frozen=True, kw_only=True, eq=False)
class _Seen:
    """Penalised objective at one theta, per row."""

    theta: Floats
    rows: int
    clients: int
    loss: float
    value: float
    gradient: Floats
    hessian: Floats | None
    rough: bool = False


@dataclass(frozen=True, kw_only=True)
class _Problem:
    family: Family
    classes: int
    ridge: float
    part: Part

    @property
    def second_order(self) -> bool:
        return self.family.size(self.classes) <= MOST_NEWTON

    @property
    def most(self) -> int:
        return NEWTON_SUMS if self.second_order else GRADIENT_SUMS

    @property
    def curvature(self) -> Curvature:
        one = ScaleStep if self.family.size(self.classes) == 1 else Hessians
        kind = one if self.second_order else Pairs
        return kind(least=self.family.least, most=LARGEST_PARAMETER, ridge=self.ridge)

    def moved(self, here: _Seen, step: Floats) -> Floats:
        """Move by a step and clip to the bounds, which rounding may leave by a digit."""
        return np.clip(here.theta + step, self.family.least, LARGEST_PARAMETER)

    def roughly(self, decrease: float, value: float) -> bool:
        """Return whether rough sums suffice next: while the objective falls by far more than their error."""
        return self.family.name == "temperature" and value > _LARGE and decrease > _ROUGH * value

    def ask(self, theta: Floats, *, rough: bool = False) -> Generator[Step, Released[LossSums], _Seen]:
        """Ask for one sum over all clients; each may spend an equal part of the budget."""
        of = ScalingSums(
            method=self.family.name,
            classes=self.classes,
            theta=tuple(theta.tolist()),
            order=2 if self.second_order else 1,
            rough=rough,
        )
        released = yield Sum(of=of, share=1 / self.most, part=self.part)
        sums, n = released.value, max(1, released.value.rows)
        away = theta - self.family.identity(self.classes)
        return _Seen(
            theta=theta,
            rows=sums.rows,
            clients=released.clients,
            loss=sums.loss / n,
            value=sums.loss / n + self.ridge / 2 * float(away @ away),
            gradient=sums.gradient / n + self.ridge * away,
            hessian=None if sums.hessian is None else sums.hessian / n + self.ridge * np.eye(len(theta)),
            rough=rough,
        )

    def fit(self, at: _Seen, before: float, sums: int, reason: str = "") -> Fit:
        return Fit(
            map=LOGIT_MAPS[self.family.name].of(at.theta, self.classes),
            rows=at.rows,
            clients=at.clients,
            loss_before=before,
            loss=at.loss,
            objective=at.value,
            sums=sums,
            reason=reason,
        )


def fit_exact(
    method: str, classes: int, *, ridge: float = RIDGE, part: Part = Part.ALL
) -> Generator[Step, Released[LossSums], Fit]:
    """Fit the map of this family with the smallest ridge-penalised log loss over all rows. Tasks `yield from` it.

    Guarantee: for every family, the global optimum over its parameters (within ±2^20; for order-preserving scaling, at
    least 1e-6), to 1e-10 of the objective (or 1e-14 per row, if that is more; 100 times that where logits are so large
    that rounding hides curvature), or a `reason`. With up to 420 parameters (temperature; vector scaling of 210
    classes, matrix scaling of 20) the quadratic model at the last sums shows this: the decrease it predicts is
    within the tolerance, or within 100 times that and quadratic convergence, as seen in the last two, makes the next
    one less than a hundredth of it. That last step is taken too; typically it takes 3 to 8 sums, and the rest is of the
    order of rounding. With more parameters only gradients are summed (L-BFGS), and the tolerance is met by a bound
    that strong convexity gives, f - min f <= |gradient|²/(2 ridge n).

    Assumed: all sums are of the same rows. If other clients answer than before, their objective differs: the
    step to them is taken as it is.

    Edge cases: without rows, the identity map with a reason.

    Parameters
    ----------
    ridge : the penalty per row, above 0.
    """
    if method not in FAMILIES:
        raise UsageError(f"method: got {method!r}, expected one of {', '.join(FAMILIES)}.")
    if not 0 < ridge < math.inf:
        raise UsageError(f"ridge: got {ridge:.3g}, expected a finite number above 0.")
    family = FAMILIES[method]
    problem = _Problem(family=family, classes=classes, ridge=ridge, part=part)
    here = yield from problem.ask(family.identity(classes), rough=problem.roughly(1.0, 1.0))
    before, sums = here.loss, 1
    if not here.rows:
        return problem.fit(here, before, sums, "there are no rows")
    curvature = problem.curvature
    last = 0.0
    while True:
        direction = curvature.direction(here.theta, here.gradient, here.hessian)
        tolerance = max(TOLERANCE * here.value, _FLOOR)
        if not here.rough and _ends(direction.decrease, last, tolerance, problem):
            reason = _hidden(direction) if direction.hidden > _HIDDEN * tolerance else ""
            return problem.fit(_after(here, direction, problem), before, sums, reason)
        there, asked = yield from _improved(here, direction, problem, problem.most - sums)
        sums += asked
        if there is None:
            return problem.fit(here, before, sums, _why(direction, sums, problem))
        curvature = curvature.learned(there.theta - here.theta, there.gradient - here.gradient, here.hessian)
        here, last = there, direction.decrease


def _ends(decrease: float, last: float, tolerance: float, problem: _Problem) -> bool:
    """Return whether the objective is within the tolerance, or will be after the step of this predicted decrease.

    Newton's method converges quadratically: the next decrease is K times the square of this decrease, with K as it was
    from the last decrease to this. If that is a hundredth of the tolerance, from a decrease that is small already,
    another sum would add nothing.
    """
    if decrease <= tolerance or not problem.second_order:
        return decrease <= tolerance
    return decrease <= 100 * tolerance and 100 * decrease**3 <= tolerance * last**2


def _improved(
    here: _Seen, direction: Direction, problem: _Problem, left: int
) -> Generator[Step, Released[LossSums], tuple[_Seen | None, int]]:
    """Find a point on the way with a sufficiently smaller objective, and count the sums it took."""
    size = direction.first
    slope = float(here.gradient @ direction.step)
    rough = problem.roughly(direction.decrease, here.value)
    # Sums of many numbers are right to some 1e-15 of them, rough sums to 1e-6: less than that is not a rise.
    slack = 1e-5 if here.rough else 1e-14
    for asked in range(1, left + 1):
        there = yield from problem.ask(problem.moved(here, size * direction.step), rough=rough)
        if there.rows != here.rows or there.value <= here.value * (1 + slack) + _SUFFICIENT * size * slope:
            return there, asked
        size *= _shorter(here.value, size * slope, there.value, size * float(there.gradient @ direction.step))
        if size < _SMALLEST_STEP:
            return None, asked
    return None, left


def _shorter(start: float, slope: float, end: float, end_slope: float) -> float:
    """Return the part to try next of a step that was too long, from values and slopes at both ends of [0, 1].

    It is where the cubic through them is smallest, as for smooth functions; if that is next to the start, where the
    tangents meet: a convex function that has a sharp bend on the way, as with logits of a million, has it there.
    """
    # Nocedal and Wright, Numerical Optimization, 2006, Equation 3.59.
    one = slope + end_slope - 3 * (end - start)
    root = math.sqrt(max(0.0, one * one - slope * end_slope))
    bottom = end_slope - slope + 2 * root
    found = 1 - (end_slope + root - one) / bottom if bottom > 0 else 0.5
    if found < 0.1 and end_slope > slope:
        found = (end_slope - end + start) / (end_slope - slope)
    return min(0.8, max(1e-3, found))


def _after(here: _Seen, direction: Direction, problem: _Problem) -> _Seen:
    """Return the end of the last step, with the objective predicted by the quadratic model, not measured."""
    if not problem.second_order:
        return here
    theta = problem.moved(here, direction.first * direction.step)
    value, identity = here.value - direction.decrease, problem.family.identity(problem.classes)
    penalty = problem.ridge / 2 * float(np.sum((theta - identity) ** 2))
    return replace(here, theta=theta, loss=value - penalty, value=value)


def _hidden(direction: Direction) -> str:
    return (
        f"the logits are so large that rounding hides a part of the curvature: the mean loss with its penalty may "
        f"still fall by {direction.hidden:.1e}"
    )


def _why(direction: Direction, sums: int, problem: _Problem) -> str:
    if sums >= problem.most:
        return f"{sums} sums were not enough: the mean loss may still fall by {direction.decrease:.1e}"
    return (
        f"no smaller loss was found along the last direction, although the mean loss may still fall by "
        f"{direction.decrease:.1e}"
    )
