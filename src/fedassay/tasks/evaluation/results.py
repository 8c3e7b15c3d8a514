"""Declarations of the results of evaluations: of a classifier with two classes, and with several."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired

from annotated_types import Len
from typing_extensions import TypedDict

from fedassay.protocol.result_parts import (
    Anything,
    Count,
    Interval,
    Level,
    MetricPart,
    NonEmpty,
    NotNegative,
    Positive,
    Proportion,
    StatisticPart,
    declared,
)

AtEachThreshold = Annotated[list[float | None], Len(99, 99)]


@declared(is_open=True)
class ScoreDistributionPart(TypedDict):
    """Rows of each class in buckets of the score."""

    spacing: str
    edges: list[float]
    positives: list[float]
    negatives: list[float]


@declared(metrics=("threshold",), extra_items=MetricPart)
class AtThreshold(TypedDict):
    """The decision at one threshold."""

    threshold: float
    applied: float
    """The edge at which the metrics hold; equal to `threshold` for thresholds given before the release."""


@declared()
class OverThresholds(TypedDict):
    """A metric at each threshold, null where it is undefined."""

    value: AtEachThreshold
    lower: AtEachThreshold
    upper: AtEachThreshold


@declared(metrics=("operating-point",), extra_items=OverThresholds)
class OperatingPoints(TypedDict):
    """The decision `score >= threshold` at 0.01, 0.02, .. 0.99; each interval is for its threshold alone."""

    thresholds: AtEachThreshold
    applied: AtEachThreshold
    """The edges of the histogram at which the numbers hold."""

    level: Level
    rows: float


@declared(metrics=("rows", "threshold"), extra_items=MetricPart)
class EntryOfRows(TypedDict):
    """The metrics of some of the rows, or of another model, without curves."""

    rows: float
    """Number of rows; under noise an estimate, which may be negative."""

    thresholds: Annotated[list[AtThreshold], Len(1)]
    group: NotRequired[str]
    site: NotRequired[str]


_POOLED = (
    "prediction_interval",
    "scale",
    "standard_error",
    "tau2",
    "i2",
    "q",
    "degrees_of_freedom",
    "p_value",
)


@declared(
    {
        "if": {"properties": {"value": {"type": "null"}}},
        "then": {"required": ["reason"]},
        "else": {"required": list(_POOLED)},
    }
)
class PooledPart(TypedDict):
    """Mean of the sites' own values, and their spread; null with a reason if too few sites have a value."""

    value: float | None
    interval: Interval | None
    level: Level
    prediction_interval: NotRequired[Interval]
    """Interval for the value of a further site."""

    scale: NotRequired[Literal["identity", "logit", "log"]]
    """Scale on which sites are pooled; also that of `tau2` and `standard_error`."""

    standard_error: NotRequired[NotNegative]
    tau2: NotRequired[NotNegative]
    """The variance between sites."""

    i2: NotRequired[Proportion]
    """The share of the spread that is not sampling error."""

    q: NotRequired[NotNegative]
    degrees_of_freedom: NotRequired[Positive]
    p_value: NotRequired[Proportion]
    sites: Count
    """Number of sites with an estimate."""

    left_out: Count
    """Number of sites without an estimate."""

    reason: NotRequired[NonEmpty]


@declared(metrics=("compared",), extra_items=PooledPart)
class Heterogeneity(TypedDict):
    """Random-effects analysis of the sites' estimates, by metric; with `per_site`."""


@declared({"required": ["roc_auc", "brier_score"]}, extra_items=MetricPart)
class Difference(TypedDict):
    """The first model minus the second, paired."""


@declared(
    {
        "if": {"properties": {"sites": {"type": "null"}}, "required": ["sites"]},
        "then": {"required": ["sites_reason", "heterogeneity"]},
    },
    metrics=("rows", "threshold"),
    extra_items=MetricPart,
)
class EvaluationResults(TypedDict):
    """The results of the evaluation of a binary classifier."""

    hosmer_lemeshow: StatisticPart
    thresholds: Annotated[list[AtThreshold], Len(1)]
    roc_curve: Anything
    precision_recall_curve: Anything
    reliability_curve: Anything
    net_benefit_curve: Anything
    operating_points: OperatingPoints
    histogram: Anything
    buckets: Anything
    score_distribution: NotRequired[ScoreDistributionPart]
    groups: NotRequired[Annotated[list[EntryOfRows], Len(2)]]
    """Entry of each declared group, then `other`, the rows of no group; with `by`. In all, every row."""

    versus: NotRequired[EntryOfRows]
    """The second model."""

    difference: NotRequired[Difference]
    sites: NotRequired[list[EntryOfRows] | None]
    """Entry of each site, or null where the trust model shows none; with `per_site`."""

    sites_reason: NotRequired[NonEmpty]
    """Reason why `sites` is null."""

    heterogeneity: NotRequired[Heterogeneity]


# --- several classes --------------------------------------------------------------------------------------------------


@declared({"if": {"properties": {"edges": {"maxItems": 0}}}, "then": {"required": ["reason"]}})
class TopLabelCurve(TypedDict):
    """Share of correct rows against the mean probability of the most probable class, in each bin that has
    rows, with a simultaneous band; or empty lists with a reason.
    """

    edges: list[Annotated[list[Proportion], Len(2, 2)]]
    mean_score: list[Proportion]
    observed: list[Proportion]
    share: list[Proportion]
    lower: list[Proportion]
    upper: list[Proportion]
    level: Level
    reason: NotRequired[NonEmpty]


ClassEntry = TypedDict(
    "ClassEntry",
    {
        "class": Count,
        "rows": NotNegative,
        "prevalence": MetricPart,
        "roc_auc": MetricPart,
        "calibration_error": MetricPart,
    },
)


@declared(metrics=("classes",), extra_items=MetricPart)
class ClassEvaluationResults(TypedDict):
    """The results of the evaluation of a model with several classes, from logits."""

    rows: NotNegative
    bins: Positive
    reliability_curve: TopLabelCurve
    classes: Annotated[list[ClassEntry], Len(2)]
    notes: list[str]
