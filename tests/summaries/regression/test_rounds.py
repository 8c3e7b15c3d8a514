"""A round of federated averaging: which rows a client takes, what it says of them, and what the sums mean."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from batched import batched
from fedassay.data.tables import ArrayRows, StreamedRows
from fedassay.errors import UsageError
from fedassay.protocol import wire
from fedassay.protocol.vocabulary import Memory
from fedassay.summaries.regression.local_work import LOCAL, LocalSteps, Turn, local_work
from fedassay.summaries.regression.losses import Design
from fedassay.summaries.regression.moments import LARGEST_THETA, Standard
from fedassay.summaries.regression.rounds import LARGEST_ENTRY, ClientSpread, RegressionRound


def client(rows: int, *, model: str = "linear", seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = rng.normal(size=rows) if model == "linear" else rng.integers(0, 2, size=rows).astype(float)
    return {"features": rng.normal(size=(rows, 2)), "target": y, "offset": rng.normal(size=rows)}


def rows_of(columns: Mapping[str, np.ndarray]) -> ArrayRows:
    return ArrayRows(columns=columns)


def asked(**fields: Any) -> RegressionRound:
    given: dict[str, Any] = {
        "features": 2,
        "model": "linear",
        "theta": (0.1, -0.2, 0.3),
        "step": 0.1,
        **fields,
    }
    return RegressionRound(**given)


def carried(memory: Memory) -> Memory:
    """As a site keeps it between two messages."""
    return wire.decode(wire.encode(dict(memory)))


# --- turns ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [None, 0, 2**63 - 1])
@pytest.mark.parametrize(("rows", "visits"), [(12, 4), (13, 4), (5, 5), (3, 7), (1, 1), (1, 9), (10, 1)])
def test_no_row_comes_again_before_all_but_the_rest_have_come(
    rows: int, visits: int, seed: int | None
) -> None:
    memory: Memory = {}
    many = max(1, rows // visits)
    in_a_pass = rows // many
    for visit in range(3 * in_a_pass):
        turn = Turn.next(rows, visits, seed, memory)
        memory = carried(turn.memory)
        if visit % in_a_pass == 0:
            used: list[int] = []
        used += turn.places.tolist()
        assert len(turn.places) == many
        assert turn.passes == visit // in_a_pass
        assert len(set(used)) == len(used)
        assert set(used) <= set(range(rows))
    assert len(used) == many * in_a_pass > rows - many


def test_orders_are_public_repeatable_and_new_in_every_pass() -> None:
    def orders(seed: int | None) -> list[list[int]]:
        memory: Memory = {}
        found = []
        for _ in range(3):
            turn = Turn.next(50, 1, seed, memory)
            memory = turn.memory
            found.append(turn.places.tolist())
        return found

    assert orders(4) == orders(4)
    assert orders(None) == [list(range(50))] * 3
    assert len({tuple(order) for seed in (4, 5) for order in orders(seed)}) == 6
    salted = [Turn.next(50, 1, 4, {}, salt=lambda salt=salt: salt).places.tolist() for salt in (0, 1)]
    assert salted[0] == orders(4)[0] != salted[1]  # clients with other rows have other orders


def test_a_client_without_rows_has_no_turn_and_keeps_what_else_it_remembers() -> None:
    turn = Turn.next(0, 3, 1, {"other": 7})
    again = Turn.next(0, 3, 1, turn.memory)
    assert (len(turn.places), turn.passes, again.passes, again.memory["other"]) == (0, 0, 0, 7)


def test_rows_that_arrive_or_leave_do_not_break_the_turn() -> None:
    memory = Turn.next(10, 2, 3, {}).memory
    more = Turn.next(14, 2, 3, memory)
    assert (more.passes, len(set(more.places.tolist()))) == (0, 7)
    fewer = Turn.next(4, 2, 3, memory)
    assert (fewer.passes, len(set(fewer.places.tolist()))) == (1, 2)
    assert set(fewer.places.tolist()) <= set(range(4))


# --- what a client says -----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [None, 5])
def test_rows_in_many_batches_are_rows_in_one(seed: int | None) -> None:
    columns = client(17)
    for offset in (False, True):
        of = asked(visits=3, local_steps=2, seed=seed, offset=offset, remembers=True)
        memories: list[Memory] = [{}, {}, {}]
        for _ in range(5):
            sources = (rows_of(columns), batched(columns, *range(18)), batched(columns, 4, 4, 8, 12))
            answers = [of.measure(rows, memory) for rows, memory in zip(sources, memories, strict=True)]
            memories = [carried(memory) for _, memory in answers]
            for vector, memory in answers[1:]:
                np.testing.assert_array_equal(vector, answers[0][0])
                np.testing.assert_array_equal(memory["outer"], answers[0][1]["outer"])


@pytest.mark.parametrize("model", ["linear", "logistic"])
@pytest.mark.parametrize("local", LOCAL)
@pytest.mark.parametrize("weights", ["rows", "clients"])
def test_sums_over_clients_are_those_of_a_direct_computation(model: str, local: str, weights: str) -> None:
    """Three rounds of clients with 11, 4, 1 and no rows, each through a message."""
    standard = Standard(features=2, centres=(0.5, -1.0), scales=(2.0, 0.3), offset=True)
    of = RegressionRound.of(
        standard,
        model=model,
        theta=(0.1, -0.2, 0.3),
        step=0.2,
        local_steps=3,
        local=local,
        visits=2,
        weights=weights,
        per=4.0,
        seed=9,
    )
    clients = [client(rows, model=model, seed=rows) for rows in (11, 4, 1, 0)]
    memories: list[Memory] = [{} for _ in clients]
    turns: list[Memory] = [{} for _ in clients]
    for round_ in range(3):
        total = np.zeros(of.length, dtype=np.int64)
        gradient, hessian, drift = np.zeros(3), np.zeros((3, 3)), np.zeros(3)
        counts = np.zeros(4, dtype=int)
        for place, columns in enumerate(clients):
            vector, kept = of.measure(rows_of(columns), memories[place])
            assert np.abs(vector).max(initial=0) <= of.largest
            memories[place] = carried(kept)
            total = total + vector
            salt = zlib.crc32(columns["target"].astype(np.float64).tobytes())
            turn = Turn.next(len(columns["target"]), 2, 9, turns[place], salt=lambda salt=salt: salt)
            turns[place] = turn.memory
            used = standard.design(
                {name: column[turn.places] for name, column in columns.items()}, linear=model == "linear"
            )
            work = local_work(of.loss, np.array(of.theta), LocalSteps.deal(used, 3), step=0.2, local=local)
            weight = (len(columns["target"]) if weights == "rows" else min(1, len(columns["target"]))) / 4.0
            gradient, drift = gradient + weight * work.gradient, drift + weight * work.drift
            hessian = hessian + weight * work.hessian
            counts += [turn.rows > 0, int(work.steps), turn.passes > 0, used.rows]
        sums = of.read(total)
        np.testing.assert_allclose(sums.gradient, gradient, rtol=1e-12, atol=1e-15)
        np.testing.assert_allclose(sums.drift, drift, rtol=1e-12, atol=1e-15)
        np.testing.assert_allclose(sums.hessian, hessian, rtol=1e-12, atol=1e-15)
        np.testing.assert_array_equal(sums.hessian, sums.hessian.T)
        assert [sums.clients, sums.steps, sums.again, sums.rows] == counts.tolist()
        # Visits of 5, 2 and 1 rows: the last client begins again in the second round, all in the third.
        assert (sums.clients, sums.steps, sums.rows) == (3, 3 + 2 + 1, 5 + 2 + 1)
        assert sums.again == [0, 1, 3][round_]


def test_weights_count_rows_or_clients() -> None:
    by_rows, by_clients = asked(per=5.0), asked(per=5.0, weights="clients")
    assert [by_rows.weight(rows) for rows in (0, 1, 10)] == [0.0, 0.2, 2.0]
    assert [by_clients.weight(rows) for rows in (0, 1, 10)] == [0.0, 0.2, 0.2]


def test_a_client_without_rows_and_one_with_another_number_of_features_say_zero() -> None:
    of = asked(remembers=True)
    for columns in (client(0), {"features": np.ones((4, 3)), "target": np.ones(4)}):
        vector, memory = of.measure(rows_of(columns), {})
        assert not vector.any()
        assert not ClientSpread(parameters=3).measure(rows_of(columns), memory)[0].any()
    assert asked().measure(StreamedRows(read=lambda: iter(())), {})[0].shape == (of.length,)


# --- what clients remember --------------------------------------------------------------------------------


def test_the_spread_is_that_of_the_first_row_of_each_visit() -> None:
    standard = Standard(features=2)
    clients = [client(23, seed=1), client(8, seed=2), client(0)]
    memories: list[Memory] = [{} for _ in clients]
    gradients: list[list[np.ndarray]] = [[] for _ in clients]
    thetas = np.random.default_rng(3).normal(size=(4, 3))
    for theta in thetas:
        of = RegressionRound.of(
            standard,
            model="linear",
            theta=tuple(theta),
            step=0.1,
            visits=4,
            local_steps=2,
            per=10.0,
            remembers=True,
        )
        for place, columns in enumerate(clients):
            at = len(gradients[place]) * (len(columns["target"]) // 4)
            _, kept = of.measure(rows_of(columns), memories[place])
            memories[place] = carried(kept)
            if len(columns["target"]):
                x = np.array([1.0, *columns["features"][at]])
                gradients[place].append((x @ theta - columns["target"][at]) * x)
    asks = ClientSpread(parameters=3)
    total = np.sum(
        [asks.measure(rows_of(one), memory)[0] for one, memory in zip(clients, memories, strict=True)], axis=0
    )
    sums = asks.read(total)
    within, between = np.zeros((3, 3)), np.zeros((3, 3))
    for weight, each, found in ((2.3, 5, gradients[0]), (0.8, 2, gradients[1])):
        within = within + weight**2 * np.cov(np.array(found).T, bias=True) / each
        between = between + weight**2 * np.outer(np.mean(found, axis=0), np.mean(found, axis=0))
    np.testing.assert_allclose(sums.within, within, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(sums.between, between, rtol=1e-10, atol=1e-12)
    assert sums.clients == 2


def test_only_who_is_asked_to_remembers_gradients() -> None:
    columns = client(6)
    _, memory = asked(visits=2).measure(rows_of(columns), {})
    assert set(memory) == {"at", "passes", "order"}
    assert not ClientSpread(parameters=3).measure(rows_of(columns), memory)[0].any()
    _, memory = asked(visits=2, remembers=True).measure(rows_of(columns), {})
    vector, same = ClientSpread(parameters=3).measure(rows_of(columns), memory)
    assert vector[0] == 1
    assert same is memory


def test_gradients_of_another_number_of_parameters_are_forgotten() -> None:
    """A server may ask with an intercept and then without: what was learned of the one says nothing of the other."""
    columns = client(6)
    _, memory = asked(remembers=True).measure(rows_of(columns), {})
    _, memory = asked(remembers=True, intercept=False, theta=(0.0, 0.0)).measure(rows_of(columns), memory)
    assert not ClientSpread(parameters=3).measure(rows_of(columns), memory)[0].any()
    assert ClientSpread(parameters=2).measure(rows_of(columns), memory)[0].any()
    assert memory["taken"] == 1


# --- nothing refuses --------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["linear", "logistic"])
@pytest.mark.parametrize("local", LOCAL)
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"theta": (LARGEST_THETA, -LARGEST_THETA, LARGEST_THETA)},
        {"scales": (5e-324, 1e-300)},
        {"centres": (-1e308, 1e308)},
        {"per": 5e-324},
        {"per": 1e-200, "weights": "clients"},
        {"local_steps": 3, "step": 9e5},
    ],
    ids=str,
)
def test_numbers_of_any_size_are_cut_and_never_refused(model: str, local: str, more: dict[str, Any]) -> None:
    of = asked(model=model, local=local, remembers=True, **more)
    x = np.array([[1e300, -1e300], [1e308, 1e308], [0.0, 5e-324]])
    y = np.array([1e308, -1e308, 0.0]) if model == "linear" else np.array([1.0, 0.0, 1.0])
    memory: Memory = {}
    for _ in range(2):
        vector, memory = of.measure(rows_of({"features": x, "target": y}), memory)
        memory = carried(memory)
        sums = of.read(vector)
        for numbers in (sums.gradient, sums.hessian, sums.drift):
            assert np.isfinite(numbers).all()
            assert np.abs(numbers).max() <= LARGEST_ENTRY
    assert max(np.abs(sums.gradient).max(), np.abs(sums.hessian).max()) == LARGEST_ENTRY
    spread, _ = ClientSpread(parameters=3).measure(rows_of({"features": x, "target": y}), memory)
    assert spread.shape == (ClientSpread(parameters=3).length,)
    assert np.isfinite(ClientSpread(parameters=3).read(spread).within).all()


# --- as a question ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"theta": (0.0, 0.0)}, "theta: got 2 numbers, expected 3"),
        ({"theta": (0.0, 0.0, 2 * LARGEST_THETA)}, "theta: got numbers beyond"),
        ({"theta": (0.0, 0.0, np.nan)}, "theta: got nan"),
        ({"model": "probit"}, "model: got 'probit'"),
        ({"features": 1, "centres": (1.0, 2.0)}, "centres"),
    ],
)
def test_what_cannot_be_a_round_is_refused_when_it_is_made(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        asked(**wrong)


def test_the_design_of_a_round_is_that_of_its_standard() -> None:
    of = asked(centres=(1.0, 2.0), scales=(3.0, 4.0), target_centre=5.0, target_scale=6.0, visits=2, seed=1)
    columns = client(9)
    _, used, turn = of.worked(rows_of(columns), {})
    assert isinstance(used, Design)
    x = (columns["features"][turn.places] - [1.0, 2.0]) / [3.0, 4.0]
    np.testing.assert_allclose(used.x, np.concatenate([np.ones((4, 1)), x], axis=1))
    np.testing.assert_allclose(used.y, (columns["target"][turn.places] - 5.0) / 6.0)
