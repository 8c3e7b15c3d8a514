"""Whole runs of `two-server`: exact without noise, noise that is drawn once, points later, in parts, after crashes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedassay.errors import FederationError, TooFewClients, UnsupportedQuery
from fedassay.kernel import envelope
from fedassay.kernel.client import Client
from fedassay.kernel.endpoint import EndpointStore, FileStore
from fedassay.kernel.helper import Helper
from fedassay.kernel.run import Job, run
from fedassay.privacy import accounting
from fedassay.privacy.ledger.charges import MemoryLedger
from fedassay.privacy.randomness import SecureRandomness, SimulatedRandomness
from fedassay.protocol import wire
from fedassay.protocol.vocabulary import Budget, Neighbours, Points, Protection, Released, Setting, Sum
from fedassay.runtimes.in_process.runtime import Faithful
from fedassay.trust.two_server import relay as two_server_relay
from fedassay.trust.two_server.model import TwoServer
from simulated_clients import open_site
from toys import InMemory, Once
from two_server_driver import (
    ASKED,
    EXACT,
    LAST,
    SERVERS,
    TOYS,
    Cells,
    Slopes,
    Town,
    UpTo,
    counts_of,
    lists,
    plan_of,
    plans_of,
    setting,
    values,
)

NOISY = Budget(epsilon=0.05)
PLACES = (3, 0, 11, 3, 7)


# --- exact but for the noise --------------------------------------------------------------------------------


@given(
    cells=st.integers(1, 40), rows=st.integers(1, 9), clients=st.integers(1, 5), seed=st.integers(0, 10**6)
)
@settings(max_examples=25)
def test_totals_are_those_of_the_pooled_rows(cells: int, rows: int, clients: int, seed: int) -> None:
    protection = Protection(rows_per_client=rows)
    plans = plans_of(
        Sum(of=Cells(cells=cells), share=0.5),
        Sum(of=Slopes(cells=cells), share=0.5),
        of=setting(protection=protection, clients=clients),
    )
    town = Town(plans=plans, counts=counts_of(plans, clients, rows=rows, seed=seed), seed=seed)
    released = town.go()
    assert values(released) == lists(town.exact())
    assert [one.clients for one in released] == [clients, clients]


def test_sizes_may_be_public() -> None:
    """Without a bound each client sends as many keys as it has rows; one has none."""
    plans = plans_of(Sum(of=Slopes()), of=setting(protection=Protection(neighbours=Neighbours.REPLACE_ONE)))
    counts = {f"client{i}": (np.full(12, i, np.int64),) for i in range(4)}
    town = Town(plans=plans, counts=counts)
    assert values(town.go()) == lists(town.exact())


def test_nobody_has_rows() -> None:
    plans = (plan_of(),)
    town = Town(plans=plans, counts={f"client{i}": (np.zeros(12, np.int64),) for i in range(4)})
    assert values(town.go()) == [[0] * 12]


def test_keys_of_many_clients_go_in_several_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    plans = plans_of(Sum(of=Cells(), share=0.5), Sum(of=UpTo(cells=5), share=0.5))
    town = Town(plans=plans, counts=counts_of(plans, 4))
    whole = values(town.go())
    assert town.leg == 8
    monkeypatch.setattr(two_server_relay, "LARGEST_DEPOSIT", 2000)
    parts = Town(plans=plans, counts=town.counts)
    assert values(parts.go()) == whole == lists(town.exact())
    assert parts.leg > 10


def test_more_keys_than_a_server_can_hold_end_the_exchange(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where clients send as many keys as they have rows, this shows only when they have."""
    plans = plans_of(Sum(of=Slopes()), of=setting(protection=Protection(neighbours=Neighbours.REPLACE_ONE)))
    counts = {f"client{i}": (np.full(12, 3, np.int64),) for i in range(4)}
    monkeypatch.setattr(two_server_relay, "LARGEST_DEPOSITS", 10_000)
    town = Town(plans=plans, counts=counts)
    with pytest.raises(UnsupportedQuery, match="smaller .rows_per_client"):
        town.go()
    assert town.leg == 2


