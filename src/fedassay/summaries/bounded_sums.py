"""Sums in fixed point of numbers that are bounded row by row: outcomes of groups, and differences of two models.

A test of calibration needs observed and expected outcomes of groups of rows with neighbouring scores. A comparison of
two models needs moments of row-by-row differences.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedassay.errors import UsageError
from fedassay.protocol.arrays import Floats
from fedassay.protocol.vocabulary import (
    LARGEST_ROWS_PER_CLIENT,
    TOTAL_BITS,
    Memory,
    Protection,
    Rows,
    Sensitivity,
    Summary,
    Total,
    Vector,
)
from fedassay.summaries.grid import LARGEST_REACH, Grid
from fedassay.summaries.measures import checked_labels, checked_scores, column
from fedassay.summaries.scored import whole

SHIFT = 20
ONE = 1 << SHIFT
"""Number 1 in fixed point: scores are rounded to 2^-20 per row, counts are multiplied by it."""

MOST_GROUPS = 1000

_BLOCK = 1 << 17
"""Rows per pass: temporary arrays stay small, and sums of them are exact in floats."""


@dataclass(frozen=True, kw_only=True, eq=False)
class GroupTotals:
    """Released sums, one entry per group; expected negatives only where they were released by themselves."""

    edges: tuple[float, ...]
    observed_positives: Floats
    observed_negatives: Floats
    expected_positives: Floats
    expected_negatives: Floats | None = None


@dataclass(frozen=True, kw_only=True)
class GroupStatistics(Summary[GroupTotals]):
    """O_1, O_0 and E_1 of each group: its positive rows, its negative rows and the sum of its scores.

    Group j holds the rows with a score in (e_{j-1}, e_j], the first one also those with score 0: every row is in one
    group. (Groups that are closed at both ends, as in Algorithm 2 of Barczewski, Mawass and Ramon, count rows at a
    boundary twice.) E_0 = O_1 + O_0 - E_1 needs no release.

    Enforced in `measure`: scores in [0, 1], labels 0 or 1; NaN is a `DataError`. All numbers are multiples of
    2^-20, in units of which they are summed: each score is rounded by at most 2^-21.

    Sensitivity, in units of `ONE` and exact: a row with label 1 and score s adds (1, 0, s) to one group, 2 in L1 and √2
    in L2 at most, for s = 1. If such a row is replaced by one of another group, both groups move; the other's score
    is at most the last edge e below 1: 3 + e in L1 and √(3 + e²) in L2. Within one group (1, 1, |s-s'|) moves, which
    is never more. For units of several rows these add up.

    Parameters
    ----------
    edges : 0 = e_0 < e_1 < .. < e_Q = 1, public.
    capacity : the number of rows of one client that are sure to fit; `largest` follows from it and is enforced.

    Examples
    --------
    >>> class ThreeRows:
    ...     def batches(self):
    ...         yield {"score": np.array([0.0, 0.5, 0.75]), "label": np.array([0, 1, 1])}
    >>> summary = GroupStatistics(edges=(0.0, 0.5, 1.0))
    >>> total, _ = summary.measure(ThreeRows(), {})
    >>> total / ONE
    array([1.  , 1.  , 1.  , 0.  , 0.5 , 0.75])
    """

    name: ClassVar[str] = "group-statistics"
    columns: ClassVar[tuple[str, ...]] = ("score", "label")

    edges: tuple[float, ...]
    capacity: int = LARGEST_ROWS_PER_CLIENT

    def __post_init__(self) -> None:
        object.__setattr__(self, "edges", tuple(float(edge) for edge in self.edges))
        rising = all(a < b for a, b in zip(self.edges, self.edges[1:], strict=False))
        if len(self.edges) < 2 or (self.edges[0], self.edges[-1]) != (0.0, 1.0) or not rising:
            raise UsageError("edges of groups: expected increasing numbers from 0 to 1.")
        if self.groups > MOST_GROUPS:
            raise UsageError(f"groups: got {self.groups}, expected at most {MOST_GROUPS}.")
        whole(self.capacity, what="capacity", least=1, most=LARGEST_ROWS_PER_CLIENT)

    @property
    def groups(self) -> int:
        """Number of groups Q."""
        return len(self.edges) - 1

    @property
    def statistics(self) -> int:
        """Number of statistics of each group."""
        return 3

    @property
    def length(self) -> int:
        """Number of entries: all O_1, all O_0, all E_1."""
        return self.statistics * self.groups

    @property
    def largest(self) -> int:
        """Largest entry: all rows of a client in one group."""
        return ONE * self.capacity

    def measure(self, rows: Rows, memory: Memory) -> tuple[Vector, Memory]:
        """Add up the statistics. Linear in the rows, constant in memory; exact but for the rounding of each score."""
        total = np.zeros(self.length, dtype=np.int64)
        for batch in rows.batches():
            scores = checked_scores(column(batch, "score"))
            labels = checked_labels(column(batch, "label")).astype(np.int64)
            for start in range(0, len(scores), _BLOCK):
                part = slice(start, start + _BLOCK)
                total = total + self._counted(scores[part], labels[part])
        return total, memory

    def _counted(self, scores: Floats, labels: NDArray[np.int64]) -> Vector:
        # An edge belongs to the group below it.
        group = np.searchsorted(self.edges[1:-1], scores, side="left")
        expected = np.rint(scores * ONE)

        def summed(weights: Floats | NDArray[np.int64]) -> Vector:
            return np.bincount(group, weights=weights, minlength=self.groups).astype(np.int64)

        observed = [summed(labels * ONE), summed((1 - labels) * ONE)]
        return np.concatenate([*observed, *(summed(e) for e in self.expectations(expected))])

    def expectations(self, expected: Floats) -> tuple[Floats, ...]:
        """Return what is summed in addition to the labels, from the scores in fixed point."""
        return (expected,)

    def sensitivity(self, protection: Protection) -> Sensitivity:
        """Return the sensitivity that the class states: the bounds are enforced row by row."""
        rows = ONE * protection.rows_per_unit
        if not protection.moves_both_ways:
            return Sensitivity(l1=2.0 * rows, l2=rows * math.sqrt(2))
        # Rounded as scores are: it keeps their order, so that no score up to the edge becomes larger.
        e = float(np.rint(self.edges[-2] * ONE)) / ONE
        return Sensitivity(l1=rows * (3 + e), l2=rows * math.sqrt(3 + e * e))

    def read(self, total: Total) -> GroupTotals:
        """Return the sums as numbers."""
        positives, negatives, *expected = np.split(total / ONE, self.statistics)
        return GroupTotals(
            edges=self.edges,
            observed_positives=positives,
            observed_negatives=negatives,
            expected_positives=expected[0],
            expected_negatives=expected[1] if len(expected) > 1 else None,
        )


@dataclass(frozen=True, kw_only=True)
class AllGroupStatistics(GroupStatistics):
    """O_1, O_0, E_1 and E_0 of each group, as Algorithm 2 releases them.

    Sensitivity, exact: a row adds (1, 0, s, 1-s), 2 in L1 (1 + s + 1 - s) and √2 in L2 at most; if it is replaced by
    another, twice that in L1 and √4 in L2. The paper counts 8, for the 8 numbers of two groups.

    Examples
    --------
    >>> class OneRow:
    ...     def batches(self):
    ...         yield {"score": np.array([0.25]), "label": np.array([1])}
    >>> AllGroupStatistics(edges=(0.0, 1.0)).measure(OneRow(), {})[0] / ONE
    array([1.  , 0.  , 0.25, 0.75])
    """

    name: ClassVar[str] = "all-group-statistics"

    @property
    def statistics(self) -> int:
        """Number of statistics of each group."""
        return 4

    def expectations(self, expected: Floats) -> tuple[Floats, ...]:
        """Return E_1 and E_0, rounded so that they add up to 1."""
        return (expected, ONE - expected)

    def sensitivity(self, protection: Protection) -> Sensitivity:
        """Return the sensitivity that the class states."""
        rows, times = ONE * protection.rows_per_unit, 2 if protection.moves_both_ways else 1
        return Sensitivity(l1=2.0 * times * rows, l2=rows * math.sqrt(2 * times))


def capacity_for(clients: int, *, largest: int = ONE) -> int:
    """Return the most rows per client, each up to this number, that cannot make the total of all clients wrap.

    Examples
    --------
    >>> capacity_for(100) == LARGEST_ROWS_PER_CLIENT, capacity_for(10**6), capacity_for(10**6, largest=2 * ONE)
    (True, 549755, 274877)
    """
    return max(1, min(LARGEST_ROWS_PER_CLIENT, int(2**TOTAL_BITS - 1) // (largest * max(1, clients))))


# --- row-by-row differences of two models -------------------------------------------------------------------

PLACE_SHIFT = 15
"""Placements are public, travel with the question and only enter a variance: 16-bit words are fine enough."""


@dataclass(frozen=True, kw_only=True)
class PairedSums:
    """Σd² over positives and over negatives, Σb and Σb² over all rows; see `PairedMoments`."""

    positive_squares: float
    negative_squares: float
    losses: float
    loss_squares: float


@dataclass(frozen=True, kw_only=True)
class PairedMoments(Summary[PairedSums]):
    """Four sums over the rows of a comparison of two models, given what is public about both.

    For a row with scores s, s' and label y, with leaves i, i' on the grid:

    * d = V[i] - V'[i'], the difference of its placement values: the share of the other class that it beats under
      each model (DeLong et al. 1988, V10 and V01). The tables V are public: they come from released
      histograms. Counted is d², in one sum for positives and another for negatives.
    * b = (s - y)² - (s' - y)², the difference of its squared errors, from the scores themselves, not from bins.
      Counted are b and b².

    Enforced in `measure`: placements are in [0, 1] (checked when made), scores in [0, 1], labels 0 or 1, hence
    |d|, |b| <= 1.

    Sensitivity, in units of `ONE`: a row adds d² to one of two cells, 2b and b² (b is counted twice as finely as
    the squares, because its noise ends up in a value and theirs only in a variance). So one row moves the total
    by at most 1 + 2 + 1 = 4 in L1 and √(1 + 4 + 1) = √6 in L2. A row replaced by another moves each sum of d² by
    at most 1. With u = b - b' and v = b + b', |u| + |v| <= 2, it moves 2b and b² by 2|u| and |uv|: in L1
    |u|(2 + |v|) <= |u|(4 - |u|) <= 4, in L2² u²(4 + v²) <= 16, both largest at b = 1, b' = -1. In all 6 in L1 and
    √(1 + 1 + 16) = √18 in L2. For units of several rows, these add up.

    The same holds for the whole numbers that are summed: b² is the rounded square of the rounded b. With 2b written
    as 2·ONE - j, the square is ONE - j + j²/(4·ONE), rounded; so if 2b' is k - 2·ONE, k >= j >= 0, the squares
    differ by at most k - j, because rounding keeps the order of j² and k².

    Parameters
    ----------
    transform, height, thresholds, reach : the `Grid` of both histograms.
    placements : four tables of 2^height multiples of 2^-15, as little-endian 16-bit words: of positives and of
        negatives under the first model, then the same under the second.
    capacity : the number of rows of one client that are sure to fit; `largest` follows from it and is enforced.
    """

    name: ClassVar[str] = "paired-moments"
    columns: ClassVar[tuple[str, ...]] = ("score", "versus", "label")

    transform: str
    height: int
    thresholds: tuple[float, ...] = ()
    reach: float = LARGEST_REACH
    placements: bytes = field(repr=False)
    capacity: int = LARGEST_ROWS_PER_CLIENT

    def __post_init__(self) -> None:
        grid = self.grid
        object.__setattr__(self, "thresholds", grid.thresholds)
        if type(self.placements) is not bytes or len(self.placements) != 8 * grid.leaves:
            raise UsageError(f"placements: expected four tables of {grid.leaves} numbers of 16 bits.")
        if self._tables.max() > 1 << PLACE_SHIFT:
            raise UsageError("placements: got one above 1, expected shares of rows.")
        whole(self.capacity, what="capacity", least=1, most=LARGEST_ROWS_PER_CLIENT)

    @property
    def grid(self) -> Grid:
        """Score bins that the placements belong to."""
        return Grid.of(self)

    @property
    def _tables(self) -> NDArray[np.int64]:
        """Tables by model (first, second), label (negatives, positives) and leaf, so that a label is an index."""
        words = np.frombuffer(self.placements, dtype="<u2").astype(np.int64)
        return words.reshape(2, 2, -1)[:, ::-1]

    @property
    def length(self) -> int:
        """Number of entries: d² of positives, d² of negatives, 2b, b²."""
        return 4

    @property
    def largest(self) -> int:
        """Largest entry: every row at the bound of the entry with the largest bound."""
        return 2 * ONE * self.capacity

    def measure(self, rows: Rows, memory: Memory) -> tuple[Vector, Memory]:
        """Add up the moments. Linear in the rows, constant in memory; exact but for the rounding of each row."""
        grid, (first, second) = self.grid, self._tables
        total = np.zeros(4, dtype=np.int64)
        for batch in rows.batches():
            s, t = checked_scores(batch["score"]), checked_scores(column(batch, "versus"))
            y = checked_labels(batch["label"]).astype(np.int64)
            d = first[y, grid.locate(s)] - second[y, grid.locate(t)]
            squares = _halved(d * d, 2 * PLACE_SHIFT - SHIFT)
            twice_b = np.rint((s - t) * (s + t - 2 * y) * (2 * ONE)).astype(np.int64).clip(-2 * ONE, 2 * ONE)
            total += [
                squares[y == 1].sum(),
                squares[y == 0].sum(),
                twice_b.sum(),
                _halved(twice_b * twice_b, SHIFT + 2).sum(),
            ]
        return total, memory

    def sensitivity(self, protection: Protection) -> Sensitivity:
        """Return the sensitivity that the class states: the bounds are enforced row by row."""
        l1, squared = (6, 18) if protection.moves_both_ways else (4, 6)
        rows = protection.rows_per_unit
        return Sensitivity(l1=float(rows * ONE * l1), l2=rows * ONE * math.sqrt(squared))

    def read(self, total: Total) -> PairedSums:
        """Return the sums as numbers."""
        positive, negative, losses, squares = (float(entry) / ONE for entry in total)
        return PairedSums(
            positive_squares=positive, negative_squares=negative, losses=losses / 2, loss_squares=squares
        )


def packed(*tables: Floats) -> bytes:
    """Return placements as `PairedMoments` takes them: clipped to [0, 1], in fixed point."""
    return np.rint(np.clip(np.concatenate(tables), 0.0, 1.0) * (1 << PLACE_SHIFT)).astype("<u2").tobytes()


def _halved(numbers: NDArray[np.int64], times: int) -> NDArray[np.int64]:
    """Divide by 2^times and round, halves up."""
    return (numbers + (1 << (times - 1))) >> times
