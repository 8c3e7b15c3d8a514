"""A calibrated model is rejected at 5 % as often as stated, whatever the method and the noise; a wrong one is rejected.

Each level is compared with 4-6 % at an error rate of 10^-4 per comparison; for every method the same releases, read as
if there were no noise (χ² with Q degrees of freedom, the published statistic likewise), must be found to be wrong.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
from scipy.special import chdtrc, expit, logit
from scipy.stats import binom

from binormal import Population
from fedassay.tasks.distribution.calibration_groups import upper_tail
from fedassay.tasks.distribution.hosmer_lemeshow import HosmerLemeshow
from fedassay.tasks.evaluation import Evaluate
from fedassay.trust.distributed_dp import DistributedDP
from group_test_runs import PLAIN, judged, server_dp, without_noise
from stated import Verify

CALIBRATED = Population(0.4)
LEAST, MOST = 0.04, 0.06
FALSE_ALARM = 1e-4


@pytest.fixture(autouse=True)
def one_choice_of_bins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which histogram is asked for depends on public settings only: it is enough to choose it once."""
    monkeypatch.setattr(Evaluate, "histogram", cache(Evaluate.histogram))


@dataclass(frozen=True)
class Case:
    method: str
    rows: int
    epsilon: float | None
    shared: bool = False

    def __str__(self) -> str:
        trust = "distributed-dp" if self.shared else "server-dp"
        noise = "without noise" if self.epsilon is None else f"{trust}, epsilon {self.epsilon:g}"
        return f"{self.method}, {self.rows:,} rows, {noise}"


@dataclass(frozen=True)
class Rejections:
    """Whether each run rejects at 5 %, as it should be done and forgetting the noise; runs without a p-value."""

    right: list[bool]
    forgetful: list[bool]
    silent: int


@cache
def rejections(case: Case, runs: int, population: Population = CALIBRATED, groups: int = 10) -> Rejections:
    task = HosmerLemeshow(method=case.method, groups=groups)
    trust = DistributedDP() if case.shared else None
    setting = PLAIN if case.epsilon is None else server_dp(case.epsilon, trust=trust)
    rng = np.random.default_rng(11)
    right, forgetful, silent = [], [], 0
    for run in range(runs):
        test = judged(task, setting, *population.sample(case.rows, rng), seed=run)
        if test.get("p_value") is None:
            silent += 1
            continue
        right.append(test["p_value"] < 0.05)
        published = case.method == "published"
        naive = float(chdtrc(len(test["groups"]), test["value"])) if published else without_noise(test)
        forgetful.append(naive < 0.05)
    return Rejections(right=right, forgetful=forgetful, silent=silent)


def wrong_level(rejected: list[bool]) -> bool:
    few = binom.ppf(FALSE_ALARM / 2, len(rejected), LEAST)
    many = binom.isf(FALSE_ALARM / 2, len(rejected), MOST)
    return not few <= sum(rejected) <= many


@pytest.mark.parametrize(
    ("case", "runs"),
    [
        (Case("free", 2_000, 1.0), 300),
        (Case("corrected", 2_000, 1.0), 400),
        (Case("corrected", 20_000, 0.3), 200),
        (Case("corrected", 2_000, 1.0, shared=True), 150),
        (Case("published", 2_000, 10.0), 120),
    ],
    ids=str,
)
def test_level(case: Case, runs: int) -> None:
    found = rejections(case, runs)
    assert not wrong_level(found.right), np.mean(found.right)
    assert wrong_level(found.forgetful), np.mean(found.forgetful)
    assert found.silent <= 0.1 * runs


@pytest.mark.parametrize(
    "case", [Case("free", 2_000, 1.0), Case("corrected", 2_000, 1.0), Case("published", 2_000, 10.0)], ids=str
)
@pytest.mark.parametrize(
    "wrong", [Population(0.4, shift=0.6), Population(0.4, stretch=0.6)], ids=["shift", "stretch"]
)
def test_a_miscalibrated_model_is_rejected(case: Case, wrong: Population) -> None:
    """The true power is above 0.95 in all cases, so that fewer than 30 of 40 have a probability below 10^-5."""
    assert sum(rejections(case, 40, wrong).right) >= 30


