"""Noisy distribution functions made non-decreasing again, and kept between zero and a top.

Everything here is computed from what was released already, and costs no budget. A noisy curve F̂ of N = 2^L values
is moved as little as possible, in one of three senses:

- `isotonic`: the least sum of squared moves of its values;
- `l2`, `l1`: the least sum of squares (absolute values) of tree corrections ν, where the smoothed curve is
  F̂_i + Σ_l ν_{⌈i/2^l⌉,l}, l = 0..L. The correction of a node moves all 2^l values under it at once, as the noise of
  the paper's mechanism does.

All three are exact and take linear time (per round, for `l2`); tests certify how exact they are. Which is best when:
docs/explanation/smoothing.md.

Reference: Barczewski, Mawass and Ramon, *Differentially Private Empirical Cumulative Distribution Functions*, Eq. 3.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import isotonic_regression

from fedassay.errors import UsageError
from fedassay.protocol.arrays import Floats, Ints
from fedassay.tasks.distribution.smoothing.dyadic import Increments, levels_of
from fedassay.tasks.distribution.smoothing.least_absolute import least_absolute
from fedassay.tasks.distribution.smoothing.least_squares import least_squares


def corrected(curve: Floats, correction: tuple[Floats, ...], points: Ints | None = None) -> Floats:
    """Return F̂_i + Σ_l ν_{⌈i/2^l⌉,l}, at the points."""
    total = correction[-1]
    for level in reversed(correction[:-1]):
        total = np.repeat(total, 2) + level
    total = total + curve
    return total if points is None else total[points]


def across(multipliers: NDArray[np.generic], points: Ints | None, count: int) -> tuple[Floats, ...]:
    """Return λ_a - λ_b over each node of each level: a and b are the steps that the node moves mass to and from."""
    if points is not None:
        multipliers = multipliers[np.searchsorted(points, np.arange(count + 1))]
    ends = [np.asarray(multipliers[:: 1 << level], dtype=np.float64) for level in range(count.bit_length())]
    return tuple(at[:-1] - at[1:] for at in ends)


LARGEST = 1e100
"""Largest value of a curve; squares of larger values would not be numbers any more, and they are refused."""


def isotonic(curve: ArrayLike, *, top: float) -> Floats:
    """Return the closest non-decreasing curve in [0, top], in squares of the distances of its values.

    Parameters
    ----------
    curve : the noisy values, any number of them, finite.
    top : the number of rows, or 1 for a normalised curve; above zero.

    Guarantee: exact up to rounding. The projection onto the non-decreasing curves, cut off at 0 and top, is the
    projection onto the non-decreasing curves in [0, top]. Being a projection, it never adds to the sum of squared
    errors, whatever the noise, if the truth lies in [0, top].

    Examples
    --------
    >>> isotonic([-1.0, 3.0, 1.0, 9.0], top=8.0)
    array([0., 2., 2., 8.])
    """
    values, top = _checked_curve(curve, top)
    return _within(_rising(values), top)


def l2(curve: ArrayLike, *, top: float, points: ArrayLike | None = None) -> Floats:
    """Return the non-decreasing curve in [0, top] with the least Σ ν² of tree corrections (Eq. 3, p = 2).

    Parameters
    ----------
    curve : the noisy values at N = 2^L points, N ≥ 2, finite.
    top : the number of rows, or 1 for a normalised curve; above zero.
    points : positions in the curve, from 0, increasing; the paper's B less one. Only the values there are made
        non-decreasing and returned; all if not given.

    Guarantee: exact up to rounding; the solution is unique. A curve that is non-decreasing and in [0, top] is returned
    as it is.

    Examples
    --------
    The step from 6 down to 4 is closed by the four nodes that cover one of the two values but not the other:

    >>> l2([2.0, 6.0, 4.0, 8.0], top=10.0)
    array([1.5, 5. , 5. , 8.5])
    """
    problem = Problem.of(curve, top, points)
    return problem.smoothed(problem.l2_solution()[0])


def l1(curve: ArrayLike, *, top: float, points: ArrayLike | None = None) -> Floats:
    """Return a non-decreasing curve in [0, top] with the least Σ |ν| of tree corrections (Eq. 3, p = 1).

    The parameters are those of `l2`.

    Guarantee: exact up to rounding. The solution is not unique; of the choices that come up on the way, each is
    made so that the least is moved. A curve that is non-decreasing and in [0, top] is returned as it is.

    Examples
    --------
    >>> l1([2.0, 6.0, 4.0, 8.0], top=10.0)
    array([2., 5., 5., 8.])
    """
    problem = Problem.of(curve, top, points)
    return problem.smoothed(problem.l1_solution()[0])


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Checked curve, divided by a power of two so that its values are of order one: nothing can overflow."""

    curve: Floats
    top: float
    points: Ints | None
    scale: float

    @classmethod
    def of(cls, curve: ArrayLike, top: float, points: ArrayLike | None) -> Problem:
        """Check what is given, and scale it."""
        values, top = _checked_curve(curve, top)
        if len(values) < 2 or len(values) & (len(values) - 1):
            raise UsageError(
                f"curve: got {len(values)} values, expected a power of two of at least 2; repeat the last value "
                "to fill it up."
            )
        chosen = None if points is None else _checked_points(points, len(values))
        scale = math.ldexp(1.0, math.frexp(max(top, float(np.abs(values).max())))[1])
        return cls(curve=values / scale, top=top / scale, points=chosen, scale=scale)

    def l2_solution(self) -> tuple[tuple[Floats, ...], Floats]:
        """Return ν per level of the tree, from the narrowest nodes to the node that covers all, and λ per step."""
        lefts, last, _ = least_squares(self._increments)
        multipliers = self._increments.per_step(lefts, last)
        return across(multipliers, self.points, len(self.curve)), multipliers

    def l1_solution(self) -> tuple[tuple[Floats, ...], Ints]:
        """Return ν and λ, as `l2_solution` does."""
        nodes, lefts, last = least_absolute(self._increments)
        return levels_of(nodes), self._increments.per_step(lefts, last)

    def smoothed(self, correction: tuple[Floats, ...]) -> Floats:
        """Return the corrected curve without the steps that rounding left a little below zero."""
        raw = corrected(self.curve, correction, self.points)
        return _within(np.maximum.accumulate(raw), self.top) * self.scale

    @cached_property
    def _increments(self) -> Increments:
        # That not all steps are zero must survive rounding, however small the top is compared with the noise.
        return Increments.of(self.curve, max(self.top, 2.0**-44), self.points)


def _rising(values: Floats) -> Floats:
    """Return the closest non-decreasing values. If they are so already, they are not even rounded."""
    if (values[:-1] <= values[1:]).all():
        return values
    blocks = isotonic_regression(values).blocks
    # SciPy's own means are merged pair by pair: 1e-12 off for one block of 2^15 values.
    means = np.add.reduceat(values, blocks[:-1]) / np.diff(blocks)
    return np.repeat(np.maximum.accumulate(means), np.diff(blocks))


def _within(curve: Floats, top: float) -> Floats:
    """Cut the curve off at zero and the top. Adding zero turns -0 into 0."""
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
