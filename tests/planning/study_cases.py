"""Studies as they would come out: the jobs of an agenda, asked about simulated rows and answered in aggregate."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from binormal import Population
from fedassay.estimation.metric import Metric
from fedassay.estimation.ranking import roc_auc
from fedassay.estimation.ratios import brier_score
from fedassay.kernel.agenda import Agenda, Item
from fedassay.kernel.run import Job
from fedassay.planning import Expectation, PlannedStudy, TaskPlan, predict_tasks
from fedassay.privacy.randomness import SimulatedRandomness
from fedassay.protocol.vocabulary import (
    Batch,
    Budget,
    Part,
    Plan,
    Protection,
    Query,
    Released,
    Setting,
    TrustModel,
)
from fedassay.tasks.calibration.methods import fit
from fedassay.tasks.conformal.conformal import Conformal
from fedassay.tasks.conformal.held_out import HeldOutQuestions
from fedassay.tasks.distribution.stored import Release
from fedassay.tasks.shared_parameters import HOLDOUT

FACTOR = 1.5
"""How far a prediction may be from what is measured."""

_TRUE_ROWS = 50_000


@dataclass(frozen=True)
class Columns:
    """Some rows."""

    columns: Mapping[str, NDArray[Any]]

    def batches(self) -> Iterator[Batch]:
        yield self.columns

    def kept(self, which: NDArray[np.bool_]) -> Columns:
        return Columns({name: column[which] for name, column in self.columns.items()})


@dataclass(frozen=True, kw_only=True)
class StudyCase:
    """One setting: tasks with their shares, rows, and terms. Each client has rows of its own, or just one."""

    shares: Mapping[str, float]
    trust: TrustModel
    budget: Budget | None = None
    rows: int
    clients: int
    prevalence: float = 0.3
    auc: float = 0.8
    protection: Protection = field(default_factory=Protection)
    parameters: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def __str__(self) -> str:
        budget = "" if self.budget is None else f" ε={self.budget.epsilon:g} δ={self.budget.delta:g}"
        shares = " ".join(f"{name}={share:g}" for name, share in self.shares.items())
        return f"{self.trust.name}{budget} M={self.rows} N={self.clients} π={self.prevalence} A={self.auc} {shares}"

    @property
    def agenda(self) -> Agenda:
        items = []
        for name, share in self.shares.items():
            given = dict(self.parameters.get(name, {}))
            after = None
            if name == "conformal":
                given = {"sets": "binary", "conditional": "none", "holdout": 0.3, **given}
                after = "calibrate" if "calibrate" in self.shares else None
            items.append(Item(name=name, task=name, parameters=given, share=share, after=after))
        return Agenda(items=tuple(items))

    @property
    def study(self) -> PlannedStudy:
        return PlannedStudy(
            expectation=Expectation(
                rows=self.rows, clients=self.clients, prevalence=self.prevalence, auc=self.auc
            ),
            trust=self.trust,
            budget=self.budget,
            protection=self.protection,
        )

    def predicted(self) -> dict[str, TaskPlan]:
        return predict_tasks(self.agenda, self.study, shares=self.shares)

    def jobs(self) -> list[Job]:
        """Those of a real run, with the shares and rows that it would give them."""
        setting = Remembering(
            trust=self.trust, protection=self.protection, budget=self.budget, clients=self.clients
        )
        return self.agenda.jobs(setting)

    def drawn(self, rng: np.random.Generator) -> Columns:
        population = Population(self.prevalence, delta=math.sqrt(2) * float(ndtri(self.auc)))
        scores, labels = population.sample(self.rows, rng)
        return Columns({"score": scores, "label": labels.astype(np.int8), "value": rng.random(self.rows)})


@dataclass(frozen=True, kw_only=True)
class Remembering(Setting):
    """A setting that works out once how a question is answered, however often it is asked."""

    known: dict[Any, Plan] = field(default_factory=dict, compare=False, repr=False)

    def plan(self, query: Query[Any]) -> Plan:
        key = (query, self.share, self.fits_on)
        if key not in self.known:
            self.known[key] = super().plan(query)
        return self.known[key]

    @property
    def whole(self) -> Setting:
        return Setting(trust=self.trust, protection=self.protection, budget=self.budget, clients=self.clients)


@dataclass(frozen=True, kw_only=True)
class World:
    """One federation of a case: rows, the atom of each of them, and where noise comes from."""

    case: StudyCase
    rows: Columns
    atoms: NDArray[Any]
    randomness: SimulatedRandomness

    @classmethod
    def of(cls, case: StudyCase, rng: np.random.Generator, randomness: SimulatedRandomness) -> World:
        half = (1 - HOLDOUT) / 2
        names = [str(atom) for atom in Part.ALL.atoms]
        atoms = rng.choice(names, size=case.rows, p=[half, half, HOLDOUT])
        return cls(case=case, rows=case.drawn(rng), atoms=atoms, randomness=randomness)

    def part(self, part: Part) -> Columns:
        return self.rows.kept(np.isin(self.atoms, [str(atom) for atom in part.atoms]))

    def answer(self, job: Job, query: Query[Any]) -> Released[Any]:
        """What the job would get, by the law of the protocol."""
        asked = job.setting.asked(query)
        total, _ = query.of.measure(self.part(asked.part), {})
        plan = job.setting.plan(query)
        (released,) = self.case.trust.aggregate([plan], [total], self.case.clients, self.randomness)
        return released.with_value(query.of.read(released.value))


@dataclass(frozen=True, kw_only=True)
class Asking:
    """A job, what it asks first, and what is true of the rows."""

    job: Job
    first: Any
    probabilities: NDArray[np.float64]
    """Of rows like those of the federation, sorted: calibrated scores are the probability of a positive label."""

    def covers(self, threshold: float) -> float:
        """The true share of rows whose label has a score of at most the threshold."""
        p = self.probabilities
        return float((p * (1 - p <= threshold) + (1 - p) * (p <= threshold)).mean())


def simulated(case: StudyCase, *, runs: int, seed: int) -> dict[str, list[float]]:
    """What each run measured, by what is predicted."""
    rng, randomness = np.random.default_rng(seed), SimulatedRandomness(seed)
    truth, _ = Population(case.prevalence, delta=math.sqrt(2) * float(ndtri(case.auc))).sample(
        _TRUE_ROWS, rng
    )
    asking = [
        Asking(job=job, first=next(job.task.steps(job.setting)), probabilities=truth) for job in case.jobs()
    ]
    found: dict[str, list[float]] = {}
    for _ in range(runs):
        world = World.of(case, rng, randomness)
        for one in asking:
            for name, value in _MEASURED[one.job.name](world, one).items():
                found.setdefault(f"{one.job.name}.{name}", []).append(value)
    return found


def _evaluated(world: World, asking: Asking) -> dict[str, float]:
    released = world.answer(asking.job, asking.first)
    evidence = released.value.evidence(released.noise)
    auc = roc_auc(evidence)
    return {
        "roc_auc": _value(auc),
        "brier_score": _value(brier_score(evidence)),
        "roc_auc, width": math.nan if auc.interval is None else (auc.interval[1] - auc.interval[0]) / 2,
    }


def _value(metric: Metric) -> float:
    return math.nan if metric.value is None else metric.value


def _calibrated(world: World, asking: Asking) -> dict[str, float]:
    """Scores are calibrated: what the map makes of them is its error."""
    fitting, judging = (world.answer(asking.job, query) for query in asking.first)
    fitted = fit(fitting.value.evidence(fitting.noise), asking.job.task.method).fitted  # type: ignore[attr-defined]
    truth = asking.probabilities
    judged = judging.value.evidence(judging.noise)
    if fitted is None:
        error = math.nan
    else:
        values, same = np.unique(fitted.map(truth), return_inverse=True)
        meant = np.bincount(same, weights=truth) / np.bincount(same)
        error = float(np.abs(meant - values)[same].mean())
    return {"expected_calibration_error": error, "held_out_brier_score": _value(brier_score(judged))}


def _conformalised(world: World, asking: Asking) -> dict[str, float]:
    """The task's own threshold, what it covers in truth, and what held-out rows say of it."""
    job, task = asking.job, asking.job.task
    assert isinstance(task, Conformal)
    method, way = task.way(job.setting)
    threshold = _threshold(way(task, method, job.setting), world.answer(job, asking.first))
    if not math.isfinite(threshold):
        return {"spread": math.nan, "excess": math.nan, "coverage": math.nan}
    judging: Any = next(HeldOutQuestions(task=task, thresholds=(threshold,)).counts(job.setting))
    query = judging[0]
    counts = world.answer(job, query).value.values()
    share = sum(one.covered for one in counts) / sum(one.rows for one in counts)
    covered = asking.covers(threshold)
    return {
        "spread": covered,
        "excess": covered - task.level,
        "coverage": share - covered,
    }


