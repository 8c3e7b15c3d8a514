"""A toy summary for each kind of query, a task for each shape, and a trust model with a helper.

They exist to fix the architecture: everything a later task, summary or trust model needs of the protocol is
used here once, with nothing else in the way.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from fedassay.errors import TooFewClients, UnsupportedQuery, UsageError
from fedassay.kernel.run import Job
from fedassay.protocol.vocabulary import (
    NO_NOISE,
    All,
    Batch,
    Exchange,
    Measure,
    Memory,
    Message,
    Party,
    Plan,
    Protection,
    Query,
    Randomness,
    Released,
    Replies,
    Request,
    Round,
    Rows,
    Sample,
    Sensitivity,
    Setting,
    Sum,
    Summary,
    TrustModel,
    Vector,
)


@dataclass(frozen=True)
class InMemory:
    """Rows of one client, held as one array of whole numbers."""

    values: tuple[int, ...]

    def batches(self) -> Iterator[Batch]:
        yield {"value": np.array(self.values, dtype=np.int64)}


def values_of(rows: Rows) -> Vector:
    return np.concatenate([batch["value"] for batch in rows.batches()]).astype(np.int64)


@dataclass(frozen=True, kw_only=True)
class CountsUpTo(Summary[Vector]):
    """How many rows have each value 0, .., top; larger ones count as top."""

    top: int
    name: ClassVar[str] = "counts-up-to"
    columns: ClassVar[tuple[str, ...]] = ("value",)

    def __post_init__(self) -> None:
        if not isinstance(self.top, int) or not 0 <= self.top < 10_000:
            raise UsageError(f"top: got {self.top}, expected a whole number below 10,000.")

    @property
    def length(self) -> int:
        return self.top + 1

    def measure(self, rows: Rows, memory: Memory) -> tuple[Vector, Memory]:
        return np.bincount(np.minimum(values_of(rows), self.top), minlength=self.length).astype(
            np.int64
        ), memory

    def sensitivity(self, protection: Protection) -> Sensitivity:
        return Sensitivity.of_counts(protection, multipliers=(1,))

    def read(self, total: Vector) -> Vector:
        return total


@dataclass(frozen=True, kw_only=True)
class LargestValue(Summary[int]):
    """The client's largest row."""

    name: ClassVar[str] = "largest-value"
    columns: ClassVar[tuple[str, ...]] = ("value",)
    additive: ClassVar[bool] = False

    @property
    def length(self) -> int:
        return 1

    def measure(self, rows: Rows, memory: Memory) -> tuple[Vector, Memory]:
        return np.array([values_of(rows).max()], dtype=np.int64), memory

    def sensitivity(self, protection: Protection) -> Sensitivity:
        return Sensitivity(l1=float(self.largest), l2=float(self.largest))

    def read(self, total: Vector) -> int:
        return int(total[0])


@dataclass(frozen=True, kw_only=True)
class DistanceToMedian(Summary[int]):
    """For each candidate, how far it is from halving the client's rows (a loss: small is good)."""

    candidates: tuple[int, ...]
    name: ClassVar[str] = "distance-to-median"
    columns: ClassVar[tuple[str, ...]] = ("value",)
    additive: ClassVar[bool] = False

    @property
    def length(self) -> int:
        return len(self.candidates)

    def measure(self, rows: Rows, memory: Memory) -> tuple[Vector, Memory]:
        values = values_of(rows)
        below = [(values < candidate).sum() - (values > candidate).sum() for candidate in self.candidates]
        return np.abs(np.array(below, dtype=np.int64)), memory

    def sensitivity(self, protection: Protection) -> Sensitivity:
        return Sensitivity.of_counts(protection, multipliers=(1,) * len(self.candidates))

    def read(self, total: Vector) -> int:
        return self.candidates[int(np.argmax(total))]


