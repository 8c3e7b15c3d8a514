"""The plan of prediction sets: predictions against simulated federations, the inverse question, and the command."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from fedassay.cli import run_command
from fedassay.errors import UnsupportedQuery, UsageError
from fedassay.estimation.coverage import CoverageLaw, best_pair
from fedassay.planning import PlannedRelease, Size, plan_conformal
from fedassay.planning.predicted_coverage import what_is_enough
from fedassay.planning.rehearsed import Rehearsed, rehearse
from fedassay.privacy.randomness import SimulatedRandomness
from fedassay.protocol import Budget, Protection, Select, Sum, TrustModel
from fedassay.summaries.quantile_losses import QuantileLosses
from fedassay.summaries.values import ValueSummary
from fedassay.tasks.conformal import Conformal
from fedassay.tasks.conformal.accuracy import CHOICE_DRAWS, POOLED_DRAWS
from fedassay.trust import DistributedDP, LocalDP, Plain, SecureSum, ServerDP

LEVEL = 0.9
Floats = Any


def planned(
    trust: TrustModel | None = None,
    *,
    clients: int = 10,
    rows: int = 100,
    epsilon: float | None = None,
    protection: Protection | None = None,
) -> PlannedRelease:
    """So many clients with so many rows each."""
    return PlannedRelease(
        expectation=Size(rows=clients * rows, clients=clients),
        trust=Plain() if trust is None else trust,
        budget=None if epsilon is None else Budget(epsilon=epsilon),
        protection=Protection() if protection is None else protection,
    )


# --- predictions against simulations ----------------------------------------------------------------------


def sorted_scores(rng: np.random.Generator, draws: int, clients: int, rows: int) -> Floats:
    return np.sort(rng.random((draws, clients, rows)), axis=2)


def quantile_of_quantiles(plan: Rehearsed, rng: np.random.Generator, draws: int) -> Floats:
    assert plan.found.pair is not None
    local, server = plan.found.pair
    scores = sorted_scores(rng, draws, plan.clients, plan.rows)
    return np.sort(scores[:, :, local - 1], axis=1)[:, server - 1]


def pooled(plan: Rehearsed, rng: np.random.Generator, draws: int) -> Floats:
    rank = round(plan.found.details["rank"])
    return np.sort(rng.random((draws, plan.clients * plan.rows)), axis=1)[:, rank - 1]


def split_quantiles(plan: Rehearsed, rng: np.random.Generator, draws: int) -> Floats:
    return sorted_scores(rng, draws, plan.clients, plan.rows)[:, :, math.ceil(LEVEL * (plan.rows + 1)) - 1]


def average(plan: Rehearsed, rng: np.random.Generator, draws: int) -> Floats:
    return split_quantiles(plan, rng, draws).mean(axis=1)


def local(plan: Rehearsed, rng: np.random.Generator, draws: int) -> Floats:
    return split_quantiles(plan, rng, draws)[:, 0]


def private_choices(plan: Rehearsed, rng: np.random.Generator, draws: int) -> Floats:
    """Every client's losses, one by one, and a choice by the Gumbel trick."""
    assert isinstance(plan.query, Select)
    losses: QuantileLosses = plan.query.of
    shares = np.append(np.linspace(0, 1, losses.points - 1), 1.0)
    found = np.empty(draws)
    for draw in range(draws):
        chosen = []
        for _ in range(plan.clients):
            scores = rng.random(losses.rows)
            up_to = np.searchsorted(np.sort(scores), losses.candidates, side="right")
            before = np.concatenate([[0], up_to[:-1]])
            loss = losses.below * np.maximum(0, losses.target - up_to)
            loss = loss + losses.above * np.maximum(0, before - losses.target + 1)
            chosen.append(shares[np.argmax(rng.gumbel(size=losses.points) - loss / plan.noise.scale)])
        found[draw] = np.sort(chosen)[plan.found.details["server_rank"] - 1]
    return found


