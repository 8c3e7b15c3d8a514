"""Rows of regressions, dealt to clients that differ, and fits through their sums."""

from __future__ import annotations

import itertools
from collections.abc import Generator, Sequence
from typing import Any

import numpy as np

from conformal_drive import Columns, answer, setting_of
from fedassay.protocol.vocabulary import Step, TrustModel
from fedassay.summaries.regression.moments import INTERCEPT
from fedassay.tasks.inference.newton import RegressionFit, fit_newton, standardised
from regression_streams import answered


def made(
    model: str, rows: int, *, seed: int = 0, scales: Sequence[float] = (1.0, 1.0, 1.0)
) -> dict[str, Any]:
    """Correlated features about a mean, on these scales, and a target with errors that depend on them."""
    rng = np.random.default_rng(seed)
    f = len(scales)
    z = rng.normal(size=(rows, f)) + 0.5 * rng.normal(size=(rows, 1))
    offset = rng.normal(size=rows) / 2
    u = 0.3 + z @ np.linspace(0.8, -0.6, f) + offset
    linear = u + rng.normal(size=rows) * (0.5 + np.abs(z[:, 0]))
    y = linear if model == "linear" else (rng.random(rows) < 1 / (1 + np.exp(-u))).astype(np.float64)
    return {"features": (z + 1.0) * np.array(scales), "target": y, "offset": offset}


def dealt(columns: Columns, clients: int) -> list[Columns]:
    """Sorted by the first feature, so that clients differ; one has no rows, one has a single one."""
    order = np.argsort(columns["features"][:, 0], kind="stable")
    rows = len(order)
    ends = [0, 0, 1, *(1 + (rows - 1) * np.linspace(0, 1, clients - 1)[1:] ** 1.5).astype(int)]
    return [
        {name: column[order[start:end]] for name, column in columns.items()}
        for start, end in itertools.pairwise(ends)
    ]


def groups(clients: Sequence[Columns]) -> np.ndarray:
    """The client of each pooled row."""
    return np.repeat(np.arange(len(clients)), [len(one["target"]) for one in clients])


def pooled(clients: Sequence[Columns]) -> dict[str, np.ndarray]:
    """All rows, client after client."""
    return {name: np.concatenate([one[name] for one in clients]) for name in clients[0]}


def driven(
    steps: Generator[Step, Any, Any], clients: Sequence[Columns], trust: TrustModel | None = None
) -> Any:
    """What the steps return if these clients answer."""
    setting = setting_of(trust, clients=len(clients))
    return answered(steps, lambda query: answer(query, setting, clients, 0))


def fitted(
    model: str,
    clients: Sequence[Columns],
    *,
    intercept: bool = True,
    offset: bool = False,
    names: Sequence[str] = (),
    trust: TrustModel | None = None,
    **options: Any,
) -> RegressionFit:
    """On the common scale of all rows, from their moments."""
    features = tuple(names) or tuple(f"x{place}" for place in range(clients[0]["features"].shape[1]))

    def steps() -> Generator[Step, Any, RegressionFit]:
        standard, _ = yield from standardised(model, features, intercept=intercept, offset=offset)
        named = (INTERCEPT, *features) if intercept else features
        return (yield from fit_newton(model, standard, named, **options))

    return driven(steps(), clients, trust)  # type: ignore[no-any-return]
