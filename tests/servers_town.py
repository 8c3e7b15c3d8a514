"""A town of clients and two servers, for trust models that need two: all messages go through bytes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from fedassay.crypto.keys import KeyPair, Secret
from fedassay.errors import UsageError
from fedassay.kernel import envelope
from fedassay.kernel import envelope as sealing
from fedassay.kernel.client import Client, Site
from fedassay.kernel.endpoint import EndpointStore
from fedassay.kernel.envelope import Refusal
from fedassay.kernel.helper import Helper
from fedassay.privacy.ledger.charges import MemoryLedger
from fedassay.privacy.policy.judgement import AllowAll
from fedassay.privacy.randomness import SimulatedRandomness
from fedassay.protocol import wire
from fedassay.protocol.vocabulary import (
    Budget,
    Exchange,
    Message,
    Party,
    PartyKeys,
    Plan,
    Released,
    Request,
    Summary,
    TrustModel,
    Vector,
)
from fedassay.runtimes.in_process.runtime import Faithful
from toys import InMemory

REPLIES = KeyPair.of(Secret(bytes(32)))
"""What servers' replies are sealed for."""

SERVERS = ("coordinator", "helper")


def same(name: str, leg: int, message: Any) -> Any:
    return message


@dataclass(kw_only=True)
class ServersTown:
    """Inherit and say what clients hold and what servers run. `to` and `back` may change or lose (None) any message."""

    plans: tuple[Plan, ...]
    seed: int = 1
    to: Callable[[str, int, Any], Any] = same
    back: Callable[[str, int, Any], Any] = same
    credentials: Mapping[str, PartyKeys] = field(default_factory=dict)
    told: Mapping[str, tuple[Plan, ...]] = field(default_factory=dict)
    """What somebody is told to be the question, if not `plans`."""
    strangers: Mapping[str, Message] = field(default_factory=dict)
    """Replies of clients that nobody has asked."""

    @property
    def held(self) -> Mapping[str, tuple[Vector, ...]]:
        """What each client has measured."""
        raise NotImplementedError

    def helper(self, name: str, source: SimulatedRandomness, store: EndpointStore | None = None) -> Helper:
        raise NotImplementedError

    def __post_init__(self) -> None:
        source = SimulatedRandomness(self.seed)
        self.id = source.bytes(16)
        self.sources = {name: source.child(f"client/{name}") for name in self.held}
        self.helpers = {name: self.helper(name, source.child(name)) for name in SERVERS}
        self.leg = 0
        self.said: dict[tuple[str, int], Message] = {}
        self.asked: dict[tuple[str, int], bytes] = {}

    def restart(self, name: str, *, seed: int) -> None:
        """The server loses all but what is on its disk, and draws other numbers from now on."""
        store = EndpointStore()
        store.restore(self.helpers[name].store.dump())
        self.helpers[name] = self.helper(name, SimulatedRandomness(seed), store)

    @property
    def trust(self) -> TrustModel:
        return self.plans[0].setting.trust

    def carry(self, plans: tuple[Plan, ...]) -> tuple[Released[Any], ...]:
        """A whole exchange, or its continuation."""
        exchange = Exchange(
            id=self.id, plans=plans, cohort=tuple(self.held), helpers=SERVERS, first_leg=self.leg
        )
        flow = self.trust.exchange(exchange, SimulatedRandomness(0))
        asked = next(flow)
        while True:
            replies: dict[str, Any] = dict(self.strangers) if asked.to is Party.CLIENTS else {}
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

    def responded(self, name: str, request: Request) -> Message:
        """What a client answers."""
        return self.trust.respond(request, lambda: self.held[name], {}, self.sources[name])[0]

    def ask(self, to: Party, name: str, message: Message) -> Message | None:
        request = Request(
            exchange=self.id,
            plans=self.told.get(name, self.plans),
            cohort=len(self.held),
            leg=self.leg,
            recipient=name,
            message=wire.decode(wire.encode(message)),
            credentials=self.credentials.get(name),
        )
        if to is Party.CLIENTS:
            self.said[name, self.leg] = wire.decode(wire.encode(self.responded(name, request)))
            return self.said[name, self.leg]
        data = envelope.pack_request(
            study="town",
            trust=request.plans[0].setting.trust,
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


def federation(
    rows: Mapping[str, Any],
    summaries: Mapping[str, type[Summary[Any]]],
    *,
    budget: Budget | None = None,
) -> tuple[Faithful, dict[str, MemoryLedger]]:
    """Clients with these rows and both servers as they are, and the clients' ledgers."""
    source, ledgers = SimulatedRandomness(3), {name: MemoryLedger(budget) for name in rows}

    def client(name: str) -> Client:
        site = Site(
            name=name,
            dataset=name,
            rows=lambda: InMemory(rows[name]),
            policy=AllowAll(),
            ledger=ledgers[name],
            randomness=source.child(name),
            split_key=bytes(32),
        )
        return Client(site, summaries=summaries)

    helpers = [Helper(name, randomness=source.child(name), summaries=summaries) for name in SERVERS]
    return Faithful([client(name) for name in rows], helpers=helpers), ledgers


def require_two_servers(plan: Plan) -> None:
    """One server, the same one twice, or three are refused."""
    for helpers in ((), ("a",), ("a", "a"), ("a", "b", "c")):
        exchange = Exchange(id=bytes(16), plans=(plan,), cohort=("x",), helpers=helpers)
        with pytest.raises(UsageError, match=r"got \d servers, expected two"):
            next(plan.setting.trust.exchange(exchange, SimulatedRandomness(1)))


def stored_replies(path: Path, found: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Message]]:
    """What is stored of an exchange, which is what was `found` now, and the replies in it."""
    stored = json.loads(path.read_text(encoding="utf-8"))
    assert found == stored
    return stored, {name: wire.decode(bytes.fromhex(text)) for name, text in stored["replies"].items()}