def noisy_pooled(plan: Rehearsed, rng: np.random.Generator, draws: int) -> Floats:
    """Totals that the trust model itself makes noisy, read by the rule of the last point below the margin."""
    assert plan.query is not None
    summary: ValueSummary = plan.query.of
    rows, randomness = plan.clients * plan.rows, SimulatedRandomness(11)
    setting = planned(ServerDP(), clients=plan.clients, rows=plan.rows, epsilon=1.0).setting
    ready = setting.trust.plan(Sum(of=summary), setting)
    edges = summary.grid.thresholds
    found = np.empty(draws)
    for draw in range(draws):
        counts = np.bincount(summary.grid.locate(rng.random(rows)), minlength=summary.points)
        (released,) = setting.trust.aggregate(
            [ready], [summary.from_leaves(counts)], plan.clients, randomness.child(str(draw))
        )
        sums = summary.read(released.value).sums(plan.noise)
        below = np.flatnonzero(sums[0][1:] - LEVEL * sums[0][-1] < plan.found.details["margin"])
        found[draw] = min(1.0, edges[min(below[-1] + 1, len(edges) - 1)])
    return found


OWN_DRAWS = {"choices": CHOICE_DRAWS, "noise": POOLED_DRAWS}
"""Predictions that are simulations themselves."""

CASES: dict[str, tuple[PlannedRelease, str, Any, int]] = {
    "qq": (planned(), "qq", quantile_of_quantiles, 4000),
    "qq-paper": (planned(clients=20, rows=30), "qq-paper", quantile_of_quantiles, 4000),
    "votes": (planned(SecureSum()), "qq", quantile_of_quantiles, 4000),
    "pooled": (planned(SecureSum()), "auto", pooled, 4000),
    "weighted": (planned(SecureSum()), "weighted", pooled, 4000),
    "average": (planned(), "average", average, 4000),
    "local": (planned(), "local", local, 4000),
    "choices": (
        planned(LocalDP(), epsilon=3.0, protection=Protection(rows_per_client=100)),
        "qq",
        private_choices,
        1500,
    ),
    "noise": (planned(ServerDP(), epsilon=1.0), "pooled", noisy_pooled, 400),
}


@pytest.mark.parametrize("name", CASES)
def test_predicted_coverage_is_that_of_simulated_federations(name: str) -> None:
    """The mean within 4.5 standard errors, the standard deviation within 10 % and four of its own.

    Errors are those of the simulation, and of the prediction where it is one too; that of a standard deviation is about
    σ/√(2n). For 18 comparisons that is less than 1 in 1,000, with fixed seeds. A plan whose mean is half a standard
    deviation away, or whose spread is by half, is rejected.
    """
    study, method, simulated, draws = CASES[name]
    plan = rehearse(Conformal(method=method, level=LEVEL), study)
    expected = plan.expected
    assert expected is not None
    seen = simulated(plan, np.random.default_rng(5), draws)
    error = math.sqrt(1 / draws + 1 / OWN_DRAWS.get(name, math.inf))

    def agrees(mean: float, deviation: float) -> bool:
        near = abs(seen.mean() - mean) < 4.5 * error * seen.std(ddof=1)
        room = 1.1 * (1 + 4 * error / math.sqrt(2))
        return bool(near and 1 / room < seen.std(ddof=1) / deviation < room)

    assert agrees(*expected)
    assert not agrees(expected.mean + 0.5 * expected.standard_deviation, expected.standard_deviation)
    assert not agrees(expected.mean, 1.5 * expected.standard_deviation)
    assert not agrees(expected.mean, expected.standard_deviation / 1.5)


@pytest.mark.parametrize("name", ["choices", "noise"])
def test_what_is_guaranteed_under_noise_lies_below_what_is_expected(name: str) -> None:
    study, method, _, _ = CASES[name]
    plan = rehearse(Conformal(method=method, level=LEVEL), study)
    assert plan.expected is not None
    assert plan.law is not None
    assert LEVEL <= plan.law.mean + 1e-6 < plan.expected.mean


