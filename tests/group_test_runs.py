"""Tests of calibration, run on rows in memory: the aggregate mode of a trust model, and nothing around it."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import chdtrc

from binormal import InMemoryRows
from fedassay.privacy.randomness import SimulatedRandomness
from fedassay.protocol.vocabulary import Budget, Protection, Setting, Task, TrustModel
from fedassay.trust.plain import Plain
from fedassay.trust.server_dp import ServerDP

PLAIN = Setting(trust=Plain(), protection=Protection(), budget=None, clients=10)


def server_dp(epsilon: float, *, trust: TrustModel | None = None, **protection: Any) -> Setting:
    return Setting(
        trust=ServerDP() if trust is None else trust,
        protection=Protection(**protection),
        budget=Budget(epsilon=epsilon),
        clients=10,
    )


def judged(
    task: Task[Any], setting: Setting, scores: np.ndarray, labels: np.ndarray, *, seed: int = 0
) -> dict[str, Any]:
    """The results of a task over these rows, each total drawn from the law of the trust model."""
    flow, randomness = task.steps(setting), SimulatedRandomness(seed)
    query = next(flow)
    while True:
        plan = setting.trust.plan(query, setting)
        total, _ = query.of.measure(InMemoryRows(scores, labels), {})
        (released,) = setting.trust.aggregate([plan], [total], setting.clients, randomness)
        try:
            query = flow.send(released.with_value(query.of.read(released.value)))
        except StopIteration as finished:
            return finished.value["hosmer_lemeshow"]


def without_noise(test: dict[str, Any]) -> float:
    """The p-value that the classical test would give to released groups: χ² with Q degrees, noise forgotten."""
    rows, observed, expected = (
        np.array([group[name] for group in test["groups"]]) for name in ("rows", "observed", "expected")
    )
    variance = expected * (1 - expected / rows)
    usable = variance > 0  # noise can make it negative; such groups count as none, which only helps the test
    gaps = (observed - expected)[usable]
    return float(chdtrc(int(usable.sum()), float((gaps**2 / variance[usable]).sum())))
