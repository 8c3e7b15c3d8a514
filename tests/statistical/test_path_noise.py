"""What ``path`` releases errs by A·η: the draws η of the stated law, one per node, spread over its leaves.

The covariance of the error is A·Aᵀ times the variance of a draw if and only if every point has the variance of L+1
draws, and every pair of points whose blocks part at level d differs by 2d draws. Sums and differences of draws have
known laws, so each of these is a chi-square test against exact probabilities. A right release fails one of them with
a probability below ERROR, were the seeds not fixed: each p-value is compared with ERROR over the number of tests.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from fedassay.privacy.accounting import GAUSSIAN, LAPLACE, SKELLAM
from fedassay.privacy.randomness import SimulatedRandomness
from fedassay.protocol.vocabulary import Budget, Noise, Plan, Protection, Setting, Sum, Vector
from fedassay.summaries.distribution.path import ValuePath
from fedassay.trust.distributed_dp import DistributedDP
from fedassay.trust.server_dp import ServerDP
from noise_fit import Law, law_of, p_value

POINTS, LEVELS, CLIENTS = 8, 4, 50
RELEASES = 2_500
CASES = [
    (ServerDP(), Budget(epsilon=0.5), 1, LAPLACE),
    (ServerDP(), Budget(epsilon=0.5, delta=1e-6), 64, GAUSSIAN),
    (DistributedDP(), Budget(epsilon=0.5), 1, LAPLACE),
    (DistributedDP(), Budget(epsilon=0.5, delta=1e-6), 64, SKELLAM),
]
IDS = [f"{trust.name}-{law}" for trust, _, _, law in CASES]

ERROR = 1e-6
THRESHOLD = ERROR / (len(CASES) * (POINTS + POINTS * (POINTS - 1) // 2 + POINTS))
"""Per case: each point and each pair of points of both curves, and each point of one curve against the other."""


class NoisePerPoint(ValuePath):
    """Wrong: as much noise in every point, but each point has its own."""

    @property
    def draws(self) -> int:
        return self.classes * self.points * (self.height + 1)

    def spread(self, draws: Vector) -> Vector:
        return draws.reshape(-1, self.height + 1).sum(axis=1)


class NoRoot(ValuePath):
    """Wrong: the noise of the highest level is missing."""

    def spread(self, draws: Vector) -> Vector:
        return super().spread(np.where(np.arange(draws.size) % self.nodes == self.nodes - 1, 0, draws))


class NoLeaves(ValuePath):
    """Wrong: the noise of the lowest level is missing."""

    def spread(self, draws: Vector) -> Vector:
        return super().spread(np.where(np.arange(draws.size) % self.nodes < self.points, 0, draws))


class OneTree(ValuePath):
    """Wrong: both curves get the noise of one tree."""

    @property
    def draws(self) -> int:
        return self.nodes

    def spread(self, draws: Vector) -> Vector:
        return super().spread(np.tile(draws, self.classes))


def plan_for(kind: type[ValuePath], case: int) -> Plan:
    trust, budget, multiplier, law = CASES[case]
    summary = kind(lower=0, upper=1, points=POINTS, labelled=True, multiplier=multiplier)
    setting = Setting(trust=trust, protection=Protection(), budget=budget, clients=CLIENTS)
    plan = trust.plan(Sum(of=summary), setting)
    assert plan.noise.law == law
    return plan


@lru_cache
def errors(kind: type[ValuePath], case: int) -> np.ndarray:
    """Released minus true, one row per release, by curve and point."""
    plan = plan_for(kind, case)
    true = plan.query.of.from_leaves(np.arange(2 * POINTS, dtype=np.int64))
    source = SimulatedRandomness(1, kind.__name__)
    released = plan.setting.trust.aggregate([plan] * RELEASES, [true] * RELEASES, CLIENTS, source)
    assert released[0].noise == plan.noise
    return (np.stack([one.value for one in released]) - true).reshape(RELEASES, 2, POINTS)


def law_of_draws(noise: Noise, count: int) -> Law:
    """The law of a sum or difference of so many draws of this noise."""
    if noise.law == GAUSSIAN:  # of σ above 2: sums differ from one wider draw by less than 1e-16
        assert noise.scale > 2
        return law_of(replace(noise, scale=noise.scale * count**0.5))
    return law_of(noise, parts=count * noise.copies)


def p_values(kind: type[ValuePath], case: int) -> dict[str, float]:
    """Of every point, every pair of points, and of the two curves being independent."""
    err, noise = errors(kind, case), plan_for(kind, case).noise
    laws = {count: law_of_draws(noise, count) for count in (2, 4, 6, LEVELS)}
    values = {}
    for i in range(POINTS):
        values[f"point {i}"] = p_value(err[..., i].reshape(-1), laws[LEVELS])
        r = np.corrcoef(err[:, 0, i], err[:, 1, i])[0, 1] * np.sqrt(RELEASES)
        values[f"curves at {i}"] = float(2 * stats.norm.sf(abs(r)))
    for i, j in combinations(range(POINTS), 2):
        part_at = (i ^ j).bit_length()
        values[f"points {i} and {j}"] = p_value((err[..., i] - err[..., j]).reshape(-1), laws[2 * part_at])
    return values


@pytest.mark.parametrize("case", range(len(CASES)), ids=IDS)
def test_the_error_is_the_noise_of_the_nodes(case: int) -> None:
    values = p_values(ValuePath, case)
    assert min(values.values()) > THRESHOLD, min(values, key=values.__getitem__)


BROKEN = [
    *((kind, 0) for kind in (NoisePerPoint, NoRoot, NoLeaves, OneTree)),
    (NoRoot, 1),
    (NoRoot, 2),
    (NoRoot, 3),
]


@pytest.mark.parametrize(("broken", "case"), BROKEN)
def test_other_noise_is_rejected(broken: type[ValuePath], case: int) -> None:
    assert min(p_values(broken, case).values()) < THRESHOLD


def test_the_covariance_is_the_stated_one() -> None:
    """The same, as moments: standard errors from the draws' exact fourth cumulant, six of them allowed.

    A normal deviate exceeds six standard errors with probability 2e-9, times 36 pairs.
    """
    plan = plan_for(ValuePath, 0)
    path, noise = plan.query.of, plan.noise
    A = np.stack([path.spread(one) for one in np.eye(path.draws, dtype=np.int64)], axis=1)[:POINTS]
    stated = noise.variance * A @ A.T
    x = np.arange(1, 3000.0)
    weights = np.exp(-x / noise.scale)
    fourth = 2 * (x**4 @ weights) / (1 + 2 * weights.sum()) - 3 * noise.variance**2
    of_products = np.outer(np.diag(stated), np.diag(stated)) + stated**2 + fourth * (A**2) @ (A**2).T

    def deviation(kind: type[ValuePath]) -> float:
        err = errors(kind, 0).reshape(-1, POINTS)
        return float((np.abs(err.T @ err / len(err) - stated) / np.sqrt(of_products / len(err))).max())

    assert deviation(ValuePath) < 6
    for broken in (NoisePerPoint, NoRoot, NoLeaves):
        assert deviation(broken) > 6
