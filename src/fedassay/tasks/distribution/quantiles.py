"""Quantiles of a released distribution, with intervals for sampling, noise and the width of a leaf."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fedassay.errors import UsageError
from fedassay.estimation.intervals import z_value
from fedassay.estimation.metric import Undefined
from fedassay.summaries.value_grid import ValueGrid
from fedassay.tasks.distribution.curve import Curve
from fedassay.tasks.distribution.shown import Shown, point_of

Entry = dict[str, Any]


def checked_quantile(quantile: float) -> float:
    """The quantile as a number; refused unless between 0 and 1."""
    try:
        number = float(quantile)
    except (TypeError, ValueError):
        number = math.nan
    if not 0 < number < 1:
        raise UsageError(f"quantile: got {quantile}, expected a number above 0 and below 1, such as 0.5.")
    return number


def quantile_entry(curve: Curve, shown: Shown, quantile: float, *, level: float) -> Entry:
    """The smallest point at which the shown distribution function reaches the quantile, and its interval.

    The value is that of ``numpy.quantile(method="inverted_cdf")``, rounded up to a point of the grid.

    Interval: all values that a test at this level does not reject. Let the quantile lie in leaf j, between the points
    j-1 and j, so that F is below q at the first and not at the second. It is rejected if F̂ is too far below q at point
    j or too far above at point j-1. How far is too far: the binomial quantile of the rows (exact without noise) and
    the normal quantile of the noise of F̂, that in the number of rows included, in quadrature. F̂ is the isotonic
    regression of the release: one that is not monotone would let noise far away widen the interval.

    Edge cases: values outside the range count as its ends. A quantile in an end leaf has a `reason` that says so;
    behind the last of given points it has no value, and an open interval has null as its end.
    """
    rows, places = curve.require_rows(), len(curve.monotone)
    below, above = binomial_margins(quantile, rows, level=level)
    noise = z_value(level) * np.sqrt(curve.share_variances(quantile))
    not_too_low = curve.monotone >= quantile - np.hypot(below, noise) - 1e-12
    not_too_high = curve.monotone < quantile + np.hypot(above, noise) + 1e-12
    first = int(np.argmax(not_too_low)) if not_too_low.any() else places - 1
    last = places - int(np.argmax(not_too_high[::-1])) if not_too_high.any() else 0
    place = shown.first_above(quantile)
    return entry_at(
        curve.grid,
        quantile,
        places - 1 if place is None else place,
        ends=(first, min(last, places - 1)),
        level=level,
    )


def binomial_margins(quantile: float, rows: float, *, level: float) -> tuple[float, float]:
    """How far the share of rows up to the quantile may be below and above it: binomial quantiles, never too narrow."""
    from scipy.stats import binom  # takes longer to import than most commands do

    n, tail = max(1, math.floor(rows)), (1 - level) / 2
    return quantile - float(binom.ppf(tail, n, quantile)) / n, float(
        binom.isf(tail, n, quantile)
    ) / n - quantile


def undefined_entry(quantile: float, reason: Undefined, *, level: float) -> Entry:
    """A quantile that has no value, and why."""
    return {
        "quantile": quantile,
        "value": None,
        "interval": None,
        "level": level,
        "reason": str(reason),
    }


def entry_at(grid: ValueGrid, quantile: float, place: int, *, ends: tuple[int, int], level: float) -> Entry:
    """The entry of a quantile whose value is in this leaf, and surely between these two."""
    value = point_of(grid, place) if place < grid.named else None
    first, last = min(ends[0], place), max(ends[1], place)
    low = grid.lower if grid.spacing != "given" else None
    if first > 0:
        low = point_of(grid, min(first, grid.named) - 1)
    high = point_of(grid, last) if last < grid.named else None
    entry: Entry = {"quantile": quantile, "value": value, "interval": [low, high], "level": level}
    reason = _end_leaf(grid, place)
    return entry if reason is None else {**entry, "reason": reason}


def _end_leaf(grid: ValueGrid, place: int) -> str | None:
    if place == 0:
        also = "" if grid.spacing == "given" else f", where all values below {grid.lower:g} are counted too"
        return f"at or below {point_of(grid, 0):g}, in the first cell{also}"
    if grid.spacing == "given":
        return f"above {grid.upper:g}, the last of the given points" if place >= grid.named else None
    if place == grid.points - 1:
        return (
            f"above {point_of(grid, place - 1):g}, in the last cell, where all values above {grid.upper:g} are counted "
            "too"
        )
    return None
