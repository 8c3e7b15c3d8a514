"""The trust model `plain`: its contract, and what only it can do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from contract import Numbers, TrustModelContract, drive

from fedassay.errors import ProtocolError, UnsupportedQuery, UsageError
from fedassay.privacy.randomness import SimulatedRandomness
from fedassay.protocol.vocabulary import (
    NO_NOISE,
    Budget,
    Collect,
    Message,
    Protection,
    Request,
    Select,
    Setting,
    Sum,
    TrustModel,
    Vector,
)
from fedassay.trust.plain import Plain


class TestPlainContract(TrustModelContract):
    @pytest.fixture
    def trust(self) -> TrustModel:
        return Plain()


def setting(clients: int = 4, budget: Budget | None = None) -> Setting:
    return Setting(trust=Plain(), protection=Protection(), budget=budget, clients=clients)


VECTORS = {
    name: (np.array(values),) for name, values in {"a": [3, 1, 2], "b": [1, 1, 9], "c": [5, 6, 0]}.items()
}


def test_a_sum_is_exact() -> None:
    (released,) = drive(Plain(), [Plain().plan(Sum(of=Numbers()), setting())], VECTORS)
    assert released.value.tolist() == [9, 8, 11]
    assert released.noise == NO_NOISE


def test_a_collect_keeps_clients_apart_in_the_order_of_the_cohort() -> None:
    (released,) = drive(Plain(), [Plain().plan(Collect(of=Numbers()), setting())], VECTORS)
    assert [vector.tolist() for vector in released.value] == [[3, 1, 2], [1, 1, 9], [5, 6, 0]]


def test_a_select_marks_the_smallest_loss_and_the_first_of_ties() -> None:
    (released,) = drive(Plain(), [Plain().plan(Select(of=Numbers()), setting())], VECTORS)
    assert [vector.tolist() for vector in released.value] == [[0, 1, 0], [1, 0, 0], [0, 0, 1]]


def test_different_queries_share_one_round() -> None:
    plans = [Plain().plan(kind(of=Numbers()), setting()) for kind in (Sum, Collect, Select)]
    vectors = {name: (vector,) * 3 for name, (vector,) in VECTORS.items()}
    total, each, chosen = drive(Plain(), plans, vectors)
    assert total.value.tolist() == [9, 8, 11]
    assert len(each.value) == len(chosen.value) == 3


@pytest.mark.parametrize(
    "vector",
    [
        np.array([1, 2]),
        np.array([1, 2, 3, 4]),
        np.array([[1, 2, 3]]),
        np.array([1.0, 2.0, 3.0]),
        np.array([1, 2, 3], dtype=np.uint64),
        np.array([1, 2, 1001]),
        np.array([1, 2, -1001]),
        np.array([1, 2, -(2**63)]),
        np.array([1, 2, 2**63 - 1]),
        [1, 2, 3],
    ],
    ids=repr,
)
def test_a_vector_out_of_bounds_is_a_dropout(vector: Any) -> None:
    def cheat(name: str, leg: int, reply: Message) -> Message:
        return {"vectors": [vector]} if name == "b" else reply

    (released,) = drive(Plain(), [Plain().plan(Sum(of=Numbers()), setting())], VECTORS, tamper=cheat)
    assert released.value.tolist() == [8, 7, 2]
    assert released.clients == 2


@pytest.mark.parametrize("choice", [[0, 0, 0], [1, 1, 0], [2, 0, -1], [0, 5, 0]])
def test_a_choice_is_exactly_one_candidate(choice: list[int]) -> None:
    def cheat(name: str, leg: int, reply: Message) -> Message:
        return {"vectors": [np.array(choice)]} if name == "b" else reply

    (released,) = drive(Plain(), [Plain().plan(Select(of=Numbers()), setting())], VECTORS, tamper=cheat)
    assert released.clients == 2


def test_extra_keys_are_malformed() -> None:
    def cheat(name: str, leg: int, reply: Message) -> Message:
        return {**reply, "more": 1} if name == "b" else reply

    (released,) = drive(Plain(), [Plain().plan(Sum(of=Numbers()), setting())], VECTORS, tamper=cheat)
    assert released.clients == 2


def test_the_largest_sum_that_fits_and_the_next() -> None:
    Plain().plan(Sum(of=Numbers(bound=2**61)), setting(clients=3))
    with pytest.raises(UnsupportedQuery, match="wrap"):
        Plain().plan(Sum(of=Numbers(bound=2**61)), setting(clients=4))
    Plain().plan(Collect(of=Numbers(bound=2**61)), setting(clients=4))


def test_more_clients_than_planned_cannot_wrap_either() -> None:
    plan = Plain().plan(Sum(of=Numbers(bound=2**61)), setting(clients=3))
    with pytest.raises(ProtocolError):
        drive(Plain(), [plan], {str(i): (np.full(3, 2**61),) for i in range(4)})


def test_a_budget_is_refused() -> None:
    with pytest.raises(UsageError, match="no noise"):
        Plain().plan(Sum(of=Numbers()), setting(budget=Budget(epsilon=1.0)))


def test_single_answers_cannot_be_drawn_in_aggregate() -> None:
    plan = Plain().plan(Collect(of=Numbers()), setting())
    with pytest.raises(UnsupportedQuery, match="faithful"):
        Plain().aggregate([plan], [np.zeros(3, dtype=np.int64)], 4, SimulatedRandomness(1))


def test_a_second_leg_is_out_of_turn() -> None:
    plan = Plain().plan(Sum(of=Numbers()), setting())
    request = Request(exchange=b"e", plans=(plan,), cohort=3, leg=1, recipient="a", message={})

    def rows() -> tuple[Vector, ...]:
        raise AssertionError("no row may be read")

    with pytest.raises(ProtocolError):
        Plain().respond(request, rows, {}, SimulatedRandomness(1))