# --- what the plan says -----------------------------------------------------------------------------------


def test_ranks_law_and_other_ways_without_privacy() -> None:
    plan = plan_conformal(planned())
    assert plan.predicted.rehearsed is not None
    assert plan.predicted.rehearsed.found.pair == (92, 4) == best_pair(10, 100, LEVEL).pair
    assert plan.beside["pooled"] == CoverageLaw(clients=1, rows=1000, local_rank=901, server_rank=1)
    assert plan.beside["alone"] == CoverageLaw(clients=1, rows=100, local_rank=91, server_rank=1)
    assert plan.beside["confident"] == best_pair(10, 100, LEVEL, confidence=0.9)
    assert plan.verdict == "Enough data for everything."
    law = best_pair(10, 100, LEVEL)
    assert plan.predicted.width("shortfall") == pytest.approx(LEVEL - law.quantile(0.1))
    assert plan.predicted.width("excess") == pytest.approx(law.mean - LEVEL)


def test_with_confidence_nothing_falls_short() -> None:
    plan = plan_conformal(planned(), task=Conformal(guarantee="training-conditional", confidence=0.95))
    law = best_pair(10, 100, LEVEL, confidence=0.95)
    document = plan.to_dict()
    assert document["pair"] == list(law.pair)
    assert document["guarantee"]["probability"] >= 0.95
    assert document["widths"]["shortfall"] <= 0
    assert document["beside"]["marginal"]["pair"] == [92, 4]
    assert document["rows_needed"] == {"marginal": 9, "training-conditional": 29}


def test_private_choices_are_planned_with_the_rows_that_clients_have() -> None:
    plan = plan_conformal(planned(LocalDP(), clients=20, rows=110, epsilon=2.0))
    document = plan.to_dict()
    assert document["assumptions"]["rows_per_client"] == 110
    assert any("--rows-per-client 110" in warning for warning in plan.warnings)
    assert document["details"]["candidates"] == 100
    assert document["coverage_law"]["exact"] is False
    assert document["coverage_law"]["mean"] >= LEVEL
    assert document["expected"]["mean"] > document["coverage_law"]["mean"]
    assert document["beside"]["without noise"]["pair"] == list(best_pair(20, 110, LEVEL).pair)
    fewer = planned(LocalDP(), clients=20, rows=110, epsilon=2.0, protection=Protection(rows_per_client=120))
    assert any("count as 120" in warning for warning in plan_conformal(fewer).warnings)


def test_where_choices_are_impossible_it_says_what_would_do() -> None:
    """And what it says is so: with one row less, or a little less epsilon, there would be no finite set."""
    bound = Protection(rows_per_client=25)
    plan = plan_conformal(planned(LocalDP(), clients=20, rows=25, epsilon=0.1, protection=bound))
    assert not plan.predicted.finite
    reason = plan.predicted.reason or ""
    needed = int(reason.split("at least ")[1].split(" rows")[0])
    epsilon = float(reason.split("or ε = ")[1].split(" ")[0])
    assert plan.verdict.startswith("Not enough data: every set will hold everything. Coverage 0.9 at ε = 0.1")
    assert plan.to_dict()["infinite"] is True

    def finite(rows: int, strength: float) -> bool:
        other = planned(
            LocalDP(), clients=20, rows=rows, epsilon=strength, protection=Protection(rows_per_client=rows)
        )
        return not rehearse(Conformal(), other).trivial

    assert finite(needed, 0.1)
    assert not finite(needed - 1, 0.1)
    assert finite(25, epsilon)
    assert not finite(25, 0.98 * epsilon)


def test_noise_of_sums_costs_a_margin() -> None:
    document = plan_conformal(planned(DistributedDP(), rows=1000, epsilon=1.0)).to_dict()
    assert document["method"] == "pooled"
    assert document["details"]["margin"] > 1
    assert document["details"]["noise"]["scale"] > 0
    assert document["pair"] is None
    assert set(document["beside"]) == {"pooled", "alone"}
    larger = plan_conformal(planned(DistributedDP(), rows=1000, epsilon=0.5)).to_dict()
    assert larger["details"]["margin"] > 1.5 * document["details"]["margin"]


