"""Declarations of the parts that results of all tasks have: the JSON Schema of results is made from them.

A part is a `TypedDict`; the sentence below an entry describes it. Each kind declares its own ``results`` beside its
task, and its card names them. What annotations cannot say is given to `declared`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, NotRequired, TypeVar

from annotated_types import Ge, Gt, Le, Len, Lt
from pydantic import Field
from typing_extensions import TypedDict

from fedassay.protocol.vocabulary import Delta

C = TypeVar("C")

Level = Annotated[float, Gt(0), Lt(1)]
Proportion = Annotated[float, Ge(0), Le(1)]
NotNegative = Annotated[float, Ge(0)]
Count = Annotated[int, Ge(0)]
Positive = Annotated[int, Ge(1)]
NonEmpty = Annotated[str, Len(1)]
Interval = Annotated[list[float], Len(2, 2)]
Hashed = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
TaskKind = Annotated[str, Field(pattern="^[a-z][a-z0-9-]*$")]
Anything = Mapping[str, Any]

IF_NULL: Mapping[str, Any] = {
    "if": {"properties": {"value": {"type": "null"}}},
    "then": {"required": ["reason"]},
}
IF_EMPTY: Mapping[str, Any] = {
    "if": {"properties": {"values": {"maxItems": 0}}},
    "then": {"required": ["reason"]},
}


def declared(
    more: Mapping[str, Any] | None = None,
    *,
    metrics: tuple[str, ...] = (),
    extra_items: Any = None,
    is_open: bool = False,
) -> Callable[[C], C]:
    """Declare what the annotations of a part cannot say.

    Parameters
    ----------
    more : keywords of its JSON Schema, such as ``if`` and ``then``.
    metrics : the parts of an evaluation (`metrics.Part`, ``compared`` or ``classes``) whose metrics are required.
    extra_items : declaration of entries that are not named, such as the metrics.
    is_open : whether it may have entries that are not declared.
    """
    config = {
        "extra": None if is_open or extra_items else "forbid",
        "use_attribute_docstrings": True,
        "json_schema_extra": {**({"metrics": metrics} if metrics else {}), **(more or {})},
    }

    def mark(kind: C) -> C:
        kind.__pydantic_config__ = config  # type: ignore[attr-defined]
        if extra_items is not None:
            kind.__extra_items__ = extra_items  # type: ignore[attr-defined]
        return kind

    return mark


# --- numbers ----------------------------------------------------------------------------------------------------------


@declared()
class ErrorPart(TypedDict):
    """Standard errors of sampling and of privacy noise, and the bound on the error of binning."""

    sampling: NotNegative
    privacy: NotNegative
    discretisation: NotNegative


@declared(
    {
        "if": IF_NULL["if"],
        "then": {"required": ["reason"], "properties": {"interval": {"type": "null"}}},
        "else": {"required": ["error"], "properties": {"interval": {"type": "array"}}},
    },
    is_open=True,
)
class MetricPart(TypedDict):
    """A number with its interval, or null with a reason."""

    value: float | None
    interval: Interval | None
    level: Level
    error: NotRequired[ErrorPart]
    reason: NotRequired[NonEmpty]
    excess: NotRequired[NotNegative]
    """Of a calibration error: how much sampling and noise alone would show."""

    bound: NotRequired[Annotated[float, Gt(0)]]
    """What the change of one row counts at most."""

    note: NotRequired[NonEmpty]
    """Why the value is what it is, whatever the rows are."""


@declared({**IF_NULL, "else": {"required": ["p_value", "degrees_of_freedom"]}}, is_open=True)
class StatisticPart(TypedDict):
    """A test statistic with its p-value, or null with a reason."""

    value: float | None
    p_value: NotRequired[Proportion | None]
    degrees_of_freedom: NotRequired[int | None]
    reason: NotRequired[str]


class NoisePart(TypedDict):
    """The law of the noise of a release."""

    law: str
    scale: NotNegative
    variance: NotNegative


# --- what all results have --------------------------------------------------------------------------------------------


class PrivacyPart(TypedDict):
    """What is promised, and under which terms."""

    trust_model: str
    unit: Literal["example", "client"]
    neighbours: Literal["add-remove", "replace-one"]
    epsilon: Annotated[float, Gt(0)] | None
    """null: no differential privacy."""

    delta: Delta | None
    simulated: bool
    """true: one process held all rows."""

    disclosure: NotRequired[Literal["minimum-5", "minimum-11", "redact-7-round-5"]]
    """Only there if exact totals were protected by such a profile before anything was computed from them."""

    statement: NonEmpty


class OpeningPart(TypedDict):
    """Who opened the totals of an exchange: members, each with its signature over the set of clients, made with the key
    that all sites have pinned.
    """

    exchange: Annotated[str, Field(pattern="^[0-9a-f]{32}$")]
    """The releases of it have ids that begin so."""

    terms: Annotated[str, Field(pattern="^([0-9a-f]{2})+$")]
    """What all parties agreed on, as a message: its SHA-256 is the session."""

    keys: dict[str, Hashed]
    """Site to Ed25519 key: those of the digest in the terms. Empty in a simulation."""

    clients: list[str]
    """Whose rows are in the totals."""

    set: Hashed
    """SHA-256 over the messages of these clients."""

    members: dict[str, Annotated[str, Field(pattern="^([0-9a-f]{128})?$")]]
    """Those who answered, with their signatures."""

    asked: Positive
    needed: Positive
    statement: str
    """How many answers were spare, and whether false rows were checked for."""


class CohortPart(TypedDict):
    """Who took part."""

    clients: Count
    """Clients whose rows are in the release."""

    dropped: Count
    """Clients that were asked and are not in it."""

    truncated: Count | None
    """Rows left out by the bound on rows per client. Known to whoever simulates; null in a release, where it would be
    one more unprotected number."""

    missing: NotRequired[Count]
    """Rows left out, as a value is missing. Only there if the simulation was asked to leave them out
    (missing = report)."""

    rows: NotNegative | None
    """Rows in the release. Under differential privacy the released estimate, never the true number."""

    openings: NotRequired[Annotated[list[OpeningPart], Len(1)]]
    """Only in a release whose totals members of a committee open: one for each exchange."""


class RuntimePart(TypedDict):
    """What carried the messages."""

    name: str
    mode: str
    """in-process: faithful (every message was made) or aggregate (totals drawn from their law)."""

    rounds: Count
    bytes_per_client: Count
    seconds: NotNegative | None
    """Null in a release under privacy: how long clients take depends on their rows."""


class ResultPart(TypedDict):
    """What a run says. `results` belongs to the task; everything else is the same for all tasks."""

    task: TaskKind
    """A kind of task, which another package may have added, or study."""

    parameters: Anything
    """What was asked for, as given."""

    results: Anything
    privacy: PrivacyPart
    cohort: CohortPart
    runtime: RuntimePart
    warnings: list[str]
    fedassay: str
    """The version that made the result."""


# --- studies ----------------------------------------------------------------------------------------------------------


class SplitPart(TypedDict):
    """The share of the units that is held out."""

    holdout: Level


class TrainingPart(TypedDict):
    """The stated cost of training."""

    epsilon: Annotated[float, Gt(0)]
    delta: Delta


@declared(is_open=True)
class StudyParameters(TypedDict):
    """What a study was asked for."""

    study: Annotated[str, Field(pattern="^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
    title: str | None
    model: str | None
    data: Anything | None
    """Of a simulation; null between sites."""

    columns: dict[str, str]
    split: SplitPart | None
    seed: Count | None
    rows_per_client: Positive | None
    training: TrainingPart | None
    expected: Anything | None


class ChargePart(TypedDict):
    """One release, by the law of its noise."""

    id: NonEmpty
    task: NonEmpty
    """KIND, or KIND:NAME where they differ."""

    summary: NonEmpty
    part: Literal["all", "fit", "first-fit", "second-fit", "held-out"]
    law: Literal["none", "discrete-laplace", "discrete-gaussian", "skellam", "unary", "choice"]
    scale: NotNegative | None
    l1: NotNegative | None
    l2: NotNegative | None
    trust_model: str
    unit: Literal["example", "client"]
    neighbours: Literal["add-remove", "replace-one"]
    shuffled_epsilon: NotNegative | None
    shuffled_delta: NotNegative | None
    sampled: Annotated[float, Gt(0), Le(1)] | None
    epsilon: NotNegative | None
    """Of this release by itself, at delta."""


_SPENT = ("delta", "spent", "remaining", "by_task")


@declared(
    {
        "if": {"properties": {"epsilon": {"type": "null"}}},
        "then": {"properties": {name: {"type": "null"} for name in _SPENT}},
        "else": {"not": {"anyOf": [{"properties": {name: {"type": "null"}}} for name in _SPENT]}},
    }
)
class SpendingPart(TypedDict):
    """The budget of a study and what its releases cost; null where there is no noise."""

    epsilon: NotNegative | None
    delta: Delta | None
    spent: NotNegative | None
    """What the charges compose to at delta; never above epsilon."""

    remaining: NotNegative | None
    by_task: dict[str, NotNegative | None] | None
    """What the charges of each task alone compose to; under a delta these add up to more than was spent."""

    charges: list[ChargePart]


class StudyVerdict(TypedDict):
    """What the tasks say together."""

    needs_calibration: bool | None
    """null: nobody looked, or nobody can tell."""

    text: str


class TaskOfStudy(TypedDict):
    """One task of a study."""

    task: TaskKind
    share: Annotated[float, Gt(0), Le(1)]
    """The part of the budget that it may spend."""

    after: str | None
    """The calibration whose scores it is about."""

    parameters: Anything
    """All parameters of the task, with the defaults of those that were not given."""

    results: Anything
    """What the same task says alone."""


class StudyResults(TypedDict):
    """The results of a study."""

    verdict: StudyVerdict
    tasks: Annotated[
        dict[Annotated[str, Field(pattern="^[a-z0-9][a-z0-9-]{0,31}$")], TaskOfStudy], Len(1, 32)
    ]
    budget: SpendingPart
