"""Common part of every runtime that carries messages: rounds out, replies back, dropouts noted."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fedassay.crypto.keys import KeyPair
from fedassay.crypto.prekeys import DAY, Prekey
from fedassay.errors import ProtocolError
from fedassay.kernel import envelope
from fedassay.kernel.envelope import Refusal
from fedassay.kernel.run import DAYS_OPEN, Errand
from fedassay.protocol.vocabulary import Message, Party, PartyKeys, Released, Request, Round


@dataclass(kw_only=True)
class Traffic:
    """Cost of a run: rounds of messages, and bytes to and from clients."""

    rounds: int = 0
    bytes_to_clients: int = 0
    bytes_from_clients: int = 0

    @property
    def bytes_in_all(self) -> int:
        """Bytes in both directions."""
        return self.bytes_to_clients + self.bytes_from_clients


class MessagingRuntime(ABC):
    """Driver of a trust model's server half; a subclass only knows how to carry bytes (`ask`).

    Parameters
    ----------
    reply_pair : replies are sealed for it; the same one whenever a run is taken up again.
    credentials : the coordinator's identity and roster; None in a simulation, in which parties have none.
    asker : the coordinator's public key as text, as clients see it.
    """

    name: str
    """Name of the runtime, in results."""
    mode: str
    """Mode in which it carries messages, in results."""
    simulated: bool
    """True if one process holds all rows."""
    clients: Sequence[str]
    """Names of all clients."""
    helpers: Sequence[str] = ()
    """Names of the servers in addition to this one."""

    def __init__(self, *, reply_pair: KeyPair, credentials: PartyKeys | None = None, asker: str = "") -> None:
        self.reply_pair = reply_pair
        self.credentials = credentials
        self.asker = asker
        self._stock: dict[str, list[bytes]] = {}
        self._handed_out: set[bytes] = set()
        self.traffic = Traffic()
        self.refusals: dict[str, Refusal] = {}
        """The last refusal of each client that refused."""

    @property
    def rounds(self) -> int:
        """Rounds of messages so far."""
        return self.traffic.rounds

    @property
    def bytes_in_all(self) -> int:
        """Bytes to and from clients so far."""
        return self.traffic.bytes_in_all

    @property
    def reasons(self) -> Mapping[str, str]:
        """Reasons of clients that refused, where they are known: in a simulation they may be."""
        return {}

    @abstractmethod
    def ask(self, to: Party, requests: Mapping[str, bytes], leg: int) -> Iterable[tuple[str, bytes]]:
        """Deliver the requests and bring back what arrives in time, by name; missing replies are dropouts."""

    def keep(self, name: str, prekeys: Sequence[bytes]) -> None:
        """Keep prekeys that a client has offered: with a reply, or before."""
        self._stock.setdefault(name, []).extend(prekeys)

    def prekeys(self, names: Sequence[str]) -> Mapping[str, bytes]:
        """Return a prekey of each of these clients that has offered one, to be named in one exchange only."""
        found = {}
        for name in names:
            stock = self._stock.get(name, [])
            while stock and name not in found:
                prekey = stock.pop()
                if self.is_valid(name, prekey):
                    found[name] = prekey
        self._handed_out.update(found.values())
        return found

    def renewed(self, prekeys: Mapping[str, bytes]) -> Mapping[str, bytes]:
        """Return the prekeys of an exchange that is taken up again; see `run.Runtime`."""
        if not self.simulated or self._handed_out.issuperset(prekeys.values()):
            return prekeys
        return self.prekeys(tuple(prekeys))

    def is_valid(self, name: str, statement: bytes) -> bool:
        """Return whether clients would believe this prekey: one that they would not believe stops them all."""
        try:
            prekey = Prekey.unpacked(statement)
        except ProtocolError:
            return False
        signed = self.credentials is None or prekey.is_of(
            name, coordinator=self.asker, credentials=self.credentials
        )
        now = time.time()
        return signed and prekey.may_be_named(now=now, until=now + DAYS_OPEN * DAY)

    def carry(self, errand: Errand) -> tuple[Released[Any], ...]:
        """Carry one exchange out, leg by leg."""
        exchange = replace(errand.exchange, asker=self.asker, credentials=self.credentials)
        errand = replace(errand, exchange=exchange)
        flow = errand.trust.exchange(errand.exchange, errand.randomness)
        leg, asked = errand.exchange.first_leg, next(flow)
        while True:
            replies = self._leg(errand, asked, leg)
            complete = asked.to is Party.CLIENTS or len(replies) == len(asked.requests)
            released: tuple[Released[Any], ...] | None = None
            try:
                asked = flow.send(replies)
            except StopIteration as finished:
                released = finished.value
            # Servers repeat their messages: one that is missing now may answer when the run is taken up again.
            if complete:
                self.closed(errand, leg, list(replies))
            if released is not None:
                return released
            leg += 1

    def closed(self, errand: Errand, leg: int, heard: Sequence[str]) -> None:
        """Record whose replies counted at a leg, before the next request leaves.

        If the server half cannot go on with them, it has raised, and nothing is recorded: a client that was missing may
        answer when the run is taken up again.
        """
        errand.hear(leg, heard)

    def _leg(self, errand: Errand, asked: Round, leg: int) -> dict[str, Message]:
        exchange = errand.exchange
        requests = {
            name: envelope.pack_request(
                study=errand.study,
                trust=errand.trust,
                tasks=exchange.tasks,
                request=Request(
                    exchange=exchange.id,
                    plans=exchange.plans,
                    cohort=len(exchange.cohort),
                    leg=leg,
                    recipient=name,
                    message=message,
                ),
                reply_key=self.reply_pair.public,
            )
            for name, message in asked.requests.items()
        }
        self.traffic.rounds += 1
        if asked.to is Party.CLIENTS:
            self.traffic.bytes_to_clients += sum(map(len, requests.values()))
        return self._replies(errand, asked, requests, leg)

    def _replies(
        self, errand: Errand, asked: Round, requests: Mapping[str, bytes], leg: int
    ) -> dict[str, Message]:
        """Return what is kept of each reply, as it arrives."""
        largest, heard = errand.trust.largest_reply(errand.exchange), errand.heard(leg)
        replies: dict[str, Message] = {}
        for name, data in self.ask(asked.to, requests, leg):
            if asked.to is Party.CLIENTS:
                self.traffic.bytes_from_clients += len(data)
            # In a replay, who was not heard then must not be taken now.
            if name not in requests or name in replies or (heard is not None and name not in heard):
                continue
            try:
                inner = envelope.opened(
                    data,
                    self.reply_pair,
                    request=requests[name],
                    sender=name,
                    credentials=self.credentials,
                    largest=largest,
                )
                reply = envelope.open_reply(
                    inner, sender=name, exchange=errand.exchange.id, leg=leg, largest=largest
                )
            except ProtocolError:
                reply = Refusal.MALFORMED
            kept = reply if isinstance(reply, Refusal) else asked.take(name, reply.message)
            if isinstance(reply, Refusal) or kept is None:
                self.refusals[name] = reply if isinstance(reply, Refusal) else Refusal.MALFORMED
                continue
            if reply.prekeys:
                self.keep(name, reply.prekeys)
            replies[name] = kept  # type: ignore[assignment]
        return replies
