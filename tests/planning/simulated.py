"""Predictions against simulated releases: calibrated binormal rows, real trust models in aggregate."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from binormal import Population, measure
from scipy.special import ndtri

from fedassay.privacy.randomness import SimulatedRandomness
from fedassay.protocol import NO_NOISE, Budget, Protection, Setting, Sum, TrustModel
from fedassay.tasks.evaluation.accuracy import METRICS, predict
from fedassay.tasks.evaluation.confusion import RATIOS
from fedassay.tasks.evaluation.evaluate import Evaluate
from fedassay.tasks.evaluation.evidence import Evidence
from fedassay.tasks.evaluation.metric import Metric
from fedassay.tasks.evaluation.stored import threshold_entry

FACTOR = 1.5
"""How far a prediction may be from what is measured."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One setting of the comparison."""

    trust: TrustModel
    budget: Budget | None = None
    rows: int
    clients: int
    prevalence: float
    auc: float
    protection: Protection = field(default_factory=Protection)
    task: Evaluate = field(default_factory=Evaluate)

    @property
    def setting(self) -> Setting:
        return Setting(
            trust=self.trust, protection=self.protection, budget=self.budget, clients=self.clients
        )

    def __str__(self) -> str:
        budget = "" if self.budget is None else f" ε={self.budget.epsilon:g} δ={self.budget.delta:g}"
        height = "" if self.task.height is None else f" h={self.task.height}"
        return f"{self.trust.name}{budget} M={self.rows} N={self.clients} π={self.prevalence} A={self.auc}{height}"


def predicted(case: Case) -> dict[str, Metric]:
    """What the planner says."""
    histogram = case.task.histogram(case.setting)
    return predict(
        histogram,
        rows=case.rows,
        prevalence=case.prevalence,
        auc=case.auc,
        noise=case.setting.noise(Sum(of=histogram)),
        threshold=case.task.thresholds[0],
        buckets=case.task.buckets,
    )


def estimates(task: Evaluate, evidence: Evidence) -> dict[str, float | None]:
    """What an evaluation reports, by name."""
    decisions = threshold_entry(evidence, task.thresholds[0], level=task.level)
    others = task.metrics(evidence)
    return {name: decisions[name]["value"] if name in RATIOS else others[name].value for name in METRICS}


def simulated(case: Case, *, runs: int, seed: int) -> dict[str, dict[str, Any]]:
    """Standard deviations over `runs` federations: of the estimates, and of what noise alone does to them.

    `defined` is the share of runs in which a metric had a value.
    """
    histogram, setting = case.task.histogram(case.setting), case.setting
    plan = setting.trust.plan(Sum(of=histogram), setting)
    population = Population(case.prevalence, delta=math.sqrt(2) * float(ndtri(case.auc)))
    rng, randomness = np.random.default_rng(seed), SimulatedRandomness(seed)
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in METRICS}
    for _ in range(runs):
        total = measure(histogram, *population.sample(case.rows, rng))
        (released,) = setting.trust.aggregate([plan], [total], case.clients, randomness)
        noisy = estimates(case.task, Evidence.of(histogram.read(released.value), released.noise))
        exact = estimates(case.task, Evidence.of(histogram.read(total), NO_NOISE))
        for name in METRICS:
            if noisy[name] is not None and exact[name] is not None:
                found[name].append((noisy[name], exact[name]))
    results = {}
    for name, pairs in found.items():
        values = np.array(pairs).reshape(-1, 2)
        enough = len(values) > 2
        results[name] = {
            "defined": len(values) / runs,
            "total": float(values[:, 0].std(ddof=1)) if enough else math.nan,
            "noise": float((values[:, 0] - values[:, 1]).std(ddof=1)) if enough else math.nan,
        }
    return results
