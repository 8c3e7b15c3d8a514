"""Coverage of thresholds on held-out rows, sizes of the sets, and differences between sites."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from fedassay.errors import UsageError
from fedassay.protocol.arrays import Ints
from fedassay.protocol.vocabulary import (
    Batch,
    Memory,
    Protection,
    Rows,
    Sensitivity,
    Total,
    Vector,
)
from fedassay.summaries.measures import SUMS, WithoutNoise, column
from fedassay.summaries.quantities import QUANTITIES, sets_of, widths
from fedassay.summaries.scored import MOST_CLASSES, Thresholded, condition_columns, whole

_PART = 4
"""Binary digits of a rest, which is written as a whole multiple of 2^-4."""

_SPLIT = 1 << 36
"""Unit of sums of squares, which are a multiple of it and a rest: both are within what fixed point holds."""

LARGEST_WIDTH = 2.0**40
"""Largest width: sums of the widths of up to 2^32 rows stay below 2^72, within what fixed point holds."""


# --- counts ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class CoverageOf:
    """Rows of one group that are covered and missed, by the size of their sets (one cell if sets have no size)."""

    covered_by_size: Total
    missed_by_size: Total

    @property
    def covered(self) -> float:
        """Number of rows that are covered."""
        return float(self.covered_by_size.sum())

    @property
    def rows(self) -> float:
        """Number of rows."""
        return self.covered + float(self.missed_by_size.sum())

    @property
    def sizes(self) -> Total:
        """Number of rows with a set of 0, 1, .. classes."""
        return np.asarray(self.covered_by_size + self.missed_by_size)


@dataclass(frozen=True, kw_only=True)
class CoverageCounts(Thresholded[dict[str, CoverageOf]]):
    """Numbers of rows that are covered and missed in each group, by the number of classes in the set.

    Every row adds one to exactly one cell (group, covered or not, size): the sensitivity is that of one count, for
    coverage and sizes together. Sets other than of classes have no size; their mean width is another question
    (`MeanWidth`), which is answered without noise only.

    With thresholds per class a set holds the classes that score at most their own threshold; with thresholds per group,
    those that score at most the threshold of the row's group.

    Parameters
    ----------
    classes : K, for ``lac``, ``aps`` and ``raps``, up to 1,024; 2 for ``binary``; 0 for other scores, and where sizes
        are not counted by class.
    """

    name: ClassVar[str] = "coverage-counts"

    classes: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        known = QUANTITIES[self.quantity]
        if known.gives_sets:
            least, most = (1, MOST_CLASSES) if known.classes is None else (known.classes, known.classes)
            if self.classes != 0 or self.by != "class":
                whole(self.classes, what="classes", least=least, most=most)
        elif self.classes != 0:
            raise UsageError(f"classes: got {self.classes} for {self.quantity}, expected none.")
        if self.by == "class" and self.classes and len(self.groups) != self.classes:
            raise UsageError(
                f"groups: got {len(self.groups)} for {self.classes} classes, expected one for each."
            )

    @property
    def sizes(self) -> int:
        """Number of sizes that a set can have, 0 included."""
        return self.classes + 1

    @property
    def length(self) -> int:
        """Number of entries: per group and size, covered and missed."""
        return len(self.names) * 2 * self.sizes

    @property
    def partitions(self) -> tuple[Ints, ...]:
        """All cells: a row is in one of them."""
        return (np.arange(self.length, dtype=np.int64),)

    @property
    def leaves(self) -> CoverageCounts:
        """Summary of the counts themselves: this one."""
        return self

    def from_leaves(self, counts: Vector) -> Vector:
        """Return the counts themselves."""
        return counts

    def measure(self, rows: Rows, memory: Memory) -> tuple[Vector, Memory]:
        """Count the rows. Linear in the rows, constant in memory, one pass."""
        counts = np.zeros(self.length, dtype=np.int64)
        for batch, place, covered in self.covered(rows):
            cell = (2 * place + ~covered) * self.sizes + self._set_sizes(batch, place)
            counts += np.bincount(cell, minlength=self.length)
        return counts, memory

    def _set_sizes(self, batch: Batch, place: Ints) -> Ints | int:
        if not self.classes:
            return 0
        if QUANTITIES[self.quantity].is_softmax and column(batch, "logits").shape[1] != self.classes:
            return 0  # another model's; a refusal would reveal that there are rows
        limits = np.array(self.thresholds)
        limit = limits if self.by == "class" else limits[place][:, None]
        chosen = sets_of(batch, limit, self.quantity, self.parameters)
        return np.asarray(np.count_nonzero(chosen, axis=1), dtype=np.int64)

    def sensitivity(self, protection: Protection) -> Sensitivity:
        """Return the sensitivity of counts: each row is in one cell."""
        return Sensitivity.of_counts(protection, multipliers=(1,))

    def read(self, total: Total) -> dict[str, CoverageOf]:
        """Return the counts of each group."""
        cells = total.reshape(len(self.names), 2, self.sizes)
        return {
            name: CoverageOf(covered_by_size=covered, missed_by_size=missed)
            for name, (covered, missed) in zip(self.names, cells, strict=True)
        }


# --- sums over sites, without noise ---------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class CoverageSums:
    """Totals over the sites with rows in a group: the number of sites, their rows n, those covered c, and c²/n."""

    sites: int
    rows: int
    covered: int
    squares: Fraction

    @property
    def between(self) -> float:
        """Spread of the sites' own coverages around that of all, Σ n_j·(c_j/n_j - c/n)²; 0 without rows."""
        if not self.rows:
            return 0.0
        return float(max(Fraction(0), self.squares - Fraction(self.covered**2, self.rows)))


