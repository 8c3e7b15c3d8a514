"""Amplification by sampling: against dp-accounting, against a closed formula, and where it must not be claimed."""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest
from contract import Numbers
from dp_accounting import GaussianDpEvent, NeighboringRelation, PoissonSampledDpEvent, SelfComposedDpEvent
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from scipy.stats import norm

from fedassay.errors import BudgetExceeded, UsageError
from fedassay.kernel.client import Client, EmptyRows, takes_part
from fedassay.kernel.run import Job, run
from fedassay.privacy import accounting
from fedassay.privacy.amplification import amplifies, calibrate_sampled, epsilon_of, event_of, rounds_of
from fedassay.privacy.ledger.charges import Charge, MemoryLedger
from fedassay.privacy.policy.judgement import PolicyRequest
from fedassay.privacy.randomness import SimulatedRandomness
from fedassay.protocol.vocabulary import (
    All,
    Budget,
    Neighbours,
    Noise,
    Part,
    Plan,
    Protection,
    Sample,
    Sensitivity,
    Setting,
    Sum,
    Unit,
)
from fedassay.trust.distributed_dp import DistributedDP
from fedassay.trust.plain import Plain
from fedassay.trust.server_dp import ServerDP
from simulated_clients import open_site

UNIT = 2.0**24


@dataclass(frozen=True, kw_only=True)
class Remembering(Numbers):
    """Says what it remembers."""

    cells: int = 1

    def measure(self, rows: Any, memory: Any) -> Any:
        return np.array([memory.get("above", 0)], dtype=np.int64), memory


MOVES = Sensitivity(l1=UNIT, l2=UNIT)
CLIENTS = Protection(unit=Unit.CLIENT, rows_per_client=5)
BUDGET = Budget(epsilon=1.0, delta=1e-5)


def setting(trust: Any = None, *, budget: Budget = BUDGET, protection: Protection = CLIENTS) -> Setting:
    return Setting(trust=trust or ServerDP(), protection=protection, budget=budget, clients=100)


def multiplier(budget: Budget, rate: float, rounds: int) -> float:
    noise = calibrate_sampled(budget, MOVES, rate=rate, share=1 / rounds, length=10)
    assert noise is not None
    assert noise.law == "discrete-gaussian"
    return noise.scale / UNIT


@pytest.mark.parametrize(
    ("epsilon", "delta", "rate", "rounds"),
    [(1.0, 1e-5, 0.1, 12), (0.3, 1e-6, 0.3, 5), pytest.param(3.0, 1e-5, 0.5, 1, marks=pytest.mark.full)],
)
def test_the_noise_is_the_least_that_dp_accounting_lets_pass(
    epsilon: float, delta: float, rate: float, rounds: int
) -> None:
    found = multiplier(Budget(epsilon=epsilon, delta=delta), rate, rounds)

    def theirs(noise: float) -> float:
        accountant = PLDAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE)
        one = PoissonSampledDpEvent(rate, GaussianDpEvent(noise))
        accountant.compose(SelfComposedDpEvent(one, rounds))
        return float(accountant.get_epsilon(delta))

    assert theirs(found) <= epsilon < theirs(0.99 * found)


def test_renyi_accounting_would_ask_for_more() -> None:
    """The figures of PERFORMANCE.md: 2.41 by privacy loss distributions, 2.62 by Rényi divergences."""
    assert multiplier(BUDGET, 0.1, 30) == pytest.approx(2.41, abs=0.005)
    accountant = RdpAccountant(neighboring_relation=NeighboringRelation.ADD_OR_REMOVE_ONE)
    accountant.compose(SelfComposedDpEvent(PoissonSampledDpEvent(0.1, GaussianDpEvent(2.41)), 30))
    assert accountant.get_epsilon(1e-5) > 1.05


def true_delta(noise: float, rate: float, epsilon: float) -> float:
    """Of one release, removing the client, in closed form: where the density ratio exceeds e^epsilon."""
    edge = noise**2 * math.log((math.exp(epsilon) - 1 + rate) / rate) + 0.5
    with_client = (1 - rate) * norm.sf(edge / noise) + rate * norm.sf((edge - 1) / noise)
    return float(with_client - math.exp(epsilon) * norm.sf(edge / noise))


@pytest.mark.parametrize("rate", [0.05, 0.3, 0.9])
@pytest.mark.parametrize("epsilon", [0.2, 1.0, 4.0])
def test_one_release_against_the_closed_formula(epsilon: float, rate: float) -> None:
    found = multiplier(Budget(epsilon=epsilon, delta=1e-6), rate, 1)
    assert true_delta(found, rate, epsilon) <= 1e-6
    assert true_delta(0.97 * found, rate, epsilon) > 1e-6  # noise that is 3 % too small is too small


