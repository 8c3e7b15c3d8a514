"""A distribution function as it is shown: which points, and smoothed how."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedassay.summaries.value_grid import ValueGrid
from fedassay.tasks.distribution.curve import Curve, Floats, Ints
from fedassay.tasks.distribution.smoothing import isotonic, l1, l2

SMOOTHINGS = ("none", "isotonic", "l1", "l2")


@dataclass(frozen=True, kw_only=True, eq=False)
class Shown:
    """The values of a distribution function at some places of its grid."""

    places: Ints
    values: Floats

    @classmethod
    def of(cls, curve: Curve, *, smoothing: str, smoothed_points: int | None) -> Shown:
        """The curve after smoothing; without it, or without noise, only cut off at 0 and 1.

        With `smoothed_points`, only so many of the points are smoothed and shown. Raises `Undefined` if there are too
        few rows.
        """
        rows, sums = curve.require_rows(), curve.sums[1:]
        places = shown_places(curve.grid, smoothed_points)
        some = places if smoothed_points is not None else np.arange(len(sums))
        if curve.exact or smoothing == "none":
            values = np.clip(sums[some] / rows, 0.0, 1.0)
        elif smoothing == "isotonic":
            values = isotonic(sums[some], top=rows).curve / rows
        else:
            tree = {"l1": l1, "l2": l2}[smoothing]
            values = tree(sums, top=rows, points=some).curve / rows
        return cls(places=places, values=np.minimum(values[: len(places)], 1.0))

    def first_above(self, share: float) -> int | None:
        """The place of the first value that is not below a share, rounding aside; None if all are."""
        reached = self.values >= share - 1e-12
        return int(self.places[int(np.argmax(reached))]) if reached.any() else None


def shown_places(grid: ValueGrid, smoothed_points: int | None) -> Ints:
    """The places of the points that are shown."""
    return spread_out(grid.named, smoothed_points)


def spread_out(count: int, most: int | None) -> Ints:
    """At most so many of the numbers below `count`, evenly spread, the last one among them.

    Examples
    --------
    >>> spread_out(8, 4)
    array([1, 3, 5, 7])
    >>> spread_out(3, None)
    array([0, 1, 2])
    """
    if most is None or most >= count:
        return np.arange(count)
    return np.arange(1, most + 1) * count // most - 1


def point_of(grid: ValueGrid, place: int) -> float:
    """The point at a place."""
    return float(grid.threshold(np.array([place]))[0])