def test_a_client_that_falls_silent_is_left_out() -> None:
    plans = (plan_of(),)
    town = Town(
        plans=plans,
        counts=counts_of(plans),
        back=lambda name, leg, reply: None if name == "client2" else reply,
    )
    (released,) = town.go()
    assert [released.value.tolist()] == lists(town.exact(without=["client2"]))
    assert released.clients == 3


@pytest.mark.parametrize(("server", "leg"), ASKED)
def test_without_a_server_there_is_no_release(server: str, leg: int) -> None:
    plans = (plan_of(),)
    town = Town(
        plans=plans,
        counts=counts_of(plans),
        back=lambda name, now, reply: None if (name, now) == (server, leg) else reply,
    )
    with pytest.raises(FederationError, match=f"{server} did not answer, or refused"):
        town.go()
    assert town.leg == leg + 1


def test_if_nobody_can_be_read_there_is_no_release() -> None:
    """The servers agree that nobody is left, and say so."""
    plans = (plan_of(),)

    def spoil(name: str, leg: int, reply: Any) -> Any:
        return {**reply, "sealed": [[b""], [b""]]} if name.startswith("client") else reply

    with pytest.raises(TooFewClients, match="none of 4 clients sent keys that pass"):
        Town(plans=plans, counts=counts_of(plans), back=spoil).go()


# --- points -------------------------------------------------------------------------------------------------


def points_town(budget: Budget = EXACT, **more: Any) -> Town:
    plans = plans_of(Points(of=UpTo(), at=PLACES), of=setting(budget=budget))
    return Town(plans=plans, counts=counts_of(plans), **more)


def at(*places: int) -> Points[Any]:
    return Points(of=UpTo(), at=places)


def test_points_are_entries_of_the_total() -> None:
    town = points_town()
    (exact,) = town.exact()
    (first,) = town.go()
    assert first.value.tolist() == exact[list(PLACES)].tolist()
    (later,) = town.go(at(11, 1))
    assert later.value.tolist() == exact[[11, 1]].tolist()
    assert (later.clients, later.noise) == (4, first.noise)


def test_the_same_point_is_the_same_again_and_others_share_its_draws() -> None:
    town = points_town(NOISY)
    (exact,) = town.exact()
    noise = dict(zip(PLACES, (town.go()[0].value - exact[list(PLACES)]).tolist(), strict=True))
    assert len(set(noise.values())) > 1
    for places in ((7, 3), (5, 0), (5, 7, 11)):
        (later,) = town.go(at(*places))
        for place, value in zip(places, later.value.tolist(), strict=True):
            assert noise.setdefault(place, value - exact[place]) == value - exact[place]
    # What clients sent is kept for it, and nothing else that is secret.
    for helper in town.helpers.values():
        state = helper.store.conversations[town.id].state
        assert set(state) == {"step", "party", "clients", "keys", "drawn"}
        assert state["drawn"][0]["of"].tolist() == [0, 3, 5, 7, 11, 12]


def test_points_in_any_order_give_the_noise_of_a_whole_total() -> None:
    """Drawn one by one or together, the draws are of the same law; here they are even the same bits of a source."""
    town = points_town(NOISY)
    town.go()
    town.go(at(*range(12)))
    drawn = [h.store.conversations[town.id].state["drawn"][0]["draws"] for h in town.helpers.values()]
    (whole,) = town.go(at(*range(12)))
    (exact,) = town.exact()
    np.testing.assert_array_equal(whole.value, exact + sum(UpTo().spread(one) for one in drawn))


def test_clients_are_not_asked_again() -> None:
    town = points_town()
    town.go()
    legs = town.leg
    town.go(at(4))
    assert town.leg == legs + 1
    assert [leg for name, leg in town.said if name == "client0"] == [1]


