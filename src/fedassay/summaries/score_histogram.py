"""Histograms of the scores of positives and negatives, on every level of a tree, by one model or by two."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from fedassay.estimation.evidence import Evidence
from fedassay.estimation.least_squares import least_squares
from fedassay.estimation.tree import Tree
from fedassay.protocol.vocabulary import (
    LARGEST_ROWS_PER_CLIENT,
    Memory,
    Noise,
    Protection,
    Rows,
    Sensitivity,
    Summary,
    Total,
    Vector,
)
from fedassay.summaries.grid import LARGEST_REACH, Grid
from fedassay.summaries.measures import checked_labels, checked_scores, column

Both = tuple["LabelledHistogram", "LabelledHistogram"]

_BLOCK = 1 << 17
"""Rows per pass: temporary arrays stay small, and the counts of a pass are cheap to add up."""


@dataclass(frozen=True, kw_only=True, eq=False)
class LabelledHistogram:
    """Contents of a score histogram: node counts of both classes, exact or noisy, as they were released.

    The counts of a level are `multipliers` times what was counted there; see `ScoreHistogram`.
    """

    grid: Grid
    tree: Tree
    multipliers: tuple[int, ...]
    positives: Total
    negatives: Total

    def evidence(self, noise: Noise) -> Evidence:
        """Estimate the bins from all levels, given the law of the noise in each count.

        Examples
        --------
        >>> from fedassay.protocol.vocabulary import NO_NOISE
        >>> summary = ScoreHistogram(transform="uniform", height=2)
        >>> evidence = summary.read(np.array([0, 1, 2, 3, 4, 0, 1, 0])).evidence(NO_NOISE)
        >>> evidence.positive_rows, evidence.negative_rows
        (6.0, 5.0)
        """
        fit = least_squares(self.tree, self.multipliers, noise)
        counted = np.stack([self.positives, self.negatives]) / self.tree.factors(self.multipliers)
        positives, negatives = fit.estimate(counted)
        return Evidence(edges=self.grid.edges, positives=positives, negatives=negatives, fit=fit, noise=noise)


@dataclass(frozen=True, kw_only=True)
class HistogramFields:
    """Fields of a score histogram, which summaries that are made of them carry too: only plain values travel.

    Parameters
    ----------
    transform, height, thresholds, reach : the `Grid`.
    widths : the levels of the `Tree`; ``(1,)`` is a flat histogram.
    multipliers : the factors of the counts of each level before they are summed, 1 by default. Noise that is the same
        everywhere then weighs less on a level with a larger multiplier: this is how levels get different parts of the
        budget.
    """

    transform: str
    height: int
    thresholds: tuple[float, ...] = ()
    widths: tuple[int, ...] = (1,)
    multipliers: tuple[int, ...] = ()
    reach: float = LARGEST_REACH

    def __post_init__(self) -> None:
        object.__setattr__(self, "thresholds", self.grid.thresholds)
        object.__setattr__(self, "widths", self.tree.widths)
        object.__setattr__(self, "multipliers", self.tree.checked_multipliers(self.multipliers))

    @classmethod
    def like(cls, histogram: HistogramFields, **others: Any) -> Self:
        """Build a summary with the fields of this histogram, and its own."""
        return cls(**{field.name: getattr(histogram, field.name) for field in fields(histogram)}, **others)

    @property
    def histogram(self) -> ScoreHistogram:
        """Histogram that these fields describe."""
        return ScoreHistogram(**{field.name: getattr(self, field.name) for field in fields(HistogramFields)})

    @property
    def grid(self) -> Grid:
        """Grid of the score bins."""
        return Grid.of(self)

    @property
    def tree(self) -> Tree:
        """Levels over the bins."""
        return Tree(leaves=1 << self.height, widths=tuple(self.widths))

    @property
    def largest(self) -> int:
        """Largest entry: all rows of a client in one node of the level with the largest multiplier."""
        return LARGEST_ROWS_PER_CLIENT * max(self.multipliers)


@dataclass(frozen=True, kw_only=True)
class ScoreHistogram(HistogramFields, Summary[LabelledHistogram]):
    """Counts of positives and of negatives per score bin, on each level of a tree; see `HistogramFields`.

    Measures ``[positives, negatives]``, each a vector on the tree, leaves first. A row adds one to exactly
    one node per level, of one class.

    Enforced in `measure`: scores are numbers in [0, 1], labels are 0 or 1; anything else is a `DataError`, so
    the sensitivity holds whatever the rows are.

    Reference: Cormode and Markov (2023), Section 2.3, with the fan-out as a parameter.

    Examples
    --------
    >>> summary = ScoreHistogram(transform="uniform", height=2, widths=(1, 2))
    >>> class TwoRows:
    ...     def batches(self):
    ...         yield {"score": np.array([0.1, 0.9]), "label": np.array([0, 1], dtype=np.int8)}
    >>> total, _ = summary.measure(TwoRows(), {})
    >>> total
    array([0, 0, 0, 1, 0, 1, 1, 0, 0, 0, 1, 0])
    >>> summary.read(total).negatives
    array([1, 0, 0, 0, 1, 0])
    """

    name: ClassVar[str] = "score-histogram"
    columns: ClassVar[tuple[str, ...]] = ("score", "label")

    @property
    def length(self) -> int:
        """Number of entries: both classes, all nodes."""
        return 2 * self.tree.length

    @property
    def partitions(self) -> tuple[NDArray[np.int64], ...]:
        """Levels of the tree, both classes together; none if counts are multiplied."""
        if set(self.multipliers) != {1}:
            return ()
        levels = self.tree.split(np.arange(self.tree.length, dtype=np.int64))
        return tuple(np.concatenate([level, level + self.tree.length]) for level in levels)

    @property
    def _factors(self) -> NDArray[np.int64]:
        """Multiplier of each node of a class."""
        return self.tree.factors(self.multipliers)

    def measure(self, rows: Rows, memory: Memory) -> tuple[Vector, Memory]:
        """Count the rows. Linear in the rows, constant in memory."""
        counts = np.zeros(2 * self.grid.leaves, dtype=np.int64)
        for batch in rows.batches():
            counts += self.counted(*(column(batch, role) for role in self.columns))
        return self.from_leaves(counts), memory

    def counted(self, scores: NDArray[Any], labels: NDArray[Any]) -> Vector:
        """Count positives by bin, then negatives; the leaves of the two trees."""
        grid = self.grid
        counts = np.zeros(2 * grid.leaves, dtype=np.int64)
        for start in range(0, len(scores), _BLOCK):
            part = slice(start, start + _BLOCK)
            code = grid.locate(checked_scores(scores[part]))
            code <<= 1
            code += checked_labels(labels[part])
            counts += np.bincount(code, minlength=len(counts))
        return np.concatenate([counts[1::2], counts[::2]])

    @property
    def leaves(self) -> ScoreHistogram:
        """Summary of the bins alone, of both classes."""
        return replace(self, widths=(1,), multipliers=())

    def from_leaves(self, counts: Vector) -> Vector:
        """Build all levels, multiplied."""
        return np.concatenate([self.tree.build(half) * self._factors for half in np.split(counts, 2)])

    def sensitivity(self, protection: Protection) -> Sensitivity:
        """Return the sensitivity of one node per level and row, times the multipliers."""
        return Sensitivity.of_counts(protection, multipliers=self.multipliers)

    def read(self, total: Total) -> LabelledHistogram:
        """Return the two trees."""
        positives, negatives = np.split(total, 2)
        return LabelledHistogram(
            grid=self.grid,
            tree=self.tree,
            multipliers=self.multipliers,
            positives=positives,
            negatives=negatives,
        )


# --- histograms of two models -------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class VersusHistogram(ScoreHistogram):
    """`ScoreHistogram` of the column ``versus`` alone, otherwise unchanged.

    For clients that report on one cell of one histogram; others count both models at once (`PairedHistograms`).
    """

    name: ClassVar[str] = "versus-histogram"
    columns: ClassVar[tuple[str, ...]] = ("versus", "label")


@dataclass(frozen=True, kw_only=True)
class PairedHistograms(HistogramFields, Summary[Both]):
    """`ScoreHistogram` of the column ``score``, then another of ``versus``.

    This is a single summary. So both models are counted on the same rows, also where rows are left out at random to
    keep to a bound.

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
        """Number of entries of both histograms."""
        return 2 * self.histogram.length

    def measure(self, rows: Rows, memory: Memory) -> tuple[Vector, Memory]:
        """Count both models, in one pass."""
        histogram = self.histogram
        counts = np.zeros((2, 2 * histogram.grid.leaves), dtype=np.int64)
        for batch in rows.batches():
            for place, role in enumerate(("score", "versus")):
                counts[place] += histogram.counted(column(batch, role), column(batch, "label"))
        return np.concatenate([histogram.from_leaves(model) for model in counts]), memory

    def sensitivity(self, protection: Protection) -> Sensitivity:
        """Return the sensitivity of two nodes per level and row, times the multipliers."""
        return Sensitivity.of_counts(protection, multipliers=2 * self.multipliers)

    def read(self, total: Total) -> Both:
        """Return the two histograms."""
        first, second = np.split(total, 2)
        return self.histogram.read(first), self.histogram.read(second)
