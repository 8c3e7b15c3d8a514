"""Intervals of online inference cover 95 %, in simulated federations whose optimum is known; wrong ones are caught.

The simulator is that of docs/experiments/inference.md: the shipped `Path` and `local_work`, with replications as a
leading axis. Coverage is a mean over independent replications, with the standard error of their means (coefficients of
one replication are not independent). An ordinary test fails by chance with a probability of 1e-3 at most, divided among
its comparisons by Bonferroni; each is shown to reject variants that are wrong.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from experiments.inference_simulation import (
    AVERAGED,
    CORRECTED_SEPARATED,
    LEVEL,
    NO_RESTARTS,
    ONE_STEP_SEPARATED,
    PUBLISHED,
    ROUND,
    SCALING,
    Case,
    Found,
    Plan,
    Runs,
    simulate,
)
from scipy.special import ndtri

from stated import Verify

FALSE_ALARM = 1e-3
TWELVE = tuple(range(1, 13))

CASES = (
    Case(model="linear", part=0.2),
    Case(model="linear", steps=(1, 12), clients=4),
    Case(model="logistic", part=0.5, steps=(1, 2, 3)),
    Case(model="logistic", alike=True, steps=(1, 3), clients=4),
)


def limit(comparisons: int) -> float:
    """In standard errors, to both sides."""
    return float(-ndtri(FALSE_ALARM / comparisons / 2))


def score(found: Found) -> float:
    """Coverage less its level, in standard errors of it.

    Not less than those that independent coefficients of this level would have: where intervals happen to miss seldom,
    coverage varies little between replications too.
    """
    least = math.sqrt(LEVEL * (1 - LEVEL) / found.error.size)
    return (found.coverage - LEVEL) / max(found.deviation, least)


def narrower(found: Found, variance: float) -> Found:
    """Intervals with this part of the variance."""
    return replace(found, radius=np.sqrt(variance) * found.radius)


def runs_of(case: Case, replications: int = 300, rounds: int = 200) -> Runs:
    return simulate(case, replications, (rounds,), np.random.default_rng([5, len(case.key)]))


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.model} {case.part:g} {max(case.steps)}")
def test_the_default_covers(case: Case) -> None:
    found = runs_of(case.default)[ROUND, 200]
    assert abs(score(found)) <= limit(len(CASES)), found.coverage
    assert score(narrower(found, 0.5)) < -limit(len(CASES)), "half the variance must be rejected"


def test_a_path_without_restarts_is_still_on_its_way() -> None:
    found = runs_of(Case(model="logistic", alike=True, steps=(1, 3), clients=4))[NO_RESTARTS, 200]
    assert score(found) < -limit(1)


def test_the_separated_plug_in_needs_who_was_drawn() -> None:
    """Around the estimate without a transient, so that nothing but the variance is looked at."""
    runs = runs_of(Case(model="linear", part=0.2, steps=(4,)), replications=300)
    assert abs(score(runs[ONE_STEP_SEPARATED, 200])) <= limit(2)
    without = replace(runs[ROUND, 200], radius=runs[PUBLISHED, 200].radius)
    assert score(without) < -limit(2)


def test_plain_averaging_goes_elsewhere() -> None:
    case = Case(model="linear", part=0.5, steps=(1, 4), rescaled=False)
    runs = simulate(case, 100, (50, 200), np.random.default_rng(6))
    assert score(runs[ROUND, 200]) < -limit(1)
    assert runs[ROUND, 200].coverage < runs[ROUND, 50].coverage, (
        "the more rounds, the surer of the wrong point"
    )


STEEP = Case(model="logistic", alike=True, steps=(1,), part=0.5)
"""Coefficients of norm 2 and five rows in a round: plain steps are far from the optimum for thousands of rounds."""


def test_what_has_not_arrived_is_not_told() -> None:
    """Intervals that are told cover about 0.9; all of them together, 0.1 to 0.3 and 0.65 of the default."""
    runs = simulate(STEEP, 200, (50, 200), np.random.default_rng(7))
    for method in (PUBLISHED, CORRECTED_SEPARATED, SCALING):
        for rounds in (50, 200):
            found = runs[method, rounds]
            assert found.coverage < 0.4, "as it would be without"
            assert found.told.mean() < 0.02
    runs = simulate(STEEP.default, 400, (50, 200), np.random.default_rng(7))
    early, late = runs[ROUND, 50], runs[ROUND, 200]
    assert early.coverage < 0.7, "as it would be without"
    assert early.told.mean() < 0.5
    assert early.of_told.coverage > early.coverage + 0.1
    assert late.told.mean() > 0.7
    assert late.of_told.coverage > 0.88


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.model} {case.part:g} {max(case.steps)}")
def test_what_has_arrived_is_told(case: Case) -> None:
    found = runs_of(case.default)[ROUND, 200]
    assert found.told.mean() > 0.95


# --- the stated numbers ---------------------------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize("model", ["linear", "logistic"])
def test_the_default_covers_a_thousand_times(model: str, verify: Verify) -> None:
    grid = [
        Case(model=model, part=part, alike=alike, steps=steps).default
        for part in (0.2, 0.5, 1.0)
        for alike in (False, True)
        for steps in (tuple(range(1, 6)), TWELVE)
    ]
    plan = Plan(snapshots=(500, 1000), seed=80)  # other replications than those of the page
    runs = {case: plan.path(case) for case in grid}
    found = {(case, t): runs[case][ROUND, t] for case in grid for t in plan.snapshots}
    scores = [score(one) for one in found.values()]
    covered = [one.coverage for one in found.values()]
    verify(
        f"infer, {model}: 95 % intervals of the default, 1000 replications, ν in 0.2, 0.5, 1, clients alike or not, "
        f"E_i in 1..5 and 1..12, T = 500 and 1000: within {limit(len(found)):.1f} standard errors",
        f"{min(covered):.3f} to {max(covered):.3f}, mean {np.mean(covered):.4f}; scores {min(scores):+.1f} to "
        f"{max(scores):+.1f}",
    )
    assert max(abs(one) for one in scores) <= limit(len(found))


@pytest.mark.full
def test_published_intervals_under_cover(verify: Verify) -> None:
    runs = Plan(snapshots=(2000,), seed=80).path(Case(model="linear", part=0.2))
    published, corrected, averaged = (runs[name, 2000] for name in (PUBLISHED, CORRECTED_SEPARATED, AVERAGED))
    verify(
        "infer, linear, ν = 0.2, T = 2000, 1000 replications: the separated plug-in as published covers about 0.91, "
        "with the variance of who was drawn about 0.95",
        f"{published.coverage:.3f} and {corrected.coverage:.3f} (± {corrected.deviation:.3f})",
    )
    assert 0.89 < published.coverage < 0.93
    assert abs(score(corrected)) <= limit(2)
    assert abs(score(averaged)) <= limit(2)
