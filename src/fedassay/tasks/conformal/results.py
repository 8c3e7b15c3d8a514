"""Declarations of what conformal tasks say."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from annotated_types import Len
from typing_extensions import TypedDict

from fedassay.protocol.result_parts import Anything, MetricPart, NonEmpty, Positive, declared


class GuaranteePart(TypedDict):
    """What is promised, under which assumption."""

    kind: Literal["marginal", "training-conditional", "none"]
    level: float
    confidence: float | None
    coverage: float | None
    """The computed marginal coverage."""

    probability: float | None
    """That at least the level is covered."""

    assumption: str | None
    text: NonEmpty


class QuantileOfCoverage(TypedDict):
    """A coverage that is not reached with this probability."""

    probability: float
    coverage: float


@declared()
class CoverageCurve(TypedDict):
    """A distribution function of the coverage."""

    coverage: list[float]
    cdf: list[float]


class CoverageLawPart(TypedDict):
    """The law of the coverage."""

    mean: float
    standard_deviation: float
    exact: bool
    """False if it is a lower bound."""

    quantiles: list[QuantileOfCoverage]
    curve: CoverageCurve


@declared(is_open=True)
class ThresholdPart(TypedDict):
    """A threshold with its promise."""

    threshold: float | None
    """Null where the set holds everything, or where there is not one for all."""

    infinite: bool
    reason: NotRequired[NonEmpty]
    guarantee: GuaranteePart | None
    pair: Annotated[list[Positive], Len(2, 2)] | None
    coverage_law: CoverageLawPart | None
    rows: float | None
    clients: int | None


@declared(is_open=True)
class ConformityScore(TypedDict):
    """The conformity score."""

    name: Literal["conformity", "absolute", "normalised", "cqr", "lac", "aps", "raps", "binary", "value"]
    parameters: list[float]
    """binary: the calibrator, if there is one."""

    calibrated: NotRequired[bool]
    """binary: whether scores go through a calibrator first."""


@declared(is_open=True)
class ClassCoverage(TypedDict):
    """The coverage of some of the held-out rows."""

    rows: float
    coverage: MetricPart


WorstClass = TypedDict("WorstClass", {"class": Any, "rows": float, "coverage": MetricPart})
"""The class with the lowest coverage; its interval allows for the choice of one of so many."""


@declared(is_open=True)
class HeldOutCoverage(TypedDict):
    """What held-out rows show."""

    rows: float
    sites: Any
    coverage: MetricPart
    mean_size: NotRequired[MetricPart]
    classes: NotRequired[dict[str, ClassCoverage] | None]
    """Of sets of classes that are not conditional on them: what held-out rows of each class show."""

    worst_class: NotRequired[WorstClass | None]


@declared(is_open=True)
class SentScore(TypedDict):
    """What a site sent."""

    site: str
    rows: Any
    rank: Any
    score: NotRequired[Any]


@declared(is_open=True)
class ClientDifferences(TypedDict):
    """How much clients differ beyond chance."""

    statistic: float
    degrees: int
    p_value: float
    between_sd: float
    loss_bound: float | None
    alarming: bool
    text: str


@declared(is_open=True)
class ComparedMethod(TypedDict):
    """Another method on the same rows."""

    method: str
    found: bool
    threshold: float | None
    coverage: Anything | float | None
    mean_size: Anything | float | None
    text: str


@declared(is_open=True)
class ConformalResults(ThresholdPart):
    """The results of a conformal task."""

    method: Literal["qq", "qq-paper", "average", "pooled", "weighted", "local"]
    level: float
    score: ConformityScore
    conditional: Literal["class", "group"] | None
    groups: NotRequired[dict[str, ThresholdPart]]
    sites: NotRequired[list[SentScore]]
    held_out: NotRequired[HeldOutCoverage | None]
    text: NonEmpty
    """What is promised of whom, and what held-out rows of each class show."""

    heterogeneity: NotRequired[ClientDifferences | None]
    comparison: NotRequired[list[ComparedMethod]]
    server_rank: NotRequired[float | None]
    """Rank among the clients' values."""

    rank: NotRequired[float | None]
    """Rank among all rows."""

    margin: NotRequired[float | None]
    """By how many rows the rank was raised for noise."""

    step: NotRequired[float | None]
    """Distance of the public points."""

    candidates: NotRequired[float | None]
    """Public points."""

    without_a_quantile: NotRequired[float | None]
    """Clients with too few rows for a quantile."""

    notes: list[str]
