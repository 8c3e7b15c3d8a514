"""The score histograms of two models on the same rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedassay.protocol import Batch, Memory, Protection, Rows, Sensitivity, Summary, Total, Vector
from fedassay.summaries.columns import column
from fedassay.summaries.like_histogram import LikeHistogram
from fedassay.summaries.score_histogram import LabelledHistogram, ScoreHistogram

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
