"""Score histograms of several classes: for ranking one class against the rest, and of classwise probabilities.

Counts of how often each class is true, and how often not, per bin of its probability: the data of binning calibrators.

A client may be the protected unit. Then its two histograms of every class are clipped *by itself*, before anything
leaves it, so that its influence is bounded however many rows it has.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from fedassay.errors import UsageError
from fedassay.protocol.arrays import Floats, Ints
from fedassay.protocol.parameters import Checked, Interval
from fedassay.protocol.vocabulary import (
    LARGEST_ROWS_PER_CLIENT,
    Batch,
    Memory,
    Protection,
    Rows,
    Sensitivity,
    Summary,
    Total,
    Unit,
    Vector,
)
from fedassay.summaries.grid import LARGEST_REACH
from fedassay.summaries.measures import column
from fedassay.summaries.multiclass.binned_map import TALLEST, bins_of
from fedassay.summaries.multiclass.losses import LARGEST_LOGIT
from fedassay.summaries.multiclass.maps import Predicted, predicted
from fedassay.summaries.score_histogram import LabelledHistogram, ScoreHistogram
from fedassay.summaries.scored import NumberOfClasses


@dataclass(frozen=True, kw_only=True)
class ClassHistograms(Checked, Summary[tuple[LabelledHistogram, ...]]):
    """`ScoreHistogram` of p_j for each class j, with the rows of class j as positives and all others as negatives.

    Sensitivity, exact: a row adds to one node per level and class, c times as many as in one histogram. That is the
    price of c rankings; the rest of an evaluation (`ClassStatistics`) does not pay it.

    Examples
    --------
    >>> summary = ClassHistograms(classes=2, height=2, transform="uniform")
    >>> class TwoRows:
    ...     def batches(self):
    ...         yield {"logits": np.log([[0.1, 0.9], [0.4, 0.6]]), "class": np.array([1, 0])}
    >>> first, _ = summary.read(summary.measure(TwoRows(), {})[0])
    >>> first.positives.tolist(), first.negatives.tolist()
    ([0, 1, 0, 0], [1, 0, 0, 0])
    """

    name: ClassVar[str] = "class-histograms"
    columns: ClassVar[tuple[str, ...]] = ("logits", "class")

    classes: NumberOfClasses
    height: int = 10
    transform: str = "mixed"
    widths: tuple[int, ...] = (1,)
    reach: float = LARGEST_REACH

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "widths", self.histogram.widths)

    @property
    def histogram(self) -> ScoreHistogram:
        """Histogram of one class."""
        return ScoreHistogram(
            transform=self.transform, height=self.height, widths=tuple(self.widths), reach=self.reach
        )

    @property
    def length(self) -> int:
        """Number of entries: one histogram per class."""
        return self.classes * self.histogram.length

    def measure(self, rows: Rows, memory: Memory) -> tuple[Vector, Memory]:
        """Count the rows. Linear in the rows and classes, constant in memory, one pass."""
        grid = self.histogram.grid
        blocks = (block for batch in rows.batches() for block in predicted(batch, self.classes))
        counts = _by_class(
            blocks, lambda p: grid.locate(p.reshape(-1)).reshape(p.shape), grid.leaves, self.classes
        )
        trees = [self.histogram.from_leaves(counts[:, place].reshape(-1)) for place in range(self.classes)]
        return np.concatenate(trees), memory

    def sensitivity(self, protection: Protection) -> Sensitivity:
        """Return the sensitivity of one node per level, class and row."""
        return Sensitivity.of_counts(protection, multipliers=(1,) * (len(self.widths) * self.classes))

    def read(self, total: Total) -> tuple[LabelledHistogram, ...]:
        """Return the histogram of each class."""
        return tuple(self.histogram.read(part) for part in np.split(total, self.classes))


# --- counts of true and other classes -----------------------------------------------------------------------

LEAST_CLIP, MOST_CLIP = 1e-3, 2.0**20

UNITS = 2**24
"""Whole numbers per unit of norm. Rounding takes less than one of them from an entry: 6e-8 of the largest norm."""

_MARGIN = 1 + 2.0**-40
"""Norms are clipped a little below 1: more than what floating point can get wrong."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ClassCounts:
    """Rows by class and bin: `positives` are of this class, `negatives` of another one; classes x bins each.

    Noise of standard deviation σ in each entry of the released vector is `unit_positive`·σ in each of the positives
    and `unit_negative`·σ in each of the negatives, independent. Counts add up over releases, and so do the variances.
    """

    positives: Floats
    negatives: Floats
    unit_positive: float
    unit_negative: float

    @property
    def bins(self) -> int:
        """Number of bins B, uniform on [0, 1]."""
        return int(self.positives.shape[1])

    @property
    def by_class(self) -> Floats:
        """Number of rows of each class."""
        return np.asarray(self.positives.sum(axis=1))

    def __add__(self, other: ClassCounts) -> ClassCounts:
        """Add counts of the same bins in the same units."""
        units = (self.unit_positive, self.unit_negative)
        if self.positives.shape != other.positives.shape or units != (
            other.unit_positive,
            other.unit_negative,
        ):
            raise UsageError("class counts: got other bins or clips, expected the same ones to be added.")
        return ClassCounts(
            positives=self.positives + other.positives,
            negatives=self.negatives + other.negatives,
            unit_positive=self.unit_positive,
            unit_negative=self.unit_negative,
        )


