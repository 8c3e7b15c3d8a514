"""Every method covers what it promises, under every trust model that answers it, whatever the scores are.

Each run draws the scores of a federation from a known distribution, finds a threshold as the task does, and looks up
the exact coverage U of that threshold in the distribution: the mean of U over the runs has a small error although the
runs are few. A method that keeps its promise fails one of these tests with a probability of at most ERROR, were the
seeds not fixed: each comparison gets an equal part of it, by the normal approximation of the mean. What is promised on
average is judged by the mean of U; what is promised with a confidence, by how often U reaches the level. Methods with
one step left out are rejected.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom, norm

from conformal_cases import (
    ABOUT_60,
    CONTINUOUS,
    EQUAL,
    GAP,
    LEVEL,
    ONE_ROW,
    RANGE,
    TIED,
    UNEQUAL,
    Case,
    Scores,
    coverages,
    covered,
    share_public_numbers,
    thresholds,
)
from conformal_drive import answer, setting_of
from fedassay.estimation.coverage import best_pair
from fedassay.protocol.vocabulary import Select, TrustModel
from fedassay.summaries.local_quantiles import QuantileLosses
from fedassay.tasks.conformal import local_thresholds
from fedassay.tasks.distribution.curve import curve_of
from fedassay.tasks.distribution.stored import Release
from fedassay.trust import DistributedDP, LocalDP, Plain, SecureSum, ServerDP, Shuffle, TwoServer
from stated import Verify

ERROR = 1e-4

CASES = (
    *(
        Case(method=method, rows=rows, bins=1024)
        for method in ("qq", "qq-paper", "pooled")
        for rows in (EQUAL, UNEQUAL)
    ),
    *(
        Case(method=method, trust=SecureSum(), rows=rows, bins=1024)
        for method in ("qq", "pooled")
        for rows in (EQUAL, UNEQUAL)
    ),
    *(Case(method="qq", trust=trust, rows=UNEQUAL, lost=3, bins=1024) for trust in (Plain(), SecureSum())),
    Case(method="pooled", trust=SecureSum(), lost=2, bins=1024),
    Case(method="pooled", trust=ServerDP(), epsilon=1.0, runs=100),
    Case(method="pooled", trust=ServerDP(), epsilon=1.0, delta=1e-6, rows=UNEQUAL, runs=100),
    Case(method="pooled", trust=DistributedDP(), epsilon=1.0, runs=100),
    Case(method="pooled", trust=DistributedDP(), epsilon=1.0, delta=1e-6, rows=UNEQUAL, runs=100),
    Case(method="pooled", trust=TwoServer(), epsilon=2.0, rows_per_client=100, runs=100),
    Case(method="pooled", trust=LocalDP(), epsilon=4.0, runs=100),
    Case(method="pooled", trust=LocalDP(), epsilon=4.0, **ONE_ROW),
    Case(method="pooled", trust=Shuffle(), epsilon=1.0, delta=1e-6, **ONE_ROW),
    Case(method="qq", trust=LocalDP(), epsilon=2.0, rows_per_client=100, runs=200),
    Case(method="qq", trust=LocalDP(), epsilon=5.0, rows=ABOUT_60, rows_per_client=60, runs=200),
    Case(method="qq", trust=LocalDP(), epsilon=5.0, rows_per_client=100, lost=1, runs=200),
    Case(method="qq-paper", trust=LocalDP(), epsilon=5.0, rows_per_client=100, runs=200),
    Case(method="qq", trust=Shuffle(), epsilon=2.0, rows_per_client=100, runs=200),
)
CONFIDENT = (
    Case(method="qq", confidence=0.9, rows=UNEQUAL),
    Case(method="pooled", confidence=0.9, bins=1024),
    Case(method="pooled", confidence=0.9, trust=ServerDP(), epsilon=1.0, runs=50),
    Case(method="qq", confidence=0.9, trust=LocalDP(), epsilon=2.0, rows_per_client=100, runs=200),
)
COMPARISONS = 3 * len(CASES) + 4 * len(CONFIDENT) + 40
Z = float(norm.isf(ERROR / COMPARISONS))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    share_public_numbers(monkeypatch)


def falls_short(values: np.ndarray, level: float = LEVEL) -> bool:
    """Whether their mean is below the level by more than chance explains."""
    return bool(values.mean() + Z * values.std(ddof=1) / math.sqrt(len(values)) < level)


def too_rarely(values: np.ndarray, confidence: float) -> bool:
    return bool((values >= LEVEL - 1e-12).sum() < binom.ppf(ERROR / COMPARISONS, len(values), confidence))


# --- what is promised -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("case", "scores"),
    [
        *((case, CONTINUOUS) for case in CASES),
        *((case, TIED) for case in CASES if case.epsilon is None),  # with noise: thousands of them below
    ],
    ids=str,
)
def test_new_rows_are_covered(case: Case, scores: Scores) -> None:
    found = coverages(case, scores)
    assert not falls_short(found)
    assert (found < 1).mean() > 0.5  # not because the sets hold everything


@pytest.mark.parametrize("case", [case for case in CASES if case.epsilon is not None], ids=str)
def test_noise_is_no_excuse_where_scores_make_it_worst(case: Case) -> None:
    assert not falls_short(coverages(case, GAP))


@pytest.mark.parametrize("scores", [CONTINUOUS, pytest.param(TIED, marks=pytest.mark.full)], ids=str)
@pytest.mark.parametrize("case", CONFIDENT, ids=str)
def test_the_level_is_reached_as_often_as_promised(case: Case, scores: Scores) -> None:
    found = coverages(case, scores)
    assert case.confidence is not None
    assert not too_rarely(found, case.confidence)
    assert not falls_short(found)
    marginal = replace(case, confidence=None)
    if scores is CONTINUOUS and case.trust.name == "plain":
        assert too_rarely(coverages(marginal, scores), case.confidence)


def agrees(case: Case, *, runs: int) -> tuple[float, float, float, float]:
    """Mean and standard deviation of U, in standard errors from those of the law, and the two themselves."""
    found = list(thresholds(case, CONTINUOUS, runs=runs))
    law, values = found[0].law, np.array([covered(one, CONTINUOUS) for one in found])
    assert law is not None
    assert found[0].exact
    deviation = values.std(ddof=1)
    fourth = float(((values - values.mean()) ** 4).mean()) / deviation**4
    of_mean = (values.mean() - law.mean) / (law.standard_deviation / math.sqrt(runs))
    of_deviation = (deviation / law.standard_deviation - 1) / math.sqrt((fourth - 1) / (4 * runs))
    return of_mean, of_deviation, float(values.mean()), float(deviation)


@pytest.mark.parametrize("method", ["qq", "qq-paper"])
@pytest.mark.parametrize("rows", [EQUAL, UNEQUAL], ids=["equal", "unequal"])
def test_in_the_clear_the_law_is_the_one_that_is_stated(method: str, rows: tuple[int, ...]) -> None:
    of_mean, of_deviation, _, _ = agrees(Case(method=method, rows=rows), runs=600)
    assert abs(of_mean) < Z
    assert abs(of_deviation) < Z


# --- methods with a step left out are rejected ----------------------------------------------------------


@pytest.mark.parametrize("trust", [Plain(), SecureSum()], ids=lambda trust: trust.name)
@pytest.mark.parametrize("rows", [EQUAL, UNEQUAL], ids=["equal", "unequal"])
def test_a_server_rank_one_too_small_is_rejected(
    trust: TrustModel, rows: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    right = local_thresholds.best_server_rank

    def wrong(*args: Any, **named: Any) -> Any:
        law = right(*args, **named)
        return replace(law, server_rank=law.server_rank - 1)

    monkeypatch.setattr(local_thresholds, "best_server_rank", wrong)
    assert falls_short(coverages(Case(method="qq", trust=trust, rows=rows, bins=1024), CONTINUOUS))


NOISY = [
    replace(case, epsilon=case.epsilon / 4, bins=None, runs=100)
    for case in CASES
    if case.method == "pooled" and case.epsilon is not None
]


@pytest.mark.parametrize("case", NOISY, ids=str)
def test_a_quantile_read_off_naively_is_rejected(case: Case) -> None:
    """No margin, and the first point where the curve crosses the level instead of the last."""
    rng, values = np.random.default_rng(5), []
    task, setting = case.task, case.setting
    for run in range(case.runs):
        query = next(task.steps(setting))
        released = answer(query, setting, case.federation(GAP, rng), run)
        release = Release.of(released.value, released.noise)
        curve = curve_of(release.summary.grid, release.sums[0], release.fit, release.noise)
        crossing = int(np.argmax(curve.sums[1:] >= LEVEL * curve.rows))
        values.append(GAP.share_up_to(float(curve.grid.thresholds[crossing])))
    assert falls_short(np.array(values))


@pytest.mark.parametrize("epsilon", [0.5, 1.0])
def test_private_choices_with_the_ranks_of_exact_ones_are_rejected(epsilon: float) -> None:
    rng, pair = np.random.default_rng(6), best_pair(10, 100, LEVEL)
    setting = setting_of(LocalDP(), clients=10, epsilon=epsilon, rows_per_client=100)
    lower, upper = RANGE
    losses = QuantileLosses(
        quantity="conformity", rows=100, lower=lower, upper=upper, points=100, target=pair.local_rank
    )
    values = []
    for run in range(300):
        clients = [{"conformity": GAP.draw(rng, 100)} for _ in range(10)]
        chosen = sorted(answer(Select(of=losses), setting, clients, run).value)[pair.server_rank - 1]
        values.append(GAP.share_up_to(chosen))
    assert falls_short(np.array(values))


# --- the stated numbers ---------------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize("scores", [CONTINUOUS, TIED], ids=str)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_coverage_over_thousands_of_federations(case: Case, scores: Scores, verify: Verify) -> None:
    found = coverages(case, scores, runs=5000 if case.epsilon is None else 2000, seed=10**6)
    error = found.std(ddof=1) / math.sqrt(len(found))
    verify(
        f"conformal sets cover at least {LEVEL:g} ({case}, {scores} scores)",
        f"{found.mean():.4f} ± {error:.4f} over {len(found):,} federations",
    )
    assert not falls_short(found)


@pytest.mark.full
@pytest.mark.parametrize("case", CONFIDENT, ids=str)
def test_confidence_over_thousands_of_federations(case: Case, verify: Verify) -> None:
    found = coverages(case, CONTINUOUS, runs=2000 if case.epsilon is None else 500, seed=10**6)
    verify(
        f"coverage reaches {LEVEL:g} with a probability of at least {case.confidence:g} ({case})",
        f"{(found >= LEVEL).mean():.3f} of {len(found):,} federations",
    )
    assert not too_rarely(found, case.confidence or 0.0)


@pytest.mark.full
@pytest.mark.parametrize("method", ["qq", "qq-paper"])
@pytest.mark.parametrize("rows", [EQUAL, UNEQUAL], ids=["equal", "unequal"])
def test_mean_and_spread_of_the_stated_law(method: str, rows: tuple[int, ...], verify: Verify) -> None:
    case = Case(method=method, rows=rows)
    of_mean, of_deviation, mean, deviation = agrees(case, runs=5000)
    law = next(thresholds(case, CONTINUOUS, runs=1)).law
    assert law is not None
    verify(
        f"mean and standard deviation of coverage are those of the stated law ({case})",
        f"{mean:.5f} and {deviation:.5f}, stated {law.mean:.5f} and {law.standard_deviation:.5f}",
    )
    assert abs(of_mean) < Z
    assert abs(of_deviation) < Z
