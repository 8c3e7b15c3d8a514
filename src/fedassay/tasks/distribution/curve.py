"""Contents of a released distribution: sums up to each point, the law of their noise, and bands.

Three mechanisms, one reading: each gives unbiased sums F_0 = 0, F_1, .., F_N of the first leaves and the exact
covariance of their noise. Nothing here is smoothed; smoothing is for what is shown (see `shown`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedassay.errors import UsageError
from fedassay.estimation.count_noise import LeafCovariance, LevelReports, NodeNoise, PrefixNoise
from fedassay.estimation.curves import NOISE_SHARE, dkw_half_width, half_width_of, report_half_width
from fedassay.estimation.evidence import enough, plausible
from fedassay.estimation.intervals import z_value
from fedassay.estimation.least_squares import LeastSquares, bit_variances, reporting_clients
from fedassay.estimation.metric import Undefined
from fedassay.protocol.arrays import Floats, Ints
from fedassay.protocol.vocabulary import Noise
from fedassay.summaries.distribution.grid import ValueGrid
from fedassay.tasks.distribution.smoothing.curves import isotonic, l1, l2

_STEPS = 40
"""Number of variances for which half-widths are computed; each point takes the next larger variance."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ReleasedCurve:
    """Number of rows with a value up to each point, as released, and what is known about the error.

    Parameters
    ----------
    grid : the points.
    sums : F_0 = 0, F_1, .., F_N; F_r is the number of rows up to the r-th point, unbiased.
    law : the noise of these sums.
    noise : the law of a draw.
    reach : the largest weight of a draw in a sum.
    reports : where each client reports on one level, the law of which `law` is a part.
    label : the class of `reports` that this curve is: 1 for the first, 0 for the second.
    """

    grid: ValueGrid
    sums: Floats
    law: PrefixNoise
    noise: Noise
    reach: float = 1.0
    reports: LevelReports | None = None
    label: int = 1

    @property
    def exact(self) -> bool:
        """True if there is no noise."""
        return self.noise.variance == 0

    @property
    def rows(self) -> float:
        """Number of rows, F_N."""
        return float(self.sums[-1])

    def require_rows(self) -> float:
        """Return F_N, if it stands out from the noise; else raise `Undefined`."""
        return enough("rows", self.rows, 0.0 if self.exact else self.law.total)

    @cached_property
    def shares(self) -> Floats:
        """Shares F_r/F_N for r = 1..N, as released: under noise neither monotone nor within [0, 1]."""
        return self.sums[1:] / self.require_rows()

    @cached_property
    def monotone(self) -> Floats:
        """Closest non-decreasing shares in [0, 1]."""
        rows = self.require_rows()
        return isotonic(self.sums[1:], top=rows) / rows

    def share_variances(self, shares: Floats | float, places: Ints | slice = slice(None)) -> Floats:
        """Return the noise variance of F_r/F_N where the true shares are these, at places r-1 from 0; all by default.

        F̂_r/F̂_N - s = (e_r - s·e_N)/F̂_N for the errors e of the two sums and s = F_r/F_N: exact, given F̂_N.
        """
        law = self.law
        variances = law.below[1:][places] - 2 * shares * law.joint[1:][places] + np.square(shares) * law.total
        # A difference of sums: where it vanishes, rounding can leave it below zero.
        return np.asarray(np.maximum(variances, 0.0) / self.require_rows() ** 2)

    def band(self, *, level: float) -> tuple[Floats, Floats]:
        """Return lower and upper ends that hold the distribution function at all points at once, with this probability.

        Sampling: Dvoretzky, Kiefer and Wolfowitz with Massart's constant. Noise: a Chernoff bound at each point, with
        a union over all of them. The function is known not to decrease, so that a lower end holds for all points
        to the right, and an upper end for all to the left. Where clients report on one level each, Bernstein's
        inequality bounds both errors together (`report_half_width`).
        """
        half = self._half_widths(level)
        lower = np.maximum.accumulate(self.shares - half)
        upper = np.minimum.accumulate((self.shares + half)[::-1])[::-1]
        return np.clip(lower, 0.0, 1.0), np.clip(upper, 0.0, 1.0)

    def _half_widths(self, level: float) -> Floats | float:
        error, rows = 1 - level, self.require_rows()
        if self.exact:
            return dkw_half_width(rows, error)
        if self.reports is not None:
            variances = self.reports.rate_variances(self.label, 1 - np.concatenate([[0.0], self._inside]))
            return report_half_width(self.noise, float(variances.max()), len(self.shares), error) / rows
        fewest = max(1.0, rows - z_value(level) * math.sqrt(self.law.total))
        return dkw_half_width(fewest, (1 - NOISE_SHARE) * error) + self.noise_half_widths(level=level)

    def noise_half_widths(self, *, level: float) -> Floats:
        """Return the part of the band's half-width that is for the noise, at each point."""
        variances = self.share_variances(self._inside)

        def half_width(variance: float) -> float:
            return half_width_of(
                self.noise,
                variance * self.rows**2,
                points=len(variances),
                error=NOISE_SHARE * (1 - level),
                reach=self.reach,
            )

        return _stepwise(half_width, variances) / self.rows

    @property
    def _inside(self) -> Floats:
        return np.clip(self.shares, 0.0, 1.0)