@pytest.mark.parametrize(
    "places",
    [
        None,
        [],
        [None],
        [[3]],
        [np.array([12])],
        [np.array([-1])],
        [np.array([0.5])],
        [np.array([], np.int64)],
        [np.array([[1]])],
        [np.zeros(2**16 + 1, np.int64)],
        [np.array([1]), np.array([1])],
    ],
    ids=repr,
)
def test_a_server_answers_for_no_other_places(places: Any) -> None:
    town = points_town()
    town.go()
    town.to = lambda name, leg, message: {"places": places}
    with pytest.raises(FederationError, match="coordinator did not answer"):
        town.go(at(1))
    assert "place" in str(town.helpers["helper"].reason)


def test_a_whole_total_is_answered_once() -> None:
    plans = (plan_of(UpTo()),)
    town = Town(plans=plans, counts=counts_of(plans))
    town.go()
    for helper in town.helpers.values():
        assert helper.store.conversations[town.id].state == {"step": "over"}
    with pytest.raises(FederationError, match="did not answer"):
        town.go(at(1))
    assert "over" in str(town.helpers["helper"].reason)


def test_beside_points_a_whole_total_is_answered_once() -> None:
    plans = plans_of(Sum(of=Cells(), share=0.5), Points(of=UpTo(), at=PLACES, share=0.5))
    town = Town(plans=plans, counts=counts_of(plans))
    released = town.go()
    exact = town.exact()
    assert released[0].value.tolist() == exact[0].tolist()
    assert released[1].value.tolist() == exact[1][list(PLACES)].tolist()
    for helper in town.helpers.values():
        assert [len(keys) for keys in helper.store.conversations[town.id].state["keys"]] == [0, 24]
    town.to = lambda name, leg, message: {"places": [None, np.array([1])]}
    with pytest.raises(FederationError, match="did not answer"):
        town.go(at(1))
    assert "answered once" in str(town.helpers["helper"].reason)


def test_whole_totals_get_noise_as_the_summary_spreads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    plans = plans_of(Sum(of=Slopes(), share=0.5), Sum(of=UpTo(), share=0.5), of=setting(budget=NOISY))
    town = Town(plans=plans, counts=counts_of(plans))
    monkeypatch.setattr(accounting, "draw", lambda noise, count, source: 1000 * np.arange(1, count + 1))
    for plan, one, exact in zip(plans, town.go(), town.exact(), strict=True):
        draws = 1000 * np.arange(1, plan.query.of.draws + 1)
        np.testing.assert_array_equal(one.value, exact + 2 * plan.query.of.spread(draws))


# --- noise is drawn once ------------------------------------------------------------------------------------


def test_a_request_that_is_repeated_gets_the_same_noise() -> None:
    plans = (plan_of(budget=NOISY),)
    town = Town(plans=plans, counts=counts_of(plans))
    town.go()
    for name in SERVERS:
        data = town.asked[name, LAST[name]]
        again = [town.helpers[name].answer(data) for _ in range(3)]
        assert len(set(again)) == 1
        np.testing.assert_array_equal(
            town.said[name, LAST[name]]["shares"][0], _shares(town.unsealed(name, data))
        )


def _shares(data: bytes) -> Any:
    return wire.decode(data)["message"]["shares"][0]


def test_a_changed_request_gets_no_second_answer() -> None:
    plans = (plan_of(budget=NOISY),)
    town = Town(plans=plans, counts=counts_of(plans))
    town.go()
    for leg in (0, 2, 3, 6):
        outer = wire.decode(town.asked["helper", leg])
        changed = wire.encode({**outer, "message": {**outer["message"], "more": 1}})
        refused = town.unsealed("helper", changed)
        assert refused == envelope.pack_refusal(sender="helper", code=envelope.Refusal.CHANGED)


@pytest.mark.parametrize("server", SERVERS)
def test_a_server_that_restarts_goes_on_with_the_same_noise(server: str) -> None:
    """From its disk, and with other random numbers: what was answered stays, what was drawn stays."""
    town = points_town(NOISY)
    (before,) = town.go()
    town.restart(server, seed=77)
    (after,) = town.go(at(*PLACES))
    np.testing.assert_array_equal(before.value, after.value)
    reply = town.said[server, LAST[server]]["shares"][0]
    np.testing.assert_array_equal(reply, _shares(town.unsealed(server, town.asked[server, LAST[server]])))


