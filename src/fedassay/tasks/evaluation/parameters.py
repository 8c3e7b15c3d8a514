"""Parameters of evaluations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from fedassay.protocol.parameters import Interval
from fedassay.tasks.shared_parameters import BucketParameters, Classes, Groups, Intervals, ScoreBins
from fedassay.tasks.study_rules import Given, HistogramRules, StudyRules, missing_classes


@dataclass(frozen=True, kw_only=True)
class EvaluateParameters(ScoreBins, BucketParameters, Groups, Intervals):
    """Parameters of `Evaluate`."""

    thresholds: tuple[Annotated[float, Interval(ge=0, le=1)], ...] = (0.5,)
    """Decision thresholds with exact metrics. Others can be asked of the result later."""
    versus: bool = False
    """Compare with a second model, whose scores are in the column with the role versus."""
    per_site: bool = False
    """Compare the sites: forest table and heterogeneity. Not under noise."""


@dataclass(frozen=True, kw_only=True)
class EvaluateMulticlassParameters(Classes, BucketParameters, Intervals):
    """Parameters of `EvaluateMulticlass`."""

    buckets: Annotated[int, Interval(ge=1, le=200)] = 15
    height: Annotated[int, Interval(ge=0, le=18)] | None = None
    """2^height bins for the ranking of each class; 0 for no ranking. Default: 10, or 8 under noise."""


# --- implications of a study file for evaluations -----------------------------------------------------------


class EvaluationRules(HistogramRules):
    """Rules of binary evaluations: a second model is compared if there is a column of its scores."""

    implied_names: ClassVar[tuple[str, ...]] = ("versus",)

    def roles(self, parameters: Given) -> tuple[str, ...]:
        """See `StudyRules`."""
        more = (("versus", "versus"), ("group", "groups"))
        return (*self.columns, *(role for role, entry in more if parameters.get(entry)))

    def implied(self, given: Given, columns: Mapping[str, str] | None, holdout: float) -> dict[str, Any]:
        """See `StudyRules`."""
        return {} if columns is None else {"versus": "versus" in columns}


class ClassRules(StudyRules):
    """Rules of multiclass evaluations: the number of classes is looked up."""

    def looked_up(self, parameters: Given) -> tuple[str, ...]:
        """See `StudyRules`."""
        return missing_classes(parameters)
