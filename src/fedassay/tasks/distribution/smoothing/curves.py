"""Noisy distribution functions made non-decreasing again, and the proof that a smoothed curve is optimal.

How far a smoothed curve is from the conditions of optimality.

Nothing here knows how the solution was found: it is written from the definition, in the natural order of the
tree, with the multipliers λ of the steps w_0..w_K (from zero to the first point, from point to point, from the last
point to the top) as the only witness.

Noisy distribution functions made non-decreasing again, and kept between zero and a top.

Everything here is computed from what was released already, and costs no budget. A noisy curve F̂ of N = 2^L values
is moved as little as possible, in one of three senses:

- `isotonic`: the least sum of squared moves of its values;
- `l2`, `l1`: the least sum of squares (absolute values) of tree corrections ν, where the smoothed curve is
  F̂_i + Σ_l ν_{⌈i/2^l⌉,l}, l = 0..L. The correction of a node moves all 2^l values under it at once, as the noise of
  the paper's mechanism does.

All three are exact, take linear time (per round, for `l2`), and say how exact they were. Which is best when:
docs/explanation/smoothing.md.

Reference: Barczewski, Mawass and Ramon, *Differentially Private Empirical Cumulative Distribution Functions*, Eq. 3.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import isotonic_regression

from fedassay.errors import UsageError
from fedassay.protocol.arrays import Floats, Ints
from fedassay.tasks.distribution.smoothing.dyadic import Increments, levels_of
from fedassay.tasks.distribution.smoothing.least_absolute import least_absolute
from fedassay.tasks.distribution.smoothing.least_squares import least_squares


def corrected(curve: Floats, correction: tuple[Floats, ...], points: Ints | None = None) -> Floats:
    """F̂_i + Σ_l ν_{⌈i/2^l⌉,l}, at the points."""
    total = correction[-1]
    for level in reversed(correction[:-1]):
        total = np.repeat(total, 2) + level
    total = total + curve
    return total if points is None else total[points]


def steps_of(curve: Floats, top: float) -> Floats:
    """From zero to the first value, from value to value, and from the last value to the top."""
    return np.diff(curve, prepend=0.0, append=top)


def across(multipliers: NDArray[np.generic], points: Ints | None, count: int) -> tuple[Floats, ...]:
    """λ_a - λ_b over each node of each level: a and b are the steps that the node moves mass to and from."""
    if points is not None:
        multipliers = multipliers[np.searchsorted(points, np.arange(count + 1))]
    ends = [np.asarray(multipliers[:: 1 << level], dtype=np.float64) for level in range(count.bit_length())]
    return tuple(at[:-1] - at[1:] for at in ends)


def l2_residual(
    curve: Floats,
    top: float,
    points: Ints | None,
    *,
    correction: tuple[Floats, ...],
    raw: Floats,
    smoothed: Floats,
    multipliers: Floats,
) -> float:
    """The largest violation of the Karush-Kuhn-Tucker conditions, relative to max(top, max |F̂|).

    They are: ν = Bᵀλ (stationarity), λ ≥ 0, w ≥ 0, and min(λ, w) = 0 (complementarity), with w the steps of `raw`,
    what `corrected` makes of the curve. The distance between that and the curve that is returned counts as well.
    """
    steps = steps_of(raw, top)
    differences = across(multipliers, points, len(curve))
    stationarity = max(np.abs(nu - d).max() for nu, d in zip(correction, differences, strict=True))
    worst = max(
        stationarity,
        -multipliers.min(),
        -steps.min(),
        np.minimum(multipliers, steps).max(),
        np.abs(smoothed - raw).max(),
    )
    return float(worst / max(top, np.abs(curve).max()))


def l1_residual(
    curve: Floats,
    top: float,
    points: Ints | None,
    *,
    correction: tuple[Floats, ...],
    raw: Floats,
    smoothed: Floats,
    multipliers: Ints,
) -> float:
    """The duality gap or the largest violation of the constraints, whichever is larger.

    Gap: |Σ|ν| + Σ q λ|, relative to the larger of Σ|ν| and max(top, max |F̂|); infinite if λ is not feasible for the
    dual, λ ≥ 0 and |λ_a - λ_b| ≤ 1 on all nodes, which is checked exactly. Violations: of w ≥ 0 with w the steps of
    `raw`, what `corrected` makes of the curve, and the distance between that and the curve that is returned, relative
    to max(top, max |F̂|).
    """
    if multipliers.min() < 0 or any(np.abs(d).max() > 1 for d in across(multipliers, points, len(curve))):
        return float("inf")
    size = max(top, np.abs(curve).max())
    primal = sum(float(np.abs(nu).sum()) for nu in correction)
    dual = -float((steps_of(curve if points is None else curve[points], top) * multipliers).sum())
    violation = max(-steps_of(raw, top).min(), np.abs(smoothed - raw).max())
    return float(max(abs(primal - dual) / max(primal, size), violation / size))


def isotonic_residual(curve: Floats, top: float, weights: Floats, *, smoothed: Floats) -> float:
    """The largest violation of complementarity for the weighted projection of the values themselves.

    The multiplier of step i is μ_i = μ_0 - S_i with S_i the weighted moves of the first i values. All are ≥ 0 and
    one is zero, because the steps add up to more than zero: μ_0 = max S. Optimal if min(μ, w) = 0, with μ per total
    weight; relative to max(top, max |F̂|).
    """
    # In the widest floats there are: the rounding of a million sums would be larger than what is looked for.
    sums = np.cumsum(weights * (smoothed - curve), dtype=np.longdouble)
    moved = np.concatenate([[0.0], sums.astype(np.float64)]) / weights.sum()
    violation = np.minimum(moved.max() - moved, steps_of(smoothed, top)).max()
    return float(violation / max(top, np.abs(curve).max()))


# --- noisy distribution functions made non-decreasing again -------------------------------------------------

LARGEST = 1e100
"""Curves with larger values are refused: their squares would not be numbers any more."""


@dataclass(frozen=True, kw_only=True)
class Smoothed:
    """A smoothed curve and the proof that it is the best one.

    Parameters
    ----------
    curve : non-decreasing, between zero and the top, exactly. One value per point.
    correction : ν per level of the tree, from the N narrowest nodes to the one that covers all values; for
        `isotonic` one level, the moves of the values.
    objective : what was minimised.
    residual : how far the solution is from the conditions of optimality, relative to the size of the input; the
        function that made it says which conditions.
    """

    curve: Floats
    correction: tuple[Floats, ...]
    objective: float
    residual: float


def isotonic(curve: ArrayLike, *, top: float, weights: ArrayLike | None = None) -> Smoothed:
    """The closest non-decreasing curve in [0, top], in (weighted) squares of the distances of its values.

    Parameters
    ----------
    curve : the noisy values, any number of them, finite.
    top : the number of rows, or 1 for a normalised curve; above zero.
    weights : of the values, above zero; all alike if not given.

    Guarantee: exact up to rounding. The projection onto the non-decreasing curves, cut off at 0 and top, is the
    projection onto the non-decreasing curves in [0, top]. Being a projection, it never adds to the sum of squared
    errors, whatever the noise, if the truth lies in [0, top]. `residual` is
    `smoothing_certificate.isotonic_residual`.

    Examples
    --------
    >>> isotonic([-1.0, 3.0, 1.0, 9.0], top=8.0).curve
    array([0., 2., 2., 8.])
    """
    values, top = _checked_curve(curve, top)
    given = np.ones(len(values)) if weights is None else np.asarray(weights, dtype=np.float64)
    if given.shape != values.shape or not (np.isfinite(given).all() and (given > 0).all()):
        raise UsageError("weights: expected one finite number above 0 per value of the curve.")
    smoothed = _within(_rising(values, given), top)
    moves = smoothed - values
    return Smoothed(
        curve=smoothed,
        correction=(moves,),
        objective=float((given * moves * moves).sum()),
        residual=isotonic_residual(values, top, given, smoothed=smoothed),
    )


def l2(curve: ArrayLike, *, top: float, points: ArrayLike | None = None) -> Smoothed:
    """The non-decreasing curve in [0, top] with the least Σ ν² of tree corrections (Eq. 3, p = 2).

    Parameters
    ----------
    curve : the noisy values at N = 2^L points, N ≥ 2, finite.
    top : the number of rows, or 1 for a normalised curve; above zero.
    points : positions in the curve, from 0, increasing; the paper's B less one. Only the values there are made
        non-decreasing and returned; all if not given.

    Guarantee: exact up to rounding; the solution is unique. `residual` is `smoothing_certificate.l2_residual`.
    A curve that is non-decreasing and in [0, top] is returned as it is.

    Examples
    --------
    The step from 6 down to 4 is closed by the four nodes that cover one of the two values but not the other:

    >>> smoothed = l2([2.0, 6.0, 4.0, 8.0], top=10.0)
    >>> smoothed.curve
    array([1.5, 5. , 5. , 8.5])
    >>> smoothed.correction
    (array([ 0. , -0.5,  0.5,  0. ]), array([-0.5,  0.5]), array([0.]))
    """
    problem = _Problem.of(curve, top, points)
    increments = problem.increments
    lefts, last, _ = least_squares(increments)
    multipliers = increments.per_step(lefts, last)
    correction = across(multipliers, problem.points, len(problem.curve))
    raw = corrected(problem.curve, correction, problem.points)
    smoothed = problem.closed(raw)
    residual = l2_residual(
        problem.curve,
        problem.top,
        problem.points,
        correction=correction,
        raw=raw,
        smoothed=smoothed,
        multipliers=multipliers,
    )
    squares = sum(float((level * level).sum()) for level in correction)
    return problem.result(smoothed, correction, objective=squares * problem.scale**2, residual=residual)


def l1(curve: ArrayLike, *, top: float, points: ArrayLike | None = None) -> Smoothed:
    """A non-decreasing curve in [0, top] with the least Σ |ν| of tree corrections (Eq. 3, p = 1).

    The parameters are those of `l2`.

    Guarantee: exact up to rounding. The solution is not unique; of the choices that come up on the way, each is
    made so that the least is moved. `residual` is `smoothing_certificate.l1_residual`. A curve that is
    non-decreasing and in [0, top] is returned as it is.

    Examples
    --------
    >>> smoothed = l1([2.0, 6.0, 4.0, 8.0], top=10.0)
    >>> smoothed.curve, smoothed.objective
    (array([2., 5., 5., 8.]), 2.0)
    """
    problem = _Problem.of(curve, top, points)
    increments = problem.increments
    nodes, lefts, last = least_absolute(increments)
    correction = levels_of(nodes)
    raw = corrected(problem.curve, correction, problem.points)
    smoothed = problem.closed(raw)
    residual = l1_residual(
        problem.curve,
        problem.top,
        problem.points,
        correction=correction,
        raw=raw,
        smoothed=smoothed,
        multipliers=increments.per_step(lefts, last),
    )
    absolute = sum(float(np.abs(level).sum()) for level in correction)
    return problem.result(smoothed, correction, objective=absolute * problem.scale, residual=residual)


@dataclass(frozen=True, kw_only=True)
class _Problem:
    """A checked curve, divided by a power of two so that its values are of order one: nothing can overflow."""

    curve: Floats
    top: float
    points: Ints | None
    scale: float

    @classmethod
    def of(cls, curve: ArrayLike, top: float, points: ArrayLike | None) -> _Problem:
        values, top = _checked_curve(curve, top)
        if len(values) < 2 or len(values) & (len(values) - 1):
            raise UsageError(
                f"curve: got {len(values)} values, expected a power of two of at least 2; repeat the last value "
                "to fill it up."
            )
        chosen = None if points is None else _checked_points(points, len(values))
        scale = math.ldexp(1.0, math.frexp(max(top, float(np.abs(values).max())))[1])
        return cls(curve=values / scale, top=top / scale, points=chosen, scale=scale)

    @property
    def increments(self) -> Increments:
        # That not all steps are zero must survive rounding, however small the top is beside the noise.
        return Increments.of(self.curve, max(self.top, 2.0**-44), self.points)

    def closed(self, raw: Floats) -> Floats:
        """A corrected curve without the steps that rounding left a little below zero."""
        return _within(np.maximum.accumulate(raw), self.top)

    def result(
        self, smoothed: Floats, correction: tuple[Floats, ...], *, objective: float, residual: float
    ) -> Smoothed:
        return Smoothed(
            curve=smoothed * self.scale,
            correction=tuple(level * self.scale for level in correction),
            objective=objective,
            residual=residual,
        )


def _rising(values: Floats, weights: Floats) -> Floats:
    """The closest non-decreasing values. If they are so already, they are not even rounded."""
    if (values[:-1] <= values[1:]).all():
        return values
    blocks = isotonic_regression(values, weights=weights).blocks
    # SciPy's own means are merged pair by pair: 1e-12 off for one block of 2^15 values.
    means = np.add.reduceat(weights * values, blocks[:-1]) / np.add.reduceat(weights, blocks[:-1])
    return np.repeat(np.maximum.accumulate(means), np.diff(blocks))


def _within(curve: Floats, top: float) -> Floats:
    """Cut off at zero and the top. Adding zero turns -0 into 0."""
    return np.clip(curve, 0.0, top) + 0.0


def _checked_curve(curve: ArrayLike, top: float) -> tuple[Floats, float]:
    values = np.asarray(curve, dtype=np.float64)
    if values.ndim != 1 or not len(values) or not (np.abs(values) <= LARGEST).all():
        raise UsageError(
            f"curve: got shape {values.shape}, expected one row of numbers, all finite and at most {LARGEST:g} "
            "in size."
        )
    if not 0 < top <= LARGEST:
        raise UsageError(f"top: got {top:.3g}, expected the number of rows, or 1; above 0.")
    return values, float(top)


def _checked_points(points: ArrayLike, count: int) -> Ints:
    given = np.asarray(points)
    if (
        given.ndim != 1
        or not len(given)
        or given.dtype.kind not in "iu"
        or not 0 <= given[0] <= given[-1] < count
        or (given[:-1] >= given[1:]).any()
    ):
        raise UsageError(f"points: expected increasing whole numbers from 0 to {count - 1}, one at least.")
    return given.astype(np.int64)