def test_whole_numbers_are_as_good_as_real_ones() -> None:
    """The bound of the module: discrete and rounded Gaussian probabilities differ by less than exp(±η)."""
    for sigma in (20.0, 300.0):
        k = np.arange(-int(20 * sigma), int(20 * sigma) + 1)
        discrete = -(k**2) / (2 * sigma**2)
        discrete -= np.log(np.exp(discrete).sum())
        at = np.abs(k)
        rounded = norm.logsf((at - 0.5) / sigma) + np.log1p(
            -np.exp(norm.logsf((at + 0.5) / sigma) - norm.logsf((at - 0.5) / sigma))
        )
        allowed = (k**2 / sigma**2 + 1) / (24 * sigma**2)
        # Logarithms of tails are right to 1e-9 here.
        assert (np.abs(rounded - discrete) <= allowed + 1e-9).all()
        assert (np.abs(rounded - discrete) > 0.2 * allowed).any()  # and the bound is not idle


def test_a_coarse_vector_is_not_amplified() -> None:
    assert calibrate_sampled(BUDGET, Sensitivity(l1=3.0, l2=3.0), rate=0.1, share=1.0, length=5) is None
    plan = ServerDP().plan(Sum(of=Numbers(l1=3.0, l2=3.0), cohort=Sample(rate=0.1)), setting())
    assert plan.sampled == 1.0
    assert plan.noise == ServerDP().plan(Sum(of=Numbers(l1=3.0, l2=3.0)), setting()).noise


def query(rate: float = 0.1, share: float = 1.0, part: Part = Part.ALL) -> Sum[Any]:
    return Sum(of=Numbers(l1=UNIT, l2=UNIT), cohort=Sample(rate=rate), share=share, part=part)


@pytest.mark.parametrize(
    ("protection", "budget", "share"),
    [
        (Protection(), BUDGET, 1.0),  # a row's client has other rows: with the client out, they are out too
        (Protection(unit=Unit.CLIENT, rows_per_client=5, neighbours=Neighbours.REPLACE_ONE), BUDGET, 1.0),
        (CLIENTS, Budget(epsilon=1.0), 1.0),
        (CLIENTS, BUDGET, 0.3),
    ],
    ids=["examples", "replace-one", "no delta", "unequal shares"],
)
def test_where_nothing_is_claimed(protection: Protection, budget: Budget, share: float) -> None:
    assert not amplifies(budget, protection, Sample(rate=0.1), share)
    asked = setting(budget=budget, protection=protection)
    plan = ServerDP().plan(query(share=share), asked)
    assert plan.sampled == 1.0
    assert plan.noise == ServerDP().plan(Sum(of=query().of, share=share), asked).noise


def test_coins_count_for_nothing_where_no_server_is_trusted() -> None:
    plan = DistributedDP().plan(query(), setting(DistributedDP()))
    everybody = DistributedDP().plan(Sum(of=query().of), setting(DistributedDP()))
    assert (plan.sampled, plan.noise) == (1.0, everybody.noise)
    assert DistributedDP.clients_sample  # so that nobody chooses among whom colluders are


def test_shares() -> None:
    assert [rounds_of(share) for share in (1.0, 1 / 12, 1 / 3, 0.3, 0.0, 1e-9)] == [
        *(1, 12, 3, None, None, None),
    ]
    with pytest.raises(UsageError, match="share of the budget"):
        calibrate_sampled(BUDGET, MOVES, rate=0.1, share=0.3, length=1)
    with pytest.raises(UsageError, match="more noise than can be drawn"):
        calibrate_sampled(Budget(epsilon=1e-9, delta=1e-9), MOVES, rate=0.9, share=1e-4, length=1)


def charges(plan: Plan, count: int, name: str = "") -> list[Charge]:
    return [Charge.of(plan, id=f"{name}{i}", dataset="d", study="s") for i in range(count)]


def test_the_ledger_lets_all_rounds_pass_and_not_one_more() -> None:
    plan = ServerDP().plan(query(share=1 / 12), setting())
    assert plan.sampled == 0.1
    ledger = MemoryLedger(BUDGET)
    ledger.charge(charges(plan, 12))
    assert 0.99 < ledger.spent("d", 1e-5) <= 1.0
    with pytest.raises(BudgetExceeded):
        ledger.charge(charges(plan, 1, "more"))
    request = PolicyRequest(plan=plan, study="s", cohort=100)
    assert request.epsilon(1e-5) == pytest.approx(epsilon_of([event_of(plan.noise, MOVES, 0.1)], 1e-5))


def test_beside_other_releases_the_cheaper_of_two_bounds_counts() -> None:
    sampled = ServerDP().plan(query(share=1 / 12), setting())
    other = ServerDP().plan(Sum(of=query().of), setting())
    one, drawn = (charges(plan, 1)[0].event for plan in (other, sampled))
    together = accounting.spent([one, drawn], 1e-5)
    assert accounting.spent([one], 1e-5) < together
    assert together <= accounting.spent([one], 5e-6) + epsilon_of([drawn], 5e-6) + 1e-12
    # With noise that is large anyway, counting everybody in is cheaper than halving delta.
    small = charges(ServerDP().plan(query(rate=0.999, share=1 / 12), setting()), 1)[0].event
    assert accounting.spent([one, small], 1e-5) < accounting.spent([one], 5e-6) + epsilon_of([small], 5e-6)


