"""Points at which a distribution function is released, and the leaf that each value falls into."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedassay.errors import DataError, UsageError
from fedassay.protocol.arrays import Floats

SPACINGS = ("uniform", "logarithmic", "given")

MOST_POINTS = 1 << 20
"""Largest number of points that can be measured, and checked by two servers, as a whole."""


@dataclass(frozen=True, kw_only=True)
class ValueGrid:
    """Points τ_0 < .. < τ_{N-1}; leaf i holds the values in (τ_{i-1}, τ_i].

    Values at or below τ_0 fall into the first leaf and values above the last point into the last one, so that
    every number is counted somewhere. The number of values up to τ_i is the sum of the leaves 0..i.

    Parameters
    ----------
    spacing : ``uniform`` (τ_i = lower + (i+1)·(upper-lower)/N), ``logarithmic`` (the same for logarithms; lower
        above zero) or ``given``.
    lower, upper : the range; for ``given`` the first and the last point.
    points : N, a power of two from 2 to 2^20. For ``given`` it is larger than the number of given points: what
        lies above the last one falls into the next leaf, and leaves behind it stay empty.
    given : increasing points, for the spacing ``given``.

    Examples
    --------
    >>> grid = ValueGrid(lower=0.0, upper=10.0, points=4)
    >>> grid.thresholds
    array([ 2.5,  5. ,  7.5, 10. ])
    >>> grid.locate([-1.0, 2.5, 2.6, 10.0, 11.0])
    array([0, 0, 1, 3, 3])
    >>> ValueGrid.of([1.0, 5.0]).locate([0.0, 1.0, 3.0, 6.0])
    array([0, 0, 1, 2])
    """

    lower: float
    upper: float
    points: int
    spacing: str = "uniform"
    given: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "lower", float(self.lower))
        object.__setattr__(self, "upper", float(self.upper))
        object.__setattr__(self, "given", tuple(float(point) for point in self.given))
        if self.spacing not in SPACINGS:
            raise UsageError(f"grid: got {self.spacing!r}, expected one of {', '.join(SPACINGS)}.")
        if (
            type(self.points) is not int
            or not 2 <= self.points <= MOST_POINTS
            or self.points.bit_count() != 1
        ):
            raise UsageError(f"points: got {self.points}, expected a power of two from 2 to 2^20.")
        if not (math.isfinite(self.lower) and math.isfinite(self.upper)):
            raise UsageError(f"range: got {self.lower} to {self.upper}, expected two finite numbers.")
        if (self.spacing == "given") != bool(self.given):
            raise UsageError("grid: points are given exactly for the spacing given.")
        if self.spacing == "given":
            self._check_given()
        else:
            self._check_range()

    @classmethod
    def of(cls, given: ArrayLike) -> ValueGrid:
        """Build a grid of given points."""
        points = tuple(float(point) for point in np.asarray(given, dtype=np.float64).reshape(-1))
        if not points:
            raise UsageError("grid: got no points, expected one at least.")
        if len(points) >= MOST_POINTS:
            raise UsageError(f"grid: got {len(points):,} given points, expected fewer than 2^20.")
        return cls(
            lower=points[0],
            upper=points[-1],
            points=1 << len(points).bit_length(),
            spacing="given",
            given=points,
        )

    def _check_given(self) -> None:
        points = np.array(self.given)
        if not np.isfinite(points).all() or (points[1:] <= points[:-1]).any():
            raise UsageError("grid: the given points must be finite and increasing.")
        if not len(points) < self.points:
            raise UsageError(
                f"points: got {self.points:,} for {len(points):,} given ones, expected more than that."
            )
        if (self.lower, self.upper) != (self.given[0], self.given[-1]):
            raise UsageError("range: expected the first and the last of the given points.")

    def _check_range(self) -> None:
        if not self.lower < self.upper:
            raise UsageError(
                f"range: got {self.lower:g} to {self.upper:g}, expected a lower end below the upper end."
            )
        if self.spacing == "logarithmic" and self.lower <= 0:
            raise UsageError(
                f"range: got {self.lower:g} as the lower end, expected one above 0 for a logarithmic grid."
            )
        if not math.isfinite(self.upper - self.lower):
            raise UsageError(
                f"range: got {self.lower:g} to {self.upper:g}, expected ends whose distance is a finite number."
            )
        before = self.threshold(np.array([-1, self.points - 2])).tolist()
        after = self.threshold(np.array([0, self.points - 1])).tolist()
        steps = [(b - a, max(abs(a), abs(b))) for a, b in zip(before, after, strict=True)]
        if self.spacing == "logarithmic":
            low, high = self._ends
            steps.append(((high - low) / self.points, max(abs(low), abs(high))))
        # A step of few units of rounding, at either end, would let points coincide.
        if not all(step > 8 * math.ulp(size) for step, size in steps):
            raise UsageError(
                f"points: {self.points:,} between {self.lower:g} and {self.upper:g} are closer together than "
                "numbers can be; expected fewer."
            )

    def threshold(self, places: NDArray[np.int64]) -> Floats:
        """Return the points τ_i at these places i."""
        if self.spacing == "given":
            return self.thresholds[places]
        share = (places + 1.0) / self.points  # exact, N is a power of two
        low, high = self._ends
        inner = low + share * (high - low)
        inner = self._decimal(inner) if self.spacing == "uniform" else np.exp(np.minimum(inner, high))
        return np.where(places >= self.points - 1, self.upper, np.minimum(inner, self.upper))

    @property
    def _ends(self) -> tuple[float, float]:
        """Ends of the range, between whose logarithms a logarithmic grid is uniform."""
        logarithmic = self.spacing == "logarithmic"
        return (math.log(self.lower), math.log(self.upper)) if logarithmic else (self.lower, self.upper)

    def _decimal(self, points: Floats) -> Floats:
        """Return the decimal numbers that are meant: 3.9, and not 3.8999999999999995, below which a value of 3.9 would
        not be.

        Rounded to the 15th digit of the larger end of the range, unless points are close to that themselves. Powers of
        ten up to the 22nd are exact, so that the quotient is the number that a decimal is read as.
        """
        digits = 14 - math.floor(math.log10(max(abs(self.lower), abs(self.upper))))
        step = (self.upper - self.lower) / self.points
        if not 0 <= digits <= 22 or step * 10.0**digits < 100:
            return points
        return np.asarray(np.rint(points * 10.0**digits) / 10.0**digits + 0.0)

    @property
    def thresholds(self) -> Floats:
        """All points; infinite behind the last given one."""
        return _thresholds(self)

    @property
    def edges(self) -> Floats:
        """Ends of the leaves: nothing is below the first end, and each point is an end."""
        return np.concatenate([[-np.inf], self.thresholds])

    @property
    def named(self) -> int:
        """Number of points to show: all, or the given ones."""
        return len(self.given) or self.points

    def locate(self, values: ArrayLike) -> NDArray[np.int64]:
        """Return the leaf of each value: the place of the first point not below it, the last leaf if there is none."""
        x = np.asarray(values, dtype=np.float64)
        if x.size and np.isnan(x.min()):
            raise DataError("values: got a value that is NaN, expected a number in every row.")
        if self.spacing == "given":
            return np.minimum(np.searchsorted(self.thresholds, x, side="left"), self.points - 1).astype(
                np.int64
            )
        x = np.clip(x, self.lower, self.upper)
        low, high = self._ends
        share = ((x if self.spacing == "uniform" else np.log(x)) - low) / (high - low)
        leaf: NDArray[np.int64] = np.clip(np.ceil(share * self.points) - 1, 0, self.points - 1).astype(
            np.int64
        )
        # Rounding may be one leaf off; the points themselves decide.
        leaf += x > self.threshold(leaf)
        leaf -= (leaf > 0) & (x <= self.threshold(np.maximum(leaf - 1, 0)))
        return leaf

    def outside(self, values: ArrayLike) -> int:
        """Return the number of values below the lower or above the upper end, which are counted into the end leaves."""
        if self.spacing == "given":
            return 0
        x = np.asarray(values, dtype=np.float64)
        return int(((x < self.lower) | (x > self.upper)).sum())


@lru_cache(maxsize=16)
def _thresholds(grid: ValueGrid) -> Floats:
    if grid.spacing == "given":
        points = np.concatenate([grid.given, np.full(grid.points - len(grid.given), np.inf)])
    else:
        points = grid.threshold(np.arange(grid.points))
    points.flags.writeable = False
    return points


def power_of_two(points: int) -> int:
    """Return the smallest power of two that is not below, at least 2.

    Examples
    --------
    >>> power_of_two(1000), power_of_two(1024), power_of_two(1)
    (1024, 1024, 2)
    """
    return max(2, 1 << (points - 1).bit_length())
