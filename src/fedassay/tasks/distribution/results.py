"""Declarations of the results of distribution functions, quantiles found by search, and Hosmer-Lemeshow tests."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired

from annotated_types import Ge, Len
from typing_extensions import TypedDict

from fedassay.protocol.result_parts import (
    IF_EMPTY,
    IF_NULL,
    Anything,
    Level,
    MetricPart,
    NoisePart,
    NonEmpty,
    NotNegative,
    Positive,
    Proportion,
    StatisticPart,
    declared,
)


@declared()
class CurveErrors(TypedDict):
    """Standard errors at each point."""

    sampling: list[NotNegative]
    privacy: list[NotNegative]


@declared(IF_EMPTY, is_open=True)
class DistributionCurve(TypedDict):
    """A distribution function with its simultaneous band, or empty lists with a reason."""

    values: list[Proportion]
    lower: list[Proportion]
    upper: list[Proportion]
    standard_error: CurveErrors
    rows: MetricPart
    reason: NotRequired[NonEmpty]


@declared(IF_NULL)
class QuantilePart(TypedDict):
    """A quantile, rounded up to a point. An end of the interval is null where nothing bounds it. The reason says why
    there is no value, or what is special about the leaf it lies in.
    """

    quantile: Level
    value: float | None
    interval: Annotated[list[float | None], Len(2, 2)] | None
    level: Level
    reason: NotRequired[NonEmpty]


@declared(is_open=True)
class GridPart(TypedDict):
    """The points at which the distribution function is known."""

    spacing: Literal["uniform", "logarithmic", "quantile", "given"]
    lower: float
    upper: float
    points: Positive
    leaves: NotRequired[Annotated[int, Ge(2)]]
    first_look: NotRequired[Anything | None]
    """With the spacing quantile: the release that found the points."""


@declared(
    {
        **IF_EMPTY,
        "dependentRequired": {"roc_auc": ["positives", "negatives", "roc_curve"], "positives": ["roc_auc"]},
    },
    is_open=True,
)
class DistributionResults(DistributionCurve):
    """The results of a distribution function."""

    points: Annotated[list[float], Len(1)]
    level: Level
    quantiles: list[QuantilePart]
    mechanism: Literal["none", "tree", "path", "factorised"]
    smoothing: Literal["none", "isotonic", "l1", "l2"]
    smoothed_points: Positive | None
    grid: GridPart
    noise: NoisePart
    notes: list[str]
    distribution: Anything
    """The release itself, from which later questions are answered."""

    positives: NotRequired[DistributionCurve]
    negatives: NotRequired[DistributionCurve]
    roc_curve: NotRequired[Anything]
    roc_auc: NotRequired[MetricPart]


@declared(is_open=True)
class QuantilesResults(TypedDict):
    """The results of quantiles found by search."""

    quantiles: Annotated[list[QuantilePart], Len(1)]
    rows: MetricPart
    mechanism: NotRequired[Literal["none", "path"]]
    evaluations: Positive
    """Number of points of the distribution function that were evaluated."""

    level: Level
    grid: GridPart
    noise: NoisePart
    notes: list[str]


@declared(is_open=True)
class GroupOfRows(TypedDict):
    """Rows of a group, and how many of them are positive."""

    lower: float
    upper: float
    rows: float
    observed: float
    expected: float


@declared(
    {
        "if": {"properties": {"value": {"type": "number"}}},
        "then": {"required": ["p_value", "degrees_of_freedom", "method", "groups", "warnings", "null"]},
        "else": {"required": ["reason"]},
    },
    is_open=True,
)
class HosmerLemeshowTest(StatisticPart):
    """The test with its groups."""

    groups: NotRequired[Annotated[list[GroupOfRows], Len(1)]]
    warnings: NotRequired[list[str]]


@declared(is_open=True)
class HosmerLemeshowResults(TypedDict):
    """The results of a Hosmer-Lemeshow test."""

    hosmer_lemeshow: HosmerLemeshowTest
    histogram: NotRequired[Anything]
    """With the method free: the release, as in an evaluation."""