@pytest.mark.parametrize(
    "change", [{"unit": Unit.EXAMPLE}, {"law": "discrete-laplace"}, {"sampled": 0.0}, {"sampled": 1.5}]
)
def test_only_what_can_be_amplified_is_recorded_as_such(change: dict[str, Any]) -> None:
    plan = ServerDP().plan(query(), setting())
    (good,) = charges(plan, 1)
    with pytest.raises(UsageError, match="amplified by sampling"):
        Charge(**({**{name: getattr(good, name) for name in good.__dataclass_fields__}, **change}))


# --- the coin ---------------------------------------------------------------------------------------------


def test_the_coin_has_the_stated_probability() -> None:
    plan, randomness = ServerDP().plan(query(rate=0.2), setting()), SimulatedRandomness(1)
    heads = sum(takes_part(plan, randomness) for _ in range(20_000))
    # Five standard deviations: wrong once in a million; a rate of 0.185 or 0.215 would fail as surely.
    assert abs(heads - 4000) < 5 * math.sqrt(20_000 * 0.2 * 0.8)
    assert takes_part(ServerDP().plan(Sum(of=query().of), setting()), randomness)
    drawn_by_server = Plain().plan(query(rate=1e-9), replace(setting(Plain()), budget=None))
    assert all(takes_part(drawn_by_server, randomness) for _ in range(100))
    assert list(EmptyRows().batches()) == []


def test_what_a_client_remembers_does_not_speak_when_its_coin_says_no() -> None:
    """It would answer with what it learned when it took part, and one coin would decide about all rounds."""

    class Nothing:
        def batches(self) -> Any:
            return iter(())

    site = open_site("a", Nothing, SimulatedRandomness(1))
    client = Client(site)
    kept = {"rounds": 1, "above": 7}
    client.store.memories[("s", "t", Part.ALL)] = kept
    asked = Setting(trust=ServerDP(), protection=Protection(), budget=BUDGET, clients=1)
    answers = []
    for rate in (1e-9, 1.0):
        cohort: Any = Sample(rate=rate) if rate < 1 else All()
        plan = Plan(
            query=Sum(of=Remembering(), cohort=cohort), setting=asked, sensitivity=MOVES, sampled=rate
        )
        request = SimpleNamespace(plans=(plan,), exchange=bytes(16))
        opened: Any = SimpleNamespace(study="s", tasks=("t",), request=request)
        learned: dict[Any, Any] = {}
        with mock.patch.object(client, "_require_charged_rows"):
            (vector,) = client._measure(opened, learned)
        answers.append((vector.tolist(), learned))
    # Out: nothing, and nothing is learned. In: what it remembers.
    assert answers == [([0], {}), ([7], {("s", "t", Part.ALL): kept})]


# --- the run ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mixed:
    """Sampled and other releases in one task."""

    queries: tuple[Sum[Any], ...]

    def steps(self, setting: Setting) -> Generator[Any, Any, None]:
        yield self.queries


class Nowhere:
    """A runtime that must not be reached."""

    simulated, clients, helpers = True, ("a", "b"), ()

    def carry(self, errand: Any) -> Any:
        raise AssertionError("something was sent")


@pytest.mark.parametrize(
    "queries",
    [
        (query(share=0.5), Sum(of=query().of, share=0.5)),
        (query(share=0.5, rate=0.1), query(share=0.5, rate=0.2)),
        (query(share=1 / 2), query(share=1 / 4)),
        (query(share=0.5, part=Part.FIT), Sum(of=query().of, share=0.5)),
    ],
    ids=["with all", "two rates", "two shares", "through a part"],
)
def test_sampled_and_other_releases_do_not_share_a_budget(queries: tuple[Sum[Any], ...]) -> None:
    job = Job(name="t", task=Mixed(queries), setting=setting())
    with pytest.raises(UsageError, match="sampled differently"):
        run([job], runtime=Nowhere(), ledger=MemoryLedger(None), randomness=SimulatedRandomness(1), study="s")


def test_fit_and_held_out_rows_may_be_sampled_differently() -> None:
    queries = (query(part=Part.FIT), Sum(of=query().of, part=Part.HELD_OUT, cohort=All()))
    with pytest.raises(AssertionError, match="something was sent"):
        run(
            [Job(name="t", task=Mixed(queries), setting=setting())],
            runtime=Nowhere(),
            ledger=MemoryLedger(None),
            randomness=SimulatedRandomness(1),
            study="s",
        )


def test_noise_of_another_law_is_refused() -> None:
    with pytest.raises(UsageError, match="only that is amplified"):
        event_of(Noise(law="discrete-laplace", scale=2.0, variance=8.0), MOVES, 0.1)
