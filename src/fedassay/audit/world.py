"""Two neighbouring worlds, and their participants: the shipped clients and servers, run many times over.

An audit asks the same queries again and again in a world whose rows it has made itself. Everything between the rows
and what the attacker sees is the shipped code: `Client` (policy, ledger, bounds, measurement), the client half, the
server half and the helper half of the trust model, and every message as bytes. As many independent repetitions as fit
(64 queries) travel in one exchange, as separate plans.

The attacker sees what the trust model's statement allows, and no less:

==============  ====================================================================================================
server-dp       what is published
distributed-dp  the opened total, without the part of the clients that collude: those send nothing but zeros, noise
                included, and as many others fall silent as may
local-dp        the message of the client under attack
shuffle         all messages, in the order in which the analyst gets them
two-server      the published total, without the noise of the server that is curious: it adds none
==============  ====================================================================================================
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedassay.crypto.identity import Credentials
from fedassay.crypto.prekeys import DAY
from fedassay.data.tables import ArrayRows
from fedassay.errors import FederationError, TooFewClients
from fedassay.kernel.client import Client, Site
from fedassay.kernel.envelope import MOST_QUERIES, TrustModels
from fedassay.kernel.helper import Helper
from fedassay.kernel.run import Errand
from fedassay.privacy.ledger.charges import MemoryLedger
from fedassay.privacy.policy.judgement import AllowAll
from fedassay.protocol.vocabulary import (
    LARGEST_ROWS_PER_CLIENT,
    NO_NOISE,
    Exchange,
    Measure,
    Message,
    Plan,
    Randomness,
    Released,
    Request,
    Setting,
    Vector,
)
from fedassay.runtimes.in_process.runtime import Faithful
from fedassay.runtimes.simulated import SERVERS
from fedassay.trust import TRUST_MODELS, DistributedDP, TwoServer
from fedassay.trust.card import TRUST_CARDS
from fedassay.trust.local_reports import Question, Report, assigned
from fedassay.trust.one_shot.sizes import Sizes
from fedassay.trust.shuffle.messages import from_text

Views = NDArray[Any]
"""Views of the attacker: runs x messages x numbers. A release ends with the number of clients it covers."""

World = tuple[Mapping[str, NDArray[Any]], ...]
"""The rows of each client, as columns; a client without rows has columns of length 0."""

VICTIM = "client-0"
"""Name of the client whose rows differ between the worlds: the first."""


@dataclass(frozen=True, kw_only=True)
class _Silent(DistributedDP):
    """A client that colludes: what it would add is known to the attacker, so that it may as well add nothing."""

    def contribution(
        self, plans: Sequence[Plan], measure: Measure, numbers: Sizes, randomness: Randomness
    ) -> Vector:
        return np.zeros(sum(plan.query.of.length for plan in plans), dtype=np.int64)


@dataclass(frozen=True, kw_only=True)
class _Curious(TwoServer):
    """A server that subtracts its own noise from what is published: as if it had added none."""

    def assist(self, request: Request, state: Message, randomness: Randomness) -> tuple[Message, Message]:
        plans = tuple(replace(plan, noise=NO_NOISE) for plan in request.plans)
        return super().assist(replace(request, plans=plans), state, randomness)


def open_site(
    name: str,
    columns: Mapping[str, NDArray[Any]],
    randomness: Randomness,
    credentials: Credentials | None = None,
) -> Site:
    """Open a site with these rows, which allows everything."""
    return Site(
        name=name,
        dataset=name,
        rows=partial(ArrayRows, columns=columns),
        policy=AllowAll(),
        ledger=MemoryLedger(None),
        randomness=randomness,
        split_key=b"audit".ljust(32, b"\0"),
        credentials=credentials,
    )


def _instead(other: type[Any]) -> TrustModels:
    """Return the catalogue as a party that does not follow the protocol has it."""
    return {**TRUST_MODELS, other.name: other}


class _Overhearing(Faithful):
    """The in-process runtime, with the attacker listening: the messages of each party, by name."""

    def __init__(self, clients: Sequence[Client], **options: Any) -> None:
        super().__init__(clients, **options)
        self.heard: dict[str, Message] = {}

    def _leg(self, errand: Errand, asked: Any, leg: int) -> dict[str, Message]:
        replies = super()._leg(errand, asked, leg)
        self.heard.update(replies)
        return replies


@dataclass(frozen=True, kw_only=True)
class AttackedFederation:
    """The participants of one world, who answer the same queries over and over.

    Parameters
    ----------
    plans : of one task: their shares add up to at most 1, and the attacker sees the answers to all of them.
    silent : the number of the last clients that collude.
    lost : the number of clients before those that do not speak.
    """

    plans: tuple[Plan, ...]
    world: World = field(repr=False)
    randomness: Any = field(repr=False)
    silent: int = 0
    lost: int = 0

    def runs(self, count: int) -> Iterator[Views]:
        """Yield the views of `count` independent runs, in parts."""
        runtime = self._runtime()
        done = 0
        while done < count:
            some = min(MOST_QUERIES // len(self.plans), count - done)
            yield self._exchange(runtime, some)
            done += some

    @property
    def setting(self) -> Setting:
        """Public setting of the queries."""
        return self.plans[0].setting

    def exact(self) -> tuple[Vector, ...]:
        """Return for each query what the attacker would see without noise, as he knows all rows of both worlds.

        Where single messages are seen, the vector of the client under attack; else the total. Of a client with more
        rows than it may use, the last ones: which it uses is drawn, and these are as likely as any.
        """
        alone = TRUST_CARDS[self.setting.trust.name].overheard is not None
        counted = self.world[:1] if alone else self.world[: len(self.world) - self.silent - self.lost]
        most = self.setting.protection.rows_per_client or LARGEST_ROWS_PER_CLIENT
        used = [
            ArrayRows(columns={name: column[-most:] for name, column in columns.items()})
            for columns in counted
        ]
        summaries = (plan.query.of for plan in self.plans)
        return tuple(np.sum([of.measure(rows, {})[0] for rows in used], axis=0) for of in summaries)

    def _runtime(self) -> _Overhearing:
        names = [f"client-{place}" for place in range(len(self.world))]
        followed = len(names) - self.silent
        clients = [
            Client(
                open_site(name, columns, self.randomness.child(name)),
                trust_models=TRUST_MODELS if place < followed else _instead(_Silent),
            )
            for place, (name, columns) in enumerate(zip(names, self.world, strict=True))
        ]
        gone = set(names[followed - self.lost : followed])
        helpers = [
            Helper(
                name,
                randomness=self.randomness.child(name),
                trust_models=TRUST_MODELS if place == 0 else _instead(_Curious),
            )
            for place, name in enumerate(SERVERS)
        ]
        return _Overhearing(clients, helpers=helpers, drops=lambda name, leg: name in gone and leg == 0)

    def _exchange(self, runtime: _Overhearing, count: int) -> Views:
        plans, names, each = self.plans * count, runtime.clients, len(self.plans)
        needed = () if self.setting.trust.member_leg is None else self.setting.trust.committee(names)
        exchange = Exchange(
            id=self.randomness.bytes(16),
            plans=plans,
            cohort=tuple(names),
            tasks=tuple(f"run-{place // each}" for place in range(len(plans))),
            helpers=tuple(runtime.helpers),
            prekeys=runtime.prekeys(needed),
            deadline=int(time.time()) + DAY,
        )
        errand = Errand(
            study="audit",
            trust=self.setting.trust,
            exchange=exchange,
            randomness=self.randomness,
            hear=lambda leg, who: None,
        )
        seen = self._seen(runtime, errand)
        return np.stack([np.concatenate(seen[i : i + each], axis=-1) for i in range(0, len(seen), each)])

    def _seen(self, runtime: _Overhearing, errand: Errand) -> list[Views]:
        """Return the attacker's view of each plan: messages x numbers."""
        runtime.heard = {}
        overheard = TRUST_CARDS[self.setting.trust.name].overheard
        released: tuple[Released[Any], ...] = ()
        try:
            released = runtime.carry(errand)
        except TooFewClients:
            # Messages that do not make a release have been heard all the same.
            if overheard is None:
                raise
        if runtime.refusals:
            raise FederationError(f"audit: a party refused to answer: {runtime.refusals}.")
        if overheard is None:
            return [np.append(np.asarray(one.value), one.clients)[None, :] for one in released]
        questions = [Question.of(plan) for plan in errand.exchange.plans]
        reports = overheard.load()(runtime.heard, errand.exchange.id, questions)
        return [_numbers(question, bag) for question, bag in zip(questions, reports, strict=True)]


