"""What the trust model answers, refuses, states and releases; sizes, small cohorts and their exact limits."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from fedassay.crypto.packed import Packing
from fedassay.errors import ProtocolError, TooFewClients, UnsupportedQuery, UsageError
from fedassay.protocol import wire
from fedassay.protocol.vocabulary import NO_NOISE, Budget, Collect, Protection, Query, Select, Setting, Sum
from fedassay.trust.distributed_dp import DistributedDP
from fedassay.trust.one_shot.sizes import LARGEST_COMMITTEE, sizes
from fedassay.trust.secure_sum import SecureSum
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
    largest = (2**60 - 1) // 10
    SecureSum().plan(Sum(of=Anything(bound=largest)), setting(10))
    with pytest.raises(UnsupportedQuery, match="cannot wrap"):
        SecureSum().plan(Sum(of=Anything(bound=largest + 1)), setting(10))


def test_the_largest_totals_that_are_planned_are_exact():
    largest = (2**60 - 1) // 5
    values = {f"c{i}": (np.array([largest, -largest, 0]),) for i in range(5)}
    assert vectors(Run(trust=SecureSum(), values=values).go()) == [[5 * largest, -5 * largest, 0]]


def test_few_clients_are_refused_when_their_number_is_known():
    """As the federation that it is known to be: in a plan and in a run."""
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
        {"dropout": 0.34, "collusion": 0.0},
        {"dropout": 0.2, "collusion": 0.4},
        {"dropout": float("nan")},
        {"minimum_cohort": 2},
        {"minimum_cohort": 3.5},
        {"minimum_cohort": True},
        {"members": ("a", "a")},
        {"cohort_difference": -1},
        {"cohort_difference": 1.5},
    ],
)
def test_fields_are_validated(fields: dict[str, float]):
    with pytest.raises(UsageError, match="expected"):
        SecureSum(**fields)


# --- sizes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "collusion", "silent", "t", "packed", "needed", "vectors_sent"),
    [
        (3, 0.1, 0, 2, 1, 3, 1),
        (4, 0.1, 0, 3, 1, 4, 1),
        (5, 0.1, 1, 3, 1, 4, 2),
        (7, 0.1, 1, 5, 1, 6, 2),
        (8, 0.1, 1, 5, 2, 7, 1.5),
        (10, 0.3, 2, 7, 1, 8, 3),
        (40, 0.1, 8, 28, 4, 32, 3),
        (40, 0.3, 8, 30, 2, 32, 5),
        (100, 0.2, 20, 73, 7, 80, 27 / 7),
        (1000, 0.1, 200, 700, 100, 800, 3),
    ],
)
def test_sizes_are_those_of_the_documentation(
    n: int, collusion: float, silent: int, t: int, packed: int, needed: int, vectors_sent: float
):
    found = SecureSum(collusion=collusion).sizes(n)
    assert (found.silent_members, found.threshold, found.packed, found.needed) == (silent, t, packed, needed)
    assert (found.members - found.threshold) / found.packed == pytest.approx(vectors_sent)


@pytest.mark.parametrize("dropout", [0.0, 0.05, 0.1, 0.2, 0.3])
@pytest.mark.parametrize("collusion", [0.0, 0.05, 0.1, 0.2, 0.3, 0.6])
def test_the_rule_holds_for_all_sizes(dropout: float, collusion: float):
    refused = 0
    for clients in [*range(3, 60), 100, 333, 1000]:
        for roster in (clients, 2 * clients):
            try:
                found = sizes(
                    clients=clients,
                    roster=roster,
                    members=roster,
                    dropout=dropout,
                    collusion=collusion,
                    smallest=3,
                )
            except TooFewClients:
                refused += 1
                continue
            t, k, c = found.threshold, found.members, found.colluding_members
            assert 3 * (t + 1) > 2 * k + c
            assert c <= t < t + found.packed == found.needed <= k
            assert found.colluders >= collusion * roster
            assert found.least >= max(3, found.colluders + 2, clients - int(dropout * clients + 1e-9))
            assert found.honest == found.least - found.colluders >= 2
    assert refused < (10 if collusion < 0.5 else 70)


def test_colluders_are_counted_over_the_roster_and_not_over_the_cohort():
    """Four colluders and two victims out of a roster of forty would otherwise be a cohort of six with one colluder."""
    with pytest.raises(TooFewClients, match="4 of 40 sites are assumed to collude"):
        SecureSum(minimum_cohort=3).sizes(5, roster=40, members=5)
    assert SecureSum().sizes(6, roster=6).colluders == 1
    assert SecureSum().sizes(12, roster=40).least == 10
    assert SecureSum().sizes(12, roster=40).members == 40


def test_where_one_set_is_agreed_no_client_may_be_silent():
    found = SecureSum(same_set=True).sizes(40)
    assert (found.least, found.silent_clients, found.silent_members) == (40, 0, 8)
    assert found.chance() < SecureSum().sizes(40).chance()
    assert "0 sites of 40 may miss the first pass" in SecureSum(same_set=True).attendance(40)


def test_fractions_are_exact_decimals():
    assert SecureSum(dropout=0.29, collusion=0.1).sizes(100).silent_clients == 29
    assert SecureSum(dropout=0.1, collusion=0.3).sizes(10).colluders == 3


def test_many_sites_must_name_who_opens_their_totals():
    many = [f"s{i:05}" for i in range(LARGEST_COMMITTEE + 1)]
    with pytest.raises(UsageError, match="`members`, 16 of them"):
        SecureSum().committee(many)
    assert SecureSum().committee(many[:-1]) == tuple(many[:-1])
    named = SecureSum(members=tuple(many[5:21]))
    assert named.committee(many) == tuple(many[5:21])
    assert named.sizes(len(many)).members == SecureSum().sizes(len(many)).members == 16


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
    text = SecureSum().statement(setting(40))
    for words in (
        "A total over fewer than 32 of 40 sites is never opened",
        "without 8 sites of 40 in the first round and without 8 sites of the 40 that open it",
        *("Up to 4 sites may collude with a lying coordinator", "29 members who pooled their keys"),
        *("not differentially private", "lies about its own values is not detected"),
    ):
        assert words in text
    assert "each of the 4 that open the total must answer" in SecureSum().statement(setting(4))
    assert "No site may collude" in SecureSum(collusion=0.0).statement(setting(10))
    assert "fewer than" not in SecureSum().statement(setting(0))
    noisy = DistributedDP().statement(
        dataclasses.replace(setting(40, Budget(epsilon=1.0)), trust=DistributedDP())
    )
    assert "holds the noise of 28 honest sites" in noisy


# --- small cohorts ----------------------------------------------------------------------------------------


def test_several_queries_are_summed_in_one_run():
    run = Run.of(5, lengths=(1, 4, 2))
    released = run.go()
    assert vectors(released) == run.total(list(run.values))
    assert [one.value.dtype for one in released] == [np.int64] * 3
    assert {one.clients for one in released} == {5}
    assert {one.noise for one in released} == {NO_NOISE}


@pytest.mark.parametrize("leg", range(2))
@pytest.mark.parametrize("n", [3, 4, 5, 6, 7, 10])
def test_sums_survive_exactly_as_many_silent_parties_as_their_sizes_say(n: int, leg: int):
    found = SecureSum().sizes(n)
    allowed = [found.silent_clients, found.silent_members][leg]
    for lost in range(n):
        run = Run.of(n, seed=(n, leg, lost))
        run.silent = dict.fromkeys(list(run.values)[:lost], leg)
        counted = list(run.values) if leg else list(run.values)[lost:]
        if lost <= allowed:
            released = run.go()
            assert vectors(released) == run.total(counted)
            assert released[0].clients == len(counted)
            opening = released[0].opening
            assert opening is not None
            assert (len(opening["members"]), opening["needed"]) == (n - lost * leg, found.needed)
        else:
            with pytest.raises(TooFewClients, match="expected at least"):
                run.go()


def test_the_smallest_cohort_is_kept():
    trust = SecureSum(minimum_cohort=6)
    with pytest.raises(
        TooFewClients, match=r"5 of 6 clients spoke, expected at least 6; nothing was revealed"
    ):
        Run.of(6, trust, silent={"client-000": 0}).go()


def test_no_member_is_asked_when_too_few_have_spoken():
    run = Run.of(6, silent=dict.fromkeys([f"client-{i:03}" for i in range(3)], 0))
    with pytest.raises(TooFewClients):
        run.go()
    assert len(run.requests) == 1


def test_two_clients_of_one_name_are_refused():
    run = Run.of(4)
    exchange = dataclasses.replace(run.exchange, cohort=("a", "b", "a"))
    with pytest.raises(UsageError, match="same name"):
        next(SecureSum().exchange(exchange, Seeded()))


def test_names_of_all_kinds_work():
    names = ["", "a", "ä", "名前", "a\x00b", "a b", "0", "A" * 300, "a\nb", '"']
    generator = np.random.default_rng(1)
    run = Run(trust=SecureSum(), values={name: (generator.integers(-9, 9, size=3),) for name in names})
    run.silent = {"名前": 0}
    assert vectors(run.go()) == run.total([name for name in names if name != "名前"])


def test_a_resumed_run_asks_the_same_questions():
    first, second = Run.of(7, silent={"client-003": 0}), Run.of(7, silent={"client-003": 0})
    assert vectors(first.go()) == vectors(second.go())
    for leg in range(2):
        assert {n: wire.encode(m) for n, m in first.requests[leg].items()} == {
            n: wire.encode(m) for n, m in second.requests[leg].items()
        }


def test_rows_are_measured_in_leg_0_only_and_once():
    run, measured = Run.of(4), []
    run.go()
    for leg in range(2):
        SecureSum().respond(
            run.request(leg, "client-000"),
            lambda leg=leg: measured.append(leg) or run.values["client-000"],
            {},
            Seeded(),
        )
    assert measured == [0]


def test_a_measurement_of_another_shape_is_refused():
    run = Run.of(4)
    run.go()
    for wrong in [(np.zeros(2, np.int64),), (np.zeros(3),), (), (np.zeros(3, np.int64),) * 2]:
        with pytest.raises(ProtocolError, match="one vector of whole numbers"):
            SecureSum().respond(run.request(0, "client-000"), lambda wrong=wrong: wrong, {}, Seeded())


@pytest.mark.parametrize(
    "trust", [SecureSum(), SecureSum(members=tuple(f"client-{i:03}" for i in range(1, 15)))]
)
def test_a_drawn_cohort_is_summed_by_all_members(trust: SecureSum):
    run = Run.of(20, trust, cohort=[f"client-{i:03}" for i in range(0, 20, 2)])
    assert vectors(run.go()) == run.total(list(run.exchange.cohort))
    assert set(run.requests[1]) == set(trust.members or run.values)


def test_members_need_not_have_spoken():
    run = Run.of(10, silent={"client-000": 0, "client-001": 0})
    assert vectors(run.go()) == run.total(list(run.values)[2:])
    assert "client-000" in run.replies[1]


def test_a_client_draws_another_key_where_a_pad_cannot_hide_everything(monkeypatch: pytest.MonkeyPatch):
    """It happens once in 2^61 elements, see `Packing.corrections`; nothing of the first key leaves."""
    run, corrections, rejected = Run.of(4), Packing.corrections, list[object]()

    def first_rejected(packing: Packing, rows: Any, pads: Any) -> Any:
        if len(rejected) < 2:
            rejected.append(rows)
            return None
        return corrections(packing, rows, pads)

    monkeypatch.setattr(Packing, "corrections", first_rejected)
    assert vectors(run.go()) == run.total(list(run.values))
    honest = Run.of(4)
    honest.go()
    publics = [[one.replies[0][name]["public"] for name in run.values] for one in (run, honest)]
    assert [a == b for a, b in zip(*publics, strict=True)] == [False, True, True, True]
