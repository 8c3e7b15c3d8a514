"""Thresholds by several methods over random splits, and how they do on test rows: for Figures 3 to 6 and 11 to 15."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

import fedassay
from experiments.common import generator
from experiments.conformal_data import SEED, SOURCES, SYNTHETIC, Split, Table, synthetic
from experiments.conformal_models import (
    BOOSTED,
    FOREST,
    LEVEL,
    RIDGE,
    SYNTHETIC_LEAF,
    Columns,
    Predicted,
    predicted,
)
from experiments.conformal_published import fedcp2
from fedassay.estimation.coverage.law import split_rank

MODELS = (RIDGE, FOREST, BOOSTED)
POOLED, AVERAGE, PAPER, OURS = "pooled rows", "FedCP-Avg", "FedCP-QQ", "ours"
METHODS: Mapping[str, str] = {AVERAGE: "average", PAPER: "qq-paper", OURS: "qq"}
"""Name to the library's method; pooled rows are nobody's."""

WITHOUT = "without privacy"
PRIVATE_PUBLISHED = "FedCP²-QQ"
PRIVATE_SHARPER = "FedCP²-QQ, our ε"
PRIVATE_OURS = "ours, private"
MANY, FEW = "many small clients", "few large clients"


@dataclass(frozen=True, kw_only=True)
class Scope:
    """How much is measured."""

    splits: int = 20
    epsilons: tuple[float, ...] = (10.0, 5.0, 1.0)
    bins: int = 100
    synthetic: tuple[int, int] = (50, 20)
    synthetic_tests: int = 5000
    seed: int = SEED


class Outcome(NamedTuple):
    """What a threshold does on test rows; the length is infinite if the threshold is."""

    threshold: float
    coverage: float
    length: float


Runs = dict[tuple[str, ...], list[Outcome]]
"""Key to the outcomes of all splits."""


# --- thresholds -----------------------------------------------------------------------------------------


def asked(columns: Columns, clients: int, **how: object) -> float:
    """What the library answers, rows dealt to clients in their order; infinite if the set holds everything."""
    per_client = len(columns) // clients
    data = {"client": np.repeat(np.arange(clients), per_client), **columns.columns()}
    roles = {name: name for name in columns.columns()}
    result = fedassay.conformal(data, client="client", level=LEVEL, **roles, **how)  # type: ignore[arg-type]
    return math.inf if result["infinite"] else float(result["threshold"])


def pooled(columns: Columns) -> float:
    """Split conformal prediction on all rows."""
    rank = split_rank(len(columns), LEVEL)
    return float(np.sort(columns.scores())[rank - 1]) if rank <= len(columns) else math.inf


def judged(test: Columns, threshold: float) -> Outcome:
    """Coverage, and mean length of the intervals; an interval whose ends cross is empty."""
    low, high = test.ends()
    length = math.inf if math.isinf(threshold) else float(np.maximum(0, high - low + 2 * threshold).mean())
    return Outcome(threshold, float(np.mean(test.scores() <= threshold)), length)


def plain(seen: Predicted, clients: int, rows: int) -> dict[str, Outcome]:
    """All methods without privacy, on the first m·n calibration rows."""
    columns = seen.calibration.take(slice(clients * rows))
    thresholds = {POOLED: pooled(columns)}
    for name, method in METHODS.items():
        thresholds[name] = asked(columns, clients, method=method, privacy=fedassay.Plain())
    return {name: judged(seen.test, threshold) for name, threshold in thresholds.items()}


def private(
    seen: Predicted, clients: int, rows: int, epsilon: float, *, bins: int, seed: int, path: str
) -> dict[str, Outcome]:
    """FedCP²-QQ as published, its ranks with the library's accounting, and ours; the range as in B.2."""
    columns = seen.calibration.take(slice(clients * rows))
    scores = columns.scores()
    rng = generator(seed, "private", path)
    terms = {
        "privacy": fedassay.LocalDP(),
        "budget": fedassay.Budget(epsilon=epsilon),
        "protection": fedassay.Protection(rows_per_client=rows),
        "score_range": (0.0, float(scores.max())),
        "bins": bins,
    }
    thresholds = {
        PRIVATE_PUBLISHED: fedcp2(scores, clients, level=LEVEL, epsilon=epsilon, bins=bins, rng=rng)[0]
    }
    for name, method in ((PRIVATE_SHARPER, "qq-paper"), (PRIVATE_OURS, "qq")):
        simulation = fedassay.Simulation(seed=int(rng.integers(2**31)))
        thresholds[name] = asked(columns, clients, method=method, simulation=simulation, **terms)
    return {name: judged(seen.test, threshold) for name, threshold in thresholds.items()}


# --- runs -----------------------------------------------------------------------------------------------

Source = Callable[[str, int], Predicted]
"""A model's columns for a split, by the model's name and the split's number."""


def source_of(table: Table, *, leaf: int | None = None) -> Source:
    """Fit when asked."""
    more = {} if leaf is None else {"leaf": leaf}
    return lambda model, number: predicted(table.split(number), model, seed=number, **more)


def real(name: str, source: Source, scope: Scope) -> tuple[Runs, Runs]:
    """One data set: all models and methods without privacy, and the forest with it."""
    where = SOURCES[name]
    found: Runs = {}
    secret: Runs = {}
    for number in range(scope.splits):
        for model in MODELS:
            seen = source(model, number)
            for title, (clients, rows) in ((MANY, where.many), (FEW, where.few)):
                for method, outcome in plain(seen, clients, rows).items():
                    found.setdefault((title, model, method), []).append(outcome)
            if model == FOREST:
                for key, outcome in _private_runs(name, seen, number, scope).items():
                    secret.setdefault(key, []).append(outcome)
    return found, secret


def _private_runs(name: str, seen: Predicted, number: int, scope: Scope) -> dict[tuple[str, str], Outcome]:
    clients, rows = SOURCES[name].private
    found = {("none", WITHOUT): plain(seen, clients, rows)[OURS]}
    for epsilon in scope.epsilons:
        path = f"{name} {number} {epsilon:g}"
        several = private(seen, clients, rows, epsilon, bins=scope.bins, seed=scope.seed, path=path)
        found |= {(f"ε = {epsilon:g}", method): outcome for method, outcome in several.items()}
    return found


@dataclass(frozen=True, kw_only=True, eq=False)
class Example:
    """One draw of the synthetic data, for Figure 3."""

    split: Split
    seen: Predicted
    outcomes: Mapping[str, Outcome]


def synthetic_runs(scope: Scope) -> tuple[Runs, Example]:
    """Section 5.1, over several draws; the first one is the example."""
    clients, rows = scope.synthetic
    found: Runs = {}
    example: Example | None = None
    for number in range(scope.splits):
        split = synthetic(number, rows=2 * clients * rows, tests=scope.synthetic_tests)
        seen = predicted(split, FOREST, seed=number, leaf=SYNTHETIC_LEAF)
        outcomes = plain(seen, clients, rows)
        for method, outcome in outcomes.items():
            found.setdefault((SYNTHETIC, FOREST, method), []).append(outcome)
        example = example or Example(split=split, seen=seen, outcomes=outcomes)
    assert example is not None
    return found, example
