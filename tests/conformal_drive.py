"""Conformal tasks driven without messages: each query is answered as its trust model would, from each client's rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedassay.data.tables import ArrayRows
from fedassay.privacy.randomness import SimulatedRandomness
from fedassay.protocol.vocabulary import (
    NO_NOISE,
    Budget,
    Collect,
    Protection,
    Query,
    Released,
    Select,
    Setting,
    TrustModel,
)
from fedassay.trust.plain import Plain

Columns = Mapping[str, np.ndarray]


def setting_of(
    trust: TrustModel | None = None,
    *,
    clients: int,
    epsilon: float | None = None,
    delta: float = 0.0,
    **protection: Any,
) -> Setting:
    """A setting with a budget, if there is an epsilon."""
    return Setting(
        trust=trust or Plain(),
        protection=Protection(**protection),
        budget=None if epsilon is None else Budget(epsilon=epsilon, delta=delta),
        clients=clients,
    )


def answer(query: Query[Any], setting: Setting, clients: Sequence[Columns], seed: int) -> Released[Any]:
    """What these clients would release. Choices are drawn in floating point, which is fast enough for thousands."""
    plan, of = setting.trust.plan(query, setting), query.of
    if isinstance(query, Collect):
        value = tuple(of.read(of.measure(ArrayRows(columns=one), {})[0]) for one in clients)
        return Released(value=value, noise=NO_NOISE, clients=len(clients))
    if isinstance(query, Select):
        losses = np.stack([of.measure(ArrayRows(columns=one), {})[0] for one in clients])
        waits = np.random.default_rng(seed).gumbel(size=losses.shape) - losses / plan.noise.scale
        chosen = np.eye(of.length, dtype=np.int64)[waits.argmax(axis=1)]
        return Released(value=tuple(of.read(one) for one in chosen), noise=plan.noise, clients=len(clients))
    if of.additive:
        pooled = {name: np.concatenate([one[name] for one in clients]) for name in clients[0]}
        total = of.measure(ArrayRows(columns=pooled), {})[0]
    else:
        total = np.sum([of.measure(ArrayRows(columns=one), {})[0] for one in clients], axis=0)
    (released,) = setting.trust.aggregate([plan], [total], setting.clients, SimulatedRandomness(seed))
    return released.with_value(of.read(released.value))


def drive(task: Any, setting: Setting, clients: Sequence[Columns], seed: int = 0) -> dict[str, Any]:
    """The results of a task that asks one question, or none."""
    steps = task.steps(setting)
    try:
        query = next(steps)
        steps.send(answer(query, setting, clients, seed))
    except StopIteration as finished:
        return finished.value  # type: ignore[no-any-return]
    raise AssertionError("a second question")


def normal_clients(rows: Sequence[int], seed: int = 0) -> list[Columns]:
    """Clients with so many scores, absolute values of normal ones."""
    rng = np.random.default_rng(seed)
    return [{"conformity": np.abs(rng.normal(size=n))} for n in rows]
