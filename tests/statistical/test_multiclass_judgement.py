"""The judgement of a multiclass calibrator keeps its word: intervals of changes cover, bad calibrators do not pass.

Coverage of 95 % intervals: at least 93 % and at most 97 %, with and without noise; intervals half as wide, and under
noise those that forget it, are rejected. Verdicts: a calibrator that loses 3 % accuracy is not recommended in any run,
one that lowers no expected loss in at most 5 % (7 % under noise, as intervals are normal and noise need not be); with
intervals half as wide it would be in more.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pytest
from scipy.special import softmax

from conformal_drive import answer, setting_of
from fedassay.estimation.metric import Metric
from fedassay.protocol.vocabulary import NO_NOISE, Released, Setting, Unit
from fedassay.summaries.multiclass.scaling_maps import LogitMap, Temperature, VectorScaling
from fedassay.tasks.calibration.multiclass.held_out_judge import (
    BRIER_BOUND,
    LOSS_BOUND,
    Judging,
    Paired,
    verdict,
)
from fedassay.trust.server_dp import ServerDP
from hit_counts import LEAST, MOST, too_high, too_low
from softmax_rows import SoftmaxPopulation
from stated import Verify

_INTEGRAL = 200_000


@dataclass(frozen=True)
class Case:
    """A population of rows, a map, and how many rows are held out, under which noise."""

    name: str
    population: SoftmaxPopulation
    map: LogitMap
    rows: int
    privacy: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.name

    @property
    def setting(self) -> Setting:
        return setting_of(ServerDP(), **self.privacy) if self.privacy else setting_of(clients=10)

    @cached_property
    def truth(self) -> dict[str, float]:
        """Expected changes: classes are integrated out, so that only logits are drawn."""
        return expected(self.population, self.map, bounded=bool(self.privacy))


def expected(population: SoftmaxPopulation, one: LogitMap, *, bounded: bool = False) -> dict[str, float]:
    z, _ = population.sample(_INTEGRAL, np.random.default_rng(99))
    chance = softmax(z / population.stretch, axis=1)
    p, q = softmax(z, axis=1), one.predict_proba(z)
    # Σ_j (p_j - 1[j=y])² = |p|² - 2 p_y + 1, for every y that the row could have.
    loss = np.log(p / q)
    brier = (q**2).sum(axis=1, keepdims=True) - (p**2).sum(axis=1, keepdims=True) - 2 * (q - p)
    if bounded:
        loss, brier = np.clip(loss, -LOSS_BOUND, LOSS_BOUND), np.clip(brier, -BRIER_BOUND, BRIER_BOUND)
    at = np.arange(len(z))
    return {
        "log_loss": float((chance * loss).sum(axis=1).mean()),
        "brier_score": float((chance * brier).sum(axis=1).mean()),
        "accuracy": float((chance[at, q.argmax(axis=1)] - chance[at, p.argmax(axis=1)]).mean()),
    }


CALIBRATED = SoftmaxPopulation(classes=4)
CONFIDENT = SoftmaxPopulation(classes=4, stretch=2.0, favour=0.5)
TIMID = SoftmaxPopulation(classes=10, spread=4.0, stretch=0.8)
SOFTER = Temperature(inverse_temperature=0.6, classes=4)
TILTED = VectorScaling(slopes=(0.7, 0.6, 0.6, 0.6), intercepts=(0.3, -0.2, 0.2, 0.0))
EXAMPLES = {"clients": 2000, "epsilon": 0.5, "delta": 1e-6}
PURE = {"clients": 2000, "epsilon": 0.25}
CLIENTS = {"clients": 1000, "epsilon": 1.0, "delta": 1e-6, "unit": Unit.CLIENT, "rows_per_client": 3}


JUST_AS_GOOD = Temperature(inverse_temperature=1.6058, classes=10)
"""For `TIMID`: too sharp by so much that the Brier score is what it was, and the log loss is not smaller."""

COVERED = (
    Case("softer", CONFIDENT, SOFTER, 300),
    Case("too sharp, skewed", TIMID, Temperature(inverse_temperature=1.8, classes=10), 300),
    Case("tilted", CONFIDENT, TILTED, 300),
    Case("examples, noise", CONFIDENT, TILTED, 2_000, EXAMPLES),
    Case("examples, pure noise", CONFIDENT, SOFTER, 2_000, PURE),
    Case("clients, noise", CONFIDENT, SOFTER, 3_000, CLIENTS),
)

Changes = dict[str, Metric]
METRICS = ("log_loss", "brier_score", "accuracy")


def released(case: Case, seed: int) -> Released[Any]:
    z, y = case.population.sample(case.rows, np.random.default_rng([seed, 5]))
    query = Judging(map=case.map).queries(case.setting)[0]
    return answer(query, case.setting, [{"logits": z, "class": y}], seed)


def changes(paired: Paired) -> Changes:
    return paired.differences(level=0.95)


def half_as_wide(metric: Metric) -> Metric:
    if metric.value is None or metric.interval is None:
        return metric
    low, high = metric.interval
    return replace(metric, interval=((low + metric.value) / 2, (high + metric.value) / 2))


# --- intervals ------------------------------------------------------------------------------------------


def coverage(case: Case, runs: int) -> dict[str, dict[str, list[bool]]]:
    """Whether each interval covered, as it is, half as wide, and with the noise forgotten."""
    names = [name for name in METRICS if not (name == "accuracy" and case.map.keeps_order)]
    hits: dict[str, dict[str, list[bool]]] = {
        how: {name: [] for name in names} for how in ("stated", "halved", "forgetful")
    }
    for run in range(runs):
        one = released(case, run)
        stated = changes(Paired(totals=one.value, noise=one.noise))
        forgetful = changes(Paired(totals=one.value, noise=NO_NOISE))
        for name in names:
            for how, metric in (
                ("stated", stated[name]),
                ("halved", half_as_wide(stated[name])),
                ("forgetful", forgetful[name]),
            ):
                assert metric.interval is not None, metric.reason
                hits[how][name].append(metric.interval[0] <= case.truth[name] <= metric.interval[1])
    return hits


@pytest.mark.parametrize("case", COVERED, ids=str)
def test_intervals_of_changes_cover(case: Case) -> None:
    hits = coverage(case, runs=250)
    comparisons = 2 * len(hits["stated"])
    for name, found in hits["stated"].items():
        assert not too_low(found, comparisons), (name, np.mean(found))
        assert not too_high(found, comparisons), (name, np.mean(found))
        assert too_low(hits["halved"][name], comparisons), "intervals half as wide must be rejected"
        if case.privacy:
            assert too_low(hits["forgetful"][name], comparisons), "forgetting the noise must be rejected"


# --- verdicts -------------------------------------------------------------------------------------------


def careless(differences: Changes, paired: Paired) -> bool:
    """A broken verdict: accuracy does not matter."""
    return verdict(
        {**differences, "accuracy": replace(differences["accuracy"], value=0.0, interval=(0.0, 0.0))}, paired
    ).recommended


LOSING = VectorScaling(slopes=(0.55, 0.5, 0.5, 0.5), intercepts=(0.7, 0.0, 0.0, -0.3))


@pytest.mark.parametrize("privacy", [{}, {**EXAMPLES, "epsilon": 2.0}], ids=["exact", "noise"])
def test_a_calibrator_that_loses_accuracy_is_never_recommended(privacy: dict[str, Any]) -> None:
    """That its estimated fall is below 1 % takes 4.5 standard errors or more: 3.4e-6 in a run, 2e-4 in one of 60."""
    case = Case("losing", CONFIDENT, LOSING, 10_000, privacy)
    assert case.truth["accuracy"] == pytest.approx(-0.03, abs=0.003)
    assert case.truth["log_loss"] < -0.03
    paired = [Paired(totals=one.value, noise=one.noise) for one in (released(case, run) for run in range(60))]
    found = [changes(one) for one in paired]
    if not privacy:  # under noise the whole interval must be above -1 %, which is less probable still
        assert (-0.01 - case.truth["accuracy"]) / max(one["accuracy"].sampling for one in found) > 4.5
    assert not any(verdict(one, seen).recommended for one, seen in zip(found, paired, strict=True))
    let_through = [careless(one, seen) for one, seen in zip(found, paired, strict=True)]
    assert np.mean(let_through) > 0.9, "if accuracy did not matter it would be recommended"


def jitter(classes: int, seed: int) -> VectorScaling:
    """The identity, and a little of everything."""
    rng = np.random.default_rng(seed)
    slopes, intercepts = 1 + 0.01 * rng.normal(size=classes), 0.02 * rng.normal(size=classes)
    return VectorScaling(slopes=tuple(slopes.tolist()), intercepts=tuple(intercepts.tolist()))


USELESS = (
    Case("jitter", CALIBRATED, jitter(4, 0), 300),
    Case("just as good, skewed", TIMID, JUST_AS_GOOD, 300),
    Case("just as good, noise", TIMID, JUST_AS_GOOD, 2_000, EXAMPLES),
    Case("just as good, pure noise", TIMID, JUST_AS_GOOD, 2_000, PURE),
)


def rates(case: Case, runs: int) -> tuple[list[bool], list[bool]]:
    """How often it is recommended, and would be with intervals half as wide."""
    stated, halved = [], []
    for run in range(runs):
        one = released(case, run)
        paired = Paired(totals=one.value, noise=one.noise)
        found = changes(paired)
        stated.append(verdict(found, paired).recommended)
        halved.append(
            verdict({name: half_as_wide(metric) for name, metric in found.items()}, paired).recommended
        )
    return stated, halved


def largest_rate(case: Case) -> float:
    return 0.07 if case.privacy else 0.05


@pytest.mark.parametrize("case", USELESS, ids=str)
def test_a_useless_calibrator_is_hardly_ever_recommended(case: Case) -> None:
    assert -1e-5 < min(case.truth["log_loss"], case.truth["brier_score"]) < 1e-3
    stated, halved = rates(case, runs=200)
    assert not too_high(stated, 1, largest_rate(case)), np.mean(stated)
    assert too_high(halved, 1, largest_rate(case)), "with intervals half as wide it must be noticed"


@pytest.mark.full
@pytest.mark.parametrize("case", COVERED, ids=str)
def test_stated_coverage_of_changes(case: Case, verify: Verify) -> None:
    hits = coverage(case, runs=3_000)["stated"]
    shares = {name: float(np.mean(found)) for name, found in hits.items()}
    verify(
        f"95 % intervals of what a calibrator changes, {case.name}: 93 % to 97 %",
        ", ".join(f"{name} {share:.1%}" for name, share in shares.items()),
    )
    assert all(LEAST <= share <= MOST for share in shares.values())


@pytest.mark.full
@pytest.mark.parametrize("case", USELESS, ids=str)
def test_stated_rate_of_useless_calibrators(case: Case, verify: Verify) -> None:
    stated, _ = rates(case, runs=3_000)
    verify(
        f"a calibrator that lowers no loss, {case.name}: recommended in at most {largest_rate(case):.0%}",
        f"{np.mean(stated):.1%} of 3,000 runs",
    )
    assert np.mean(stated) <= largest_rate(case)