@dataclass(frozen=True, kw_only=True)
class SiteCoverage(WithoutNoise, Thresholded[dict[str, CoverageSums]]):
    """Sums Σ1, Σn, Σc and Σc²/n for each group over the sites that have rows in it: n rows, of which c are covered.

    The differences between sites follow from these totals. c²/n is rounded to sixteenths: with all its digits, whole
    numbers n and c of a few sites could be solved for. Rounding is unbiased enough for a variance between sites: it
    adds 2 % to that of Pearson's statistic.

    Sensitivity: without a bound, so that it is not asked under noise, which would leave nothing to see.
    """

    name: ClassVar[str] = "site-coverage"

    @property
    def length(self) -> int:
        """Number of entries: per group Σ1, Σn, Σc, and Σc²/n in two parts."""
        return len(self.names) * 5

    def measure(self, rows: Rows, memory: Memory) -> tuple[Vector, Memory]:
        """Count, square, write down; zeros for groups without rows."""
        n, c = (np.zeros(len(self.names), dtype=np.int64) for _ in range(2))
        for _, place, covered in self.covered(rows):
            n += np.bincount(place, minlength=len(n))
            c += np.bincount(place[covered], minlength=len(c))
        entries: list[int] = []
        for count, inside in zip(n.tolist(), c.tolist(), strict=True):
            entries += site_entries(count, inside)
        return np.array(entries, dtype=np.int64), memory

    def read(self, total: Total) -> dict[str, CoverageSums]:
        """Return the sums of each group, by name."""
        found = {}
        for name, part in zip(self.names, np.split(total, len(self.names)), strict=True):
            sites, rows, covered, square, rest = (int(entry) for entry in part)
            squares = square + Fraction(rest, 1 << _PART)
            found[name] = CoverageSums(sites=sites, rows=rows, covered=covered, squares=squares)
        return found


def site_entries(rows: int, covered: int) -> list[int]:
    """Return the entries of a site with n rows, c of them covered: 1, n, c, and c²/n in two parts.

    Examples
    --------
    >>> site_entries(4, 3), site_entries(0, 0)
    ([1, 4, 3, 2, 4], [0, 0, 0, 0, 0])
    """
    square, rest = divmod(covered**2, max(1, rows))
    return [int(rows > 0), rows, covered, square, round(Fraction(rest << _PART, max(1, rows)))]