@pytest.mark.parametrize(("server", "leg"), [(server, leg) for server, leg in ASKED if leg])
def test_a_server_may_restart_between_any_two_messages(server: str, leg: int) -> None:
    plans = (plan_of(Slopes()),)
    town = Town(plans=plans, counts=counts_of(plans))

    def restart(name: str, now: int, message: Any) -> Any:
        if (name, now) == (server, leg):
            town.restart(server, seed=leg)
        return message

    town.to = restart
    assert values(town.go()) == lists(town.exact())


def test_what_is_not_on_the_disk_is_not_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk fails as the noise is drawn: the answer never leaves, and the next one has other noise."""
    town = points_town(NOISY)
    store = FileStore(tmp_path / "store")
    town.helpers["helper"] = town.helper("helper", SimulatedRandomness(5), store)
    town.go()
    broken = [True]

    def fail(self: FileStore) -> None:
        if broken.pop():
            raise OSError("disk full")

    with monkeypatch.context() as patched:
        patched.setattr(FileStore, "save", fail)
        with pytest.raises(FederationError, match="helper did not answer"):
            town.go(at(1))
    assert store.conversations[town.id].state["drawn"][0]["of"].tolist() == [0, 3, 7, 11, 12]
    store.close()


# --- with clients and servers as they are ---------------------------------------------------------------------


ROWS = {"a": (0, 1, 1, 4), "b": (2,), "c": (), "d": (4, 4, 4, 3, 3)}


def federation(store: EndpointStore | None = None, *, trust: type[TwoServer] = TwoServer) -> Faithful:
    source = SimulatedRandomness(3)

    def client(name: str) -> Client:
        site = open_site(name, lambda: InMemory(ROWS[name]), source.child(name))
        return Client(site, summaries=TOYS, trust_models={trust.name: trust})

    helpers = [
        Helper(name, randomness=source.child(name), summaries=TOYS, trust_models={trust.name: trust})
        for name in SERVERS
    ]
    return Faithful([client(name) for name in ROWS], helpers=helpers)


class Search:
    """Where the counts reach half: a point at a time."""

    def steps(self, setting: Setting) -> Iterator[Any]:
        low, high, asked = 0, 4, []
        while low < high:
            middle = (low + high) // 2
            released: Released[Any] = yield Points(of=UpTo(cells=5), at=(middle, 4))
            asked.append(released.value.tolist())
            low, high = (low, middle) if 2 * released.value[0] >= released.value[1] else (middle + 1, high)
        return low, asked


def run_in_process(task: Any, budget: Budget) -> tuple[Any, Faithful]:
    runtime = federation()
    job = Job(
        name="job",
        task=task,
        setting=Setting(
            trust=TwoServer(), protection=Protection(rows_per_client=5), budget=budget, clients=4
        ),
    )
    found = run(
        [job], runtime=runtime, ledger=MemoryLedger(None), randomness=SimulatedRandomness(1), study="s"
    )
    return found["job"], runtime


def test_a_run_in_process() -> None:
    pooled = np.bincount(np.concatenate([np.array(rows, int) for rows in ROWS.values()]), minlength=5)
    released, runtime = run_in_process(Once(query=Sum(of=Slopes(cells=5))), EXACT)
    assert released.value.tolist() == Slopes(cells=5).from_leaves(pooled).tolist()
    assert released.clients == 4
    assert runtime.traffic.rounds == 8


def test_a_search_in_process() -> None:
    (found, asked), runtime = run_in_process(Search(), EXACT)
    assert (found, asked) == (3, [[4, 10], [6, 10]])
    assert runtime.traffic.rounds == 9


def test_a_secure_source_does_not_repeat() -> None:
    plans = (plan_of(Cells(cells=200), budget=NOISY),)
    released: list[Sequence[int]] = []
    for _ in range(2):
        town = Town(plans=plans, counts=counts_of(plans))
        for name in SERVERS:
            town.helpers[name] = Helper(
                name, randomness=SecureRandomness(), summaries=TOYS, trust_models={"two-server": TwoServer}
            )
        released.append(town.go()[0].value.tolist())
    assert released[0] != released[1]
