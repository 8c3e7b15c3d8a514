"""The trust model `server-dp`: its contract, its noise, its refusals and its words."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from contract import Numbers, TrustModelContract, drive

from fedassay.errors import ProtocolError, UnsupportedQuery, UsageError
from fedassay.privacy.accounting import calibrate, event, spent
from fedassay.privacy.randomness import SecureRandomness, SimulatedRandomness
from fedassay.protocol.vocabulary import (
    Budget,
    Collect,
    Neighbours,
    Protection,
    Sample,
    Select,
    Sensitivity,
    Setting,
    Sum,
    TrustModel,
    Unit,
)
from fedassay.trust.local_reports import room_beside
from fedassay.trust.server_dp import ServerDP


class TestPureContract(TrustModelContract):
    budget = Budget(epsilon=0.7)

    @pytest.fixture
    def trust(self) -> TrustModel:
        return ServerDP()


class TestApproximateContract(TestPureContract):
    budget = Budget(epsilon=0.7, delta=1e-6)


def setting(budget: Budget | None = None, protection: Protection | None = None, clients: int = 4) -> Setting:
    return Setting(
        trust=ServerDP(),
        protection=protection or Protection(),
        budget=budget or Budget(epsilon=1.0),
        clients=clients,
    )


def test_the_noise_is_that_of_the_budget_the_share_and_the_sensitivity() -> None:
    summary = Numbers(l1=6.0, l2=2.5)
    plan = ServerDP().plan(Sum(of=summary, share=0.25), setting(Budget(epsilon=0.5)))
    assert plan.noise == calibrate(Budget(epsilon=0.5), Sensitivity(l1=6.0, l2=2.5), 0.25)
    assert plan.noise.scale == pytest.approx(6 / 0.125)


def test_the_setting_predicts_the_noise() -> None:
    query = Sum(of=Numbers())
    (released,) = drive(ServerDP(), [ServerDP().plan(query, setting())], {"a": (np.array([1, 2, 3]),)})
    assert setting().noise(query) == released.noise


def test_every_plan_and_every_release_has_noise_of_its_own() -> None:
    plans = [ServerDP().plan(Sum(of=Numbers(cells=50), share=0.5), setting())] * 2
    vectors = {"a": (np.zeros(50, dtype=np.int64),) * 2}
    first, second = drive(ServerDP(), plans, vectors, seed=1)
    other, _ = drive(ServerDP(), plans, vectors, seed=2)
    assert not np.array_equal(first.value, second.value)
    assert not np.array_equal(first.value, other.value)


def test_a_secure_source_does_not_repeat() -> None:
    plan = ServerDP().plan(Sum(of=Numbers(cells=100)), setting())
    zeros = [np.zeros(100, dtype=np.int64)]
    first, second = (ServerDP().aggregate([plan], zeros, 4, SecureRandomness())[0].value for _ in range(2))
    assert not np.array_equal(first, second)


def test_a_sampled_cohort_gets_the_same_noise_as_everybody() -> None:
    everybody = ServerDP().plan(Sum(of=Numbers()), setting())
    some = ServerDP().plan(Sum(of=Numbers(), cohort=Sample(rate=0.01)), setting())
    assert some.noise == everybody.noise


@pytest.mark.parametrize("budget", [Budget(epsilon=1.0), Budget(epsilon=1.0, delta=1e-7)])
def test_the_queries_of_a_task_stay_within_its_budget(budget: Budget) -> None:
    plans = [
        ServerDP().plan(Sum(of=Numbers(l1=l1, l2=math.sqrt(l1)), share=0.1), setting(budget))
        for l1 in (1.0, 2.0, 5.0, 12.0, 60.0, 300.0, 1.0, 7.0, 8.0, 1000.0)
    ]
    total = spent([event(plan.noise, plan.sensitivity) for plan in plans], budget.delta)
    assert 0.9 * budget.epsilon < total <= budget.epsilon


@pytest.mark.parametrize("kind", [Collect, Select])
def test_single_messages_carry_no_noise(kind: type[Collect[object]]) -> None:
    with pytest.raises(UnsupportedQuery, match="local-dp"):
        ServerDP().plan(kind(of=Numbers()), setting())


def test_no_budget_names_the_option() -> None:
    with pytest.raises(UsageError, match="epsilon"):
        ServerDP().plan(Sum(of=Numbers()), replace(setting(), budget=None))


@pytest.mark.parametrize("l1", [math.inf, math.nan, 0.0, -1.0])
def test_a_contribution_without_a_bound_is_refused(l1: float) -> None:
    with pytest.raises(UnsupportedQuery, match="sensitivity"):
        ServerDP().plan(Sum(of=Numbers(l1=l1)), setting())


def test_totals_leave_room_for_the_noise() -> None:
    ServerDP().plan(Sum(of=Numbers(bound=2**60)), setting(clients=7))
    with pytest.raises(UnsupportedQuery, match="wrap"):
        ServerDP().plan(Sum(of=Numbers(bound=2**60)), setting(clients=8))
    plan = ServerDP().plan(Sum(of=Numbers(cells=1)), setting())
    room = room_beside(plan.noise, plan.query.of)
    assert 2**62 < room < 2**63
    for value in (room, -room, -(2**63)):
        with pytest.raises(ProtocolError):
            ServerDP().aggregate([plan], [np.array([value])], 4, SimulatedRandomness(1))


@pytest.mark.parametrize("unit", Unit)
@pytest.mark.parametrize("neighbours", Neighbours)
@pytest.mark.parametrize("delta", [0.0, 1e-9])
def test_the_statement_is_complete(unit: Unit, neighbours: Neighbours, delta: float) -> None:
    protection = Protection(unit=unit, neighbours=neighbours, rows_per_client=17)
    statement = ServerDP().statement(setting(Budget(epsilon=0.25, delta=delta), protection))
    for words in (
        "epsilon = 0.25",
        "delta = 1e-09" if delta else "delta = 0",
        neighbours.value,
        "17 rows" if unit is Unit.CLIENT else "one example",
        "server must be trusted",
        "noisy totals",
        "Laplace",
    ):
        assert words in statement
    assert ("Gaussian" in statement) == (delta > 0)
