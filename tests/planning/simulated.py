"""Predictions against simulated releases: calibrated binormal rows, real trust models in aggregate."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.special import ndtri

from binormal import Population, measure
from fedassay.estimation.confusion import Confusion
from fedassay.estimation.evidence import Evidence
from fedassay.estimation.metric import Metric
from fedassay.privacy.randomness import SimulatedRandomness
from fedassay.protocol.metrics import METRICS, targets
from fedassay.protocol.vocabulary import NO_NOISE, Budget, Part, Protection, Setting, Sum, TrustModel
from fedassay.tasks.calibration.calibrate import Calibrate
from fedassay.tasks.calibration.forecast import MapError, predict_map
from fedassay.tasks.calibration.methods import fit
from fedassay.tasks.evaluation.accuracy import predict
from fedassay.tasks.evaluation.evaluate import Evaluate

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
        return Setting(trust=self.trust, protection=self.protection, budget=self.budget, clients=self.clients)

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
    confusion = Confusion.at(evidence, task.thresholds[0])
    records = [METRICS[name] for name in targets()]
    return {
        record.name: record.of(
            evidence if "rows" in record.parts else confusion, level=task.level, buckets=task.buckets
        ).value
        for record in records
    }


def simulated(case: Case, *, runs: int, seed: int) -> dict[str, dict[str, Any]]:
    """Standard deviations over `runs` federations: of the estimates, and of what noise alone does to them.

    `defined` is the share of runs in which a metric had a value.
    """
    histogram, setting = case.task.histogram(case.setting), case.setting
    plan = setting.trust.plan(Sum(of=histogram), setting)
    population = Population(case.prevalence, delta=math.sqrt(2) * float(ndtri(case.auc)))
    rng, randomness = np.random.default_rng(seed), SimulatedRandomness(seed)
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in targets()}
    for _ in range(runs):
        total = measure(histogram, *population.sample(case.rows, rng))
        (released,) = setting.trust.aggregate([plan], [total], case.clients, randomness)
        noisy = estimates(case.task, histogram.read(released.value).evidence(released.noise))
        exact = estimates(case.task, histogram.read(total).evidence(NO_NOISE)) if case.budget else noisy
        for name in targets():
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


def mismatches(
    expected: dict[str, Metric], measured: dict[str, dict[str, Any]], factor: float = FACTOR
) -> dict[str, float]:
    """Where prediction and measurement differ by more than the factor, and by how much (predicted/measured)."""
    found = {}
    for name, ratio in ratios(expected, measured).items():
        if not 1 / factor <= ratio <= factor:
            found[name] = ratio
    return found


def ratios(expected: dict[str, Metric], measured: dict[str, dict[str, Any]]) -> dict[str, float]:
    """Predicted over measured standard deviations: of the whole error, and of the part that noise adds.

    The noise part of a calibration error near zero is not the difference of two of them, so it is left out.
    Only metrics that nearly always have a value are compared: the others are those that do by luck.
    """
    found = {}
    for name, metric in expected.items():
        here = measured[name]
        if metric.value is None or here["defined"] < 0.9:
            continue
        assert metric.sampling is not None
        assert metric.privacy is not None
        found[name] = math.hypot(metric.sampling, metric.privacy) / here["total"]
        if metric.privacy > 0 and name != "expected_calibration_error":
            found[f"{name}, noise"] = metric.privacy / here["noise"]
    return found


def map_error(case: Case, method: str) -> MapError:
    """What the planner says about a map that is fitted to all rows."""
    histogram, _ = Calibrate().histograms(case.setting)
    return predict_map(
        histogram,
        method=method,
        rows=case.rows,
        prevalence=case.prevalence,
        auc=case.auc,
        noise=case.setting.noise(Sum(of=histogram, part=Part.FIT)),
    )


def simulated_maps(case: Case, method: str, *, runs: int, seed: int) -> dict[str, float]:
    """The mean Brier excess and calibration error of maps fitted to simulated releases, on many new rows."""
    setting = case.setting
    histogram, _ = Calibrate().histograms(setting)
    plan = setting.trust.plan(Sum(of=histogram, part=Part.FIT), setting)
    population = Population(case.prevalence, delta=math.sqrt(2) * float(ndtri(case.auc)))
    rng, randomness = np.random.default_rng(seed), SimulatedRandomness(seed)
    truth, _ = population.sample(50_000, rng)  # calibrated: the score is the probability
    excess, errors = [], []
    for _ in range(runs):
        total = measure(histogram, *population.sample(case.rows, rng))
        (released,) = setting.trust.aggregate([plan], [total], case.clients, randomness)
        fitted = fit(histogram.read(released.value).evidence(released.noise), method).fitted
        assert fitted is not None
        said = fitted.map(truth)
        excess.append(float(((said - truth) ** 2).mean()))
        values, same = np.unique(said, return_inverse=True)
        meant = np.bincount(same, weights=truth) / np.bincount(same)
        errors.append(float(np.abs(meant - values)[same].mean()))
    return {"brier_excess": float(np.mean(excess)), "calibration_error": float(np.mean(errors))}
