"""How two models differ on the same rows: their score histograms, and the moments of the differences."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedassay.errors import UsageError
from fedassay.protocol.arrays import Floats
from fedassay.protocol.vocabulary import (
    LARGEST_ROWS_PER_CLIENT,
    TOTAL_BITS,
    Batch,
    Memory,
    Protection,
    Rows,
    Sensitivity,
    Summary,
    Total,
    Vector,
)
from fedassay.summaries.columns import checked_labels, checked_scores, column
from fedassay.summaries.grid import LARGEST_REACH, Grid
from fedassay.summaries.score_histogram import LabelledHistogram, LikeHistogram, ScoreHistogram

Both = tuple[LabelledHistogram, LabelledHistogram]


@dataclass(frozen=True, kw_only=True)
class VersusHistogram(ScoreHistogram):
    """A `ScoreHistogram` of the column ``versus`` alone. The same in all else.

    For clients that report on one cell of one histogram; others count both models at once (`PairedHistograms`).
    """

    name: ClassVar[str] = "versus-histogram"
    columns: ClassVar[tuple[str, ...]] = ("versus", "label")

    @classmethod
    def like(cls, histogram: ScoreHistogram) -> VersusHistogram:
        """The same bins and levels for the second model."""
        return cls(**{field.name: getattr(histogram, field.name) for field in fields(histogram)})

    def measure(self, rows: Rows, memory: Memory) -> tuple[Vector, Memory]:
        """See `ScoreHistogram.measure`."""
        return super().measure(_Renamed(rows), memory)


@dataclass(frozen=True, kw_only=True)
class PairedHistograms(LikeHistogram, Summary[Both]):
    """A `ScoreHistogram` of the column ``score``, then one of ``versus``.

    One summary and not two, so that both models are counted on the same rows also where rows are left out at
    random to keep to a bound.

    Sensitivity: a row is counted in both histograms, in one node of each level of each; that of a histogram with
    twice the levels.

    Examples
    --------
    >>> summary = PairedHistograms(transform="uniform", height=2)
    >>> class OneRow:
    ...     def batches(self):
    ...         yield {"score": np.array([0.1]), "versus": np.array([0.9]), "label": np.array([1])}
    >>> [one.positives.tolist() for one in summary.read(summary.measure(OneRow(), {})[0])]
    [[1, 0, 0, 0], [0, 0, 0, 1]]
    """

    name: ClassVar[str] = "paired-histograms"
    columns: ClassVar[tuple[str, ...]] = ("score", "versus", "label")

    @property
    def length(self) -> int:
        """Two histograms."""
        return 2 * self.histogram.length

    @property
    def largest(self) -> int:
        """As one histogram."""
        return self.histogram.largest

    def measure(self, rows: Rows, memory: Memory) -> tuple[Vector, Memory]:
        """Count both, in one pass."""
        histogram = self.histogram
        counts = np.zeros((2, histogram.length), dtype=np.int64)
        for batch in rows.batches():
            for place, role in enumerate(("score", "versus")):
                counts[place] += histogram.measure(_One(column(batch, role), batch["label"]), {})[0]
        return counts.reshape(-1), memory

    def sensitivity(self, protection: Protection) -> Sensitivity:
        """Two nodes per level and row, times the multipliers."""
        return Sensitivity.of_counts(protection, multipliers=2 * self.multipliers)

    def read(self, total: Total) -> Both:
        """The two histograms."""
        first, second = np.split(total, 2)
        return self.histogram.read(first), self.histogram.read(second)


class _Renamed:
    """The same rows, the second score in the place of the first."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def batches(self) -> Iterator[Batch]:
        for batch in self._rows.batches():
            yield {"score": column(batch, "versus"), "label": batch["label"]}


class _One:
    """One batch, one of the models."""

    def __init__(self, scores: NDArray[np.generic], labels: NDArray[np.generic]) -> None:
        self._batch: Batch = {"score": scores, "label": labels}

    def batches(self) -> Iterator[Batch]:
        yield self._batch


# --- how two models differ row by row -----------------------------------------------------------------------

SHIFT = 20
ONE = 1 << SHIFT
"""The number 1 in fixed point: what is summed is rounded to 2^-20 per row."""

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
    capacity : how many rows of one client are sure to fit; `largest` follows from it and is enforced.
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
        if type(self.capacity) is not int or not 1 <= self.capacity <= LARGEST_ROWS_PER_CLIENT:
            raise UsageError(
                f"capacity: got {self.capacity}, expected 1 to {LARGEST_ROWS_PER_CLIENT:,} rows."
            )

    @property
    def grid(self) -> Grid:
        """The score bins that the placements belong to."""
        return Grid(
            transform=self.transform, height=self.height, thresholds=tuple(self.thresholds), reach=self.reach
        )

    @property
    def _tables(self) -> NDArray[np.int64]:
        """First and second model, negatives and positives, leaf: so that a label is an index."""
        words = np.frombuffer(self.placements, dtype="<u2").astype(np.int64)
        return words.reshape(2, 2, -1)[:, ::-1]

    @property
    def length(self) -> int:
        """d² of positives, d² of negatives, 2b, b²."""
        return 4

    @property
    def largest(self) -> int:
        """Every row at the bound of the entry with the largest one."""
        return 2 * ONE * self.capacity

    def measure(self, rows: Rows, memory: Memory) -> tuple[Vector, Memory]:
        """Add up. Linear in the rows, constant in memory; exact but for the rounding of each row."""
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
        """See the class: the bounds are enforced row by row."""
        l1, squared = (6, 18) if protection.moves_both_ways else (4, 6)
        rows = protection.rows_per_unit
        return Sensitivity(l1=float(rows * ONE * l1), l2=rows * ONE * math.sqrt(squared))

    def read(self, total: Total) -> PairedSums:
        """The sums as numbers."""
        positive, negative, losses, squares = (float(entry) / ONE for entry in total)
        return PairedSums(
            positive_squares=positive, negative_squares=negative, losses=losses / 2, loss_squares=squares
        )


def capacity_for(clients: int) -> int:
    """The most rows per client that cannot make the total of so many clients wrap.

    Examples
    --------
    >>> capacity_for(40) == LARGEST_ROWS_PER_CLIENT, capacity_for(10**6)
    (True, 274877)
    """
    return max(1, min(LARGEST_ROWS_PER_CLIENT, int(2**TOTAL_BITS - 1) // (2 * ONE * max(1, clients))))


def packed(*tables: Floats) -> bytes:
    """Placements as `PairedMoments` takes them: clipped to [0, 1], in fixed point."""
    return np.rint(np.clip(np.concatenate(tables), 0.0, 1.0) * (1 << PLACE_SHIFT)).astype("<u2").tobytes()


def _halved(numbers: NDArray[np.int64], times: int) -> NDArray[np.int64]:
    """Divided by 2^times and rounded, halves up."""
    return (numbers + (1 << (times - 1))) >> times
