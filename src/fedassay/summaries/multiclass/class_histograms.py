"""A score histogram of each class's probability: what one-vs-rest ranking is read from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedassay.protocol import Memory, Protection, Rows, Sensitivity, Summary, Total, Vector
from fedassay.summaries.grid import LARGEST_REACH
from fedassay.summaries.multiclass.probabilities import checked_classes, predicted
from fedassay.summaries.score_histogram import LabelledHistogram, ScoreHistogram


@dataclass(frozen=True, kw_only=True)
class ClassHistograms(Summary[tuple[LabelledHistogram, ...]]):
    """For each class j a `ScoreHistogram` of p_j, with the rows of class j as positives and all others as negatives.

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

    classes: int
    height: int = 10
    transform: str = "mixed"
    widths: tuple[int, ...] = (1,)
    reach: float = LARGEST_REACH

    def __post_init__(self) -> None:
        checked_classes(self.classes)
        object.__setattr__(self, "widths", self.histogram.widths)

    @property
    def histogram(self) -> ScoreHistogram:
        """That of one class."""
        return ScoreHistogram(
            transform=self.transform, height=self.height, widths=tuple(self.widths), reach=self.reach
        )

    @property
    def length(self) -> int:
        """One histogram per class."""
        return self.classes * self.histogram.length

    def measure(self, rows: Rows, memory: Memory) -> tuple[Vector, Memory]:
        """Count. Linear in the rows and classes, constant in memory, one pass."""
        grid, size = self.histogram.grid, (self.classes, self.histogram.grid.leaves)
        every, positives = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)
        first = grid.leaves * np.arange(self.classes)
        for batch in rows.batches():
            for block in predicted(batch, self.classes):
                leaf = grid.locate(block.p.reshape(-1)).reshape(block.p.shape) + first[:, None]
                mine = leaf[block.y, np.arange(len(block.y))]
                every = every + np.bincount(leaf.reshape(-1), minlength=every.size).reshape(size)
                positives = positives + np.bincount(mine, minlength=every.size).reshape(size)
        trees = [
            self.histogram.from_leaves(np.concatenate([mine, all_rows - mine]))
            for mine, all_rows in zip(positives, every, strict=True)
        ]
        return np.concatenate(trees), memory

    def sensitivity(self, protection: Protection) -> Sensitivity:
        """One node per level, class and row."""
        return Sensitivity.of_counts(protection, multipliers=(1,) * (len(self.widths) * self.classes))

    def read(self, total: Total) -> tuple[LabelledHistogram, ...]:
        """The histogram of each class."""
        return tuple(self.histogram.read(part) for part in np.split(total, self.classes))
