"""What a conformal task will cover, and what would be enough for it to be near the level."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Any, Self

from fedassay.errors import DataError, FedassayError
from fedassay.planning.expectation import PlannedRelease, Size
from fedassay.planning.inverse import Answer, fewest_rows, smallest_epsilon
from fedassay.planning.rehearsed import Rehearsed, rehearse
from fedassay.tasks.conformal.accuracy import Expected
from fedassay.tasks.conformal.conformal import Conformal
from fedassay.tasks.conformal.found import Law


@dataclass(frozen=True, kw_only=True)
class PredictedCoverage:
    """What will come out, or the reason why every set will hold everything.

    Parameters
    ----------
    rehearsed : how it went; None if the task refused.
    expected : the coverage to expect in fact.
    """

    level: float
    confidence: float
    rehearsed: Rehearsed | None = None
    expected: Expected | None = None
    reason: str | None = None

    @property
    def law(self) -> Law | None:
        """The law of the coverage, or a law below it."""
        return None if self.rehearsed is None else self.rehearsed.found.law

    @property
    def finite(self) -> bool:
        """Whether there will be sets that do not hold everything."""
        return self.rehearsed is not None and not self.rehearsed.found.infinite

    def width(self, name: str) -> float:
        """By the name of a target; infinite where it cannot be said."""
        if not self.finite:
            return math.inf
        if name == "shortfall":
            return math.inf if self.law is None else self.level - self.law.quantile(1 - self.confidence)
        if self.expected is None:
            return math.inf
        if name == "spread":
            return self.expected.standard_deviation
        return self.expected.mean - self.level


def predict(study: PlannedRelease, task: Conformal) -> PredictedCoverage:
    """By rehearsal; too few rows are an answer and not an error."""
    level, confidence = task.level, task.confidence
    try:
        rehearsed = rehearse(task, study)
    except DataError as problem:
        return PredictedCoverage(level=level, confidence=confidence, reason=str(problem))
    return PredictedCoverage(
        level=level,
        confidence=confidence,
        rehearsed=rehearsed,
        expected=rehearsed.expected(level),
        reason=rehearsed.found.reason,
    )


# --- what would be enough ---------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Enough:
    """What would be enough for one target: an epsilon, clients of the planned size, or rows at each of them."""

    metric: str
    target: float
    epsilon: Answer
    rows: Answer
    rows_per_client: Answer

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        answers = {name: getattr(self, name).to_dict() for name in ("epsilon", "rows", "rows_per_client")}
        return {"metric": self.metric, "target": self.target, **answers}


@dataclass(frozen=True, kw_only=True)
class _SameClients(PlannedRelease):
    """A study that has more rows at each client, and not more clients."""

    @classmethod
    def of(cls, study: PlannedRelease) -> _SameClients:
        return cls(**{field.name: getattr(study, field.name) for field in fields(study)})

    def with_rows(self, rows: float) -> Self:
        """The same clients with more or fewer rows, and with a bound on them that moves along."""
        size = Size(rows=rows, clients=self.expectation.clients)
        protection = self.protection
        if protection.rows_per_client is not None:
            protection = replace(protection, rows_per_client=max(1, math.floor(rows / size.clients)))
        return replace(self, expectation=size, protection=protection)


def what_is_enough(study: PlannedRelease, task: Conformal, name: str, target: float) -> Enough:
    """The smallest epsilon, the fewest clients of the planned size, the fewest rows at each of the planned clients."""

    def width(other: PlannedRelease) -> float:
        return predict(other, task).width(name)

    def beside_noise(other: PlannedRelease) -> str:
        return f"at the largest that was tried {name} is {_in_words(_tried(other, task).width(name))}"

    clients = fewest_rows(study, width, target)
    each = fewest_rows(_SameClients.of(study), width, target)
    return Enough(
        metric=name,
        target=target,
        epsilon=smallest_epsilon(study, width, target, beside_noise),
        rows=_or_reason(clients, "no number of clients of this size is enough"),
        rows_per_client=_or_reason(
            each
            if each.value is None
            else replace(each, value=float(each.value // study.expectation.clients)),
            "no number of rows at each of these clients is enough",
        ),
    )


def _or_reason(answer: Answer, reason: str) -> Answer:
    return answer if answer.value is not None else Answer(value=None, reason=reason)


def _tried(study: PlannedRelease, task: Conformal) -> PredictedCoverage:
    try:
        return predict(study, task)
    except FedassayError as problem:
        return PredictedCoverage(level=task.level, confidence=task.confidence, reason=str(problem))


def _in_words(width: float) -> str:
    return f"{width:.2g}" if math.isfinite(width) else "unknown, because sets hold everything"
