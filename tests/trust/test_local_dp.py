"""The trust model `local-dp`: its contract, both encodings, its refusals and its words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import pytest
from contract import Numbers, TrustModelContract, Vectors, drive

from fedassay.errors import ProtocolError, TooFewClients, UnsupportedQuery, UsageError
from fedassay.privacy import samplers
from fedassay.privacy.accounting import UNARY, calibrate, event, noise_of, spent
from fedassay.privacy.randomness import SecureRandomness, SimulatedRandomness
from fedassay.protocol.vocabulary import (
    Budget,
    Collect,
    Exchange,
    Neighbours,
    Noise,
    Part,
    Plan,
    Protection,
    Request,
    Select,
    Sensitivity,
    Setting,
    Sum,
    TrustModel,
    Unit,
    Vector,
)
from fedassay.summaries.score_histogram import ScoreHistogram
from fedassay.trust.local_dp import LocalDP
from fedassay.trust.local_reports import UnaryEncoding, assigned, reach, sum_of_draws
from fedassay.trust.plain import Plain

ONE_ROW = Protection(rows_per_client=1)
HISTOGRAM = ScoreHistogram(transform="uniform", height=3, widths=(1, 4))


class TestNoiseContract(TrustModelContract):
    budget = Budget(epsilon=0.7)

    @pytest.fixture
    def trust(self) -> TrustModel:
        return LocalDP()


class TestApproximateContract(TestNoiseContract):
    budget = Budget(epsilon=0.7, delta=1e-6)


class TestForcedNoiseContract(TestNoiseContract):
    @pytest.fixture
    def trust(self) -> TrustModel:
        return LocalDP(encoding="noise")


@dataclass(frozen=True, kw_only=True)
class Cells(Numbers):
    """Counts in these partitions, given as the numbers of their cells, one after the other."""

    parts: tuple[int, ...] = (3,)
    name: ClassVar[str] = "cells"

    @property
    def length(self) -> int:
        return sum(self.parts)

    @property
    def partitions(self) -> tuple[Vector, ...]:
        return tuple(np.split(np.arange(sum(self.parts)), np.cumsum(self.parts)[:-1]))


def setting(
    budget: Budget | None = None,
    protection: Protection = ONE_ROW,
    clients: int = 40,
    trust: LocalDP | None = None,
) -> Setting:
    return Setting(
        trust=trust or LocalDP(), protection=protection, budget=budget or Budget(epsilon=1.0), clients=clients
    )


def unary_plan(epsilon: float = 1.0, of: Any = HISTOGRAM, share: float = 1.0, clients: int = 40) -> Plan:
    where = setting(Budget(epsilon=epsilon), clients=clients)
    return where.trust.plan(Sum(of=of, share=share), where)


def one_row(leaf: int, label: int) -> Vector:
    counts = np.zeros((2, 8), dtype=np.int64)
    counts[1 - label, leaf] = 1
    return np.concatenate([HISTOGRAM.tree.build(counts[0]), HISTOGRAM.tree.build(counts[1])])


def rows(clients: int = 40, seed: int = 1, idle: int = 5) -> Vectors:
    """One row each; the last few have none."""
    rng = np.random.default_rng(seed)
    vectors = {
        f"client{i}": (one_row(int(rng.integers(8)), int(rng.integers(2))),) for i in range(clients - idle)
    }
    return vectors | {f"idle{i}": (np.zeros(HISTOGRAM.length, dtype=np.int64),) for i in range(idle)}


def respond(plan: Plan, vector: Vector, seed: int = 1, client: str = "a") -> Any:
    request = Request(exchange=b"id", plans=(plan,), cohort=40, leg=0, recipient=client, message={})
    return LocalDP().respond(request, lambda: (vector,), {}, SimulatedRandomness(seed))[0]


# --- plans --------------------------------------------------------------------------------------------------


def test_one_row_per_client_is_encoded_bit_by_bit() -> None:
    plan = unary_plan(epsilon=2.0, share=0.25)
    encoding = UnaryEncoding(scale=plan.noise.scale)
    assert plan.noise.law == UNARY
    assert plan.noise.scale == pytest.approx(1 / (2.0 * 0.25), rel=1e-8)
    assert plan.noise.variance == pytest.approx(40 * 2 * encoding.variance)
    assert plan.noise.reporting == (0.5, 0.5)
    assert plan.sensitivity == Sensitivity(l1=1.0, l2=1.0)


@pytest.mark.parametrize(
    ("encoding", "protection", "summary", "law"),
    [
        ("auto", ONE_ROW, HISTOGRAM, UNARY),
        ("auto", Protection(), HISTOGRAM, "discrete-laplace"),
        ("auto", Protection(unit=Unit.CLIENT, rows_per_client=2), HISTOGRAM, "discrete-laplace"),
        ("auto", ONE_ROW, Numbers(), "discrete-laplace"),
        ("auto", ONE_ROW, replace(HISTOGRAM, multipliers=(1, 2)), "discrete-laplace"),
        ("noise", ONE_ROW, HISTOGRAM, "discrete-laplace"),
        ("unary", Protection(), HISTOGRAM, UNARY),
        ("unary", Protection(unit=Unit.CLIENT, rows_per_client=9), HISTOGRAM, UNARY),
    ],
)
def test_the_encoding_follows_the_rows_and_the_summary(
    encoding: str, protection: Protection, summary: Any, law: str
) -> None:
    trust = LocalDP(encoding=encoding)
    assert trust.plan(Sum(of=summary), setting(protection=protection, trust=trust)).noise.law == law


def test_noise_is_that_of_the_budget_the_share_and_the_sensitivity_once_per_client() -> None:
    budget, summary = Budget(epsilon=0.5, delta=1e-6), Numbers(l1=60.0, l2=2.5)
    plan = LocalDP().plan(Sum(of=summary, share=0.25), setting(budget, Protection(), clients=30))
    one = calibrate(budget, Sensitivity(l1=60.0, l2=2.5), 0.25)
    assert one.law == "discrete-gaussian"
    assert plan.noise == replace(one, variance=30 * one.variance, copies=30.0)
    collected = LocalDP().plan(Collect(of=summary, share=0.25), setting(budget, Protection(), clients=30))
    assert collected.noise == one


def test_an_unknown_number_of_clients_counts_as_one() -> None:
    assert unary_plan(clients=0).noise.variance == unary_plan(clients=1).noise.variance > 0
    noisy = LocalDP().plan(Sum(of=Numbers()), setting(protection=Protection(), clients=0))
    assert noisy.noise.copies == 1


@pytest.mark.parametrize("budget", [Budget(epsilon=1.0), Budget(epsilon=1.0, delta=1e-7)])
@pytest.mark.parametrize("protection", [ONE_ROW, Protection()])
def test_the_queries_of_a_task_stay_within_its_budget(budget: Budget, protection: Protection) -> None:
    """Also where some are encoded bit by bit and others get noise: parts of ε and parts of ρ do not add up."""
    where = setting(budget, protection)
    summaries = [HISTOGRAM, Numbers(l1=7.0, l2=2.0), HISTOGRAM, Numbers(l1=300.0, l2=1.0), Cells()]
    plans = [LocalDP().plan(Sum(of=of, share=0.2), where) for of in summaries]
    total = spent([event(plan.noise, plan.sensitivity) for plan in plans], budget.delta)
    assert 0.7 * budget.epsilon < total <= budget.epsilon


def test_a_huge_epsilon_is_cut() -> None:
    assert unary_plan(epsilon=1e4).noise.scale == 1 / 32


def test_what_cannot_be_answered_is_refused() -> None:
    forced = LocalDP(encoding="unary")
    for query in (Sum(of=Numbers()), Collect(of=HISTOGRAM)):
        with pytest.raises(UnsupportedQuery, match="unary encoding answers sums of counts"):
            forced.plan(query, setting(trust=forced))
    with pytest.raises(UnsupportedQuery, match="measures no losses"):
        LocalDP().plan(Select(of=Numbers()), setting())
    with pytest.raises(UsageError, match="epsilon"):
        LocalDP().plan(Sum(of=HISTOGRAM), replace(setting(), budget=None))
    with pytest.raises(UsageError, match="expected auto, unary or noise"):
        LocalDP(encoding="other")


def test_partitions_must_cover_every_cell_once() -> None:
    class Overlapping(Cells):
        @property
        def partitions(self) -> tuple[Vector, ...]:
            return np.array([0, 1]), np.array([1, 2])

    assert LocalDP().plan(Sum(of=Overlapping()), setting()).noise.law == "discrete-laplace"


def test_noisy_totals_cannot_wrap() -> None:
    where = setting(protection=Protection(), clients=3)
    LocalDP().plan(Sum(of=Numbers(bound=2**61)), where)
    with pytest.raises(UnsupportedQuery, match="wrap"):
        LocalDP().plan(Sum(of=Numbers(bound=2**61)), replace(where, clients=4))
    with pytest.raises(UnsupportedQuery, match="wrap"):  # the noise of 2^20 clients alone could
        LocalDP().plan(Sum(of=Numbers(l1=2.0**33)), replace(where, clients=2**20))
    assert samplers.LONGEST_RUN <= 1024  # the draws are as short as the proof says


# --- unary encoding -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("label", [0, 1])
def test_estimates_are_right_where_bits_do_not_lie(label: int) -> None:
    """At ε = 32 other bits never lie; the own bit is a fair coin, whose error is bounded."""
    clients = 200
    plan = unary_plan(epsilon=32.0, clients=clients)
    vectors = {f"client{i}": (one_row(5, label),) for i in range(clients)}
    (released,) = drive(LocalDP(), [plan], vectors)
    read = HISTOGRAM.read(released.value)
    hit, other = (read.positives, read.negatives) if label else (read.negatives, read.positives)
    assert released.clients == clients
    assert np.abs(other).max() < 1e-6
    assert np.abs(np.delete(hit, [5, 9])).max() < 1e-6
    # Twice the heads of about 100 coins, times 2: a deviation of 100 is one of 5 standard deviations.
    assert np.abs(hit[[5, 9]] - clients).max() < 100
    assert released.noise.reporting == tuple(
        sum(assigned(drive_id(), 0, name, 2) == k for name in vectors) / clients for k in (0, 1)
    )


def drive_id(seed: int = 1) -> bytes:
    return SimulatedRandomness(seed).bytes(16)


def test_the_noise_says_who_reported_on_what() -> None:
    vectors = rows(60, idle=10)
    (released,) = drive(LocalDP(), [unary_plan(clients=60)], vectors)
    encoding = UnaryEncoding(scale=released.noise.scale)
    assert released.value.dtype == np.float64
    assert released.noise.variance == pytest.approx(60 * 2 * encoding.variance)
    assert sum(released.noise.reporting) == pytest.approx(1)
    lost = drive(LocalDP(), [unary_plan()], vectors, tamper=lambda n, leg, r: None if n == "client3" else r)
    assert lost[0].clients == 59
    assert lost[0].noise.variance == pytest.approx(59 * 2 * encoding.variance)


def test_plans_of_one_exchange_have_levels_and_bits_of_their_own() -> None:
    plans = [unary_plan(share=0.5), unary_plan(share=0.5)]
    vectors = {name: value * 2 for name, value in rows().items()}
    first, second = drive(LocalDP(), plans, vectors)
    assert first.noise.reporting != second.noise.reporting
    assert not np.array_equal(first.value, second.value)


def test_both_encodings_in_one_exchange() -> None:
    plans = [unary_plan(share=0.5), LocalDP().plan(Sum(of=Numbers(), share=0.5), setting())]
    vectors = {name: (value[0], np.array([1000, 0, -1000])) for name, value in rows().items()}
    first, second = drive(LocalDP(), plans, vectors)
    assert first.noise.law == UNARY
    assert np.abs(second.value - [40_000, 0, -40_000]).max() < 60 * 40 * second.noise.scale
    assert second.noise.copies == 40


Spoil = Callable[[Any], Any]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda reply: {"reports": [reply["reports"][0] + b"\0"]},
        lambda reply: {"reports": [reply["reports"][0][:-1]]},
        lambda reply: {"reports": [b"\xff"]},
        lambda reply: {"reports": []},
        lambda reply: {"reports": reply["reports"] * 2},
        lambda reply: {"reports": [[0, 1]]},
        lambda reply: {"reports": [np.zeros(20, dtype=np.int64)]},
        lambda reply: {"reports": reply["reports"][0]},
        lambda reply: {**reply, "more": 1},
        lambda reply: {"vectors": reply["reports"]},
        lambda reply: reply["reports"],
        lambda reply: None,
        lambda reply: 3.5,
    ],
)
def test_a_malformed_report_is_a_lost_one(spoil: Spoil) -> None:
    (released,) = drive(
        LocalDP(),
        [unary_plan(of=Cells(parts=(12,)))],
        {f"client{i}": (np.eye(12, dtype=np.int64)[i % 12],) for i in range(40)},
        tamper=lambda name, leg, reply: spoil(reply) if name == "client5" else reply,
    )
    assert released.clients == 39


def test_bits_beyond_the_cells_are_malformed() -> None:
    for last, answered in ((0b00001111, 39), (0b00010000, 40)):
        (released,) = drive(
            LocalDP(),
            [unary_plan(of=Cells(parts=(12,)))],
            {f"client{i}": (np.eye(12, dtype=np.int64)[i % 12],) for i in range(40)},
            tamper=lambda n, leg, r, last=last: {"reports": [bytes([0, last])]} if n == "client5" else r,
        )
        assert released.clients == answered


def test_too_few_clients_are_a_failure_in_words() -> None:
    for vectors in (rows(1, idle=0), {"a": rows(1, idle=0)["client0"], "b": rows(1, idle=0)["client0"]}):
        many = Cells(parts=(4,) * 5)
        plan = unary_plan(of=many)
        with pytest.raises(TooFewClients, match="clients reported, on"):
            drive(LocalDP(), [plan], {name: (np.zeros(20, dtype=np.int64),) for name in vectors})
    with pytest.raises(TooFewClients, match="none of 40"):
        drive(LocalDP(), [unary_plan()], rows(), tamper=lambda name, leg, reply: None)


def test_every_client_answers_with_as_many_bytes_whatever_it_holds() -> None:
    plan = unary_plan()
    nothing, something = np.zeros(HISTOGRAM.length, dtype=np.int64), one_row(3, 1)
    for vector in (nothing, something, 1000 * something, something + one_row(0, 0)):
        lengths = {len(respond(plan, vector, seed)["reports"][0]) for seed in range(20)}
        assert len(lengths) == 1
        assert set(respond(plan, vector)) == {"reports"}
    request = Request(exchange=b"id", plans=(plan,), cohort=1, leg=1, recipient="a", message={})
    with pytest.raises(ProtocolError, match="leg"):
        LocalDP().respond(request, lambda: (nothing,), {}, SimulatedRandomness(1))


def test_coins_are_never_the_same_twice() -> None:
    plan = unary_plan(of=Cells(parts=(256,)))
    request = Request(exchange=b"id", plans=(plan,), cohort=1, leg=0, recipient="a", message={})
    first, second = (
        LocalDP().respond(request, lambda: (np.zeros(256, dtype=np.int64),), {}, SecureRandomness())[0]
        for _ in range(2)
    )
    assert first != second


# --- noise --------------------------------------------------------------------------------------------------


def test_noise_counts_once_per_client_that_answered() -> None:
    plan = LocalDP().plan(Sum(of=Numbers(cells=400)), setting(protection=Protection(), clients=30))
    vectors = {f"client{i}": (np.zeros(400, dtype=np.int64),) for i in range(30)}
    (released,) = drive(LocalDP(), [plan], vectors, tamper=lambda n, leg, r: None if n == "client7" else r)
    assert released.noise.copies == 29
    # 400 draws: their mean square is within 4.5 of its standard deviations, √(2/400) or a little more.
    assert released.noise.variance == pytest.approx(float((released.value**2).mean()), rel=0.35)


def test_collected_vectors_carry_one_draw_each() -> None:
    plan = LocalDP().plan(Collect(of=Numbers(cells=5)), setting(protection=Protection()))
    vectors = {f"client{i}": (np.full(5, 900),) for i in range(6)}
    (released,) = drive(LocalDP(), [plan], vectors)
    assert released.noise == plan.noise == calibrate(Budget(epsilon=1.0), Sensitivity(l1=1.0, l2=1.0))
    assert len(released.value) == 6
    assert len({tuple(value) for value in released.value}) == 6
    assert all(np.abs(value - 900).max() <= 60 * plan.noise.scale for value in released.value)


def test_a_vector_beyond_its_bound_and_its_noise_is_a_lost_one() -> None:
    plan = LocalDP().plan(Sum(of=Numbers(cells=2)), setting(protection=Protection()))
    bound = 1000 + reach(plan.noise)
    for value, answered in ((bound, 4), (bound + 1, 3), (-bound, 4), (-bound - 1, 3), (-(2**63), 3)):
        (released,) = drive(
            LocalDP(),
            [plan],
            {f"client{i}": (np.zeros(2, dtype=np.int64),) for i in range(4)},
            tamper=lambda n, leg, r, v=value: {"reports": [np.array([v, 0])]} if n == "client1" else r,
        )
        assert released.clients == answered


@pytest.mark.parametrize("law", ["discrete-laplace", "discrete-gaussian"])
@pytest.mark.parametrize("scale", [0.75, 2.0, 9.0])
def test_sums_of_draws_have_the_stated_variance(law: str, scale: float) -> None:
    one = noise_of(law, Fraction(scale))
    noise = Noise(law=law, scale=scale, variance=1000 * one.variance, copies=1000.0)
    drawn = sum_of_draws(noise, 20_000, SimulatedRandomness(3))
    assert drawn.dtype == np.int64
    # Nearly normal sums: a mean square of 20,000 of them is within 5 %, five standard deviations.
    assert float((drawn.astype(float) ** 2).mean()) == pytest.approx(noise.variance, rel=0.05)


# --- aggregate and words ------------------------------------------------------------------------------------


def test_aggregates_say_who_reported_and_keep_the_totals() -> None:
    total = np.sum([value[0] for value in rows(500, idle=60).values()], axis=0)
    before = total.copy()
    (released,) = LocalDP().aggregate([unary_plan(clients=500)], [total], 500, SimulatedRandomness(1))
    np.testing.assert_array_equal(total, before)
    assert released.clients == 500
    assert released.value.shape == total.shape
    assert released.noise.law == UNARY
    assert sum(released.noise.reporting) == pytest.approx(1)
    assert released.noise.reporting != (0.5, 0.5)


def test_aggregates_need_totals_that_say_enough() -> None:
    trust = LocalDP(encoding="unary")
    several = trust.plan(Sum(of=HISTOGRAM), setting(protection=Protection(), trust=trust))
    with pytest.raises(UnsupportedQuery, match="rows_per_client=1"):
        trust.aggregate([several], [3 * one_row(1, 1)], 2, SimulatedRandomness(1))
    coarse_first = Cells(parts=(2, 4))
    with pytest.raises(UnsupportedQuery, match="finest"):
        LocalDP().aggregate(
            [unary_plan(of=coarse_first)], [np.array([1, 1, 1, 0, 0, 1])], 4, SimulatedRandomness(1)
        )
    collect = LocalDP().plan(Collect(of=Numbers()), setting())
    with pytest.raises(UnsupportedQuery, match="faithful"):
        LocalDP().aggregate([collect], [np.zeros(3, dtype=np.int64)], 4, SimulatedRandomness(1))
    with pytest.raises(TooFewClients):
        LocalDP().aggregate(
            [unary_plan()], [np.zeros(HISTOGRAM.length, dtype=np.int64)], 1, SimulatedRandomness(1)
        )


@pytest.mark.parametrize("unit", Unit)
@pytest.mark.parametrize("neighbours", Neighbours)
def test_the_statement_is_complete(unit: Unit, neighbours: Neighbours) -> None:
    budget = Budget(epsilon=0.25, delta=1e-9)
    for per_client, words in (
        (1, ("everything that the client holds", "randomises one by one", "if it has none")),
        (
            17,
            (neighbours.value, "17 rows" if unit is Unit.CLIENT else "one example", "adds noise to its own"),
        ),
    ):
        protection = Protection(unit=unit, neighbours=neighbours, rows_per_client=per_client)
        statement = LocalDP().statement(setting(budget, protection))
        for phrase in (
            *words,
            *("epsilon = 0.25", "delta = 1e-09", "no server has to be trusted", "the server", "public"),
        ):
            assert phrase in statement


def test_the_server_half_never_draws() -> None:
    """All randomness is at the clients: the release is a function of their messages."""
    exchange = Exchange(id=b"id", plans=(unary_plan(),), cohort=tuple(f"c{i}" for i in range(40)))
    replies = {
        name: respond(exchange.plans[0], one_row(i % 8, 1), i, name) for i, name in enumerate(exchange.cohort)
    }
    values = []
    for seed in (1, 2):
        flow = LocalDP().exchange(exchange, SimulatedRandomness(seed))
        next(flow)
        with pytest.raises(StopIteration) as finished:
            flow.send(replies)
        values.append(finished.value.value[0].value)
    np.testing.assert_array_equal(*values)


def test_unary_reports_on_parts_need_clients_that_are_in_one_of_them() -> None:
    """A client with rows in both parts would send two reports, each about all that it holds, for one budget."""
    summary = ScoreHistogram(transform="uniform", height=4)
    for part in (Part.FIT, Part.HELD_OUT):
        query = Sum(of=summary, part=part)
        example = Setting(
            trust=LocalDP(encoding="unary"), protection=Protection(), budget=Budget(epsilon=1.0), clients=100
        )
        with pytest.raises(UnsupportedQuery, match="unit=.client"):
            LocalDP(encoding="unary").plan(query, example)
        with pytest.raises(UnsupportedQuery, match="unit=.client"):
            LocalDP().plan(query, replace(example, protection=Protection(rows_per_client=1)))
        client = replace(example, protection=Protection(unit=Unit.CLIENT, rows_per_client=1))
        assert LocalDP().plan(query, client).noise.law == "unary"


def test_noise_beside_unary_reports_keeps_the_same_promise() -> None:
    """Whatever rows the client has: also for add-remove, a row in another's place is covered."""
    protection = Protection(unit=Unit.CLIENT, rows_per_client=1)
    setting = Setting(trust=LocalDP(), protection=protection, budget=Budget(epsilon=1.0), clients=100)
    weighted = ScoreHistogram(transform="uniform", height=4, widths=(1, 2), multipliers=(1, 2))
    assert LocalDP().plan(Sum(of=weighted), setting).sensitivity.l1 == 6.0


def test_clients_of_one_row_each_are_protected_as_clients() -> None:
    single = LocalDP().with_one_row_each(Protection())
    assert (single.unit, single.rows_per_client) == (Unit.CLIENT, 1)
    assert LocalDP(encoding="noise").with_one_row_each(Protection()) == Protection()
    assert Plain().with_one_row_each(Protection()) == Protection()
