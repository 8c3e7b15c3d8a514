"""Drives a secure sum in tests: a seeded source, a summary that measures nothing, a loop over the legs."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from fedassay import wire
from fedassay.protocol import (
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


Tamper = Callable[[int, str, Message], Any]
"""Leg, client and the honest reply, to what arrives instead."""


def honest(leg: int, client: str, reply: Message) -> Any:
    return reply


@dataclass(kw_only=True)
class Run:
    """One exchange with honest client halves; `silent` says from which leg on a client says nothing."""

    trust: SecureSum
    values: Mapping[str, tuple[Vector, ...]]
    seed: object = 0
    silent: Mapping[str, int] = field(default_factory=dict)
    tamper: Tamper = honest
    lengths: Sequence[int] = (3,)
    through_bytes: bool = True
    """Whether messages and states pass through the wire format, as they do between machines."""
    requests: list[dict[str, Message]] = field(default_factory=list)
    replies: list[dict[str, Message]] = field(default_factory=list)
    states: list[dict[str, Message]] = field(default_factory=list)
    """By leg: what the server asked, what the clients answered, and their states before they answered."""

    @classmethod
    def of(cls, n: int, trust: SecureSum | None = None, **options: Any) -> Run:
        seed = options.get("seed", 0)
        lengths = options.get("lengths", (3,))
        generator = np.random.default_rng(int.from_bytes(Seeded(n, seed).bytes(8)))
        values = {
            f"client-{i:03}": tuple(generator.integers(-(2**40), 2**40, size=length) for length in lengths)
            for i in range(n)
        }
        return cls(trust=trust if trust is not None else SecureSum(), values=values, **options)

    @property
    def exchange(self) -> Exchange:
        return Exchange(
            id=hashlib.sha256(repr(self.seed).encode()).digest()[:16],
            plans=plans_of(self.trust, len(self.values), self.lengths),
            cohort=tuple(self.values),
        )

    def total(self, names: Sequence[str]) -> list[list[int]]:
        """The plain sum over these clients, in Python's own integers."""
        return [
            [sum(int(self.values[name][p][c]) for name in names) for c in range(length)]
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
        )

    def answer(self, leg: int, client: str, message: Message | None = None) -> Message:
        """What the client half answers at this leg from the state it had then; changes nothing."""
        reply, _ = self.trust.respond(
            self.request(leg, client, message),
            lambda: self.values[client],
            dict(self.states[leg].get(client, {})),
            Seeded(self.seed, client, leg),
        )
        return reply

    def go(self, *, until: int = 4) -> tuple[Released[Any], ...]:
        """Run all legs (or the first few, then return nothing) and return what is released."""
        flow = self.trust.exchange(self.exchange, Seeded(self.seed, "server"))
        states: dict[str, Message] = {name: {} for name in self.values}
        asked = next(flow)
        for leg in range(until):
            self.requests.append({name: self._carried(message) for name, message in asked.requests.items()})
            self.states.append(dict(states))
            self.replies.append({})
            arrived: dict[str, Any] = {}
            for name in self.requests[leg]:
                if self.silent.get(name, 4) <= leg:
                    continue
                source = Seeded(self.seed, name, leg)
                reply, state = self.trust.respond(
                    self.request(leg, name), lambda name=name: self.values[name], states[name], source
                )
                states[name] = self._carried(state)
                self.replies[leg][name] = self._carried(reply)
                arrived[name] = self.tamper(leg, name, self._carried(reply))
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
