"""Drives `shuffle` in tests: toy queries, and a town of clients, an analyst and a shuffler."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fedassay.kernel.endpoint import EndpointStore
from fedassay.kernel.helper import Helper
from fedassay.privacy.randomness import SimulatedRandomness
from fedassay.protocol.vocabulary import (
    Budget,
    Memory,
    Plan,
    Protection,
    Query,
    Released,
    Rows,
    Sensitivity,
    Setting,
    Summary,
    Vector,
)
from fedassay.summaries.score_histogram import ScoreHistogram
from fedassay.trust.shuffle.model import Shuffle
from servers_town import REPLIES, SERVERS, ServersTown, same

__all__ = ["REPLIES", "SERVERS", "Town", "same"]

ONE_ROW = Protection(rows_per_client=1)
BUDGET = Budget(epsilon=1.0, delta=1e-6)
HISTOGRAM = ScoreHistogram(transform="uniform", height=3, widths=(1, 4))
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


@dataclass(kw_only=True)
class Town(ServersTown):
    """Clients, an analyst and a shuffler."""

    vectors: Mapping[str, tuple[Vector, ...]]

    @property
    def held(self) -> Mapping[str, tuple[Vector, ...]]:
        return self.vectors

    def helper(self, name: str, source: SimulatedRandomness, store: EndpointStore | None = None) -> Helper:
        return Helper(
            name,
            randomness=source,
            store=store,
            summaries={kind.name: kind for kind in (ScoreHistogram, Losses)},
            credentials=self.credentials.get(name),
        )

    def go(self) -> tuple[Released[Any], ...]:
        """The whole exchange."""
        return self.carry(self.plans)
