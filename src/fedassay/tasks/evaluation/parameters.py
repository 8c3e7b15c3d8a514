"""Parameters of evaluations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fedassay.parameters import Interval
from fedassay.tasks.shared_parameters import Buckets, Classes, Groups, Intervals, ScoreBins


@dataclass(frozen=True, kw_only=True)
class EvaluateParameters(ScoreBins, Buckets, Groups, Intervals):
    """Parameters of `Evaluate`."""

    thresholds: tuple[Annotated[float, Interval(ge=0, le=1)], ...] = (0.5,)
    """Decision thresholds with exact metrics. Others can be asked of the result later."""
    versus: bool = False
    """Compare with a second model, whose scores are in the column with the role versus."""
    per_site: bool = False
    """Compare the sites: forest table and heterogeneity. Not under noise."""


@dataclass(frozen=True, kw_only=True)
class EvaluateMulticlassParameters(Classes, Buckets, Intervals):
    """Parameters of `EvaluateMulticlass`."""

    buckets: Annotated[int, Interval(ge=1, le=200)] = 15
    height: Annotated[int, Interval(ge=0, le=18)] | None = None
    """2^height bins for the ranking of each class; 0 for no ranking. Default: 10, or 8 under noise."""
