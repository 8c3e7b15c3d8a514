"""Declarations of the results of conformal tasks."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from annotated_types import Len
from typing_extensions import TypedDict

from fedassay.protocol.result_parts import Anything, MetricPart, NonEmpty, Positive, declared


class GuaranteePart(TypedDict):
    """Guarantee and its assumption."""

    kind: Literal["marginal", "training-conditional", "none"]
    level: float
    confidence: float | None
    coverage: float | None
    """Computed marginal coverage."""

    probability: float | None
    """Probability that at least the level is covered."""

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
    """Null where the set holds everything, or where there is no common threshold."""

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
    """binary: true if scores go through a calibrator first."""


@declared(is_open=True)
class ClassCoverage(TypedDict):
    """The coverage of some of the held-out rows."""

    rows: float
    coverage: MetricPart


WorstClass = TypedDict("WorstClass", {"class": Any, "rows": float, "coverage": MetricPart})
"""Class with the lowest coverage; its interval allows for the choice among the classes."""


@declared(is_open=True)
class HeldOutCoverage(TypedDict):
    """Results on held-out rows."""

    rows: float
    sites: Any
    coverage: MetricPart
    mean_size: NotRequired[MetricPart]
    classes: NotRequired[dict[str, ClassCoverage] | None]
    """Results of held-out rows of each class, for sets of classes that are not conditional on them."""

    worst_class: NotRequired[WorstClass | None]


@declared(is_open=True)
class SentScore(TypedDict):
    """Score that a site sent."""

    site: str
    rows: Any
    rank: Any
    score: NotRequired[Any]


@declared(is_open=True)
class ClientDifferences(TypedDict):
    """Differences between clients beyond chance."""

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
    """Guarantee, the rows that it is for, and the results of held-out rows of each class."""

    heterogeneity: NotRequired[ClientDifferences | None]
    comparison: NotRequired[list[ComparedMethod]]
    server_rank: NotRequired[float | None]
    """Rank among the clients' values."""

    rank: NotRequired[float | None]
    """Rank among all rows."""

    margin: NotRequired[float | None]
    """Number of rows by which the rank was raised for noise."""

    step: NotRequired[float | None]
    """Distance of the public points."""

    candidates: NotRequired[float | None]
    """Number of public points."""

    without_a_quantile: NotRequired[float | None]
    """Number of clients with too few rows for a quantile."""

    notes: list[str]
