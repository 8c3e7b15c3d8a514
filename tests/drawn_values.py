"""Releases of distributions as a trust model would draw them from exact totals, and tasks driven by them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedassay.data.tables import ArrayRows
from fedassay.privacy.randomness import SimulatedRandomness
from fedassay.protocol.vocabulary import (
    NO_NOISE,
    Budget,
    Neighbours,
    Noise,
    Points,
    Protection,
    Query,
    Released,
    Setting,
    Sum,
    TrustModel,
)
from fedassay.summaries.distribution.path import ValuePath
from fedassay.summaries.distribution.tree import ValueTree
from fedassay.trust.plain import Plain
from fedassay.trust.server_dp import ServerDP

Columns = Mapping[str, np.ndarray]

PLAIN = Setting(trust=Plain(), protection=Protection(), budget=None, clients=5)


def server(epsilon: float, delta: float = 0.0, *, neighbours: Neighbours = Neighbours.ADD_REMOVE) -> Setting:
    return setting_of(ServerDP(), epsilon, delta, neighbours=neighbours)


def setting_of(
    trust: TrustModel, epsilon: float, delta: float = 0.0, *, clients: int = 50, **protection: Any
) -> Setting:
    return Setting(
        trust=trust,
        protection=Protection(**protection),
        budget=Budget(epsilon=epsilon, delta=delta),
        clients=clients,
    )


def leaves(points: int, **fields: Any) -> ValueTree:
    return ValueTree(**{"lower": 0.0, "upper": 1.0, "points": points, **fields})


def draw(query: Query[Any], setting: Setting, columns: Columns, seed: int) -> Released[Any]:
    """What the trust model would release for this query about these rows."""
    plan = setting.trust.plan(query, setting)
    total, _ = query.of.measure(ArrayRows(columns=columns), {})
    (released,) = setting.trust.aggregate([plan], [total], setting.clients, SimulatedRandomness(seed))
    return released.with_value(query.of.read(released.value))


def drive(task: Any, setting: Setting, columns: Columns, seed: int = 0) -> dict[str, Any]:
    """The results of a task whose queries are answered by `draw`."""
    steps = task.steps(setting)
    query, shares = next(steps), 0.0
    while True:
        assert isinstance(query, Sum)
        shares += query.share
        try:
            query = steps.send(draw(query, setting, columns, seed))
        except StopIteration as finished:
            assert shares <= 1 + 1e-12
            return finished.value
        seed += 1_000_003


@dataclass
class Servers:
    """Answers `Points` as two servers would: the noise of a node is drawn once, by each, and kept."""

    values: np.ndarray
    scale: float = 0.0
    seed: int = 0
    nodes: dict[int, float] = field(default_factory=dict)
    asked: list[int] = field(default_factory=list)
    places: np.ndarray | None = None

    @property
    def noise(self) -> Noise:
        if self.scale == 0:
            return NO_NOISE
        variance = 2 * 2 * self.scale**2
        return Noise(law="discrete-laplace", scale=self.scale, variance=variance, copies=2.0)

    def answer(self, query: Any) -> Released[Any]:
        assert isinstance(query, Points)
        path = query.of
        assert isinstance(path, ValuePath)
        if self.places is None:
            self.places = np.sort(path.grid.locate(self.values))
        rng = np.random.default_rng([self.seed, len(self.nodes)])
        entries = []
        for place in query.at:
            total = float(np.searchsorted(self.places, place, side="right"))
            for node in path.draws_of(place):
                if node not in self.nodes:
                    self.nodes[node] = float(rng.laplace(0, self.scale, 2).sum()) if self.scale else 0.0
                total += self.nodes[node]
            entries.append(total)
        self.asked += query.at
        return Released(value=np.array(entries), noise=self.noise, clients=3)

    def run(self, task: Any, setting: Setting = PLAIN) -> dict[str, Any]:
        steps = task.steps(setting)
        query = next(steps)
        while True:
            try:
                query = steps.send(self.answer(query))
            except StopIteration as finished:
                return finished.value
