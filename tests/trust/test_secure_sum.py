"""What the trust model answers, refuses, states and releases; small cohorts and their exact limits."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from fedassay import wire
from fedassay.errors import ProtocolError, TooFewClients, UnsupportedQuery, UsageError
from fedassay.protocol import NO_NOISE, Budget, Collect, Protection, Query, Select, Setting, Sum
from fedassay.trust.secure_sum import SecureSum
from fedassay.trust.secure_sum_graph import parameters
from secure_sum_driver import Anything, Run, Seeded, plans_of, vectors


def setting(clients: int = 10, budget: Budget | None = None) -> Setting:
    return Setting(trust=SecureSum(), protection=Protection(), budget=budget, clients=clients)


# --- planning ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Collect, Select])
def test_only_sums_are_planned(kind: type[Query]):
    with pytest.raises(UnsupportedQuery, match="hides who sent what"):
        SecureSum().plan(kind(of=Anything()), setting())


def test_a_budget_is_refused_because_nothing_would_keep_it():
    with pytest.raises(UsageError, match=r"epsilon: got 0\.5"):
        SecureSum().plan(Sum(of=Anything()), setting(budget=Budget(epsilon=0.5)))


def test_a_total_that_could_wrap_is_refused():
    largest = (2**63 - 1) // 10
    SecureSum().plan(Sum(of=Anything(bound=largest)), setting(10))
    with pytest.raises(UnsupportedQuery, match="cannot wrap"):
        SecureSum().plan(Sum(of=Anything(bound=largest + 1)), setting(10))


def test_the_largest_totals_that_are_planned_are_exact():
    largest = (2**63 - 1) // 5
    values = {f"c{i}": (np.array([largest, -largest, 0]),) for i in range(5)}
    assert vectors(Run(trust=SecureSum(), values=values).go()) == [[5 * largest, -5 * largest, 0]]


def test_few_clients_are_refused_when_their_number_is_known():
    with pytest.raises(TooFewClients, match="got 2 clients, expected at least 3"):
        SecureSum().plan(Sum(of=Anything()), setting(2))
    assert SecureSum().plan(Sum(of=Anything()), setting(0)).noise == NO_NOISE
    with pytest.raises(TooFewClients, match="got 9 clients, expected at least 10"):
        SecureSum(minimum_cohort=10).plan(Sum(of=Anything()), setting(9))


@pytest.mark.parametrize(
    "fields",
    [
        {"dropout": -0.1},
        {"collusion": -0.1},
        {"dropout": 0.5, "collusion": 0.0},
        {"dropout": 0.2, "collusion": 0.6},
        {"dropout": float("nan")},
        {"minimum_cohort": 2},
        {"minimum_cohort": 3.5},
        {"minimum_cohort": True},
    ],
)
def test_fields_are_validated(fields: dict[str, float]):
    with pytest.raises(UsageError, match="expected"):
        SecureSum(**fields)


def test_cohorts_that_cannot_tolerate_what_is_asked_are_refused_before_any_message():
    trust = SecureSum(dropout=0.4, collusion=0.0)
    with pytest.raises(UsageError, match="3 clients"):
        trust.plan(Sum(of=Anything()), setting(3))
    run = Run.of(3)
    flow = trust.exchange(run.exchange, Seeded())
    with pytest.raises(UsageError, match="3 clients"):
        next(flow)


# --- simulation and statement -----------------------------------------------------------------------------


def test_aggregate_returns_the_totals_as_they_are():
    plans = plans_of(SecureSum(), 3, (2, 1))
    totals = [np.array([5, -6]), np.array([7])]
    released = SecureSum().aggregate(plans, totals, 3, Seeded())
    assert [(one.value.tolist(), one.noise, one.clients) for one in released] == [
        ([5, -6], NO_NOISE, 3),
        ([7], NO_NOISE, 3),
    ]
    assert released[0].value is not totals[0]
    with pytest.raises(TooFewClients, match="got 2 clients"):
        SecureSum().aggregate(plans, totals, 2, Seeded())


def test_the_statement_names_the_numbers_and_the_assumptions():
    text = SecureSum().statement(setting(1000))
    k, t, _, _ = parameters(1000, 0.2, 0.1)
    for words in (
        f"shares masks with {k} others, {t} of whom",
        "200 clients may fall silent",
        "100 may tell the server",
        "at least 3",
        "public keys unchanged",
        "not differentially private",
        "lies about its own values is not detected",
    ):
        assert words in text
    assert "3 others, 2 of whom can remove them: 1 client may fall" in SecureSum().statement(setting(4))
    assert "0 clients may fall silent" in SecureSum(minimum_cohort=4).statement(setting(4))
    assert "With" not in SecureSum().statement(setting(0))


# --- small cohorts ----------------------------------------------------------------------------------------


def test_several_queries_are_summed_in_one_run():
    run = Run.of(5, lengths=(1, 4, 2))
    released = run.go()
    assert vectors(released) == run.total(list(run.values))
    assert [one.value.dtype for one in released] == [np.int64] * 3
    assert {one.clients for one in released} == {5}
    assert {one.noise for one in released} == {NO_NOISE}


def survivors_of(n: int, leg: int, lost: int) -> tuple[Run, list[str]]:
    run = Run.of(n, seed=(n, leg, lost))
    gone = list(run.values)[:lost]
    run.silent = dict.fromkeys(gone, leg)
    return run, list(run.values) if leg == 3 else list(run.values)[lost:]


@pytest.mark.parametrize("leg", range(4))
@pytest.mark.parametrize("n", [3, 4, 5, 6, 7, 10])
def test_complete_graphs_survive_exactly_as_many_dropouts_as_the_threshold_allows(n: int, leg: int):
    t = parameters(n, 0.2, 0.1).threshold
    # Every survivor needs t others. Losing a client only at the last leg costs its own seed no share, but
    # the others lose it; the cohort of the sum stays whole.
    fewest = t + 1 if leg == 3 else max(3, t + 1)
    for lost in range(n):
        run, counted = survivors_of(n, leg, lost)
        if n - lost >= fewest:
            released = run.go()
            assert vectors(released) == run.total(counted)
            assert released[0].clients == len(counted)
        else:
            with pytest.raises(TooFewClients, match="expected at least"):
                run.go()
    assert (n, n - fewest) in [(3, 0), (4, 1), (5, 1), (6, 2), (7, 2), (10, 3)]


def test_the_smallest_cohort_is_kept_during_the_run():
    trust = SecureSum(minimum_cohort=5)
    assert Run.of(6, trust, silent={"client-000": 2}).go()[0].clients == 5
    for leg in range(3):
        with pytest.raises(TooFewClients, match=r"expected at least 5,.* nothing was revealed"):
            Run.of(6, trust, silent={"client-000": leg, "client-001": leg}).go()


def test_nobody_is_asked_to_reveal_anything_when_the_sum_is_impossible():
    run = Run.of(6, silent=dict.fromkeys([f"client-{i:03}" for i in range(3)], 2))
    with pytest.raises(TooFewClients):
        run.go()
    assert len(run.requests) == 3


def test_two_clients_of_one_name_are_refused():
    run = Run.of(4)
    exchange = dataclasses.replace(run.exchange, cohort=("a", "b", "a"))
    with pytest.raises(UsageError, match="same name"):
        next(SecureSum().exchange(exchange, Seeded()))


def test_names_of_all_kinds_work():
    names = ["", "a", "ä", "名前", "a\x00b", "a b", "0", "A" * 300]
    generator = np.random.default_rng(1)
    run = Run(trust=SecureSum(), values={name: (generator.integers(-9, 9, size=3),) for name in names})
    run.silent = {"名前": 2}
    assert vectors(run.go()) == run.total([name for name in names if name != "名前"])


def test_a_resumed_run_asks_the_same_questions():
    first, second = Run.of(7, silent={"client-003": 1}), Run.of(7, silent={"client-003": 1})
    assert vectors(first.go()) == vectors(second.go())
    for leg in range(4):
        assert {n: wire.encode(m) for n, m in first.requests[leg].items()} == {
            n: wire.encode(m) for n, m in second.requests[leg].items()
        }


def test_rows_are_measured_in_leg_2_only_and_once():
    run, measured = Run.of(4), []
    run.go()
    for leg in range(4):
        SecureSum().respond(
            run.request(leg, "client-000"),
            lambda leg=leg: measured.append(leg) or run.values["client-000"],
            run.states[leg]["client-000"],
            Seeded(),
        )
    assert measured == [2]


def test_a_measurement_of_another_shape_is_refused():
    run = Run.of(4)
    run.go()
    for wrong in [(np.zeros(2, np.int64),), (np.zeros(3),), (), (np.zeros(3, np.int64),) * 2]:
        with pytest.raises(ProtocolError, match="one vector of whole numbers"):
            SecureSum().respond(
                run.request(2, "client-000"), lambda wrong=wrong: wrong, run.states[2]["client-000"], Seeded()
            )


def test_state_forgets_secrets_as_soon_as_they_are_used():
    run = Run.of(4)
    run.go()
    states = [run.states[leg]["client-000"] for leg in range(4)]
    secrets = {states[1]["seal_private"], states[1]["mask_private"], states[2]["seed"]}
    assert states[1]["seal_private"] not in states[2].values()
    assert not secrets & {value for value in states[3].values() if isinstance(value, bytes)}
    _, final = SecureSum().respond(run.request(3, "client-000"), tuple, states[3], Seeded())
    assert set(final) == {"leg", "exchange"}
