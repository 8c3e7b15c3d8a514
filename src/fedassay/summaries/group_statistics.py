"""Observed and expected outcomes of groups of rows with neighbouring scores: what a test of calibration needs."""

from __future__ import annotations

import math
from dataclasses import dataclass
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
from fedassay.summaries.columns import checked_labels, checked_scores, column

SHIFT = 20
ONE = 1 << SHIFT
"""The number 1 in fixed point: scores are rounded to 2^-20 per row, counts are multiplied by it."""

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
    capacity : how many rows of one client are sure to fit; `largest` follows from it and is enforced.

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
        if type(self.capacity) is not int or not 1 <= self.capacity <= LARGEST_ROWS_PER_CLIENT:
            raise UsageError(
                f"capacity: got {self.capacity}, expected 1 to {LARGEST_ROWS_PER_CLIENT:,} rows."
            )

    @property
    def groups(self) -> int:
        """Q."""
        return len(self.edges) - 1

    @property
    def statistics(self) -> int:
        """How many numbers each group has."""
        return 3

    @property
    def length(self) -> int:
        """All O_1, all O_0, all E_1."""
        return self.statistics * self.groups

    @property
    def largest(self) -> int:
        """All rows of a client in one group."""
        return ONE * self.capacity

    def measure(self, rows: Rows, memory: Memory) -> tuple[Vector, Memory]:
        """Add up. Linear in the rows, constant in memory; exact but for the rounding of each score."""
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
        """What is summed besides the labels, from the scores in fixed point."""
        return (expected,)

    def sensitivity(self, protection: Protection) -> Sensitivity:
        """See the class: the bounds are enforced row by row."""
        rows = ONE * protection.rows_per_unit
        if not protection.moves_both_ways:
            return Sensitivity(l1=2.0 * rows, l2=rows * math.sqrt(2))
        # Rounded as scores are: it keeps their order, so that no score up to the edge becomes larger.
        e = float(np.rint(self.edges[-2] * ONE)) / ONE
        return Sensitivity(l1=rows * (3 + e), l2=rows * math.sqrt(3 + e * e))

    def read(self, total: Total) -> GroupTotals:
        """The sums as numbers."""
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
        """How many numbers each group has."""
        return 4

    def expectations(self, expected: Floats) -> tuple[Floats, ...]:
        """E_1 and E_0, rounded so that they add up to one."""
        return (expected, ONE - expected)

    def sensitivity(self, protection: Protection) -> Sensitivity:
        """See the class."""
        rows, times = ONE * protection.rows_per_unit, 2 if protection.moves_both_ways else 1
        return Sensitivity(l1=2.0 * times * rows, l2=rows * math.sqrt(2 * times))


def capacity_for(clients: int) -> int:
    """The most rows per client that cannot make the total of so many clients wrap.

    Examples
    --------
    >>> capacity_for(100) == LARGEST_ROWS_PER_CLIENT, capacity_for(10**6)
    (True, 549755)
    """
    return max(1, min(LARGEST_ROWS_PER_CLIENT, int(2**TOTAL_BITS - 1) // (ONE * max(1, clients))))
