"""Drives `shuffle` in tests: toy queries, and a town of clients, an analyst and a shuffler."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from fedassay import envelope, sealing, wire
from fedassay.crypto.keys import KeyPair, Secret
from fedassay.endpoint import Store
from fedassay.envelope import Refusal
from fedassay.helper import Helper
from fedassay.privacy.randomness import SimulatedRandomness
from fedassay.protocol import (
    Budget,
    Credentials,
    Exchange,
    Memory,
    Message,
    Party,
    Plan,
    Protection,
    Query,
    Released,
    Request,
    Rows,
    Sensitivity,
    Setting,
    Summary,
    Vector,
)
from fedassay.summaries.score_histogram import ScoreHistogram
from fedassay.trust.shuffle import Shuffle

REPLIES = KeyPair.of(Secret(bytes(32)))
"""What servers' replies are sealed for."""


ONE_ROW = Protection(rows_per_client=1)
BUDGET = Budget(epsilon=1.0, delta=1e-6)
HISTOGRAM = ScoreHistogram(transform="uniform", height=3, widths=(1, 4))
SERVERS = ("coordinator", "helper")
ANALYST, SHUFFLER = SERVERS
OPENED, READ = 2, 3
"""The legs at which the shuffler and the analyst are asked, if all fits into one message."""


@dataclass(frozen=True, kw_only=True)
class Losses(Summary[Vector]):
    """Losses that the test decides; one unit moves them by amounts within an interval of length 2."""

    cells: int = 3
    name: ClassVar[str] = "losses"
    columns: ClassVar[tuple[str, ...]] = ("value",)

    @property
    def length(self) -> int:
        return self.cells

    def measure(self, rows: Rows, memory: Memory) -> tuple[Vector, Memory]:
        raise NotImplementedError

    def sensitivity(self, protection: Protection) -> Sensitivity:
        raise NotImplementedError

    def loss_range(self, protection: Protection) -> float:
        return 2.0

    def read(self, total: Vector) -> Vector:
        return total


def one_row(leaf: int, label: int) -> Vector:
    counts = np.zeros((2, 8), dtype=np.int64)
    counts[1 - label, leaf] = 1
    return np.concatenate([HISTOGRAM.tree.build(counts[0]), HISTOGRAM.tree.build(counts[1])])


def setting(
    budget: Budget | None = None,
    protection: Protection = ONE_ROW,
    *,
    clients: int = 40,
    trust: Shuffle | None = None,
) -> Setting:
    return Setting(trust=trust or Shuffle(), protection=protection, budget=budget or BUDGET, clients=clients)


def plan_of(query: Query[Any], **terms: Any) -> Plan:
    where = setting(**terms)
    return where.trust.plan(query, where)


def same(name: str, leg: int, message: Any) -> Any:
    return message


@dataclass(kw_only=True)
class Town:
    """Clients and two servers, all messages through bytes. `to` and `back` may change or lose (None) any of them."""

    plans: tuple[Plan, ...]
    vectors: Mapping[str, tuple[Vector, ...]]
    seed: int = 1
    to: Callable[[str, int, Any], Any] = same
    back: Callable[[str, int, Any], Any] = same
    credentials: Mapping[str, Credentials] = field(default_factory=dict)
    told: Mapping[str, tuple[Plan, ...]] = field(default_factory=dict)
    """What somebody is told to be the question, if not `plans`."""
    helpers: Mapping[str, Helper] = field(init=False)

    def __post_init__(self) -> None:
        source = SimulatedRandomness(self.seed)
        self.id = source.bytes(16)
        self.sources = {name: source.child(f"client/{name}") for name in self.vectors}
        self.helpers = {name: self.helper(name, source.child(name)) for name in SERVERS}
        self.leg = 0
        self.said: dict[tuple[str, int], Message] = {}
        self.asked: dict[tuple[str, int], bytes] = {}

    def helper(self, name: str, source: SimulatedRandomness, store: Store | None = None) -> Helper:
        return Helper(
            name,
            randomness=source,
            store=store,
            summaries={kind.name: kind for kind in (ScoreHistogram, Losses)},
            credentials=self.credentials.get(name),
        )

    def restart(self, name: str, *, seed: int) -> None:
        """The server loses all but what is on its disk, and draws other numbers from now on."""
        store = Store()
        store.restore(self.helpers[name].store.dump())
        self.helpers = {**self.helpers, name: self.helper(name, SimulatedRandomness(seed), store)}

    @property
    def trust(self) -> Shuffle:
        trust = self.plans[0].setting.trust
        assert isinstance(trust, Shuffle)
        return trust

    def go(self) -> tuple[Released[Any], ...]:
        """The whole exchange."""
        exchange = Exchange(id=self.id, plans=self.plans, cohort=tuple(self.vectors), helpers=SERVERS)
        flow = self.trust.exchange(exchange, SimulatedRandomness(0))
        asked = next(flow)
        while True:
            replies: dict[str, Any] = {}
            for name, message in asked.requests.items():
                changed = self.to(name, self.leg, message)
                reply = None if changed is None else self.ask(asked.to, name, changed)
                reply = None if reply is None else self.back(name, self.leg, reply)
                if reply is not None:
                    replies[name] = reply
            self.leg += 1
            try:
                asked = flow.send(replies)
            except StopIteration as finished:
                released: tuple[Released[Any], ...] = finished.value
                return released

    def unsealed(self, name: str, request: bytes) -> bytes:
        """What a server answers, as it was before it was sealed."""
        reply = self.helpers[name].answer(request)
        return sealing.opened(reply, REPLIES, request=request, sender=name, credentials=None)

    def ask(self, to: Party, name: str, message: Message) -> Message | None:
        request = Request(
            exchange=self.id,
            plans=self.told.get(name, self.plans),
            cohort=len(self.vectors),
            leg=self.leg,
            recipient=name,
            message=wire.decode(wire.encode(message)),
            credentials=self.credentials.get(name),
        )
        if to is Party.CLIENTS:
            reply, _ = self.trust.respond(request, lambda: self.vectors[name], {}, self.sources[name])
            self.said[name, self.leg] = wire.decode(wire.encode(reply))
            return self.said[name, self.leg]
        trust = request.plans[0].setting.trust
        data = envelope.pack_request(
            study="town",
            trust=trust,
            tasks=("toy",) * len(self.plans),
            request=request,
            reply_key=REPLIES.public,
        )
        self.asked[name, self.leg] = data
        reply = self.unsealed(name, data)
        arrived = envelope.open_reply(reply, sender=name, exchange=self.id, leg=self.leg)
        if isinstance(arrived, Refusal):
            return None
        self.said[name, self.leg] = arrived.message
        return arrived.message
