"""What the contract of runtimes plays: toy clients with rows, and every shape of task as a named scenario.

Nodes of Flower import this module by name, so it needs nothing but the toys.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedassay.errors import TooFewClients
from fedassay.kernel.run import Job, run
from fedassay.privacy.ledger.charges import MemoryLedger
from fedassay.protocol.vocabulary import (
    Batch,
    Budget,
    Collect,
    Protection,
    Randomness,
    Released,
    Select,
    Setting,
    Sum,
    TrustModel,
)
from fedassay.runtimes.messaging import MessagingRuntime
from fedassay.summaries import CATALOGUE
from fedassay.tasks.evaluation import Evaluate
from fedassay.trust import TRUST_MODELS
from fedassay.trust.distributed_dp import DistributedDP
from fedassay.trust.local_dp import LocalDP
from fedassay.trust.plain import Plain
from fedassay.trust.secure_sum import SecureSum
from toys import (
    TOY_SUMMARIES,
    CountsUpTo,
    DistanceToMedian,
    LargestValue,
    Once,
    ThreeRounds,
    TwoShares,
    shared,
)

ROWS = {"a": (1, 2, 3), "b": (2, 2), "c": (5, 0, 1, 2), "d": (3,)}
HELPER = "helper"
SUMMARIES = {**CATALOGUE, **TOY_SUMMARIES}
TRUSTED = {**TRUST_MODELS, TwoShares.name: TwoShares}
# Of four sites one may be missing from both legs, if none of the others colludes.
SUMMING = {one.name: one for one in (Plain(), SecureSum(dropout=0.3, collusion=0.0), TwoShares())}
NOISY = {one.name: one for one in (DistributedDP(dropout=0.3, collusion=0.0), LocalDP(encoding="noise"))}
SILENT = Budget(epsilon=5_000.0)
"""So large that noise is zero but for a probability below 10⁻²⁰: answers can be compared."""
TOP = 4
THRESHOLD = 0.3


@dataclass(frozen=True)
class ToyRows:
    """Whole numbers, each with a score and a label made from it."""

    values: tuple[int, ...]

    def batches(self) -> Iterator[Batch]:
        value = np.array(self.values, dtype=np.int64)
        yield {"value": value, "score": (value + 0.5) / 7, "label": (value > 2).astype(np.int8)}


def columns_of(name: str) -> Batch:
    return next(ToyRows(ROWS[name]).batches())


def pooled() -> dict[str, Any]:
    """The scores and labels of all clients as one table with a column `site`."""
    batch = next(ToyRows(tuple(value for values in ROWS.values() for value in values)).batches())
    names = [name for name, values in ROWS.items() for _ in values]
    return {"site": names, "score": batch["score"], "label": batch["label"]}


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """Jobs that run in lockstep, as a study of this name; the client `lost` never answers in it."""

    name: str
    jobs: tuple[Job, ...]
    lost: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "jobs", shared(self.jobs))


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of a scenario, in plain values; `rounds` counts the round trips, `failed` says too few answered."""

    answers: Mapping[str, Any] = field(default_factory=dict)
    rounds: int = 0
    failed: bool = False


def job(name: str, task: Any, trust: TrustModel) -> Job:
    budget = SILENT if trust.private else None
    setting = Setting(trust=trust, protection=Protection(), budget=budget, clients=len(ROWS))
    return Job(name=name, task=task, setting=setting)


def counts(trust: TrustModel) -> Job:
    return job("counts", Once(query=Sum(of=CountsUpTo(top=TOP))), trust)


def evaluate(trust: TrustModel) -> Job:
    return job("evaluate", Evaluate(thresholds=(THRESHOLD,)), trust)


def _scenarios() -> Iterator[Scenario]:
    plain = SUMMING["plain"]
    one_per_client = (
        job("largest", Once(query=Collect(of=LargestValue())), plain),
        job("median", Once(query=Select(of=DistanceToMedian(candidates=(0, 2, 3)))), plain),
    )
    for name, trust in SUMMING.items():
        yield Scenario(name=f"one-step-{name}", jobs=(counts(trust), evaluate(trust)))
        yield Scenario(
            name=f"three-rounds-{name}",
            jobs=(
                job("three", ThreeRounds(), trust),
                counts(trust),
                evaluate(trust),
                *(one_per_client if name == "plain" else ()),
            ),
        )
        yield Scenario(name=f"dropout-{name}", jobs=(counts(trust),), lost="c")
    for name, trust in NOISY.items():
        yield Scenario(name=f"dropout-{name}", jobs=(counts(trust),), lost="c")
    # The chance that nobody at all is asked in a round is 3 · 0.03⁴, below 10⁻⁵.
    yield Scenario(name="sampled", jobs=(job("three", ThreeRounds(rate=0.97), plain),))
    yield Scenario(name="too-few", jobs=(counts(SecureSum(minimum_cohort=len(ROWS))),), lost="c")


SCENARIOS = {scenario.name: scenario for scenario in _scenarios()}
FEWEST_LEGS = ("three-rounds-plain", "dropout-two-shares")
"""Each shape of task once, in as few legs as can be."""
PROGRAMMES = {"fewest-legs": FEWEST_LEGS, "everything": tuple(SCENARIOS)}


def in_plain_values(answer: Any) -> Any:
    """An answer as JSON gives it back: what every runtime can hand over and every other can compare."""
    if isinstance(answer, Released):
        answer = {"value": answer.value, "clients": answer.clients}
    return json.loads(json.dumps(answer, default=lambda array: array.tolist()))


def play(scenario: Scenario, runtime: MessagingRuntime, randomness: Randomness) -> Outcome:
    """Run a scenario on a runtime that stays there from beginning to end."""
    before = runtime.traffic.rounds
    try:
        answers = run(
            scenario.jobs,
            runtime=runtime,
            ledger=MemoryLedger(None),
            randomness=randomness,
            study=scenario.name,
        )
    except TooFewClients:
        return Outcome(failed=True)
    return Outcome(
        answers={name: in_plain_values(answer) for name, answer in answers.items()},
        rounds=runtime.traffic.rounds - before,
    )
