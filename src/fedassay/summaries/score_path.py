"""The distribution of scores, with the noise of the mechanism ``path``: where to cut rows into equal groups."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from fedassay.errors import UsageError
from fedassay.protocol import Batch, Memory, Rows, Vector
from fedassay.summaries.columns import checked_scores, column
from fedassay.summaries.value_path import ValuePath


@dataclass(frozen=True, kw_only=True)
class ScorePath(ValuePath):
    """A `ValuePath` of the column in the role ``score``: the number of rows with a score up to i/N, i = 1..N.

    Sensitivity and noise are those of `ValuePath` on the uniform grid of [0, 1]. Enforced in `measure`: a score that
    is NaN or outside [0, 1] is a `DataError`, where a `ValuePath` would count it into an end. There are no
    `leaves`: what it is asked for together with, sums of scores, cannot be computed from counts either.

    Examples
    --------
    >>> import numpy as np
    >>> class ThreeRows:
    ...     def batches(self):
    ...         yield {"score": np.array([0.1, 0.5, 0.9])}
    >>> ScorePath(points=4).measure(ThreeRows(), {})[0]
    array([1, 2, 2, 3])
    """

    name: ClassVar[str] = "score-path"

    lower: float = 0.0
    upper: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.lower, self.upper, self.spacing, self.labelled) != (0.0, 1.0, "uniform", False):
            raise UsageError("score path: expected the uniform grid of [0, 1] and one class of rows.")

    @property
    def columns(self) -> tuple[str, ...]:  # type: ignore[override]
        """The score only: how scores are distributed has nothing to do with labels."""
        return ("score",)

    @property
    def leaves(self) -> None:  # type: ignore[override]
        """None: see above."""
        return

    def measure(self, rows: Rows, memory: Memory) -> tuple[Vector, Memory]:
        """Count as `ValuePath` does."""
        return super().measure(_Scores(rows), memory)


@dataclass(frozen=True)
class _Scores:
    """Rows whose value is their score."""

    rows: Rows

    def batches(self) -> Iterator[Batch]:
        for batch in self.rows.batches():
            yield {"value": checked_scores(column(batch, "score"))}
