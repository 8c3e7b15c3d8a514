"""The trust model `shuffle`: its contract, its plans and what they cost, its refusals and its words."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from contract import Numbers, TrustModelContract, Vectors, drive

from fedassay.errors import BudgetExceeded, PolicyRefusal, TooFewClients, UnsupportedQuery, UsageError
from fedassay.privacy.accounting import CHOICE, LAPLACE, UNARY, event, spent
from fedassay.privacy.amplification import ShuffledPlan, cost_of, delta_of, local_epsilon_for
from fedassay.privacy.ledger.charges import Charge, MemoryLedger
from fedassay.privacy.policy.judgement import PolicyRequest
from fedassay.privacy.policy.rules import SitePolicy
from fedassay.privacy.randomness import SimulatedRandomness
from fedassay.protocol.vocabulary import (
    Budget,
    Collect,
    Neighbours,
    Part,
    Plan,
    Points,
    Protection,
    Query,
    Sample,
    Select,
    Setting,
    Sum,
    TrustModel,
    Unit,
)
from fedassay.trust import TRUST_MODELS
from fedassay.trust.local_dp import LocalDP
from fedassay.trust.shuffle.model import MOST_CLIENTS, Shuffle
from shuffle_driver import BUDGET, HISTOGRAM, ONE_ROW, Losses, one_row, plan_of, setting


class TestPureContract(TrustModelContract):
    budget = Budget(epsilon=0.7)
    clients = 12

    @pytest.fixture
    def trust(self) -> TrustModel:
        return Shuffle()


class TestApproximateContract(TestPureContract):
    budget = Budget(epsilon=0.7, delta=1e-6)


class TestAmplifiedContract(TestPureContract):
    """One row each: vectors with noise of the local epsilon."""

    budget = Budget(epsilon=0.7, delta=1e-6)

    def setting(self, trust: TrustModel, *, clients: int | None = None) -> Setting:
        return replace(super().setting(trust, clients=clients), protection=ONE_ROW)


# --- plans --------------------------------------------------------------------------------------------------


def test_it_is_in_the_catalogue_and_needs_a_second_server() -> None:
    assert TRUST_MODELS["shuffle"] is Shuffle
    assert (Shuffle.helpers_needed, Shuffle.first_client_leg, Shuffle.private) == (2, 1, True)


@pytest.mark.parametrize("share", [1.0, 0.25])
def test_clients_of_one_row_get_the_epsilon_that_hides_them_among_the_honest(share: float) -> None:
    plan = plan_of(Sum(of=HISTOGRAM, share=share), clients=10_000)
    cost = cost_of(plan)
    assert isinstance(plan, ShuffledPlan)
    assert cost is not None
    assert cost.epsilon == pytest.approx(share * BUDGET.epsilon, rel=1e-8)
    assert cost.delta == pytest.approx(share * BUDGET.delta, rel=1e-8)
    assert (cost.epsilon, cost.delta) < (share * BUDGET.epsilon, share * BUDGET.delta)
    local = local_epsilon_for(cost, 8_000)
    assert local > 3 * cost.epsilon
    assert plan.noise.law == UNARY
    assert 1 / plan.noise.scale == pytest.approx(local, rel=1e-8)
    assert 1 / plan.noise.scale <= local
    assert delta_of(cost.epsilon, 1 / plan.noise.scale, 8_000) <= cost.delta
    # Another 1 % of local epsilon would be too much: nothing is given away.
    assert delta_of(cost.epsilon, 1.01 * local, 8_000) > cost.delta


def test_dropouts_and_colluders_hide_nobody() -> None:
    trust = Shuffle(dropout=0.3, collusion=0.2)
    assert (trust.fewest_survivors(1000), trust.fewest_honest(1000)) == (700, 500)
    plan = plan_of(Sum(of=HISTOGRAM), trust=trust, clients=1000)
    assert 1 / plan.noise.scale <= local_epsilon_for(plan.cost, 500)  # type: ignore[attr-defined]
    assert 1 / plan.noise.scale > local_epsilon_for(plan.cost, 490)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("query", "law"),
    [
        (Sum(of=HISTOGRAM), UNARY),
        (Sum(of=Numbers()), LAPLACE),
        (Collect(of=Numbers()), LAPLACE),
        (Select(of=Losses()), CHOICE),
    ],
    ids=["unary", "sum", "collect", "select"],
)
def test_every_message_of_a_client_with_one_row_has_the_local_epsilon(query: Query[Any], law: str) -> None:
    """As one pure release, for any other input: neighbours are replace-one whatever was asked for."""
    for neighbours in Neighbours:
        protection = Protection(rows_per_client=1, neighbours=neighbours)
        plan = plan_of(query, clients=5_000, protection=protection)
        local = local_epsilon_for(plan.cost, 4_000)  # type: ignore[attr-defined]
        assert plan.noise.law == law
        alone = spent([event(plan.noise, plan.sensitivity)], 0.0)
        assert 0.99 * local < alone <= local


def test_noise_is_for_one_row_in_the_place_of_another() -> None:
    add_remove = Protection(unit=Unit.CLIENT, rows_per_client=1)
    forced = Shuffle(encoding="noise")
    plan = plan_of(Sum(of=HISTOGRAM), trust=forced, protection=add_remove, clients=1000)
    assert plan.noise.law == LAPLACE
    replaced = HISTOGRAM.sensitivity(replace(add_remove, neighbours=Neighbours.REPLACE_ONE))
    assert plan.sensitivity == replaced
    assert replaced.l1 > HISTOGRAM.sensitivity(add_remove).l1


@pytest.mark.parametrize(
    ("budget", "protection"),
    [
        (Budget(epsilon=1.0), ONE_ROW),
        (BUDGET, Protection()),
        (BUDGET, Protection(rows_per_client=2)),
        (BUDGET, Protection(unit=Unit.CLIENT, rows_per_client=2)),
    ],
    ids=["no delta", "rows", "two rows", "client of two rows"],
)
def test_elsewhere_it_is_local_dp_and_no_more(budget: Budget, protection: Protection) -> None:
    for query in (Sum(of=HISTOGRAM, share=0.5), Collect(of=Numbers(l1=9.0, l2=3.0), share=0.5)):
        here = setting(budget, protection)
        plan = here.trust.plan(query, here)
        assert cost_of(plan) is None
        assert plan == replace(LocalDP().plan(query, here), setting=here)


def test_unary_reports_hide_all_rows_of_a_client() -> None:
    trust = Shuffle(encoding="unary")
    plan = plan_of(Sum(of=HISTOGRAM), trust=trust, protection=Protection(), clients=1000)
    assert isinstance(plan, ShuffledPlan)
    with pytest.raises(UnsupportedQuery, match="rows_per_client=1"):
        plan_of(Select(of=Losses()), trust=trust, protection=Protection(rows_per_client=9))
    assert isinstance(plan_of(Select(of=Losses()), trust=trust), ShuffledPlan)


@pytest.mark.parametrize("minimum", [3, 10_000])
def test_an_unknown_number_of_clients_hides_nobody(minimum: int) -> None:
    """However many the asker says that it will wait for."""
    plan = plan_of(Sum(of=HISTOGRAM), trust=Shuffle(minimum_cohort=minimum), clients=0)
    assert 1 / plan.noise.scale == pytest.approx(BUDGET.epsilon, rel=1e-8)


def test_more_clients_than_there_can_be_are_not_believed() -> None:
    assert isinstance(plan_of(Sum(of=HISTOGRAM), clients=MOST_CLIENTS), ShuffledPlan)
    for clients in (MOST_CLIENTS + 1, 2**62):
        with pytest.raises(UnsupportedQuery, match="clients, expected at most 1,000,000,000"):
            plan_of(Sum(of=HISTOGRAM), clients=clients)


@pytest.mark.parametrize(
    "query", [Points(of=HISTOGRAM, at=(0,)), Query(of=HISTOGRAM)], ids=["points", "other"]
)
def test_other_queries_are_refused(query: Query[Any]) -> None:
    with pytest.raises(UnsupportedQuery):
        plan_of(query)


def test_what_hides_nobody_is_refused() -> None:
    with pytest.raises(UnsupportedQuery, match="sample"):
        plan_of(Sum(of=HISTOGRAM, cohort=Sample(rate=0.5)))
    with pytest.raises(UnsupportedQuery, match="unit=.client"):
        plan_of(Sum(of=HISTOGRAM, part=Part.FIT))
    with pytest.raises(UnsupportedQuery, match="unit=.client"):
        plan_of(Sum(of=HISTOGRAM, part=Part.FIT), trust=Shuffle(encoding="noise"))
    with pytest.raises(TooFewClients, match="got 2 clients, expected at least 3"):
        plan_of(Sum(of=HISTOGRAM), clients=2)
    without = replace(setting(), budget=None)
    with pytest.raises(UsageError, match="epsilon"):
        without.trust.plan(Sum(of=HISTOGRAM), without)
    by_client = Protection(unit=Unit.CLIENT, rows_per_client=1)
    assert isinstance(plan_of(Sum(of=HISTOGRAM, part=Part.FIT), protection=by_client), ShuffledPlan)


@pytest.mark.parametrize(
    "parameters",
    [
        {"dropout": 0.6, "collusion": 0.4},
        {"dropout": -0.1},
        {"collusion": math.nan},
        {"minimum_cohort": 1},
        {"minimum_cohort": 3.0},
        {"encoding": "other"},
    ],
)
def test_parameters_are_checked(parameters: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="expected"):
        Shuffle(**parameters)


@pytest.mark.parametrize("neighbours", Neighbours)
def test_clients_of_one_row_are_the_unit(neighbours: Neighbours) -> None:
    protection = Shuffle().with_one_row_each(Protection(neighbours=neighbours))
    assert protection == Protection(unit=Unit.CLIENT, neighbours=neighbours, rows_per_client=1)
    assert Shuffle(encoding="noise").with_one_row_each(Protection()) == Protection()


# --- what it costs ------------------------------------------------------------------------------------------


def charge(plan: Plan, name: str = "1") -> Charge:
    return Charge.of(plan, id=name, dataset="d", study="s")


def test_the_books_have_the_message_and_what_all_cost_shuffled() -> None:
    plan = plan_of(Sum(of=HISTOGRAM), clients=10_000)
    entry = charge(plan)
    assert (entry.law, entry.scale, entry.shuffled) == (UNARY, plan.noise.scale, cost_of(plan))
    ledger = MemoryLedger(BUDGET)
    ledger.charge([entry])
    assert 0.999 * BUDGET.epsilon < ledger.spent("d", BUDGET.delta) <= BUDGET.epsilon
    local = ledger.spent("d", 0.0)
    assert local == pytest.approx(1 / plan.noise.scale)
    assert local > 4 * BUDGET.epsilon
    with pytest.raises(BudgetExceeded, match="so does shuffling"):
        MemoryLedger(Budget(epsilon=1.0)).charge([entry])


@pytest.mark.parametrize("shares", [(1.0,), (0.5, 0.5), (1 / 3, 1 / 3, 1 / 3), (0.1,) * 10, (0.7, 0.2, 0.1)])
def test_the_queries_of_a_task_cost_its_budget_and_not_more(shares: tuple[float, ...]) -> None:
    budget = Budget(epsilon=0.9, delta=1e-5)
    kinds = [Sum(of=HISTOGRAM), Select(of=Losses()), Collect(of=Numbers())]
    plans = [
        plan_of(replace(kinds[i % 3], share=share), budget=budget, clients=2_000)
        for i, share in enumerate(shares)
    ]
    ledger = MemoryLedger(budget)
    ledger.charge([charge(plan, str(i)) for i, plan in enumerate(plans)])
    assert 0.999 * budget.epsilon < ledger.spent("d", budget.delta) <= budget.epsilon
    with pytest.raises(BudgetExceeded):
        ledger.charge([charge(plan_of(Sum(of=HISTOGRAM, share=0.01), budget=budget), "more")])


def test_a_policy_judges_what_it_is_asked_to_believe() -> None:
    """With a rule for delta the site believes in the shuffler; without one it counts what a message says by itself."""
    plan = plan_of(Sum(of=HISTOGRAM), clients=10_000)
    request = PolicyRequest(plan=plan, study="s", cohort=10_000)
    assert (request.trust.collusion, request.smallest_total, request.shuffled) == (0.1, 9_000, cost_of(plan))
    total = Budget(epsilon=10.0, delta=1e-6)
    SitePolicy(total=total, largest_epsilon=1.0, largest_delta=1e-6).check(request)
    SitePolicy(total=total, largest_epsilon=6.0).check(request)
    for policy in (
        SitePolicy(total=total, largest_epsilon=1.0),
        SitePolicy(total=total, largest_epsilon=1.0, largest_delta=1e-7),
        SitePolicy(total=total, largest_epsilon=0.99, largest_delta=1e-6),
        SitePolicy(total=total, smallest_collusion=0.2),
    ):
        with pytest.raises(PolicyRefusal):
            policy.check(request)


# --- releases -----------------------------------------------------------------------------------------------


def rows(clients: int, seed: int = 1, idle: int = 5) -> Vectors:
    rng = np.random.default_rng(seed)
    some = {
        f"client{i}": (one_row(int(rng.integers(8)), int(rng.integers(2))),) for i in range(clients - idle)
    }
    return some | {f"idle{i}": (np.zeros(HISTOGRAM.length, dtype=np.int64),) for i in range(idle)}


def test_estimates_are_right_where_bits_do_not_lie() -> None:
    clients = 200
    plan = plan_of(Sum(of=HISTOGRAM), budget=Budget(epsilon=32.0, delta=1e-6), clients=clients)
    (released,) = drive(Shuffle(), [plan], {f"client{i}": (one_row(5, 1),) for i in range(clients)})
    read = HISTOGRAM.read(released.value)
    assert released.clients == clients
    assert np.abs(read.negatives).max() < 1e-6
    assert np.abs(np.delete(read.positives, [5, 9])).max() < 1e-6
    # Twice the heads of about 100 coins, times 2: a deviation of 100 is one of 5 standard deviations.
    assert np.abs(read.positives[[5, 9]] - clients).max() < 100
    # Clients draw their level themselves: of 200, between 60 and 140 choose the first (5.6 standard deviations).
    assert 60 < clients * released.noise.reporting[0] < 140


def test_levels_do_not_depend_on_names() -> None:
    """Under local-dp the level is a hash of the exchange and the name; here other coins give other levels."""
    plan = plan_of(Sum(of=HISTOGRAM), clients=60)
    reporting = {drive(Shuffle(), [plan], rows(60), seed=seed)[0].noise.reporting for seed in range(6)}
    assert len(reporting) > 1


def test_choices_come_back_one_for_each_client() -> None:
    plan = plan_of(Select(of=Losses(cells=4)), budget=Budget(epsilon=60.0, delta=1e-6), clients=30)
    losses = {
        f"client{i}": (np.array([90, 0, 90, 90]) if i < 10 else np.array([90, 90, 90, 0]),) for i in range(30)
    }
    (released,) = drive(Shuffle(), [plan], losses)
    assert np.sum(released.value, axis=0).tolist() == [0, 10, 0, 20]
    assert all(vector.sum() == 1 for vector in released.value)
    assert (released.clients, released.noise) == (30, plan.noise)


def test_several_queries_in_one_exchange() -> None:
    share = 1 / 3
    plans = [
        plan_of(Sum(of=HISTOGRAM, share=share), clients=40),
        plan_of(Collect(of=Numbers(bound=10**6), share=share), clients=40),
        plan_of(Sum(of=Numbers(bound=10**6), share=share), clients=40),
    ]
    vectors = {
        name: (value[0], np.full(3, 10**5 + i), np.array([1000, 0, -1000]))
        for i, (name, value) in enumerate(rows(40).items())
    }
    counts, collected, total = drive(Shuffle(), plans, vectors)
    assert counts.noise.law == UNARY
    assert len(collected.value) == collected.clients == 40
    assert np.abs(total.value - [40_000, 0, -40_000]).max() < 60 * 40 * total.noise.scale
    assert total.noise.copies == 40


def test_a_simulation_has_the_amplified_epsilon() -> None:
    plan = plan_of(Sum(of=HISTOGRAM), clients=10_000)
    total = 10_000 * one_row(5, 1)
    (released,) = Shuffle().aggregate([plan], [total], 10_000, SimulatedRandomness(1))
    assert released.noise.scale == plan.noise.scale
    assert released.noise.variance == pytest.approx(plan.noise.variance, rel=0.05)
    local = LocalDP().plan(Sum(of=HISTOGRAM), replace(setting(), clients=10_000))
    assert plan.noise.variance < 0.03 * local.noise.variance


# --- words --------------------------------------------------------------------------------------------------


def test_the_statement_has_both_guarantees() -> None:
    here = setting(clients=10_000)
    statement = here.trust.statement(here)
    local = local_epsilon_for(cost_of(plan_of(Sum(of=HISTOGRAM), clients=10_000)), 8_000)  # type: ignore[arg-type]
    for words in (
        "epsilon = 1 and delta = 1e-06",
        "everything that a client holds",
        f"local epsilon of at most {local}",
        "fewer than 9,000 of them are not opened",
        "8,000 honest ones",
        "1,000 clients may collude with the server",
        "does not work together with the server",
        "Server and shuffler together",
    ):
        assert words in statement


@pytest.mark.parametrize(
    ("budget", "protection", "reason"),
    [
        (Budget(epsilon=1.0), ONE_ROW, "needs a delta above 0"),
        (BUDGET, Protection(), "these hide one example"),
        (BUDGET, Protection(unit=Unit.CLIENT, rows_per_client=7), "clients of one row"),
    ],
)
def test_the_statement_says_why_there_is_no_amplification(
    budget: Budget, protection: Protection, reason: str
) -> None:
    here = setting(budget, protection)
    statement = here.trust.statement(here)
    assert "no amplification by shuffling, because" in statement
    assert reason in statement
    assert f"epsilon = 1 and delta = {'1e-06' if budget.delta else '0'}" in statement
