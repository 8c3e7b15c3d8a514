"""Summaries that are made of score histograms carry the fields of one."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Self

from fedassay.summaries.grid import LARGEST_REACH
from fedassay.summaries.score_histogram import ScoreHistogram


@dataclass(frozen=True, kw_only=True)
class LikeHistogram:
    """The fields of a `ScoreHistogram`, under their own names: only plain values travel."""

    transform: str
    height: int
    thresholds: tuple[float, ...] = ()
    widths: tuple[int, ...] = (1,)
    multipliers: tuple[int, ...] = ()
    reach: float = LARGEST_REACH

    def __post_init__(self) -> None:
        for name in ("thresholds", "widths", "multipliers"):
            object.__setattr__(self, name, getattr(self.histogram, name))

    @classmethod
    def like(cls, histogram: ScoreHistogram, **others: Any) -> Self:
        """With the fields of this histogram, and its own."""
        return cls(**{field.name: getattr(histogram, field.name) for field in fields(histogram)}, **others)

    @property
    def histogram(self) -> ScoreHistogram:
        """The histogram that these fields describe."""
        return ScoreHistogram(**{field.name: getattr(self, field.name) for field in fields(ScoreHistogram)})