Heard = Mapping[str, Message]
"""Last message of each party, by name."""


def local_reports(heard: Heard, exchange: bytes, questions: Sequence[Question]) -> list[list[Report]]:
    """Return the reports of the client under attack, one for each question."""
    return [
        [Report(content, assigned(exchange, index, VICTIM, len(one.partitions)) if one.partitions else 0)]
        for index, (one, content) in enumerate(zip(questions, heard[VICTIM]["reports"], strict=True))
    ]


def shuffled_reports(
    heard: Heard, exchange: bytes, questions: Sequence[Question]
) -> list[list[Report | None]]:
    """Return all reports on each question, in the order in which the analyst gets them."""
    texts = heard[SERVERS[0]]["texts"]
    return [
        [from_text(question, text.tobytes()) for text in bag]
        for question, bag in zip(questions, texts, strict=True)
    ]


def _numbers(question: Question, reports: Sequence[Report | None]) -> Views:
    """Return reports as rows of numbers: bits (0.5 where a client has not reported), a choice, or a noisy vector."""
    length = question.plan.query.of.length
    lines = []
    for report in reports:
        if report is None:
            raise FederationError("audit: a message is not what its client has sent.")
        line = np.full(length, 0.5)
        if question.partitions:
            cells = question.partitions[report.partition]
            packed = np.frombuffer(report.content, dtype=np.uint8)
            line[cells] = np.unpackbits(packed, count=len(cells))
        elif isinstance(report.content, int):
            line = np.zeros(length)
            line[report.content] = 1.0
        else:
            line = np.asarray(report.content)
        lines.append(line)
    return np.stack(lines)
