"""Totals over time err by the stated noise: every variance and covariance of the errors is as computed.

The errors of a run are M·z with independent draws z; the mean of a product of two of them over many runs has a known
standard error (from the exact fourth moment of the draws). Deviations of six standard errors are allowed: a normal
deviate exceeds that with probability 2e-9, which times the number of pairs of steps in all cases is below 1e-6.
"""

from __future__ import annotations

import numpy as np
import pytest

from continual_runs import NewNoiseEachStep, build, response
from fedassay.privacy.accounting import GAUSSIAN, LAPLACE
from fedassay.privacy.continual import ContinualCount
from fedassay.privacy.continual_noise import ContinualMechanism, Factorised, PathMechanism, TreeMechanism
from fedassay.privacy.randomness import SimulatedRandomness
from fedassay.protocol.vocabulary import Budget, Message, Noise

STEPS, RUNS, ALLOWED = 8, 450, 6.0
COUNTS = [3, 0, 7, 1, 0, 0, 9, 2]
BUDGETS = {LAPLACE: Budget(epsilon=0.4), GAUSSIAN: Budget(epsilon=0.4, delta=0.01)}
"""The delta is large so that few steps get Gaussian noise too."""
PARAMETERS = {PathMechanism: {"multiplier": 16}, TreeMechanism: {"fan_out": 2}, Factorised: {}}


class OwnCountsOnly(TreeMechanism):
    """Wrong: blocks are as noisy as their own count, while least squares is what is stated."""

    def advance(self, step: int, state: Message, count: int, draw: object) -> tuple[float, Message]:
        events, closed = [inside + count for inside in state["open"]], list(state["closed"])
        for level, width in enumerate(self.widths):
            if step % width == 0:
                closed[level] += float(events[level] + draw(1)[0])  # type: ignore[operator]
                events[level] = 0
                if level:
                    closed[level - 1] = 0.0
        return sum(closed), {"open": events, "closed": closed}


class NoiseOnTotals(Factorised):
    """Wrong: noise of the right size for each total, but independent from step to step."""

    def advance(self, step: int, state: Message, count: int, draw: object) -> tuple[float, Message]:
        counts = [*state["counts"], count]
        noise = float(np.dot(self.summary.response[:step], draw(step)))  # type: ignore[operator]
        return sum(counts) + noise, {"counts": counts, "noisy": []}


def errors(mechanism: ContinualMechanism, seed: int) -> np.ndarray:
    source, rows = SimulatedRandomness(seed), []
    for _ in range(RUNS):
        monitor = ContinualCount(mechanism, non_decreasing=False)
        rows.append([monitor.observe(count, source).total for count in COUNTS])
    return np.array(rows) - np.cumsum(COUNTS)


def fourth_cumulant(noise: Noise) -> float:
    x = np.arange(1, 80 * noise.scale)
    weights = np.exp(-x / noise.scale if noise.law == LAPLACE else -(x**2) / (2 * noise.scale**2))
    return float(2 * (x**4 @ weights) / (1 + 2 * weights.sum()) - 3 * noise.variance**2)


def deviation(mechanism: ContinualMechanism, stated: ContinualMechanism) -> float:
    """The largest deviation of a mean product of errors from what is stated, in standard errors."""
    M = response(stated)
    covariance = stated.noise.variance * M @ M.T
    variances = np.diag(covariance)
    of_products = (
        np.outer(variances, variances) + covariance**2 + fourth_cumulant(stated.noise) * M**2 @ (M**2).T
    )
    err = errors(mechanism, seed=1)
    return float((np.abs(err.T @ err / RUNS - covariance) / np.sqrt(of_products / RUNS)).max())


@pytest.mark.parametrize("law", list(BUDGETS))
@pytest.mark.parametrize("kind", [PathMechanism, TreeMechanism, Factorised])
def test_errors_are_the_stated_noise(kind: type[ContinualMechanism], law: str) -> None:
    mechanism = build(kind, STEPS, BUDGETS[law], **PARAMETERS[kind])
    assert mechanism.noise.law == law
    assert deviation(mechanism, mechanism) < ALLOWED


@pytest.mark.parametrize(
    ("broken", "kind"),
    [(NewNoiseEachStep, PathMechanism), (OwnCountsOnly, TreeMechanism), (NoiseOnTotals, Factorised)],
)
def test_other_noise_is_rejected(broken: type[ContinualMechanism], kind: type[ContinualMechanism]) -> None:
    parameters = {} if kind is PathMechanism else PARAMETERS[kind]
    stated = build(kind, STEPS, BUDGETS[LAPLACE], **parameters)
    assert deviation(build(broken, STEPS, BUDGETS[LAPLACE], **parameters), stated) > ALLOWED


@pytest.mark.parametrize("kind", [PathMechanism, TreeMechanism, Factorised])
def test_too_little_noise_is_rejected(kind: type[ContinualMechanism]) -> None:
    """Noise for twice the budget: a quarter of the variance."""
    stated = build(kind, STEPS, BUDGETS[LAPLACE], **PARAMETERS[kind])
    generous = build(kind, STEPS, Budget(epsilon=0.8), **PARAMETERS[kind])
    assert deviation(generous, stated) > ALLOWED