def _stepwise(function: Callable[[float], float], variances: Floats) -> Floats:
    """Bound an increasing function from above at many places: each place is rounded up to one of a few."""
    largest = float(variances.max())
    if largest == 0:
        return np.zeros(len(variances))
    steps = np.geomspace(largest * 1e-2, largest, _STEPS)
    values = np.array([function(float(step)) for step in steps])
    return np.asarray(values[np.minimum(np.searchsorted(steps, variances), _STEPS - 1)])


def curve_of(
    grid: ValueGrid, sums: Floats, fit: LeafCovariance, noise: Noise, *, times: int = 1
) -> ReleasedCurve:
    """Return the curve of the rows of one class, or of several together.

    Parameters
    ----------
    sums : of all of these classes.
    fit : the covariance of the leaves of one class.
    times : number of classes.
    """
    if fit.exact or not noise.reporting:
        one = NodeNoise(fit=fit).positives
        law = PrefixNoise(below=times * one.below, joint=times * one.joint, total=times * one.total)
        return ReleasedCurve(grid=grid, sums=sums, law=law, noise=noise, reach=fit.reach)
    assert isinstance(fit, LeastSquares)
    counts = plausible(sums)
    # As many bits for each node as there are classes, and one class that holds all rows.
    reports = LevelReports(
        fit=fit,
        bits=tuple(times * bits for bits in bit_variances(noise)),
        reporting=noise.reporting,
        clients=max(reporting_clients(noise), float(counts.sum())),
        counts=np.stack([counts, np.zeros_like(counts)]),
    )
    return ReleasedCurve(grid=grid, sums=sums, law=reports.positives, noise=noise, reports=reports)


# --- a distribution function as it is shown -----------------------------------------------------------------

SMOOTHINGS = ("none", "isotonic", "l1", "l2")


@dataclass(frozen=True, kw_only=True, eq=False)
class Shown:
    """Values of a distribution function at some places of its grid."""

    places: Ints
    values: Floats

    @classmethod
    def of(cls, curve: ReleasedCurve, *, smoothing: str, smoothed_points: int | None) -> Shown:
        """Smooth the curve; without smoothing, or without noise, only cut it off at 0 and 1.

        With `smoothed_points`, only that number of points is smoothed and shown. Raises `Undefined` if there are too
        few rows.
        """
        rows, sums = curve.require_rows(), curve.sums[1:]
        places = spread_out(curve.grid.named, smoothed_points)
        some = places if smoothed_points is not None else np.arange(len(sums))
        if curve.exact or smoothing == "none":
            values = np.clip(sums[some] / rows, 0.0, 1.0)
        elif smoothing == "isotonic":
            values = isotonic(sums[some], top=rows) / rows
        else:
            tree = {"l1": l1, "l2": l2}[smoothing]
            values = tree(sums, top=rows, points=some) / rows
        return cls(places=places, values=np.minimum(values[: len(places)], 1.0))

    def first_above(self, share: float) -> int | None:
        """Return the place of the first value that is not below a share, rounding aside; None if all are."""
        reached = self.values >= share - 1e-12
        return int(self.places[int(np.argmax(reached))]) if reached.any() else None


