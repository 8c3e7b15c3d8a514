"""Drives `two-server` in tests: toy summaries with leaves, and a town of clients and two servers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar
from unittest.mock import patch

import numpy as np

from fedassay.crypto.dcf_keys import Keys
from fedassay.kernel.endpoint import EndpointStore
from fedassay.kernel.helper import Helper
from fedassay.privacy.randomness import SimulatedRandomness
from fedassay.protocol.vocabulary import (
    Budget,
    Memory,
    Message,
    Plan,
    Points,
    Protection,
    Query,
    Released,
    Request,
    Rows,
    Sensitivity,
    Setting,
    Sum,
    Summary,
    TrustModel,
    Vector,
)
from fedassay.trust.two_server import deposits as two_server_deposits
from fedassay.trust.two_server.model import TwoServer
from servers_town import REPLIES, SERVERS, ServersTown, same

__all__ = ["REPLIES", "SERVERS", "Town", "same"]

LEGS = {"coordinator": (0, 2, 3, 5, 7), "helper": (0, 2, 3, 4, 6)}
"""When each server is asked, if deposits fit into one message."""
LAST = {name: legs[-1] for name, legs in LEGS.items()}
"""When each server answers the question."""
ASKED = [(name, leg) for name, legs in LEGS.items() for leg in legs]
EXACT = Budget(epsilon=900.0)
"""Noise of this budget is of the smallest scale that is drawn, 1/64: zero but for a probability of 2·e^-64 a draw."""


@dataclass(frozen=True, kw_only=True)
class Toy(Summary[Vector]):
    """Something computed from how many rows are in each of some cells."""

    cells: int = 12
    touched: int = 1
    columns: ClassVar[tuple[str, ...]] = ("value",)

    @property
    def length(self) -> int:
        return self.cells

    @property
    def leaves(self) -> Summary[Any] | None:
        return Cells(cells=self.cells)

    def measure(self, rows: Rows, memory: Memory) -> tuple[Vector, Memory]:
        values = [batch["value"] for batch in rows.batches()]
        counts = np.bincount(np.concatenate(values).astype(np.int64), minlength=self.cells)
        return self.from_leaves(counts.astype(np.int64)), memory

    def sensitivity(self, protection: Protection) -> Sensitivity:
        return Sensitivity.of_counts(protection, multipliers=(1,) * self.touched)

    def read(self, total: Vector) -> Vector:
        return total


@dataclass(frozen=True, kw_only=True)
class Cells(Toy):
    """The counts themselves."""

    name: ClassVar[str] = "cells"

    def from_leaves(self, counts: Vector) -> Vector:
        return counts


@dataclass(frozen=True, kw_only=True)
class Slopes(Toy):
    """Twice the cells, and how much each exceeds the next: numbers of both signs, fewer of the second kind."""

    name: ClassVar[str] = "slopes"

    @property
    def length(self) -> int:
        return 2 * self.cells - 1

    def from_leaves(self, counts: Vector) -> Vector:
        return np.concatenate([2 * counts, counts[:-1] - counts[1:]])


@dataclass(frozen=True, kw_only=True)
class UpTo(Toy):
    """How many rows are in the cells up to each; every entry has a draw of its own and one that all share."""

    name: ClassVar[str] = "up-to"
    cumulative: ClassVar[bool] = True

    @property
    def draws(self) -> int:
        return self.cells + 1

    @property
    def overlap(self) -> int:
        return 2

    def from_leaves(self, counts: Vector) -> Vector:
        return np.cumsum(counts)

    def spread(self, draws: Vector) -> Vector:
        return draws[:-1] + draws[-1]

    def draws_of(self, place: int) -> tuple[int, ...]:
        return place, self.cells


TOYS = {kind.name: kind for kind in (Cells, Slopes, UpTo)}

Cheat = Callable[..., tuple[Keys, Keys]]
"""In the place of `dcf.generate`: the keys that a client makes."""


def setting(
    trust: TrustModel | None = None,
    *,
    budget: Budget | None = EXACT,
    protection: Protection | None = None,
    clients: int = 4,
) -> Setting:
    return Setting(
        trust=trust or TwoServer(),
        protection=protection or Protection(rows_per_client=6),
        budget=budget,
        clients=clients,
    )


def plans_of(*queries: Query[Any], of: Setting | None = None) -> tuple[Plan, ...]:
    terms = of or setting()
    return tuple(terms.trust.plan(query, terms) for query in queries)


def plan_of(summary: Summary[Any] | None = None, **terms: Any) -> Plan:
    return plans_of(Sum(of=summary or Cells()), of=setting(**terms))[0]


def counts_of(plans: Sequence[Plan], clients: int = 4, *, rows: int = 6, seed: int = 1) -> dict[str, Any]:
    """At most so many rows per client and plan, somewhere."""
    generator = np.random.default_rng(seed)
    return {
        f"client{i}": tuple(
            np.bincount(
                generator.integers(0, plan.measured.length, generator.integers(0, rows + 1)),
                minlength=plan.measured.length,
            ).astype(np.int64)
            for plan in plans
        )
        for i in range(clients)
    }


@dataclass(kw_only=True)
class Town(ServersTown):
    """Clients, some of which may cheat, and two servers."""

    counts: Mapping[str, tuple[Vector, ...]]
    cheats: Mapping[str, Cheat] = field(default_factory=dict)
    first: type[TrustModel] = TwoServer
    second: type[TrustModel] = TwoServer
    """What the servers run."""

    @property
    def held(self) -> Mapping[str, tuple[Vector, ...]]:
        return self.counts

    def helper(self, name: str, source: SimulatedRandomness, store: EndpointStore | None = None) -> Helper:
        kind = self.first if name == SERVERS[0] else self.second
        return Helper(
            name,
            randomness=source,
            store=store,
            summaries=TOYS,
            trust_models={TwoServer.name: kind},
            credentials=self.credentials.get(name),
        )

    def go(self, *queries: Points[Any]) -> tuple[Released[Any], ...]:
        """The whole exchange; or, with queries, its continuation."""
        return self.carry(plans_of(*queries, of=self.plans[0].setting) if queries else self.plans)

    def responded(self, name: str, request: Request) -> Message:
        with cheating(self.cheats.get(name)):
            return super().responded(name, request)

    def exact(self, *, without: Sequence[str] = ()) -> list[Vector]:
        """The totals over the rows of all clients but some."""
        return [
            plan.query.of.from_leaves(
                np.sum([c[i] for name, c in self.counts.items() if name not in without], axis=0)
            )
            for i, plan in enumerate(self.plans)
        ]


@contextmanager
def cheating(cheat: Cheat | None) -> Iterator[None]:
    if cheat is None:
        yield
        return
    with patch.object(two_server_deposits, "generate", cheat):
        yield


def values(released: Sequence[Released[Any]]) -> list[list[int]]:
    return [one.value.tolist() for one in released]


def lists(vectors: Sequence[Vector]) -> list[list[int]]:
    return [vector.tolist() for vector in vectors]
