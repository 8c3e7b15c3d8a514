"""What every trust model must do: inherit `TrustModelContract` and say which model it is.

The tests drive the two halves of a trust model directly: a loop over the server half that calls the client
half of each client, with every message passed through bytes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

from fedassay.errors import TooFewClients, UnsupportedQuery, UsageError
from fedassay.kernel.client import _Seat
from fedassay.kernel.member_store import MemberStore
from fedassay.privacy.policy.judgement import AllowAll
from fedassay.privacy.randomness import SimulatedRandomness
from fedassay.protocol import wire
from fedassay.protocol.vocabulary import (
    Budget,
    Collect,
    Exchange,
    Memory,
    Message,
    Party,
    Plan,
    Protection,
    Query,
    Released,
    Request,
    Rows,
    Sensitivity,
    Setting,
    Sum,
    Summary,
    TrustModel,
    Vector,
)

Vectors = Mapping[str, tuple[Vector, ...]]
"""What each client measures: one vector per plan."""

Tamper = Callable[[str, int, Message], Any]
"""Given a client, a leg and its reply: what arrives instead; None is a lost message."""

SERVERS = ("first-server", "second-server")
"""Who helps, under trust models with two servers. Their messages arrive as they are."""


@dataclass(frozen=True, kw_only=True)
class Numbers(Summary[Vector]):
    """A vector that the test decides; it promises no more than its fields."""

    cells: int = 3
    bound: int = 1000
    l1: float = 1.0
    l2: float = 1.0
    name: ClassVar[str] = "numbers"
    columns: ClassVar[tuple[str, ...]] = ()

    @property
    def length(self) -> int:
        return self.cells

    @property
    def largest(self) -> int:
        return self.bound

    def measure(self, rows: Rows, memory: Memory) -> tuple[Vector, Memory]:
        raise NotImplementedError

    def sensitivity(self, protection: Protection) -> Sensitivity:
        return Sensitivity(l1=self.l1, l2=self.l2)

    def read(self, total: Vector) -> Vector:
        return total


def untouched(name: str, leg: int, reply: Message) -> Message:
    return reply


def drive(
    trust: TrustModel,
    plans: Sequence[Plan],
    vectors: Vectors,
    *,
    seed: int = 1,
    tamper: Tamper = untouched,
    strangers: Mapping[str, Message] | None = None,
) -> tuple[Released[Any], ...]:
    """Run one exchange over these clients."""
    source, helpers = SimulatedRandomness(seed), SERVERS[: trust.helpers_needed]
    seats = {
        name: _Seat(prekeys=MemberStore(None), dataset=name, asker="", policy=AllowAll()) for name in vectors
    }
    prekeys = {
        name: seats[name].prekeys.issue(1, coordinator="", credentials=None, randomness=source)[0].packed()
        for name in (trust.committee(list(vectors)) if trust.member_leg is not None else ())
    }
    exchange = Exchange(
        id=source.bytes(16),
        plans=tuple(plans),
        cohort=tuple(vectors),
        helpers=helpers,
        prekeys=prekeys,
        deadline=int(time.time()) + 1000,
    )
    states: dict[str, Message] = {name: {} for name in (*vectors, *helpers)}
    sources = {name: source.child(f"client/{name}") for name in (*vectors, *helpers)}
    flow = trust.exchange(exchange, source.child("server"))
    asked, leg = next(flow), 0
    while True:
        replies: dict[str, Any] = dict(strangers or {}) if asked.to is Party.CLIENTS else {}
        for name, message in asked.requests.items():
            request = Request(
                exchange=exchange.id,
                plans=exchange.plans,
                cohort=len(exchange.cohort),
                leg=leg,
                recipient=name,
                message=wire.decode(wire.encode(message)),
                membership=seats.get(name),
            )
            if asked.to is Party.HELPER:
                reply, states[name] = trust.assist(request, states[name], sources[name])
                replies[name] = wire.decode(wire.encode(reply))
                continue
            reply, states[name] = trust.respond(
                request, lambda n=name: vectors[n], states[name], sources[name]
            )
            arrived = tamper(name, leg, wire.decode(wire.encode(reply)))
            if arrived is not None:
                replies[name] = arrived
        try:
            kept = {
                name: asked.take(name, reply) for name, reply in replies.items() if name in asked.requests
            }
            asked, leg = (
                flow.send({name: reply for name, reply in kept.items() if reply is not None}),
                leg + 1,
            )
        except StopIteration as finished:
            released: tuple[Released[Any], ...] = finished.value
            return released


def assert_noise_fits(released: Released[Any], exact: Vector) -> None:
    """The release is the exact total but for its noise: a wrong total is off by more than 60 scales."""
    assert released.value.dtype == np.int64
    assert released.value.shape == exact.shape
    # P(|noise| > 60 scales) < 2e-26 for either law; without noise the scale is 0.
    assert np.abs(released.value - exact).max() <= 60 * released.noise.scale


class TrustModelContract:
    """Inherit, and override the fixture `trust` (and `budget`, if the model adds noise)."""

    budget: ClassVar[Budget | None] = None
    clients: ClassVar[int] = 8
    """Enough clients that one of them may be lost."""
    bound: ClassVar[int] = 2**34
    """Entries this large drown any noise of the tests: a total that lacks one client is noticed."""

    @pytest.fixture
    def trust(self) -> TrustModel:
        raise NotImplementedError

    def setting(self, trust: TrustModel, *, clients: int | None = None) -> Setting:
        return Setting(
            trust=trust,
            protection=Protection(),
            budget=self.budget,
            clients=self.clients if clients is None else clients,
        )

    def plans(self, trust: TrustModel, lengths: Sequence[int] = (3, 1)) -> tuple[Plan, ...]:
        share = 1 / len(lengths)
        return tuple(
            trust.plan(Sum(of=Numbers(cells=n, bound=self.bound), share=share), self.setting(trust))
            for n in lengths
        )

    def vectors(self, lengths: Sequence[int] = (3, 1), *, seed: int = 3) -> Vectors:
        """Entries between half the bound and the bound, of either sign."""
        generator = np.random.default_rng(seed)
        return {
            f"client{i}": tuple(
                generator.choice([-1, 1], n)
                * generator.integers(self.bound // 2, self.bound, n, endpoint=True)
                for n in lengths
            )
            for i in range(self.clients)
        }

    def totals(self, vectors: Vectors, *, without: str = "") -> list[Vector]:
        columns = zip(*(value for name, value in vectors.items() if name != without), strict=True)
        return [np.sum(column, axis=0) for column in columns]

    @pytest.mark.parametrize("seed", [3, 4, 5])
    def test_a_release_is_the_sum_up_to_its_noise(self, trust: TrustModel, seed: int) -> None:
        plans, vectors = self.plans(trust), self.vectors(seed=seed)
        released = drive(trust, plans, vectors, seed=seed)
        for one, plan, exact in zip(released, plans, self.totals(vectors), strict=True):
            assert_noise_fits(one, exact)
            assert one.noise == plan.noise
            assert one.clients == self.clients

    def test_sums_at_the_bound_do_not_wrap(self, trust: TrustModel) -> None:
        plans = self.plans(trust, (2,))
        vectors = {f"client{i}": (np.array([self.bound, -self.bound]),) for i in range(self.clients)}
        (released,) = drive(trust, plans, vectors)
        assert_noise_fits(released, self.clients * np.array([self.bound, -self.bound]))

    def test_a_lost_message_leaves_out_one_client(self, trust: TrustModel) -> None:
        vectors = self.vectors()
        released = drive(
            trust,
            self.plans(trust),
            vectors,
            tamper=lambda name, leg, reply: None if name == "client2" else reply,
        )
        for one, exact in zip(released, self.totals(vectors, without="client2"), strict=True):
            assert_noise_fits(one, exact)
            assert one.clients == self.clients - 1

    @pytest.mark.parametrize(
        "garbage",
        [
            {},
            {"vectors": None},
            {"vectors": []},
            {"unknown": 1},
            [],
            b"",
            "text",
            7,
            {"vectors": [[1, 2, 3], [1]]},
        ],
        ids=repr,
    )
    def test_a_malformed_reply_is_a_lost_one(self, trust: TrustModel, garbage: Any) -> None:
        vectors = self.vectors()
        released = drive(
            trust,
            self.plans(trust),
            vectors,
            tamper=lambda name, leg, reply: garbage if name == "client5" else reply,
        )
        for one, exact in zip(released, self.totals(vectors, without="client5"), strict=True):
            assert_noise_fits(one, exact)

    def test_strangers_do_not_count(self, trust: TrustModel) -> None:
        vectors = self.vectors()
        honest: dict[str, Message] = {}

        def listen(name: str, leg: int, reply: Message) -> Message:
            honest.setdefault(name, reply)
            return reply

        drive(trust, self.plans(trust), vectors, tamper=listen)
        released = drive(trust, self.plans(trust), vectors, strangers={"stranger": honest["client0"]})
        for one, exact in zip(released, self.totals(vectors), strict=True):
            assert_noise_fits(one, exact)
            assert one.clients == self.clients

    def test_nobody_answers(self, trust: TrustModel) -> None:
        with pytest.raises(TooFewClients):
            drive(trust, self.plans(trust), self.vectors(), tamper=lambda name, leg, reply: None)

    def test_what_is_measured_is_not_changed(self, trust: TrustModel) -> None:
        vectors = self.vectors()
        before = {name: tuple(vector.copy() for vector in value) for name, value in vectors.items()}
        drive(trust, self.plans(trust), vectors)
        for name, value in before.items():
            for kept, vector in zip(value, vectors[name], strict=True):
                np.testing.assert_array_equal(kept, vector)

    def test_totals_can_be_drawn_in_aggregate(self, trust: TrustModel) -> None:
        plans, totals = self.plans(trust), self.totals(self.vectors())
        before = [total.copy() for total in totals]
        released = trust.aggregate(plans, totals, self.clients, SimulatedRandomness(9))
        for one, plan, exact, kept in zip(released, plans, totals, before, strict=True):
            assert_noise_fits(one, exact)
            assert (one.noise, one.clients) == (plan.noise, self.clients)
            np.testing.assert_array_equal(exact, kept)

    def test_plans_repeat(self, trust: TrustModel) -> None:
        assert self.plans(trust) == self.plans(trust)

    def test_noise_goes_with_a_budget(self, trust: TrustModel) -> None:
        (plan,) = self.plans(trust, (3,))
        assert (plan.noise.variance > 0) == trust.private
        other = None if trust.private else Budget(epsilon=1.0)
        setting = Setting(trust=trust, protection=Protection(), budget=other, clients=self.clients)
        with pytest.raises(UsageError, match="epsilon"):
            trust.plan(Sum(of=Numbers()), setting)

    def test_a_sum_that_could_wrap_is_refused(self, trust: TrustModel) -> None:
        with pytest.raises(UnsupportedQuery):
            trust.plan(Sum(of=Numbers(bound=2**61)), self.setting(trust))

    def test_an_unknown_kind_of_query_is_refused(self, trust: TrustModel) -> None:
        with pytest.raises(UnsupportedQuery):
            trust.plan(Query(of=Numbers()), self.setting(trust))

    def test_single_answers_are_refused_or_complete(self, trust: TrustModel) -> None:
        try:
            plan = trust.plan(Collect(of=Numbers(bound=self.bound)), self.setting(trust))
        except UnsupportedQuery:
            return
        vectors = self.vectors((3,))
        (released,) = drive(trust, [plan], vectors)
        assert len(released.value) == released.clients == self.clients

    def test_the_statement_says_what_is_promised(self, trust: TrustModel) -> None:
        statement = trust.statement(self.setting(trust))
        assert "server" in statement
        if self.budget is not None:
            assert f"epsilon = {self.budget.epsilon:.3g}" in statement
            assert f"delta = {self.budget.delta:.3g}" in statement
