"""Clients that a runtime simulates, and what it reports in addition to what `run` needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from fedassay.data.federation import Federation
from fedassay.data.stores import Holdings
from fedassay.kernel.client import Client, Site
from fedassay.kernel.envelope import Refusal
from fedassay.kernel.helper import Helper
from fedassay.kernel.run import Runtime
from fedassay.privacy.ledger.charges import MemoryLedger
from fedassay.privacy.ledger.refusals import SiteRecords
from fedassay.privacy.policy.judgement import AllowAll, Policy
from fedassay.privacy.randomness import SecureRandomness, SimulatedRandomness
from fedassay.protocol.vocabulary import Rows
from fedassay.runtimes.messaging import Traffic

# --- how far a run has come ---------------------------------------------------------------------------------

Progress = Callable[[int, int, int], None]
"""Function that is called with the leg, the clients done and the clients in all."""


def silent(leg: int, done: int, total: int) -> None:
    """Report no progress."""


# --- what a runtime that simulates clients is given ---------------------------------------------------------

SERVERS = ("first-server", "second-server")
"""The helpers of a simulation, for trust models that have two servers."""


@dataclass(frozen=True, kw_only=True)
class SimulatedFederation:
    """The clients to simulate.

    Parameters
    ----------
    rows : rows of all clients.
    randomness : source of all randomness; seeded if the simulation is to be repeatable.
    split_key, holdout : which units, and what share of them, are held out.
    helpers : number of servers that there must be in addition to the coordinator's own.
    single : True if clients are asked one by one, so that their own messages have to pass.
    policy : policy of every client; None allows everything.
    asker : the public key that clients take for that of the asker.
    progress : called while clients are asked.
    """

    rows: Federation
    randomness: SecureRandomness | SimulatedRandomness = field(repr=False)
    split_key: bytes = field(repr=False)
    holdout: float
    helpers: int = 0
    single: bool = False
    policy: Policy | None = None
    asker: str | None = None
    progress: Progress = field(default=silent, repr=False)

    def clients(self) -> Iterator[Client]:
        """Return all clients, as objects of this process, in the order of their names."""
        counts = self.rows.rows_per_client.tolist()
        return (
            Client(self._site(name, count)) for name, count in zip(self.rows.clients, counts, strict=True)
        )

    def servers(self) -> list[Helper]:
        """Return the servers of a trust model that has two."""
        return [Helper(name, randomness=self.randomness.child(f"helper/{name}")) for name in SERVERS]

    def _site(self, name: str, count: int) -> Site:
        def rows() -> Rows:
            return self.rows.rows_of(name)

        return Site(
            name=name,
            dataset=name,
            rows=rows,
            policy=AllowAll() if self.policy is None else self.policy,
            ledger=MemoryLedger(None, allow_exact=True),
            randomness=self.randomness.child(f"client/{name}"),
            split_key=self.split_key,
            holdout=self.holdout,
            holdings=lambda: Holdings(rows=count),
            records=None if self.policy is None else SiteRecords(),
        )


class SimulatedRuntime(Runtime, Protocol):
    """Runtime whose clients are simulated: more is known of them than of real ones."""

    name: str
    mode: str
    traffic: Traffic

    @property
    def truncated(self) -> int | None:
        """Rows that clients left out to keep to their bound, in their latest measurements."""

    @property
    def refusals(self) -> Mapping[str, Refusal]:
        """The last refusal of each client that refused."""

    @property
    def reasons(self) -> Mapping[str, str]:
        """Reasons of clients that refused, where they are known."""
