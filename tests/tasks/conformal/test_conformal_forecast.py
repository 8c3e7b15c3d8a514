"""The plan of prediction sets: predictions against simulated federations, the inverse question, and the command."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

import command_line
import single_plans as single
from fedassay.errors import UnsupportedQuery
from fedassay.estimation.coverage import CoverageLaw, best_pair
from fedassay.planning import PlannedStudy, StudyPlan
from fedassay.privacy.randomness import SimulatedRandomness
from fedassay.protocol.vocabulary import Protection, Select, Sum, TrustModel
from fedassay.summaries.distribution.tree import ValueSummary
from fedassay.summaries.local_quantiles import QuantileLosses
from fedassay.tasks.conformal import Conformal
from fedassay.tasks.conformal.rehearsal import CHOICE_DRAWS, POOLED_DRAWS, Rehearsal, rehearse
from fedassay.trust import DistributedDP, LocalDP, SecureSum, ServerDP
from single_plans import KEYS, forecast, metrics_of, rows_of

LEVEL = 0.9
Floats = Any


def planned(
    trust: TrustModel | None = None, *, clients: int = 10, rows: int = 100, **others: Any
) -> PlannedStudy:
    """So many clients with so many rows each."""
    return single.planned(trust, clients=clients, rows=clients * rows, **others)


def plan_alone(study: PlannedStudy, targets: Any = None, **parameters: Any) -> StudyPlan:
    return single.plan_alone("conformal", study, targets, **parameters)


# --- predictions against simulations ----------------------------------------------------------------------


def sorted_scores(rng: np.random.Generator, draws: int, clients: int, rows: int) -> Floats:
    return np.sort(rng.random((draws, clients, rows)), axis=2)


def quantile_of_quantiles(plan: Rehearsal, rng: np.random.Generator, draws: int) -> Floats:
    assert plan.found.pair is not None
    local, server = plan.found.pair
    scores = sorted_scores(rng, draws, plan.clients, plan.rows)
    return np.sort(scores[:, :, local - 1], axis=1)[:, server - 1]


def pooled(plan: Rehearsal, rng: np.random.Generator, draws: int) -> Floats:
    rank = round(plan.found.details["rank"])
    return np.sort(rng.random((draws, plan.clients * plan.rows)), axis=1)[:, rank - 1]


def split_quantiles(plan: Rehearsal, rng: np.random.Generator, draws: int) -> Floats:
    return sorted_scores(rng, draws, plan.clients, plan.rows)[:, :, math.ceil(LEVEL * (plan.rows + 1)) - 1]


def average(plan: Rehearsal, rng: np.random.Generator, draws: int) -> Floats:
    return split_quantiles(plan, rng, draws).mean(axis=1)


def local(plan: Rehearsal, rng: np.random.Generator, draws: int) -> Floats:
    return split_quantiles(plan, rng, draws)[:, 0]


def private_choices(plan: Rehearsal, rng: np.random.Generator, draws: int) -> Floats:
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


def noisy_pooled(plan: Rehearsal, rng: np.random.Generator, draws: int) -> Floats:
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

CASES: dict[str, tuple[PlannedStudy, str, Any, int]] = {
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
    plan, law = plan_alone(planned()), best_pair(10, 100, LEVEL)
    assert plan.details.facts["pair"] == [92, 4] == list(law.pair)
    ways = rows_of(plan, "coverage")
    assert ways["qq (planned)"]["pair"] == "92, 4"
    pooled = CoverageLaw(clients=1, rows=1000, local_rank=901, server_rank=1)
    alone = CoverageLaw(clients=1, rows=100, local_rank=91, server_rank=1)
    confident = best_pair(10, 100, LEVEL, confidence=0.9)
    for way, one in (
        ("qq (planned)", law),
        ("all rows in one place", pooled),
        ("one client alone", alone),
        ("with confidence 0.9", confident),
    ):
        found = ways[way]
        assert (found["mean"], found["standard_deviation"]) == (one.mean, one.standard_deviation)
        assert found["reached"] == one.quantile(0.1)
        assert found["probability"] == one.probability_at_least(LEVEL)
    assert plan.verdict == "Enough data for everything."
    assert metrics_of(plan)["shortfall"].width == pytest.approx(LEVEL - law.quantile(0.1))
    assert metrics_of(plan)["excess"].width == pytest.approx(law.mean - LEVEL)


def test_with_confidence_nothing_falls_short() -> None:
    plan = plan_alone(planned(), guarantee="training-conditional", confidence=0.95)
    law = best_pair(10, 100, LEVEL, confidence=0.95)
    facts = plan.details.facts
    assert facts["pair"] == list(law.pair)
    assert facts["guarantee"]["probability"] >= 0.95
    assert metrics_of(plan)["shortfall"].width <= 0
    assert rows_of(plan, "coverage")["on average only"]["pair"] == "92, 4"
    assert facts["rows_needed"] == {"marginal": 9, "training-conditional": 29}


def test_private_choices_are_planned_with_the_rows_that_clients_have() -> None:
    plan = plan_alone(planned(LocalDP(), clients=20, rows=110, epsilon=2.0))
    facts = plan.details.facts
    assert any("--rows-per-client 110" in warning for warning in plan.warnings)
    assert facts["details"]["candidates"] == 100
    assert facts["coverage_law"]["exact"] is False
    assert facts["coverage_law"]["mean"] >= LEVEL
    assert facts["expected"]["mean"] > facts["coverage_law"]["mean"]
    pair = ", ".join(map(str, best_pair(20, 110, LEVEL).pair))
    assert rows_of(plan, "coverage")["qq without privacy"]["pair"] == pair
    fewer = planned(LocalDP(), clients=20, rows=110, epsilon=2.0, protection=Protection(rows_per_client=120))
    assert any("count as 120" in warning for warning in plan_alone(fewer).details.warnings)


def test_where_choices_are_impossible_it_says_what_would_do() -> None:
    """And what it says is so: with one row less, or a little less epsilon, there would be no finite set."""
    bound = Protection(rows_per_client=25)
    plan = plan_alone(planned(LocalDP(), clients=20, rows=25, epsilon=0.1, protection=bound))
    reason = metrics_of(plan)["spread"].reason or ""
    needed = int(reason.split("at least ")[1].split(" rows")[0])
    epsilon = float(reason.split("or ε = ")[1].split(" ")[0])
    assert plan.verdict.startswith("Not enough data: coverage 0.9 at ε = 0.1")
    assert plan.details.facts["infinite"] is True

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
    plan = plan_alone(planned(DistributedDP(), rows=1000, epsilon=1.0))
    facts = plan.details.facts
    assert facts["method"] == "pooled"
    assert facts["details"]["margin"] > 1
    assert facts["pair"] is None
    assert "Noise costs a margin of " in " ".join(plan.details.remarks)
    assert set(rows_of(plan, "coverage")) >= {"all rows in one place", "one client alone"}
    larger = plan_alone(planned(DistributedDP(), rows=1000, epsilon=0.5)).details.facts
    assert larger["details"]["margin"] > 1.5 * facts["details"]["margin"]


def test_too_few_rows_are_an_answer() -> None:
    plan = plan_alone(planned(clients=4, rows=2))
    document = json.loads(json.dumps(plan.to_dict(), allow_nan=False))
    assert document["infinite"] is True
    assert "expected at least 9 rows" in rows_of(plan, "coverage")["all rows in one place"]["reason"]
    verdicts = {name: one["verdict"] for name, one in document["metrics"].items()}
    assert verdicts == dict.fromkeys(("spread", "excess", "shortfall"), "not enough")
    assert plan.verdict.startswith("Not enough data: ")


def test_methods_that_promise_less_are_judged_by_less() -> None:
    average = plan_alone(planned(), method="average")
    assert average.details.facts["guarantee"]["kind"] == "none"
    assert set(metrics_of(average)) == {"spread", "excess"}
    assert set(metrics_of(plan_alone(planned(SecureSum()), method="weighted"))) == {"spread", "excess"}
    alone = metrics_of(plan_alone(planned(), method="local"))
    assert alone["shortfall"].width == pytest.approx(LEVEL - best_pair(1, 100, LEVEL).quantile(0.1))


def test_what_a_trust_model_cannot_do_is_refused() -> None:
    with pytest.raises(UnsupportedQuery, match="average: it needs the quantile of each client"):
        plan_alone(planned(SecureSum()), method="average")


def test_rows_that_cannot_be_equal_are_said() -> None:
    plan = plan_alone(single.planned(rows=1005, clients=10))
    assert "10 clients cannot have equally many of 1,005 rows: planned with 100." in plan.details.warnings


# --- what would be enough ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "target"), [("spread", 0.006), ("shortfall", 0.01), ("excess", 0.001)])
def test_what_is_enough_is_enough_and_less_is_not(name: str, target: float) -> None:
    (enough,) = plan_alone(planned(), {name: target}).inverse
    assert enough.epsilon.value is None
    assert "epsilon plays no part" in (enough.epsilon.reason or "")

    def width(study: PlannedStudy) -> float:
        return forecast("conformal").at(study, (name,))[name].width

    rows, clients = enough.rows.value, enough.clients.value
    assert rows is not None
    assert clients is not None
    assert width(planned().with_rows(rows)) <= target
    assert width(planned().with_clients(int(clients))) <= target
    if name == "spread":  # the others go up and down
        assert width(planned().with_rows(0.95 * rows)) > target
        assert width(planned().with_clients(math.floor(0.95 * clients))) > target


def test_clients_do_not_help_one_that_is_alone() -> None:
    (enough,) = plan_alone(planned(), {"spread": 0.02}, method="local").inverse
    assert enough.clients.value is None
    assert "no number of such clients" in (enough.clients.reason or "")
    assert enough.rows.value == pytest.approx(2220, rel=0.03)


@pytest.mark.full
def test_an_epsilon_that_is_enough_for_finite_sets() -> None:
    plan = plan_alone(planned(DistributedDP(), epsilon=0.1))
    assert plan.details.facts["infinite"]
    (enough,) = plan_alone(planned(DistributedDP(), epsilon=0.1), {"shortfall": 0.1}).inverse
    assert enough.epsilon.value is not None
    noisy = rehearse(Conformal(), planned(DistributedDP(), epsilon=enough.epsilon.value))
    assert noisy.found.infinite is False


# --- the command ------------------------------------------------------------------------------------------


def call(capsys: Any, *arguments: object) -> tuple[int, str, str]:
    return command_line.call(capsys, "plan", "conformal", *arguments)


DATA = ["--rows", 1000, "--clients", 10]
IN_THE_CLEAR = ["--privacy", "plain"]


def test_the_command_in_words(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    code, out, err = call(capsys, *DATA, *IN_THE_CLEAR, "--target", "spread=0.006")
    assert (code, err) == (0, "")
    assert "1,000 rows at 10 clients; plain. Clients are taken to have equally many rows." in out
    for words in ("qq (planned)", "92, 4", "0.9023", "all rows in one place", "one client alone", "0.593"):
        assert words in out
    assert "For spread within 0.006: plain adds no noise" in out
    assert "rows at 10 clients; or 39 clients of the size expected." in out
    assert "…" not in out
    assert out.strip().splitlines()[-1] == "Enough data for excess and shortfall; not enough data for spread."


def test_the_command_in_words_under_privacy(capsys: Any) -> None:
    code, out, _ = call(capsys, "--rows", 2200, "--clients", 20, "--privacy", "local-dp", "--epsilon", 2)
    assert code == 0
    for words in (
        "to expect",
        "qq without privacy",
        "Each client chooses one of 100 points",
        "qq (planned, at least)",
    ):
        assert words in out
    code, out, _ = call(capsys, "--rows", 500, "--clients", 20, "--privacy", "local-dp", "--epsilon", 0.1)
    assert code == 0
    assert "Every set will hold everything: " in out
    assert "Not enough data: " in out


def test_the_command_as_json(capsys: Any) -> None:
    code, out, _ = call(capsys, *DATA, *IN_THE_CLEAR, "--json", "-", "--quiet", "--level", 0.8)
    assert code == 0
    plan = json.loads(out)
    facts = {"rows_each", "rows_needed", "method", "guarantee", "pair", "coverage_law", "infinite"}
    assert plan.keys() == KEYS | facts | {"details", "expected"}
    assert plan["plan"] == "conformal"
    assert plan["pair"] == list(best_pair(10, 100, 0.8).pair)
    assert plan["coverage_law"]["mean"] == pytest.approx(best_pair(10, 100, 0.8).mean)
    assert plan["guarantee"]["level"] == 0.8


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--rows", 0], "rows: got 0"),
        (["--clients", 9999], "clients: got 9,999"),
        (["--target", "spread"], "--target: got 'spread'"),
        (["--target", "band=0.1"], "target: got 'band', expected one of spread, excess, shortfall, coverage"),
        (["--target", "spread=-1"], "target spread: got -1"),
        (["--privacy", "server-dp"], "needs a budget"),
        (["--privacy", "server-dp", "--epsilon", 1, "--method", "qq"], "use --method pooled"),
        (["--method", "local"], "local: it needs the quantile of each client"),
        (["--rows", 1e9, "--privacy", "plain"], "expected at most 10,000,000"),
    ],
)
def test_bad_input_has_one_sentence(capsys: Any, arguments: list[object], words: str) -> None:
    code, out, err = call(capsys, *DATA, *arguments)
    assert (code, out) == (2, "")
    assert words in err.replace("\n", " ")
    assert err.count("Error") == 1