@dataclass(frozen=True, kw_only=True)
class Surprise(Summary[tuple[int, int]]):
    """Rows above `guess` that were not above the guess before: needs the client's memory."""

    guess: int
    name: ClassVar[str] = "surprise"
    columns: ClassVar[tuple[str, ...]] = ("value",)
    additive: ClassVar[bool] = False

    @property
    def length(self) -> int:
        return 2

    def measure(self, rows: Rows, memory: Memory) -> tuple[Vector, Memory]:
        above = int((values_of(rows) > self.guess).sum())
        new = above - int(memory.get("above", 0))
        return np.array([new, 1 + int(memory.get("rounds", 0))], dtype=np.int64), {
            "above": above,
            "rounds": 1 + int(memory.get("rounds", 0)),
        }

    def sensitivity(self, protection: Protection) -> Sensitivity:
        return Sensitivity.of_counts(protection, multipliers=(1, 1))

    def read(self, total: Vector) -> tuple[int, int]:
        return int(total[0]), int(total[1])


@dataclass(frozen=True, kw_only=True)
class Once:
    """A task that asks one query and returns its answer."""

    query: Query[Any]

    def steps(self, setting: Setting) -> Generator[Any, Any, Any]:
        released = yield self.query
        return released


@dataclass(frozen=True, kw_only=True)
class ThreeRounds:
    """Three rounds over sampled cohorts; each guess depends on the answer before."""

    rate: float = 1.0

    def steps(self, setting: Setting) -> Generator[Any, Any, list[tuple[int, int, int]]]:
        guess, story = 0, []
        for _ in range(3):
            cohort = Sample(rate=self.rate) if self.rate < 1 else All()
            released = yield Sum(of=Surprise(guess=guess), share=1 / 3, cohort=cohort)
            story.append((guess, *released.value))
            guess += 1 + released.value[0] % 3
        return story


@dataclass(frozen=True, kw_only=True)
class TwoShares(TrustModel):
    """Each client splits its vector at random between the server and the helper: neither learns anything."""

    helper: str = "helper"
    name: ClassVar[str] = "two-shares"
    private: ClassVar[bool] = False

    def plan(self, query: Query[Any], setting: Setting) -> Plan:
        if not isinstance(query, Sum):
            raise UnsupportedQuery(f"{type(query).__name__}: two-shares can only add.")
        return Plan(query=query, setting=setting, sensitivity=query.of.sensitivity(setting.protection))

    def exchange(
        self, exchange: Exchange, randomness: Randomness
    ) -> Generator[Round, Replies, tuple[Released[Any], ...]]:
        replies = yield Round(requests={name: {} for name in exchange.cohort})
        if not replies:
            raise TooFewClients("two-shares: nobody answered.")
        mine = sum((reply["server"] for reply in replies.values()), np.uint64(0))
        to_helper = [reply["helper"] for reply in replies.values()]
        answer = yield Round(to=Party.HELPER, requests={self.helper: {"shares": to_helper}})
        if self.helper not in answer:
            raise TooFewClients("two-shares: the helper did not answer.")
        total = (mine + answer[self.helper]["total"]).astype(np.int64)
        ends = np.cumsum([plan.query.of.length for plan in exchange.plans])[:-1]
        return tuple(
            Released(value=vector, noise=NO_NOISE, clients=len(replies)) for vector in np.split(total, ends)
        )

    def respond(
        self, request: Request, measure: Measure, state: Message, randomness: Randomness
    ) -> tuple[Message, Message]:
        vector = np.concatenate(measure()).astype(np.uint64)
        share = randomness.words(len(vector))
        return {"server": vector - share, "helper": share}, {}

    def assist(self, request: Request, state: Message, randomness: Randomness) -> tuple[Message, Message]:
        return {"total": sum(request.message["shares"], np.uint64(0))}, {}

    def aggregate(
        self, plans: Sequence[Plan], totals: Sequence[Vector], clients: int, randomness: Randomness
    ) -> tuple[Released[Any], ...]:
        return tuple(Released(value=total, noise=NO_NOISE, clients=clients) for total in totals)

    def statement(self, setting: Setting) -> str:
        return "Server and helper together learn the total; neither learns more unless they collude."


TOY_SUMMARIES = {kind.name: kind for kind in (CountsUpTo, LargestValue, DistanceToMedian, Surprise)}


def shared(jobs: Iterable[Job]) -> tuple[Job, ...]:
    """The jobs, each with the same share of the budget that they have together."""
    jobs = tuple(jobs)
    return tuple(replace(job, setting=replace(job.setting, share=1 / len(jobs))) for job in jobs)