@dataclass(frozen=True, kw_only=True)
class WidthSum:
    """Rows of a group, and the sums of the widths of their intervals and of their squares.

    Both are +∞ if its threshold is.
    """

    rows: int
    width: float
    squares: float

    @property
    def mean(self) -> float | None:
        """Mean width; None without rows."""
        return self.width / self.rows if self.rows else None


@dataclass(frozen=True, kw_only=True)
class MeanWidth(WithoutNoise, Thresholded[dict[str, WidthSum]]):
    """Number of rows and sums of the widths of their intervals and of their squares, for each group.

    For ``normalised`` and ``cqr``. Sums are written in fixed point as in `SiteSums`. An interval that is empty has the
    width 0; one wider than 2^40 counts as that wide. Targets are not read. For ``absolute`` the width is twice the
    threshold everywhere, and other scores have no intervals.

    Sensitivity: without a bound, as for `SiteCoverage`.
    """

    name: ClassVar[str] = "mean-width"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.quantity not in ("normalised", "cqr"):
            raise UsageError(f"mean width: got {self.quantity!r}, expected 'normalised' or 'cqr'.")

    @property
    def columns(self) -> tuple[str, ...]:  # type: ignore[override]
        """Columns that the widths depend on, and those that distinguish groups."""
        ends = ("scale",) if self.quantity == "normalised" else ("lower", "upper")
        return (*ends, *condition_columns(self.by, self.quantity))

    @property
    def length(self) -> int:
        """Number of entries: per group a count, a sum, and a sum of squares in two parts."""
        return len(self.names) * (1 + 3 * SUMS.limbs)

    def measure(self, rows: Rows, memory: Memory) -> tuple[Vector, Memory]:
        """Add up widths; nothing for groups with an infinite threshold, which the reader knows."""
        n = np.zeros(len(self.names), dtype=np.int64)
        sums, squares = [Fraction(0)] * len(n), [Fraction(0)] * len(n)
        limits = np.where(np.isfinite(self.thresholds), self.thresholds, 0.0)
        for batch in rows.batches():
            place = self.places(batch, len(column(batch, self.columns[0])))
            with np.errstate(over="ignore", invalid="ignore"):
                width = widths(batch, self.quantity, limits[place])
            # Cut, not refused: whether a client refuses is seen, and thresholds are the server's.
            width = np.minimum(np.nan_to_num(width, nan=0.0), LARGEST_WIDTH)
            n += np.bincount(place, minlength=len(n))
            for total, weights in ((sums, width), (squares, width**2)):
                for group, added in enumerate(np.bincount(place, weights=weights, minlength=len(n)).tolist()):
                    total[group] += Fraction(added)
        entries: list[int] = []
        for count, width_sum, square, threshold in zip(
            n.tolist(), sums, squares, self.thresholds, strict=True
        ):
            numbers = [width_sum, *divmod(square, _SPLIT)] if math.isfinite(threshold) else [Fraction(0)] * 3
            entries += [count, *SUMS.write(np.array(numbers, dtype=np.float64)).tolist()]
        return np.array(entries, dtype=np.int64), memory

    def read(self, total: Total) -> dict[str, WidthSum]:
        """Return rows and widths of each group, by name."""
        found = {}
        parts = np.split(total, len(self.names))
        for name, part, threshold in zip(self.names, parts, self.thresholds, strict=True):
            infinite = threshold == math.inf and part[0] > 0
            width, high, low = SUMS.read_exactly(part[1:])
            squares = high * _SPLIT + low
            found[name] = WidthSum(
                rows=int(part[0]),
                width=math.inf if infinite else float(width),
                squares=math.inf if infinite else float(squares),
            )
        return found
