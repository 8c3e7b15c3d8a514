"""95 % intervals under local-dp cover the population value in 93 to 97 % of runs.

Each client reports on one level by randomised bits. The calibration error is covered at least as often, and so is
what has a binning bound above a tenth of its error. Intervals half as wide are rejected, and so are variances
that forget who reports on which level (at ε = 5, where that is most of the error) or halve the noise.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
from scipy.stats import binom, norm

from binormal import Population, measure
from fedassay.estimation.confusion import Confusion, decision_metrics
from fedassay.estimation.curves import roc_curve
from fedassay.estimation.evidence import Evidence
from fedassay.estimation.least_squares import LeastSquares, bit_variances
from fedassay.estimation.ranking import roc_auc
from fedassay.privacy.randomness import SimulatedRandomness
from fedassay.protocol.vocabulary import Budget, Plan, Protection, Setting, Sum
from fedassay.tasks.evaluation import Evaluate
from fedassay.trust.local_dp import LocalDP
from hit_counts import FALSE_ALARM, Coverage, coverage_of, covers, too_high, too_low
from stated import Verify

POPULATION = Population(0.5, shift=0.3, stretch=1.2)
ALWAYS = ("roc_auc", "accuracy", "precision", "recall", "brier_score", "prevalence")
"""Metrics for which the evidence suffices in every case; of the others, those with enough runs are judged."""


@dataclass(frozen=True)
class Case:
    epsilon: float
    clients: int
    idle: int = 0
    """Clients without a row."""

    def __str__(self) -> str:
        return f"epsilon {self.epsilon:g}, {self.clients:,} clients, {self.idle:,} without a row"

    def plan(self, task: Evaluate) -> Plan:
        trust = LocalDP()
        setting = Setting(
            trust=trust,
            protection=Protection(rows_per_client=1),
            budget=Budget(epsilon=self.epsilon),
            clients=self.clients,
        )
        return trust.plan(Sum(of=task.histogram(setting)), setting)

    def release(self, plan: Plan, run: int, rng: np.random.Generator) -> Evidence:
        histogram = plan.query.of
        total = measure(histogram, *POPULATION.sample(self.clients - self.idle, rng))
        (released,) = LocalDP().aggregate([plan], [total], self.clients, SimulatedRandomness(run))
        return histogram.read(released.value).evidence(released.noise)


CASES = (Case(1.0, 100_000), Case(5.0, 10_000), Case(5.0, 20_000, idle=6_000))


def simulate(case: Case, runs: int) -> Coverage:
    task, rng = Evaluate(), np.random.default_rng(20240301)
    plan = case.plan(task)
    evidences = (case.release(plan, run, rng) for run in range(runs))
    found = coverage_of(evidences, task, POPULATION.truth(0.5), threshold=0.5, least=math.ceil(0.9 * runs))
    assert set(ALWAYS) <= set(found.hits)
    return found


@pytest.mark.parametrize("case", CASES, ids=str)
def test_intervals_cover(case: Case) -> None:
    simulate(case, runs=100).check(caught=8)


@pytest.mark.full
@pytest.mark.parametrize("case", CASES, ids=str)
def test_stated_coverage(case: Case, verify: Verify) -> None:
    coverage = simulate(case, runs=1_000)
    shares = coverage.shares
    sharp = {name: shares[name] for name in coverage.sharp}
    low, high = min(shares, key=shares.__getitem__), max(sharp, key=sharp.__getitem__)
    verify(
        f"95 % intervals under local-dp, {case}: 93-97 % where binning is under a tenth of the error, else >= 93 %",
        f"lowest {low} {shares[low]:.1%}, highest {high} {sharp[high]:.1%} of {len(sharp)}; AUC "
        f"{shares['roc_auc']:.1%}, accuracy {shares['accuracy']:.1%}; {len(shares)} metrics",
    )
    comparisons = 2 * len(shares)
    assert not any(too_low(hits, comparisons) for hits in coverage.hits.values())
    assert not any(too_high(coverage.hits[name], comparisons) for name in sharp)


# --- broken variants ----------------------------------------------------------------------------------------

Break = Callable[[Evidence], Evidence]


def without_levels(evidence: Evidence) -> Evidence:
    """As if every client reported on every level: the variance of the bits alone."""
    bits = LeastSquares(tree=evidence.fit.tree, variances=bit_variances(evidence.noise))
    return replace(evidence, fit=bits, noise=replace(evidence.noise, reporting=()))


def half_the_noise(evidence: Evidence) -> Evidence:
    """As if the noise had half its standard deviation."""
    quarter = replace(evidence.noise, variance=evidence.noise.variance / 4)
    fit = LeastSquares(tree=evidence.fit.tree, variances=tuple(v / 4 for v in evidence.fit.variances))
    return replace(evidence, fit=fit, noise=quarter)


@pytest.mark.parametrize(
    ("case", "broken"),
    [
        (Case(5.0, 20_000), without_levels),
        pytest.param(Case(1.0, 50_000), half_the_noise, marks=pytest.mark.full),
    ],
    ids=["levels forgotten", "noise halved"],
)
def test_broken_variances_are_rejected(case: Case, broken: Break) -> None:
    task, rng, truth = Evaluate(), np.random.default_rng(9), POPULATION.truth(0.5)
    plan = case.plan(task)
    right, wrong = defaultdict(list), defaultdict(list)
    for run in range(200):
        evidence = case.release(plan, run, rng)
        for variant, hits in ((evidence, right), (broken(evidence), wrong)):
            metrics = decision_metrics(Confusion.at(variant, 0.5)) | {"roc_auc": roc_auc(variant)}
            for name in ("accuracy", "recall", "roc_auc"):
                hits[name].append(covers(metrics[name], truth[name]))
    assert not any(too_low(hits, 6) for hits in right.values())
    assert all(too_low(wrong[name], 6) for name in ("accuracy", "recall")), {
        name: np.mean(hits) for name, hits in wrong.items()
    }


# --- curves -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", [Case(1.0, 100_000), Case(5.0, 10_000)], ids=str)
def test_bands_hold_at_all_points(case: Case) -> None:
    """The true curve is within the band at every listed point; a band a quarter as wide does not hold it."""
    plan, rng = case.plan(Evaluate()), np.random.default_rng(3)
    held, narrow = [], []
    for run in range(60):
        curve = roc_curve(case.release(plan, run, rng))
        fpr, tpr = np.clip(curve["fpr"], 1e-300, 1), np.array(curve["tpr"])
        truth = norm.sf(norm.isf(fpr) - POPULATION.delta)
        for factor, outcomes in ((1.0, held), (0.25, narrow)):
            low, high = (tpr + factor * (np.array(curve[end]) - tpr) for end in ("lower", "upper"))
            outcomes.append(bool(np.all((low <= truth + 1e-12) & (truth <= high + 1e-12))))
    assert sum(held) >= binom.ppf(FALSE_ALARM, len(held), 0.95)
    assert sum(narrow) < binom.ppf(FALSE_ALARM, len(narrow), 0.95)