def spread_out(count: int, most: int | None) -> Ints:
    """Return at most `most` of the numbers below `count`, evenly spread, the last number among them.

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
    """Return the point at a place."""
    return float(grid.threshold(np.array([place]))[0])


# --- quantiles of a released distribution -------------------------------------------------------------------

Entry = dict[str, Any]


def checked_quantile(quantile: float) -> float:
    """Return the quantile as a number; raise unless it is between 0 and 1."""
    try:
        number = float(quantile)
    except (TypeError, ValueError):
        number = math.nan
    if not 0 < number < 1:
        raise UsageError(f"quantile: got {quantile}, expected a number above 0 and below 1, such as 0.5.")
    return number


def quantile_entry(curve: ReleasedCurve, shown: Shown, quantile: float, *, level: float) -> Entry:
    """Return the smallest point at which the shown distribution function reaches the quantile, and its interval.

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
    """Return how far the share of rows up to a quantile may be below and above it: binomial, never too narrow."""
    from scipy.stats import binom  # takes longer to import than most commands do

    n, tail = max(1, math.floor(rows)), (1 - level) / 2
    return quantile - float(binom.ppf(tail, n, quantile)) / n, float(
        binom.isf(tail, n, quantile)
    ) / n - quantile


def undefined_entry(quantile: float, reason: Undefined, *, level: float) -> Entry:
    """Return the entry of a quantile that has no value, with the reason."""
    return {"quantile": quantile, "value": None, "interval": None, "level": level, "reason": str(reason)}


def entry_at(grid: ValueGrid, quantile: float, place: int, *, ends: tuple[int, int], level: float) -> Entry:
    """Return the entry of a quantile whose value is in this leaf, and surely between these two."""
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


# --- from two released distributions ------------------------------------------------------------------------


def area_between(fpr: ArrayLike, tpr: ArrayLike, other_fpr: ArrayLike, other_tpr: ArrayLike) -> float:
    """Return the area between two ROC curves, each a broken line from (0, 0) to (1, 1) that never turns back.

    Exact: ∫ |R(x) - S(x)| dx over all pieces on which both are linear, cut where they cross. It is zero only for equal
    curves, unlike the difference of two areas under curves.

    Examples
    --------
    >>> area_between([0, 0, 1], [0, 1, 1], [0, 1], [0, 1])  # perfect, and no better than chance
    0.5
    >>> area_between([0, 0.5, 1], [0, 0.25, 1], [0, 0.5, 1], [0, 0.75, 1])
    0.25
    """
    one, two = _checked_curve(fpr, tpr), _checked_curve(other_fpr, other_tpr)
    x = np.unique(np.concatenate([one[0], two[0]]))
    # At a vertical piece a curve leaves to the right from its upper end and arrives from the left at its lower end.
    left = _at(one, x[:-1], side="right") - _at(two, x[:-1], side="right")
    right = _at(one, x[1:], side="left") - _at(two, x[1:], side="left")
    size = np.abs(left) + np.abs(right)
    crossing = (left**2 + right**2) / np.where(size > 0, 2 * size, 1.0)
    heights = np.where(left * right >= 0, size / 2, crossing)
    return float((np.diff(x) * heights).sum())


def _checked_curve(fpr: ArrayLike, tpr: ArrayLike) -> tuple[Floats, Floats]:
    x, y = np.asarray(fpr, dtype=np.float64), np.asarray(tpr, dtype=np.float64)
    if x.ndim != 1 or x.shape != y.shape or len(x) < 2 or not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise UsageError(
            "ROC curve: expected as many false as true positive rates, two at least, all finite."
        )
    if (np.diff(x) < 0).any() or (np.diff(y) < 0).any() or (x[0], y[0], x[-1], y[-1]) != (0, 0, 1, 1):
        raise UsageError("ROC curve: expected rates that never decrease, from (0, 0) to (1, 1).")
    return x, y


def _at(curve: tuple[Floats, Floats], x: Floats, *, side: str) -> Floats:
    """Return the curve's height just to one side of x."""
    xs, ys = curve
    if side == "right":  # the last corner at or before x, and the one after it
        start = np.searchsorted(xs, x, side="right") - 1
        end = np.minimum(start + 1, len(xs) - 1)
    else:
        end = np.searchsorted(xs, x, side="left")
        start = np.maximum(end - 1, 0)
    width = xs[end] - xs[start]
    share = np.where(width > 0, (x - xs[start]) / np.where(width > 0, width, 1.0), 0.0)
    flat = ys[start] if side == "right" else ys[end]
    return np.asarray(np.where(width > 0, ys[start] + share * (ys[end] - ys[start]), flat))
