"""How many positives and negatives have which score, on every level of a tree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedassay.errors import DataError
from fedassay.protocol import Memory, Protection, Rows, Sensitivity, Summary, Vector
from fedassay.summaries.grid import LARGEST_REACH, Grid
from fedassay.summaries.tree import Tree

_BLOCK = 1 << 17
"""Rows per pass: temporary arrays stay small, and the counts of a pass are cheap to add up."""


@dataclass(frozen=True, kw_only=True, eq=False)
class LabelledHistogram:
    """What a score histogram says: node counts of both classes, exact or noisy."""

    grid: Grid
    tree: Tree
    positives: Vector
    negatives: Vector


@dataclass(frozen=True, kw_only=True)
class ScoreHistogram(Summary[LabelledHistogram]):
    """Counts of positives and of negatives per score bin, on each level of a tree over the bins.

    Measures ``[positives, negatives]``, each a vector on the tree, leaves first. A row adds one to exactly
    one node per level, of one class.

    Enforced in `measure`: scores are numbers in [0, 1], labels are 0 or 1; anything else is a `DataError`, so
    the sensitivity holds whatever the rows are.

    Parameters
    ----------
    transform, height, thresholds, reach : the `Grid`.
    widths : the levels of the `Tree`; ``(1,)`` is a flat histogram.

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

    transform: str
    height: int
    thresholds: tuple[float, ...] = ()
    widths: tuple[int, ...] = (1,)
    reach: float = LARGEST_REACH

    def __post_init__(self) -> None:
        object.__setattr__(self, "thresholds", self.grid.thresholds)
        object.__setattr__(self, "widths", self.tree.widths)

    @property
    def grid(self) -> Grid:
        """The score bins."""
        return Grid(
            transform=self.transform,
            height=self.height,
            thresholds=tuple(self.thresholds),
            reach=self.reach,
        )

    @property
    def tree(self) -> Tree:
        """The levels over the bins."""
        return Tree(leaves=1 << self.height, widths=tuple(self.widths))

    @property
    def length(self) -> int:
        """Both classes, all nodes."""
        return 2 * self.tree.length

    def measure(self, rows: Rows, memory: Memory) -> tuple[Vector, Memory]:
        """Count. Linear in the rows, constant in memory."""
        grid = self.grid
        counts = np.zeros(2 * grid.leaves, dtype=np.int64)
        for batch in rows.batches():
            scores, labels = np.asarray(batch["score"], dtype=np.float64), np.asarray(batch["label"])
            for start in range(0, len(scores), _BLOCK):
                counts += _count(grid, scores[start : start + _BLOCK], labels[start : start + _BLOCK])
        tree = self.tree
        return np.concatenate([tree.build(counts[1::2]), tree.build(counts[::2])]), memory

    def sensitivity(self, protection: Protection) -> Sensitivity:
        """One node per level and row."""
        return Sensitivity.of_counts(protection, cells_per_row=len(self.widths))

    def read(self, total: Vector) -> LabelledHistogram:
        """The two trees."""
        positives, negatives = np.split(total, 2)
        return LabelledHistogram(grid=self.grid, tree=self.tree, positives=positives, negatives=negatives)


def _count(grid: Grid, scores: NDArray[np.float64], labels: NDArray[np.integer]) -> NDArray[np.intp]:
    """Counts at 2·leaf + label."""
    # Written so that NaN fails: every comparison with NaN is false.
    if not (scores.min() >= 0 and scores.max() <= 1):
        raise DataError("scores: got a value that is NaN or outside [0, 1], expected probabilities.")
    if labels.dtype.kind not in "iub" or not (labels.min() >= 0 and labels.max() <= 1):
        raise DataError("labels: got a value other than 0 and 1, expected binary labels.")
    code = grid.locate(scores)
    code <<= 1
    code += labels
    return np.bincount(code, minlength=2 * grid.leaves)
