"""What a conformal task will cover, and what would be enough for it to be near the level."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from fedassay.errors import DataError, FedassayError
from fedassay.planning.expectation import PlannedRelease, Size
from fedassay.planning.inverse import Answer, smallest_epsilon
from fedassay.planning.rehearsed import Rehearsed, rehearse
from fedassay.tasks.conformal.accuracy import Expected
from fedassay.tasks.conformal.conformal import Conformal
from fedassay.tasks.conformal.found import Law

FINITE = "finite"
"""The target that there are sets which do not hold everything."""

MOST_TRIED = (10_000, 1_000_000)
"""Clients, and rows at each of them, that are looked at when asking what is enough; more if more are planned."""

MOST_CHOOSING = (200, 10_000)
"""The same where each client chooses privately, which takes longer to work out."""

LARGEST_TRIED = 16.0
"""Of epsilon, which beyond this no longer matters: larger ones are taken to be as good as this."""


@dataclass(frozen=True, kw_only=True)
class PredictedCoverage:
    """What will come out, or the reason why every set will hold everything.

    Parameters
    ----------
    rehearsed : how it went; None if the task refused.
    """

    level: float
    confidence: float
    rehearsed: Rehearsed | None = None
    reason: str | None = None

    @property
    def expected(self) -> Expected | None:
        """The coverage to expect in fact; it may take a simulation."""
        return None if self.rehearsed is None else self.rehearsed.expected

    @property
    def law(self) -> Law | None:
        """The law of the coverage, or a law below it."""
        return None if self.rehearsed is None else self.rehearsed.law

    @property
    def finite(self) -> bool:
        """Whether there will be sets that do not hold everything."""
        return self.rehearsed is not None and not self.rehearsed.trivial

    def width(self, name: str) -> float | None:
        """By the name of a target: infinite if all is covered, None where nothing is known."""
        if not self.finite:
            return math.inf
        if name == FINITE:
            return 0.0
        if name == "shortfall":
            return None if self.law is None else self.level - self.law.quantile(1 - self.confidence)
        if self.expected is None:
            return None
        return self.expected.standard_deviation if name == "spread" else self.expected.mean - self.level


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
        reason=rehearsed.reason,
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


def what_is_enough(study: PlannedRelease, task: Conformal, name: str, target: float) -> Enough:
    """The smallest epsilon, the fewest clients of the planned size, the fewest rows at each of the planned clients."""
    m, n = study.expectation.clients, max(1, math.floor(study.rows / study.expectation.clients))
    limits = MOST_CHOOSING if task.chooses(study.setting) else MOST_TRIED
    most_clients, most_rows = max(limits[0], 4 * m), max(limits[1], 4 * n)

    def width(other: PlannedRelease) -> float:
        if other.budget is not None and other.budget.epsilon > LARGEST_TRIED:
            other = other.with_epsilon(LARGEST_TRIED)
        found = predict(other, task).width(name)
        return math.inf if found is None else found

    def enough(clients: int, rows: int) -> bool:
        with suppress(FedassayError):  # what a trust model refuses is not enough
            return width(_of_size(study, clients, rows)) <= target
        return False

    clients = _fewest(lambda value: enough(value, n), m, most_clients)
    each = _fewest(lambda value: enough(m, value), n, most_rows)
    return Enough(
        metric=name,
        target=target,
        epsilon=smallest_epsilon(study, width, target, lambda other: _at_most(name, width(other))),
        rows=Answer(value=None, reason=f"no number of such clients up to {most_clients:,} is enough")
        if clients is None
        else Answer(value=float(clients * n), clients=clients),
        rows_per_client=Answer(value=None, reason=f"no number of rows at each up to {most_rows:,} is enough")
        if each is None
        else Answer(value=float(each)),
    )


def _of_size(study: PlannedRelease, clients: int, rows: int) -> PlannedRelease:
    """The same with so many rows at each of so many clients; a bound on them moves along."""
    protection = study.protection
    if protection.rows_per_client is not None:
        protection = replace(protection, rows_per_client=rows)
    return replace(study, expectation=Size(rows=clients * rows, clients=clients), protection=protection)


def _fewest(enough: Callable[[int], bool], start: int, most: int) -> int | None:
    """The smallest whole number that is enough, to two percent; None if there is none up to `most`.

    Goes up or down from `start` by factors of two until the answer changes, then bisects. What is found has been
    tried, and so has something at most two percent smaller that is not enough: if more is sometimes worse, there can be
    smaller numbers that are enough too.

    Examples
    --------
    >>> _fewest(lambda x: x >= 37, 100, 1000), _fewest(lambda x: x >= 37, 5, 1000), _fewest(lambda x: False, 5, 1000)
    (37, 37, None)
    """
    low, high = start, start
    if enough(start):
        while low > 1 and enough(low // 2):
            high = low = low // 2
        low //= 2
    else:
        while high < most and not enough(high):
            low, high = high, min(most, 2 * high)
        if high == most and not enough(most):
            return None
    while high - low > max(1, high // 50):
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _at_most(name: str, width: float) -> str:
    said = f"{width:.2g}" if math.isfinite(width) else "unknown, because sets hold everything"
    return f"at the largest that was tried, {name} is {said}"