def test_too_few_rows_are_an_answer() -> None:
    plan = plan_conformal(planned(clients=4, rows=2))
    assert not plan.predicted.finite
    document = json.loads(json.dumps(plan.to_dict(), allow_nan=False))
    assert document["infinite"] is True
    assert document["beside"]["pooled"]["mean"] is None
    assert "expected at least 9 rows" in document["beside"]["pooled"]["reason"]
    assert document["verdicts"] == dict.fromkeys(("spread", "excess", "shortfall"), "not enough")


def test_methods_that_promise_less_are_judged_by_less() -> None:
    average = plan_conformal(planned(), task=Conformal(method="average"))
    assert average.to_dict()["guarantee"]["kind"] == "none"
    assert set(average.verdicts) == {"spread", "excess"}
    weighted = plan_conformal(planned(SecureSum()), task=Conformal(method="weighted"))
    assert set(weighted.verdicts) == {"spread", "excess"}
    with pytest.raises(UsageError, match="target shortfall: nothing is known about it"):
        plan_conformal(planned(), task=Conformal(method="average"), targets={"shortfall": 0.1})
    alone = plan_conformal(planned(), task=Conformal(method="local"))
    assert alone.predicted.width("shortfall") == pytest.approx(LEVEL - best_pair(1, 100, LEVEL).quantile(0.1))


def test_what_a_trust_model_cannot_do_is_refused() -> None:
    with pytest.raises(UnsupportedQuery, match="average: it needs the quantile of each client"):
        plan_conformal(planned(SecureSum()), task=Conformal(method="average"))


def test_rows_that_cannot_be_equal_are_said() -> None:
    size = Size(rows=1005, clients=10)
    plan = plan_conformal(PlannedRelease(expectation=size, trust=Plain()))
    assert "10 clients cannot have equally many of 1,005 rows: planned with 100." in plan.warnings


