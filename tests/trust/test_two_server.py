"""The trust model `two-server`: its contract, its plans, its refusals and its words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import contract
import numpy as np
import pytest
from contract import Numbers, Tamper, TrustModelContract, Vectors, untouched

from fedassay.crypto.dcf_keys import key_bytes
from fedassay.crypto.field61 import PRIME
from fedassay.errors import DataError, ProtocolError, UnsupportedQuery, UsageError
from fedassay.privacy.accounting import calibrate
from fedassay.privacy.randomness import SimulatedRandomness
from fedassay.protocol import wire
from fedassay.protocol.vocabulary import (
    Budget,
    Collect,
    Exchange,
    Message,
    Neighbours,
    Part,
    Plan,
    Points,
    Protection,
    Released,
    Select,
    Setting,
    Sum,
    Summary,
    TrustModel,
    Unit,
    Vector,
)
from fedassay.summaries.distribution.path import ValuePath
from fedassay.summaries.distribution.roots import ValueRoots
from fedassay.summaries.distribution.tree import ValueTree
from fedassay.summaries.score_histogram import ScoreHistogram
from fedassay.trust import TRUST_MODELS
from fedassay.trust.two_server.deposits import from_field, shared_total, to_field
from fedassay.trust.two_server.layout import LARGEST_LEAVES, Layout
from fedassay.trust.two_server.messages import MOST_PLACES
from fedassay.trust.two_server.model import TwoServer
from servers_town import require_two_servers
from two_server_driver import EXACT, Cells, Slopes, Town, Toy, UpTo, plan_of, plans_of, setting, values

BOUNDED = Protection(rows_per_client=6)
REPLACED = Protection(neighbours=Neighbours.REPLACE_ONE)


def drive(
    trust: TrustModel,
    plans: Sequence[Plan],
    vectors: Vectors,
    *,
    seed: int = 1,
    tamper: Tamper = untouched,
    strangers: Any = None,
) -> tuple[Released[Any], ...]:
    """What the contract drives, with two servers; only what clients send is tampered with."""

    def back(name: str, leg: int, reply: Any) -> Any:
        return tamper(name, leg, reply) if name in vectors else reply

    town = Town(plans=tuple(plans), counts=vectors, seed=seed, back=back, strangers=strangers or {})
    return town.go()


class TestContract(TrustModelContract):
    """Rows instead of numbers: a client has up to `bound` of them in each cell."""

    budget = EXACT
    bound = 20

    @pytest.fixture
    def trust(self) -> TrustModel:
        return TwoServer()

    @pytest.fixture(autouse=True)
    def driven_with_two_servers(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(contract, "drive", drive)

    def setting(self, trust: TrustModel, *, clients: int | None = None) -> Setting:
        return replace(super().setting(trust, clients=clients), protection=Protection(rows_per_client=60))

    def plans(self, trust: TrustModel, lengths: Sequence[int] = (3, 1)) -> tuple[Plan, ...]:
        share = 1 / len(lengths)
        queries = [Sum(of=Cells(cells=n), share=share) for n in lengths]
        return plans_of(*queries, of=self.setting(trust))

    def vectors(self, lengths: Sequence[int] = (3, 1), *, seed: int = 3) -> Vectors:
        return {
            name: tuple(np.abs(vector) for vector in found)
            for name, found in super().vectors(lengths, seed=seed).items()
        }

    def test_sums_at_the_bound_do_not_wrap(self, trust: TrustModel) -> None:
        """Numbers modulo p come back as they were, of either sign, up to the bound of the plan."""
        ends = np.array([PRIME // 2, -(PRIME // 2), 0, 1, -1])
        np.testing.assert_array_equal(from_field(to_field(ends)), ends)

    def test_single_answers_are_refused_or_complete(self, trust: TrustModel) -> None:
        with pytest.raises(UnsupportedQuery, match="local-dp"):
            trust.plan(Collect(of=Cells()), self.setting(trust))


class TestApproximateContract(TestContract):
    budget = Budget(epsilon=900.0, delta=1e-6)


# --- plans --------------------------------------------------------------------------------------------------


def test_it_is_in_the_catalogue() -> None:
    assert TRUST_MODELS["two-server"] is TwoServer
    assert TwoServer.helpers_needed == 2


@pytest.mark.parametrize("budget", [Budget(epsilon=0.5), Budget(epsilon=0.5, delta=1e-6)])
def test_each_server_adds_what_one_server_would(budget: Budget) -> None:
    (plan,) = plans_of(Sum(of=Cells(touched=30), share=0.25), of=setting(budget=budget))
    one = calibrate(budget, Cells(touched=30).sensitivity(BOUNDED), 0.25)
    assert (plan.noise.law, plan.noise.scale, plan.noise.copies) == (one.law, one.scale, 2.0)
    assert plan.noise.variance == 2 * one.variance
    assert plan.setting.noise(plan.query) == plan.noise


def test_clients_measure_the_leaves() -> None:
    assert plan_of(Slopes(cells=9)).measured == Cells(cells=9)
    assert TwoServer().measured(Numbers()) == Numbers()


@pytest.mark.parametrize("kind", [Collect, Select])
def test_single_messages_carry_no_noise(kind: type[Collect[object]]) -> None:
    with pytest.raises(UnsupportedQuery, match="local-dp"):
        plans_of(kind(of=Cells()))


def test_a_summary_without_leaves_is_refused() -> None:
    with pytest.raises(UnsupportedQuery, match="numbers: two-server encodes each row by the cell"):
        plans_of(Sum(of=Numbers()))


def test_too_many_leaves_are_refused() -> None:
    plan_of(Cells(cells=LARGEST_LEAVES))
    with pytest.raises(UnsupportedQuery, match="1,048,577 cells, expected at most 1,048,576"):
        plan_of(Cells(cells=LARGEST_LEAVES + 1))


@pytest.mark.parametrize(
    ("protection", "part", "allowed"),
    [
        (Protection(), Part.ALL, False),
        (REPLACED, Part.ALL, True),
        (REPLACED, Part.FIT, False),
        (REPLACED, Part.HELD_OUT, False),
        (BOUNDED, Part.FIT, True),
        (Protection(unit=Unit.CLIENT, rows_per_client=3), Part.HELD_OUT, True),
    ],
)
def test_how_many_rows_a_client_sends_must_be_public(
    protection: Protection, part: Part, allowed: bool
) -> None:
    query = Sum(of=Cells(), part=part)
    if allowed:
        plans_of(query, of=setting(protection=protection))
    else:
        with pytest.raises(UsageError, match="rows_per_client"):
            plans_of(query, of=setting(protection=protection))


def test_more_keys_than_a_client_can_send_are_refused() -> None:
    each = key_bytes(4)
    plan_of(protection=Protection(rows_per_client=2**25 // each))
    with pytest.raises(UnsupportedQuery, match="smaller .rows_per_client"):
        plan_of(protection=Protection(rows_per_client=2**25 // each + 1))


def test_more_keys_than_a_server_can_hold_are_refused_before_anybody_is_asked() -> None:
    plan = plan_of(protection=Protection(rows_per_client=2**25 // key_bytes(4)), clients=250)
    for clients in (4, 5):
        cohort = tuple(map(str, range(clients)))
        exchange = Exchange(id=bytes(16), plans=(plan,), cohort=cohort, helpers=("a", "b"))
        flow = TwoServer().exchange(exchange, SimulatedRandomness(1))
        if clients == 4:
            assert set(next(flow).requests) == {"a", "b"}
        else:
            with pytest.raises(UnsupportedQuery, match="keys of 5 clients are .* smaller .rows_per_client"):
                next(flow)


@dataclass(frozen=True, kw_only=True)
class Heavy(Toy):
    name: ClassVar[str] = "heavy"
    bound: int = 2**57

    @property
    def largest(self) -> int:
        return self.bound


def test_totals_leave_room_for_the_noise_of_both_servers() -> None:
    plan_of(Heavy(bound=2**57), clients=7)
    with pytest.raises(UnsupportedQuery, match="wrap"):
        plan_of(Heavy(bound=2**57), clients=8)
    plan = plan_of(Cells(cells=1), clients=1)
    for value in (PRIME // 2, -(PRIME // 2), 2**62):
        with pytest.raises(ProtocolError, match="exceeds"):
            TwoServer().aggregate([plan], [np.array([value])], 1, SimulatedRandomness(1))


def test_points_only_of_summaries_that_count_up() -> None:
    plans_of(Points(of=UpTo(), at=(0, 11, 3)))
    for summary in (Cells(), Slopes()):
        with pytest.raises(UnsupportedQuery, match="ask for the whole total"):
            plans_of(Points(of=summary, at=(0,)))
    with pytest.raises(UsageError, match=r"1 places up to 12, expected at most 65,536 places below 12"):
        plans_of(Points(of=UpTo(), at=(12,)))
    with pytest.raises(UsageError, match="65,537 places"):
        plans_of(Points(of=UpTo(), at=(0,) * (MOST_PLACES + 1)))


@dataclass(frozen=True, kw_only=True)
class TwoClasses(UpTo):
    """Cumulative in each half by itself: what it says of itself does not hold."""

    name: ClassVar[str] = "two-classes"

    def from_leaves(self, counts: Vector) -> Vector:
        return np.concatenate([np.cumsum(half) for half in np.split(counts, 2)])


def test_a_summary_that_only_says_that_it_counts_up_is_refused() -> None:
    with pytest.raises(UnsupportedQuery, match="ask for the whole total"):
        plans_of(Points(of=TwoClasses(), at=(0,)))


def test_points_cannot_be_drawn_in_aggregate() -> None:
    (plan,) = plans_of(Points(of=UpTo(), at=(0,)))
    with pytest.raises(UnsupportedQuery, match="faithful"):
        TwoServer().aggregate([plan], [np.zeros(12, np.int64)], 1, SimulatedRandomness(1))


@pytest.mark.parametrize("neighbours", Neighbours)
@pytest.mark.parametrize("rows", [None, 1])
def test_clients_of_one_row_are_the_unit(neighbours: Neighbours, rows: int | None) -> None:
    protection = TwoServer().with_one_row_each(Protection(neighbours=neighbours, rows_per_client=rows))
    assert protection == Protection(unit=Unit.CLIENT, neighbours=neighbours, rows_per_client=1)
    assert TwoServer().with_one_row_each(BOUNDED) == BOUNDED


def test_two_servers_are_needed() -> None:
    require_two_servers(plan_of())


@pytest.mark.parametrize("unit", Unit)
@pytest.mark.parametrize("neighbours", Neighbours)
@pytest.mark.parametrize("delta", [0.0, 1e-9])
def test_the_statement_is_complete(unit: Unit, neighbours: Neighbours, delta: float) -> None:
    protection = Protection(unit=unit, neighbours=neighbours, rows_per_client=17)
    statement = TwoServer().statement(
        setting(budget=Budget(epsilon=0.25, delta=delta), protection=protection)
    )
    for words in (
        "epsilon = 0.25",
        "delta = 1e-09" if delta else "delta = 0",
        neighbours.value,
        "at most 17 rows" if unit is Unit.CLIENT else "one example",
        *("not colluding", "one of the two servers sees", "noise of both", "follow the protocol"),
        *("sends 17 encoded rows", "counts each row exactly once", "Laplace"),
    ):
        assert words in statement
    assert ("Gaussian" in statement) == (delta > 0)
    assert "How many rows each client has is public" in TwoServer().statement(setting(protection=REPLACED))


# --- rows as keys -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("leaves", [1, 2, 3, 4, 7, 8, 1023, 1024])
def test_leaves_and_a_dummy_fit_into_the_domain_and_every_point_is_checked(leaves: int) -> None:
    layout = Layout(leaves=leaves, rows=3)
    assert 2 ** (layout.bits - 1) <= layout.dummy < 2**layout.bits
    assert layout.checked.tolist() == [*range(leaves), 2**layout.bits - 1]
    assert (np.diff(layout.checked.astype(np.int64)) > 0).all()


def test_values_are_the_rows_and_dummies_in_random_order() -> None:
    layout = Layout(leaves=3, rows=40)
    found = [layout.values(np.array([2, 0, 3]), SimulatedRandomness(seed)) for seed in (1, 2)]
    for one in found:
        assert sorted(one.tolist()) == [0, 0, 2, 2, 2] + [3] * 35
    assert found[0].tolist() != found[1].tolist()
    unbounded = Layout(leaves=3, rows=None).values(np.array([2, 0, 3]), SimulatedRandomness(1))
    assert sorted(unbounded.tolist()) == [0, 0, 2, 2, 2]


@pytest.mark.parametrize(
    "counts", [np.array([1, -1, 0]), np.array([1, 1]), np.array([1.0, 1, 1]), np.array([3, 3, 3])]
)
def test_counts_that_are_none_are_refused(counts: Any) -> None:
    with pytest.raises(DataError, match="two-server"):
        Layout(leaves=3, rows=8).values(counts, SimulatedRandomness(1))


def test_more_rows_than_fit_into_a_message_are_refused() -> None:
    layout = Layout(leaves=3, rows=None)
    with pytest.raises(DataError, match="give .rows_per_client"):
        layout.values(np.array([layout.most_rows, 1, 0]), SimulatedRandomness(1))


# --- shares of other totals ---------------------------------------------------------------------------------


REAL = [
    ValueTree(lower=0, upper=1, points=64, widths=(1, 4), multipliers=(3, 2), labelled=True),
    ValuePath(lower=0, upper=1, points=64, labelled=True, multiplier=1 << 16),
    ValueRoots(lower=0, upper=1, points=1 << 13),
    ScoreHistogram(transform="logit", height=6, widths=(1, 8)),
]


@pytest.mark.parametrize("summary", [Cells(cells=40), Slopes(cells=40), UpTo(cells=40), *REAL])
def test_what_is_linear_is_computed_on_shares(summary: Summary[Any]) -> None:
    """For any shares, the largest included: what they add up to is what follows from the counts themselves."""
    generator = np.random.default_rng(5)
    assert summary.leaves is not None
    leaves = summary.leaves.length
    for counts in (generator.integers(0, 2**20, leaves), np.zeros(leaves, np.int64)):
        first = generator.integers(0, PRIME, leaves, dtype=np.uint64)
        first[: leaves // 2] = PRIME - 1
        second = to_field(counts - first.astype(np.int64))
        shares = [shared_total(summary, one).astype(object) for one in (first, second)]
        total = ((shares[0] + shares[1]) % PRIME).astype(np.uint64)
        assert from_field(total).tolist() == summary.from_leaves(counts).tolist()


@dataclass(frozen=True, kw_only=True)
class Broken(Cells):
    name: ClassVar[str] = "broken"

    def from_leaves(self, counts: Vector) -> Vector:
        return counts / 2


def test_a_summary_that_makes_something_else_of_its_leaves_is_noticed() -> None:
    with pytest.raises(ProtocolError, match="not 12 whole numbers"):
        shared_total(Broken(), np.zeros(12, np.uint64))


# --- how large messages are ---------------------------------------------------------------------------------


@pytest.mark.parametrize("protection", [Protection(rows_per_client=300), REPLACED])
def test_no_honest_reply_is_too_large(protection: Protection) -> None:
    (plan,) = plans = plans_of(Sum(of=Cells(cells=50)), of=setting(protection=protection))
    counts = {f"client{i}": (np.full(50, 6, np.int64),) for i in range(4)}
    town = Town(plans=plans, counts=counts)
    assert values(town.go()) == [[24] * 50]
    exchange = Exchange(id=town.id, plans=(plan,), cohort=tuple(counts))
    largest = TwoServer().largest_reply(exchange)
    sizes: dict[str, int] = {}
    for (name, _), message in town.said.items():
        sizes[name] = max(sizes.get(name, 0), len(wire.encode(message)))
    assert max(sizes.values()) < largest
    if protection.rows_per_client is not None:
        assert largest < 2 * max(sizes.values()) + 100_000


def test_messages_say_nothing_about_how_many_rows_there_are() -> None:
    """With a bound, the reply of a client without rows is as long as that of one with the most."""
    counts = {"none": (np.zeros(12, np.int64),), "most": (np.eye(12, dtype=np.int64)[3] * 6,)}
    town = Town(plans=(plan_of(clients=2),), counts=counts)
    town.go()
    replies: list[Message] = [town.said["none", 1], town.said["most", 1]]
    assert len(wire.encode(replies[0])) == len(wire.encode(replies[1]))