def fitted(scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The scores of a logistic regression on the logits of other scores, fitted to these rows (Newton)."""
    x = np.stack([np.ones_like(scores), logit(scores)])
    beta = np.array([0.0, 1.0])
    for _ in range(8):
        p = expit(beta @ x)
        beta = beta + np.linalg.solve((x * (p * (1 - p))) @ x.T, x @ (labels - p))
    return expit(beta @ x)


def fitted_rejections(epsilon: float | None, runs: int, degrees: str) -> list[bool]:
    task = HosmerLemeshow(method="corrected", degrees=degrees)
    setting = PLAIN if epsilon is None else server_dp(epsilon)
    rng = np.random.default_rng(12)
    found = []
    for run in range(runs):
        scores, labels = CALIBRATED.sample(2_000, rng)
        found.append(judged(task, setting, fitted(scores, labels), labels, seed=run)["p_value"] < 0.05)
    return found


@pytest.mark.parametrize("epsilon", [None, 3.0])
def test_level_on_the_rows_that_a_model_was_fitted_to(epsilon: float | None) -> None:
    right = fitted_rejections(epsilon, 300, "Q-2")
    assert not wrong_level(right), np.mean(right)


def test_fitted_degrees_are_wrong_for_a_frozen_model() -> None:
    """About 11 % instead of 5 %."""
    task, rng = HosmerLemeshow(method="corrected", degrees="Q-2"), np.random.default_rng(13)
    frozen = [judged(task, PLAIN, *CALIBRATED.sample(2_000, rng))["p_value"] < 0.05 for _ in range(700)]
    assert wrong_level(frozen), np.mean(frozen)


@pytest.mark.parametrize("groups", [3, 10])
@pytest.mark.parametrize("share", [0.5, 1.0])
def test_the_law_with_heavy_tails(groups: int, share: float) -> None:
    """Gaps that are noise for a share of their variance: differences of Laplace draws. χ² rejects too often."""
    rng = np.random.default_rng(14)
    noise = (
        rng.laplace(size=(20_000, groups)) - rng.laplace(size=(20_000, groups))
    ) / 2  # variance 1, κ_4 = 1.5
    gaps = np.sqrt(share) * noise + np.sqrt(1 - share) * rng.normal(size=(20_000, groups))
    statistics = (gaps**2).sum(axis=1)
    variance = groups * (2 + 1.5 * share**2)
    right = [upper_tail(t, mean=groups, variance=variance) < 0.05 for t in statistics]
    assert not wrong_level(right), np.mean(right)
    if share == 1:
        assert wrong_level(list(chdtrc(groups, statistics) < 0.05))


STATED = (
    *(Case(method, rows, 1.0) for method in ("free", "corrected") for rows in (2_000, 20_000)),
    Case("free", 20_000, 0.1),
    Case("free", 2_000, 0.5),
    Case("corrected", 20_000, 0.1),
    Case("corrected", 2_000, 0.5),
    Case("corrected", 20_000, 1.0, shared=True),
    Case("published", 2_000, 10.0),
    Case("published", 2_000, 20.0),
    Case("published", 20_000, 1.0),
    Case("published", 20_000, 3.0),
)


@pytest.mark.full
@pytest.mark.parametrize("case", STATED, ids=str)
def test_stated_level(case: Case, verify: Verify) -> None:
    found = rejections(case, 5_000)
    share = float(np.mean(found.right))
    verify(
        f"Hosmer-Lemeshow task at 5 %, {case}: rejects 4-6 % of calibrated models",
        f"{share:.2%} (noise forgotten: {np.mean(found.forgetful):.0%}; no p-value: {found.silent / 5_000:.1%})",
    )
    assert LEAST <= share <= MOST


@pytest.mark.full
@pytest.mark.parametrize("epsilon", [None, 1.0, 3.0])
def test_stated_level_on_fitted_rows(epsilon: float | None, verify: Verify) -> None:
    share = float(np.mean(fitted_rejections(epsilon, 5_000, "Q-2")))
    noise = "without noise" if epsilon is None else f"epsilon {epsilon:g}"
    verify(
        f"Hosmer-Lemeshow with Q-2, model fitted to its 2,000 rows, corrected, {noise}: rejects 4-6 %",
        f"{share:.2%}",
    )
    assert LEAST <= share <= MOST


WRONG = {
    2_000: (Population(0.4, shift=0.25), Population(0.4, stretch=0.8)),
    20_000: (Population(0.4, shift=0.08), Population(0.4, stretch=0.93)),
}
"""Models that are wrong by about as much as so many rows can show: all scores too high, or all too timid."""

POWER = (
    *(Case(method, 2_000, epsilon) for method in ("free", "corrected") for epsilon in (None, 0.5, 1.0, 3.0)),
    *(Case(method, 20_000, epsilon) for method in ("free", "corrected") for epsilon in (None, 0.1, 1.0, 3.0)),
    Case("published", 2_000, 10.0),
    Case("published", 2_000, 20.0),
    Case("published", 20_000, 1.0),
    Case("published", 20_000, 3.0),
)


@pytest.mark.full
@pytest.mark.parametrize("case", POWER, ids=str)
def test_stated_power(case: Case, verify: Verify) -> None:
    """Noise costs power, and never adds any; 1,000 runs, so that 3 standard errors are below 0.05."""
    for name, wrong in zip(("scores too high", "scores too timid"), WRONG[case.rows], strict=True):
        power = float(np.mean(rejections(case, 1_000, wrong).right))
        exact = float(np.mean(rejections(Case("free", case.rows, None), 1_000, wrong).right))
        verify(
            f"Hosmer-Lemeshow task at 5 %, {case}, {name}: power, no more than without noise", f"{power:.0%}"
        )
        assert LEAST < power <= exact + 0.05
