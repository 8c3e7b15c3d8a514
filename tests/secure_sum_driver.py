"""Drives a secure sum in tests: a seeded source, a summary that measures nothing, a loop over the two legs."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, ClassVar

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from fedassay.crypto.identity import Credentials, Identity, key_to_text
from fedassay.kernel.client import _Seat
from fedassay.kernel.member_store import MemberStore
from fedassay.privacy.policy.judgement import AllowAll, Policy
from fedassay.protocol import wire
from fedassay.protocol.vocabulary import (
    COORDINATOR,
    Exchange,
    Memory,
    Message,
    Plan,
    Protection,
    Released,
    Request,
    Rows,
    Sensitivity,
    Setting,
    Sum,
    Summary,
    Vector,
)
from fedassay.trust.secure_sum import SecureSum


class Seeded:
    """Random bytes that a test can repeat: AES-CTR keyed by a hash of the seed."""

    simulated = True

    def __init__(self, *seed: object) -> None:
        key = hashlib.sha256(repr(seed).encode()).digest()
        self._stream = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()

    def bytes(self, count: int) -> bytes:
        return self._stream.update(bytes(count))

    def words(self, count: int) -> np.ndarray[Any, Any]:
        return np.frombuffer(self.bytes(8 * count), dtype="<u8")


@dataclass(frozen=True, kw_only=True)
class Anything(Summary[Vector]):
    """A vector of this length; the test says what each client measures."""

    name: ClassVar[str] = "anything"
    columns: ClassVar[tuple[str, ...]] = ("value",)
    cells: int = 3
    bound: int = 2**40

    @property
    def length(self) -> int:
        return self.cells

    @property
    def largest(self) -> int:
        return self.bound

    def measure(self, rows: Rows, memory: Memory) -> tuple[Vector, Memory]:
        raise NotImplementedError

    def sensitivity(self, protection: Protection) -> Sensitivity:
        return Sensitivity(l1=1.0, l2=1.0)

    def read(self, total: Vector) -> Vector:
        return total


def plans_of(trust: SecureSum, clients: int, lengths: Sequence[int] = (3,)) -> tuple[Plan, ...]:
    setting = Setting(trust=trust, protection=Protection(), budget=None, clients=clients)
    return tuple(trust.plan(Sum(of=Anything(cells=length)), setting) for length in lengths)


NOW = 1_800_000_000
DEADLINE = NOW + 30 * 86_400

Tamper = Callable[[int, str, Message], Any]
"""Leg, client and the honest reply, to what arrives instead."""


def honest(leg: int, client: str, reply: Message) -> Any:
    return reply


@cache
def identity_of(name: str) -> Identity:
    return Identity.draw(Seeded("identity", name))


def credentials_of(name: str, sites: Sequence[str], wider: int = 0) -> Credentials:
    """What a party believes: the keys of these sites."""
    roster = {site: identity_of(site).public for site in sites}
    return Credentials(identity=identity_of(name), roster=roster, wider=wider)


@dataclass(kw_only=True)
class Run:
    """One exchange with honest client halves; `silent` says from which leg on a client says nothing.

    With `signed`, parties have identities and have pinned those of all clients.
    """

    trust: Any
    values: Mapping[str, tuple[Vector, ...]]
    seed: object = 0
    silent: Mapping[str, int] = field(default_factory=dict)
    tamper: Tamper = honest
    lengths: Sequence[int] = (3,)
    signed: bool = False
    through_bytes: bool = True
    """Whether messages pass through the wire format, as they do between machines."""
    cohort: Sequence[str] | None = None
    """Who is asked, if not all clients."""
    policy: Policy = field(default_factory=AllowAll)
    requests: list[dict[str, Message]] = field(default_factory=list)
    replies: list[dict[str, Message]] = field(default_factory=list)
    """By leg: what the server asked, and what the clients answered."""

    def __post_init__(self) -> None:
        self.stores = {name: MemberStore(None, clock=lambda: NOW) for name in self.values}
        self.exchange = self._exchange()

    @classmethod
    def of(cls, n: int, trust: Any = None, **options: Any) -> Run:
        seed = options.get("seed", 0)
        lengths = options.get("lengths", (3,))
        generator = np.random.default_rng(int.from_bytes(Seeded(n, seed).bytes(8)))
        values = {
            f"client-{i:03}": tuple(generator.integers(-(2**40), 2**40, size=length) for length in lengths)
            for i in range(n)
        }
        return cls(trust=trust if trust is not None else SecureSum(), values=values, **options)

    @property
    def asker(self) -> str:
        return key_to_text(identity_of(COORDINATOR).public) if self.signed else ""

    def credentials(self, name: str) -> Credentials | None:
        return credentials_of(name, list(self.values)) if self.signed else None

    def _exchange(self) -> Exchange:
        cohort = tuple(self.values if self.cohort is None else self.cohort)
        members = self.trust.members or tuple(sorted(self.values))
        prekeys = {}
        for name in members:
            source = Seeded(self.seed, name, "prekey")
            prekeys[name] = (
                self.stores[name]
                .issue(1, coordinator=self.asker, credentials=self.credentials(name), randomness=source)[0]
                .packed()
            )
        return Exchange(
            id=hashlib.sha256(repr(self.seed).encode()).digest()[:16],
            plans=plans_of(self.trust, len(self.values), self.lengths),
            cohort=cohort,
            prekeys=prekeys,
            deadline=DEADLINE,
            asker=self.asker,
            credentials=self.credentials(COORDINATOR),
        )

    def total(self, names: Sequence[str]) -> list[list[int]]:
        """The plain sum over these clients; entries are below 2^41, so that no total of up to 2^22 clients wraps."""
        return [
            sum((self.values[name][p] for name in names), np.zeros(length, np.int64)).tolist()
            for p, length in enumerate(self.lengths)
        ]

    def request(self, leg: int, client: str, message: Message | None = None) -> Request:
        """What a client was asked at a leg, or another message in its place."""
        exchange = self.exchange
        return Request(
            exchange=exchange.id,
            plans=exchange.plans,
            cohort=len(exchange.cohort),
            leg=leg,
            recipient=client,
            message=self.requests[leg][client] if message is None else message,
            asker=self.asker,
            credentials=self.credentials(client),
            membership=self.seat(client),
        )

    def seat(self, client: str) -> _Seat:
        return _Seat(prekeys=self.stores[client], dataset="rows", asker=self.asker, policy=self.policy)

    def answer(self, leg: int, client: str, message: Message | None = None, **changes: Any) -> Message:
        """What the client half answers at this leg, to this request or a changed one."""
        reply, state = self.trust.respond(
            replace(self.request(leg, client, message), **changes),
            lambda: self.values[client],
            {},
            Seeded(self.seed, client, leg),
        )
        assert state == {}  # between the legs clients keep nothing
        return reply

    def go(self, *, until: int = 2) -> tuple[Released[Any], ...]:
        """Run both legs (or the first, then return nothing) and return what is released."""
        flow = self.trust.exchange(self.exchange, Seeded(self.seed, "server"))
        asked = next(flow)
        for leg in range(until):
            self.requests.append({name: self._carried(message) for name, message in asked.requests.items()})
            self.replies.append({})
            arrived: dict[str, Any] = {}
            for name in self.requests[leg]:
                if self.silent.get(name, 2) == leg:
                    continue
                reply = self._carried(self.answer(leg, name))
                self.replies[leg][name] = reply
                kept = asked.take(name, self.tamper(leg, name, dict(reply)))
                if kept is not None:
                    arrived[name] = kept
            try:
                asked = flow.send(arrived)
            except StopIteration as finished:
                released: tuple[Released[Any], ...] = finished.value
                return released
        return ()

    def _carried(self, message: Message) -> Message:
        return wire.decode(wire.encode(message)) if self.through_bytes else message


def vectors(released: Sequence[Released[Any]]) -> list[list[int]]:
    return [one.value.tolist() for one in released]