@dataclass(frozen=True, kw_only=True)
class ProbabilityHistograms(Checked, Summary[ClassCounts]):
    """Counts of the rows of class j and of all other rows, for each class j, by bin of p_j.

    Bin m of B = 2^height is [m/B, (m+1)/B), the last one is closed. A logit beyond ±2^20 counts as ±2^20, as in the
    maps. Rows with another number of logits count for nothing; a client without rows sends zeros.

    Parameters
    ----------
    classes : c, public.
    height : from 0 (rows by class only) to 12.
    positive_clip, negative_clip : C₊ and C₋, in rows, from 0.001 to 2^20; or both 0: plain counts, which are additive.
    joint : with clips, whether the vector (P/C₊, N/C₋) of a client is scaled down to an L2 norm of at most 1 as a
        whole, so that shares of positives stay as they are. Otherwise each of its 2c histograms is, as published.

    Clipped vectors are in units of 2^-24, rounded toward zero: no entry and no norm grows.

    Sensitivity. Plain: exact, a row is in c cells. Clipped: the smaller of two bounds. (1) Vectors lie in a ball of
    radius 1 (jointly) or √(2c), with entries >= 0: one is at most the radius away from zeros, two are at most √2 times
    that apart. (2) Rows move the unclipped vector by at most √(1/C₊² + (c-1)/C₋²) each. Clipping is the projection on a
    convex set (a ball, or a product of balls), which brings no two points further apart. Rounding changes each entry by
    less than one.

    Reference: Private Federated Multiclass Post-Hoc Calibration, Algorithm 1 and Appendices B.1 and B.3. Its algorithm
    lets the server clip the sum, which bounds nothing that one client does; here clients clip.

    Examples
    --------
    >>> class TwoRows:
    ...     def batches(self):
    ...         yield {"logits": np.log([[0.1, 0.9], [0.4, 0.6]]), "class": np.array([1, 0])}
    >>> summary = ProbabilityHistograms(classes=2, height=1)
    >>> counts = summary.read(summary.measure(TwoRows(), {})[0])
    >>> counts.positives.tolist(), counts.negatives.tolist()
    ([[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 1.0]])
    >>> clipped = ProbabilityHistograms(classes=2, height=1, positive_clip=1.0, negative_clip=1.0)
    >>> clipped.read(clipped.measure(TwoRows(), {})[0]).positives.round(6).tolist()
    [[0.5, 0.0], [0.0, 0.5]]
    """

    name: ClassVar[str] = "probability-histograms"
    columns: ClassVar[tuple[str, ...]] = ("logits", "class")

    classes: NumberOfClasses
    height: Annotated[int, Interval(ge=0, le=TALLEST)] = 7
    positive_clip: float = 0.0
    negative_clip: float = 0.0
    joint: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        clips = self.positive_clip, self.negative_clip
        if clips != (0.0, 0.0) and not all(
            LEAST_CLIP <= clip <= MOST_CLIP for clip in clips
        ):  # NaN fails too
            raise UsageError(
                f"clips: got {clips[0]:g} for positives and {clips[1]:g} for negatives, expected both from "
                f"{LEAST_CLIP:g} to {MOST_CLIP:,.0f}, or both 0 for plain counts."
            )

    @property
    def clipped(self) -> bool:
        """True if each client bounds its own vector."""
        return self.positive_clip > 0

    @property
    def additive(self) -> bool:  # type: ignore[override]
        """True for plain counts only: the vector of two clients' rows is clipped once, their own ones twice."""
        return not self.clipped

    @property
    def bins(self) -> int:
        """Number of bins B."""
        return 1 << self.height

    @property
    def length(self) -> int:
        """Number of entries: positives by class and bin, then negatives."""
        return 2 * self.classes * self.bins

    @property
    def largest(self) -> int:
        """Largest entry: the whole norm, or all rows of a client, in one entry."""
        return UNITS if self.clipped else LARGEST_ROWS_PER_CLIENT

    # --- at the client --------------------------------------------------------------------------------------

    def measure(self, rows: Rows, memory: Memory) -> tuple[Vector, Memory]:
        """Count, then clip. Linear in the rows and classes, constant in memory, one pass."""
        counts = self._counted(rows)
        return (self._bounded(counts) if self.clipped else counts).reshape(-1), memory

    def _counted(self, rows: Rows) -> Ints:
        """Count rows as 2 x c x B whole numbers."""
        blocks = (block for batch in rows.batches() for block in predicted(_within(batch), self.classes))
        return _by_class(blocks, lambda p: bins_of(p, self.bins), self.bins, self.classes)

    def _bounded(self, counts: Ints) -> Ints:
        scaled = counts / np.array([self.positive_clip, self.negative_clip])[:, None, None]
        over = (0, 1, 2) if self.joint else 2
        norms = np.sqrt(np.square(scaled).sum(axis=over, keepdims=True))
        whole_units = np.floor(scaled * (UNITS / np.maximum(norms * _MARGIN, 1.0)))
        return np.asarray(whole_units, dtype=np.int64)

    # --- sensitivity ----------------------------------------------------------------------------------------

    def sensitivity(self, protection: Protection) -> Sensitivity:
        """Return the sensitivity that the class states."""
        if not self.clipped:
            return Sensitivity.of_counts(protection, multipliers=(1,) * self.classes)
        if protection.unit is Unit.CLIENT:
            return self._of_clients(protection)
        # One row more or less in a client that has others: all entries can change, by the factor of the clipping.
        row = math.sqrt((2 if protection.moves_both_ways else 1) * self._row_squared)
        l2 = min(math.sqrt(2) * self._radius, UNITS * row + math.sqrt(self.length))
        return Sensitivity(l1=math.sqrt(self.length) * l2, l2=l2)

    def _of_clients(self, protection: Protection) -> Sensitivity:
        """Bound the change by a client: it is absent (zeros), or replaced (two vectors with entries >= 0 differ)."""
        rows, times = protection.rows_per_unit, 2 if protection.moves_both_ways else 1
        l2 = math.sqrt(times) * min(self._radius, UNITS * rows * math.sqrt(self._row_squared))
        cells = min(self.length, times * rows * self.classes)
        unclipped = UNITS * times * rows * (1 / self.positive_clip + (self.classes - 1) / self.negative_clip)
        return Sensitivity(l1=min(unclipped, math.sqrt(cells) * l2), l2=l2)

    @property
    def _radius(self) -> float:
        """Radius of the set that clipped vectors lie in."""
        return UNITS * (1.0 if self.joint else math.sqrt(2 * self.classes))

    @property
    def _row_squared(self) -> float:
        """Largest squared move of the unclipped vector by one row: one positive and c - 1 negatives."""
        return 1 / self.positive_clip**2 + (self.classes - 1) / self.negative_clip**2

    # --- at the server --------------------------------------------------------------------------------------

    def read(self, total: Total) -> ClassCounts:
        """Return counts in rows."""
        positive, negative = 1.0, 1.0
        if self.clipped:
            positive, negative = self.positive_clip / UNITS, self.negative_clip / UNITS
        positives, negatives = np.asarray(total, dtype=np.float64).reshape(2, self.classes, self.bins)
        return ClassCounts(
            positives=positives * positive,
            negatives=negatives * negative,
            unit_positive=positive,
            unit_negative=negative,
        )


def _by_class(blocks: Iterable[Predicted], locate: Callable[[Floats], Ints], bins: int, classes: int) -> Ints:
    """Count the rows of each class and all others by bin of the class's probability: 2 x classes x bins."""
    size, first = classes * bins, bins * np.arange(classes)[:, None]
    every, positives = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)
    for block in blocks:
        cell = locate(block.p) + first
        every += np.bincount(cell.reshape(-1), minlength=size)
        positives += np.bincount(cell[block.y, np.arange(len(block.y))], minlength=size)
    return np.stack([positives, every - positives]).reshape(2, classes, bins)


def _within(batch: Batch) -> Batch:
    """Return the batch with its logits cut at their bounds; what `predicted` refuses is left for it to refuse."""
    z = np.asarray(column(batch, "logits"))
    if z.dtype.kind not in "fiu" or not z.size:
        return batch
    largest = max(float(z.max()), -float(z.min()))
    if largest <= LARGEST_LOGIT or not math.isfinite(largest):
        return batch
    return {**batch, "logits": np.clip(z.astype(np.float64), -LARGEST_LOGIT, LARGEST_LOGIT)}