# --- what would be enough ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "target"), [("spread", 0.006), ("shortfall", 0.01), ("excess", 0.001)])
def test_what_is_enough_is_enough_and_less_is_not(name: str, target: float) -> None:
    task = Conformal()
    enough = what_is_enough(planned(), task, name, target)
    assert (enough.epsilon.value, enough.rows.value is None) == (None, False)
    assert "epsilon plays no part" in (enough.epsilon.reason or "")

    def width(clients: int, rows: int) -> float:
        found = plan_conformal(planned(clients=clients, rows=rows)).predicted.width(name)
        assert found is not None
        return found

    assert enough.rows.clients is not None
    assert enough.rows_per_client.value is not None
    assert width(enough.rows.clients, 100) <= target
    assert width(10, int(enough.rows_per_client.value)) <= target
    fewer = enough.rows.clients - max(1, enough.rows.clients // 50)
    less = int(enough.rows_per_client.value - max(1, enough.rows_per_client.value // 50))
    if name != "excess":  # which goes up and down
        assert width(fewer, 100) > target
        assert width(10, less) > target


def test_clients_do_not_help_one_that_is_alone() -> None:
    enough = what_is_enough(planned(), Conformal(method="local"), "spread", 0.02)
    assert enough.rows.value is None
    assert "no number of such clients" in (enough.rows.reason or "")
    assert enough.rows_per_client.value == pytest.approx(222, rel=0.03)


@pytest.mark.full
def test_an_epsilon_that_is_enough_for_finite_sets() -> None:
    plan = plan_conformal(planned(DistributedDP(), epsilon=0.1))
    assert not plan.predicted.finite
    (enough,) = plan.inverse
    assert enough.metric == "finite"
    assert enough.epsilon.value is not None
    assert (
        rehearse(Conformal(), planned(DistributedDP(), epsilon=enough.epsilon.value)).found.infinite is False
    )
    assert rehearse(Conformal(), planned(DistributedDP(), epsilon=0.95 * enough.epsilon.value)).found.infinite


# --- the command ------------------------------------------------------------------------------------------


def call(capsys: Any, *arguments: object) -> tuple[int, str, str]:
    code = run_command(["plan", "conformal", *(str(argument) for argument in arguments)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


DATA = ["--rows", 1000, "--clients", 10]
IN_THE_CLEAR = ["--privacy", "plain"]


def test_the_command_in_words(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    code, out, err = call(capsys, *DATA, *IN_THE_CLEAR, "--target", "spread=0.006")
    assert (code, err) == (0, "")
    assert "1,000 rows at 10 clients, 100 each; plain. Clients are taken to have equally many rows." in out
    for words in ("qq (planned)", "92, 4", "0.9023", "all rows in one place", "one client alone", "0.593"):
        assert words in out
    assert "For spread within 0.006: plain adds no noise" in out
    assert "rows at each client" in out
    assert "…" not in out
    assert out.strip().splitlines()[-1] == "Enough data for excess and shortfall; not enough data for spread."


def test_the_command_in_words_under_privacy(capsys: Any) -> None:
    code, out, _ = call(capsys, "--rows", 2200, "--clients", 20, "--privacy", "local-dp", "--epsilon", 2)
    assert code == 0
    for words in ("to expect", "qq without privacy", "Each client chooses one of 100 points", "≥ 0.90"):
        assert words in out
    code, out, _ = call(capsys, "--rows", 500, "--clients", 20, "--privacy", "local-dp", "--epsilon", 0.1)
    assert code == 0
    assert "Not enough data: every set will hold everything." in out


def test_the_command_as_json(capsys: Any) -> None:
    code, out, _ = call(capsys, *DATA, *IN_THE_CLEAR, "--json", "-", "--quiet", "--level", 0.8)
    assert code == 0
    plan = json.loads(out)
    assert set(plan) == {
        *(
            "plan",
            "assumptions",
            "parameters",
            "verdict",
            "verdicts",
            "targets",
            "method",
            "guarantee",
            "pair",
        ),
        *("coverage_law", "infinite", "details", "expected", "widths", "beside", "rows_needed", "inverse"),
        "warnings",
    }
    assert plan["plan"] == "conformal"
    assert plan["pair"] == list(best_pair(10, 100, 0.8).pair)
    assert plan["coverage_law"]["mean"] == pytest.approx(best_pair(10, 100, 0.8).mean)
    assert plan["guarantee"]["level"] == 0.8


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--rows", 0], "rows: got 0"),
        (["--clients", 9999], "clients: got 9,999"),
        (["--level", 1], "level: got 1"),
        (["--level", "nan"], "level: got nan"),
        (["--confidence", 0], "confidence: got 0"),
        (["--method", "magic"], "method: got 'magic'"),
        (["--guarantee", "all"], "guarantee: got 'all'"),
        (["--bins", 1], "bins: got 1"),
        (["--target", "spread"], "--target: got 'spread'"),
        (["--target", "band=0.1"], "target: got 'band', expected one of spread, excess, shortfall"),
        (["--target", "spread=-1"], "target spread: got -1"),
        (["--privacy", "server-dp"], "needs a budget"),
        (["--privacy", "server-dp", "--epsilon", 1, "--method", "qq"], "use --method pooled"),
        (["--method", "local"], "local: it needs the quantile of each client"),
        (["--rows", 1e9, "--privacy", "plain"], "expected at most 10,000,000"),
        (["--privacy", "distributed-dp", "--epsilon", 1, "--clients", 2], "got 2 clients"),
    ],
)
def test_bad_input_has_one_sentence(capsys: Any, arguments: list[object], words: str) -> None:
    code, out, err = call(capsys, *DATA, *arguments)
    assert (code, out) == (2, "")
    assert words in err.replace("\n", " ")
    assert err.count("Error") == 1
