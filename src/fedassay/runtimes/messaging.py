"""What every runtime that carries messages has in common: rounds out, replies back, dropouts noted."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedassay import envelope
from fedassay.envelope import Refusal
from fedassay.errors import ProtocolError
from fedassay.protocol import Message, Party, Released, Request, Round
from fedassay.run import Errand


@dataclass(kw_only=True)
class Traffic:
    """What a run has cost: rounds of messages, and bytes to and from clients."""

    rounds: int = 0
    bytes_to_clients: int = 0
    bytes_from_clients: int = 0

    @property
    def bytes_in_all(self) -> int:
        """Bytes in both directions."""
        return self.bytes_to_clients + self.bytes_from_clients


class MessagingRuntime(ABC):
    """Drives a trust model's server half; a subclass only knows how to carry bytes (`ask`)."""

    def __init__(self) -> None:
        self.traffic = Traffic()
        self.refusals: dict[str, Refusal] = {}
        """The last refusal of each client that refused."""

    @property
    @abstractmethod
    def simulated(self) -> bool:
        """Whether one process holds all rows."""

    @property
    @abstractmethod
    def clients(self) -> Sequence[str]:
        """The names of all clients."""

    @property
    def helpers(self) -> Sequence[str]:
        """The names of the servers besides this one."""
        return ()

    @abstractmethod
    def ask(self, to: Party, requests: Mapping[str, bytes], leg: int) -> Mapping[str, bytes]:
        """Deliver the requests and bring back what arrives in time; missing replies are dropouts."""

    def carry(self, errand: Errand) -> tuple[Released[Any], ...]:
        """Carry one exchange out, leg by leg."""
        flow = errand.trust.exchange(errand.exchange, errand.randomness)
        leg = errand.exchange.first_leg
        try:
            asked = next(flow)
            while True:
                asked = flow.send(self._leg(errand, asked, leg))
                leg += 1
        except StopIteration as finished:
            released: tuple[Released[Any], ...] = finished.value
            return released

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
            )
            for name, message in asked.requests.items()
        }
        arrived = self.ask(asked.to, requests, leg)
        self._count(asked.to, requests, arrived)
        replies: dict[str, Message] = {}
        largest = errand.trust.largest_reply(exchange)
        for name, data in arrived.items():
            if name not in requests:
                continue
            try:
                reply = envelope.open_reply(data, sender=name, exchange=exchange.id, leg=leg, largest=largest)
            except ProtocolError:
                reply = Refusal.MALFORMED
            if isinstance(reply, Refusal):
                self.refusals[name] = reply
            else:
                replies[name] = reply
        if asked.to is Party.HELPER and len(replies) < len(requests):
            # Servers repeat what they have said: one that is missing now may answer when the run is taken up again.
            return replies
        counted = errand.hear(leg, list(replies))
        return {name: reply for name, reply in replies.items() if name in counted}

    def _count(self, to: Party, requests: Mapping[str, bytes], arrived: Mapping[str, bytes]) -> None:
        self.traffic.rounds += 1
        if to is Party.CLIENTS:
            self.traffic.bytes_to_clients += sum(map(len, requests.values()))
            self.traffic.bytes_from_clients += sum(map(len, arrived.values()))
