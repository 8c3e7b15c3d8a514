"""Under distributed-dp, through the shipped shares: the AUC's noise is as small as stated, intervals cover."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace

import numpy as np
import pytest
from scipy.stats import binom

from binormal import Population, measure
from fedassay.estimation.confusion import Confusion, decision_metrics
from fedassay.estimation.ranking import roc_auc
from fedassay.privacy.randomness import SimulatedRandomness
from fedassay.protocol.vocabulary import NO_NOISE, Budget, Noise, Plan, Protection, Released, Setting, Sum
from fedassay.summaries.score_histogram import LabelledHistogram
from fedassay.tasks.evaluation import Evaluate
from fedassay.trust.distributed_dp import DistributedDP
from stated import Verify

FALSE_ALARM = 1e-3
SHARP = ("roc_auc", "accuracy", "precision", "recall", "specificity", "brier_score")
PURE, APPROXIMATE = Budget(epsilon=1.0), Budget(epsilon=0.5, delta=1e-6)


@dataclass(frozen=True)
class Releases:
    """Releases of one task over one-row clients under distributed-dp."""

    task: Evaluate
    clients: int
    budget: Budget

    @property
    def plan(self) -> Plan:
        trust = DistributedDP()
        setting = Setting(trust=trust, protection=Protection(), budget=self.budget, clients=self.clients)
        return trust.plan(Sum(of=self.task.histogram(setting)), setting)

    def draw(self, plan: Plan, total: np.ndarray, seed: int) -> Released[LabelledHistogram]:
        (released,) = plan.setting.trust.aggregate([plan], [total], self.clients, SimulatedRandomness(seed))
        return released.with_value(plan.query.of.read(released.value))


STATED = {0.5: 1.2e-4, 0.24: 3e-4, 0.02: 3e-3}
"""The mean absolute error of the AUC at 100,000 rows and ε = 1, by prevalence."""


@pytest.mark.parametrize(
    "prevalence", [0.24, *(pytest.param(one, marks=pytest.mark.full) for one in (0.5, 0.02))]
)
def test_the_noise_of_the_auc_is_small(prevalence: float, verify: Verify) -> None:
    releases = Releases(Evaluate(), 100_000, PURE)
    plan = releases.plan
    rows = Population(prevalence, 1.19).sample(100_000, np.random.default_rng(12))
    total = measure(plan.query.of, *rows)
    exact = roc_auc(plan.query.of.read(total).evidence(NO_NOISE)).value
    errors = []
    for seed in range(600):
        released = releases.draw(plan, total, seed)
        errors.append(abs(roc_auc(released.value.evidence(released.noise)).value - exact))
    mean = float(np.mean(errors))
    verify(
        f"AUC under distributed-dp, 100,000 rows, epsilon 1, {prevalence:.0%} positives, 600 runs: mean absolute "
        f"error against the noise-free histogram <= {STATED[prevalence]:.1e}",
        f"{mean:.2e}",
    )
    assert mean <= STATED[prevalence]


def coverage(budget: Budget, *, runs: int, forget: bool = False) -> dict[str, list[bool]]:
    """Whether each run's interval covered; `forget` is an analyst who forgets nearly all of the noise."""
    population, rows = Population(0.5, shift=0.3, stretch=1.2), 800
    releases = Releases(Evaluate(), rows, budget)
    plan, truth = releases.plan, population.truth(0.5)
    rng = np.random.default_rng(7)
    hits: dict[str, list[bool]] = defaultdict(list)
    for seed in range(runs):
        released = releases.draw(plan, measure(plan.query.of, *population.sample(rows, rng)), seed)
        noise = replace(released.noise, variance=released.noise.variance / 100) if forget else released.noise
        evidence = released.value.evidence(noise)
        metrics = releases.task.metrics(evidence) | decision_metrics(Confusion.at(evidence, 0.5))
        for name in SHARP:
            interval = metrics[name].interval
            assert interval is not None
            hits[name].append(interval[0] <= truth[name] <= interval[1])
    return hits


@pytest.mark.parametrize(
    "budget", [pytest.param(PURE, marks=pytest.mark.full), APPROXIMATE], ids=["pure", "approximate"]
)
def test_intervals_cover(budget: Budget) -> None:
    hits = coverage(budget, runs=150)
    allowed = FALSE_ALARM / (2 * len(hits))
    for name, seen in hits.items():
        assert sum(seen) >= binom.ppf(allowed, len(seen), 0.93), (name, np.mean(seen))
    broken = coverage(budget, runs=150, forget=True)
    assert any(sum(seen) < binom.ppf(allowed, len(seen), 0.93) for seen in broken.values())


@pytest.mark.full
@pytest.mark.parametrize("budget", [PURE, APPROXIMATE], ids=["pure", "approximate"])
def test_stated_coverage(budget: Budget, verify: Verify) -> None:
    shares = {name: float(np.mean(seen)) for name, seen in coverage(budget, runs=2_000).items()}
    low, high = min(shares, key=shares.__getitem__), max(shares, key=shares.__getitem__)
    verify(
        f"95 % intervals under distributed-dp, 800 rows, epsilon {budget.epsilon:g}, delta {budget.delta:g}: "
        "93-97 % (binning may widen)",
        f"lowest {low} {shares[low]:.1%}, highest {high} {shares[high]:.1%}",
    )
    assert shares[low] >= 0.93 - 3 * np.sqrt(0.93 * 0.07 / 2_000)


def test_the_law_is_the_stated_one() -> None:
    """What intervals are computed from is the noise of all survivors, not of the fewest."""
    for budget in (PURE, APPROXIMATE):
        releases = Releases(Evaluate(height=11), 4_000, budget)
        plan = releases.plan
        noise: Noise = plan.noise
        zero = np.zeros(plan.query.of.length, dtype=np.int64)
        drawn = np.concatenate(
            [
                DistributedDP().aggregate([plan], [zero], 4_000, SimulatedRandomness(s))[0].value
                for s in range(9)
            ]
        )
        assert np.var(drawn) == pytest.approx(noise.variance, rel=0.06)
        assert noise.copies == 4_000 / DistributedDP().sizes(4_000).honest