def _threshold(flow: Any, released: Released[Any]) -> float:
    """Of a way that asks one question."""
    next(flow)
    try:
        flow.send(released)
    except StopIteration as end:
        (found,) = end.value[0].values()
        return float(found.threshold)
    raise AssertionError("a threshold takes one question")


def _distributed(world: World, asking: Asking) -> dict[str, float]:
    released = world.answer(asking.job, asking.first)
    curve = Release.of(released.value, released.noise).everyone
    lower, upper = curve.band(level=asking.job.task.level)  # type: ignore[attr-defined]
    return {"band": float((upper - lower).max()) / 2}


_MEASURED: Mapping[str, Any] = {
    "evaluate": _evaluated,
    "calibrate": _calibrated,
    "conformal": _conformalised,
    "ecdf": _distributed,
}

_MEANS = ("expected_calibration_error", "excess", "band", "roc_auc, width")
"""What is predicted as a mean; all else as a standard deviation."""


def ratios(predicted: Mapping[str, TaskPlan], measured: Mapping[str, list[float]]) -> dict[str, float]:
    """Predicted over measured, of what nearly always has a value.

    How far coverage is above its level is compared together with its spread, where that is predicted: the root of the
    mean squared distance from the level. Alone it can be next to nothing.
    """
    found = {}
    for key, values in measured.items():
        task, _, name = key.partition(".")
        metrics = predicted[task].metrics
        metric = metrics.get(name.partition(",")[0])
        known = np.array([value for value in values if not math.isnan(value)])
        if metric is None or not math.isfinite(metric.width) or len(known) < 0.9 * len(values):
            continue
        error, truth = metric.width, float(known.std(ddof=1))
        if name == "excess" and "spread" in metrics:
            error, truth = math.hypot(error, metrics["spread"].width), math.hypot(known.mean(), truth)
        elif name in _MEANS:
            truth = float(known.mean())
        elif metric.sampling is not None and metric.privacy is not None:
            error = math.hypot(metric.sampling, metric.privacy)
        found[key] = error / truth
    return found


def mismatches(found: Mapping[str, float]) -> dict[str, float]:
    """Where they are apart by more than the factor."""
    return {name: ratio for name, ratio in found.items() if not 1 / FACTOR <= ratio <= FACTOR}
