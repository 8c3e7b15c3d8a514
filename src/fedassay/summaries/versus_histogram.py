"""The score histogram of a second model on the same rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import ClassVar

from fedassay.protocol import Batch, Memory, Rows, Vector
from fedassay.summaries.columns import column
from fedassay.summaries.score_histogram import ScoreHistogram


@dataclass(frozen=True, kw_only=True)
class VersusHistogram(ScoreHistogram):
    """A `ScoreHistogram` that counts the column ``versus`` instead of ``score``. The same in all else.

    Examples
    --------
    >>> import numpy as np
    >>> class OneRow:
    ...     def batches(self):
    ...         yield {"score": np.array([0.1]), "versus": np.array([0.9]), "label": np.array([1])}
    >>> VersusHistogram(transform="uniform", height=2).measure(OneRow(), {})[0]
    array([0, 0, 0, 1, 0, 0, 0, 0])
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


class _Renamed:
    """The same rows, the second score in the place of the first."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def batches(self) -> Iterator[Batch]:
        for batch in self._rows.batches():
            yield {"score": column(batch, "versus"), "label": batch["label"]}
