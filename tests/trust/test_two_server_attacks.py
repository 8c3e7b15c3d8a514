"""Attacks on `two-server` that once succeeded, or that its words must not promise to prevent."""

from __future__ import annotations

import contextlib
import logging
import tracemalloc
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedassay.crypto import sketch
from fedassay.crypto.field61 import PRIME
from fedassay.crypto.keys import SEAL_OVERHEAD, Secret
from fedassay.crypto.prekeys import pad
from fedassay.errors import FederationError, UnsupportedQuery
from fedassay.kernel.endpoint import EndpointStore
from fedassay.kernel.helper import ServerStore
from fedassay.privacy.randomness import SimulatedRandomness
from fedassay.protocol import wire
from fedassay.protocol.vocabulary import Budget, Exchange, Message, Protection, Randomness, Request, Sum, Unit
from fedassay.trust.two_server import check, verification
from fedassay.trust.two_server import relay as two_server_relay
from fedassay.trust.two_server.deposits import content, make
from fedassay.trust.two_server.layout import Layout
from fedassay.trust.two_server.model import TwoServer
from two_server_driver import SERVERS, Cells, Town, counts_of, lists, plan_of, plans_of, same, setting

PLANS = (plan_of(clients=40),)
COUNTS = counts_of(PLANS, 40)
LAYOUT = Layout.of(PLANS[0].query, PLANS[0].setting)
EVIL = "client7"


# --- a client that sends too much -----------------------------------------------------------------------------


@pytest.mark.parametrize("leaves", [1, 2, 64, 1024])
@pytest.mark.parametrize("rows", [1, 10, 700])
def test_no_honest_text_is_longer_than_its_bound_and_the_bound_is_tight(leaves: int, rows: int) -> None:
    layout = Layout(leaves=leaves, rows=rows)
    for text in make(np.zeros(leaves, np.int64), layout, SimulatedRandomness(1), place=0):
        assert layout.text_bytes - 10 < len(text) + SEAL_OVERHEAD <= layout.text_bytes


@pytest.mark.parametrize("party", [0, 1])
def test_one_client_cannot_fill_the_servers_for_all(party: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its reply is as long as replies may be, which depends on the cohort; the others' keys take half of the room."""
    monkeypatch.setattr(two_server_relay, "LARGEST_DEPOSITS", 2 * len(COUNTS) * LAYOUT.text_bytes)
    allowed = TwoServer().largest_reply(Exchange(id=bytes(16), plans=PLANS, cohort=tuple(COUNTS)))
    assert allowed > 100 * LAYOUT.text_bytes

    def back(name: str, leg: int, reply: Any) -> Any:
        if name != EVIL or leg != 1:
            return reply
        texts: list[list[bytes]] = [[b""], [b""]]
        texts[party] = [bytes(allowed - 5000)]
        return {**reply, "sealed": texts}

    town = Town(plans=PLANS, counts=COUNTS, back=back)
    (released,) = town.go()
    assert [released.value.tolist()] == lists(town.exact(without=[EVIL]))
    assert released.clients == 39


def test_a_cohort_is_refused_by_what_it_will_send_before_it_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by its keys alone: of one row each, clients would be asked and charged, and the release then refused."""
    plan = plan_of(protection=Protection(rows_per_client=1), clients=40)
    layout = Layout.of(plan.query, plan.setting)
    sent = len(make(np.zeros(12, np.int64), layout, SimulatedRandomness(1), place=0)[0]) + SEAL_OVERHEAD
    assert sent > 1.4 * layout.client_bytes
    monkeypatch.setattr(two_server_relay, "LARGEST_DEPOSITS", 40 * sent - 1)
    exchange = Exchange(id=bytes(16), plans=(plan,), cohort=tuple(COUNTS), helpers=SERVERS)
    with pytest.raises(UnsupportedQuery, match="keys of 40 clients"):
        next(TwoServer().exchange(exchange, SimulatedRandomness(1)))
    # And whoever is asked is not refused later.
    monkeypatch.setattr(two_server_relay, "LARGEST_DEPOSITS", 40 * layout.text_bytes)
    assert Town(plans=(plan,), counts=counts_of((plan,), 40, rows=1)).go()[0].clients == 40


def test_a_text_that_is_too_long_is_not_even_parsed() -> None:
    """A byte of MessagePack can become an object of 64 bytes."""
    bomb = b"\x81\xa1k\xdd" + (500_000).to_bytes(4, "big") + b"\x80" * 500_000
    assert wire.decode(b"\x81\xa1k\xdd" + (3).to_bytes(4, "big") + b"\x80" * 3) == {"k": [{}, {}, {}]}
    tracemalloc.start()
    assert content(Secret(bomb), LAYOUT, party=0, place=0) is None
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1_000_000


# --- a server that lies ---------------------------------------------------------------------------------------


class Guesser(TwoServer):
    """Shifts its share of one client's check: a wrong guess about its rows."""

    def assist(self, request: Request, state: Message, randomness: Randomness) -> tuple[Message, Message]:
        if state.get("step") == "masked":
            halves = [half.copy() for half in state["halves"]]
            halves[0][0, 0] ^= np.uint64(1)
            state = {**state, "halves": halves}
        return super().assist(request, state, randomness)


def test_who_is_rejected_is_in_the_log_of_both_servers(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="fedassay.two_server"):
        Town(plans=PLANS, counts=COUNTS).go()
        assert not caplog.records
        Town(plans=PLANS, counts=COUNTS, second=Guesser).go()
    assert [record.getMessage() for record in caplog.records] == 2 * [
        "1 of 40 clients did not pass the check: client0. They sent false keys, or the other server lies."
    ]


# --- the coordinator lies, to test guesses --------------------------------------------------------------------

CLIENTS, LEAVES = 12, 8
ASKED = plans_of(
    *(Sum(of=Cells(cells=LEAVES), share=1 / LEAVES) for _ in range(LEAVES)),
    of=setting(
        budget=Budget(epsilon=1e-6),
        protection=Protection(unit=Unit.CLIENT, rows_per_client=1),
        clients=CLIENTS,
    ),
)
TRUTH = {f"c{i:02}": int(v) for i, v in enumerate(np.random.default_rng(5).integers(0, LEAVES, CLIENTS))}
ONE_ROW = {name: (np.eye(LEAVES, dtype=np.int64)[value],) * LEAVES for name, value in TRUTH.items()}
WRONG = {name: (value + 1) % LEAVES for name, value in TRUTH.items()}

Guesses = Mapping[str, Mapping[int, int]]
"""Client and query to the leaf that its row may be in."""


class Liar:
    """A first server, with the relay in its hand, that tests a guess about clients' rows through the check.

    In its first message it says one more than it should, so that the second server's share of P changes by twice its
    share of a. If the row is as guessed, that share is known, and the factor is shifted so that it does not show.
    """

    def __init__(self, guesses: Guesses) -> None:
        self.guesses = guesses
        self.seen: dict[str, bool] = {}

    def first_message(self, new: Message, randomness: Randomness) -> Message:
        names, halves = new["deposits"]["names"], [half.copy() for half in new["halves"]]
        for i, name in enumerate(names):
            for place in self.guesses.get(name, {}):
                halves[place][i, 0] = (int(halves[place][i, 0]) + 1) % PRIME
        said = {
            "names": names,
            "counts": new["deposits"]["counts"],
            "masked": [half[:, 0].copy() for half in halves],
        }
        return verification._said(verification._channel(new), "masked", said, randomness)

    def factors(self, sealed: bytes, state: Message, new: Message, randomness: Randomness) -> Any:
        channel, factors = verification._channel(state), new["factors"].copy()
        other = verification._heard(channel, "masked", sealed)["masked"]
        for i, name in enumerate(new["deposits"]["names"]):
            for place, guess in self.guesses.get(name, {}).items():
                rho = pad(channel.weights(place), 2 * CLIENTS)
                r = sketch._random_elements(channel.challenge(place), LEAVES + 1)
                own = state["halves"][place][i]
                other_a = int(own[0]) + int(other[place][i]) - int(r[guess]) - int(own[1])
                factors[i, 1] = (int(factors[i, 1]) + 2 * int(rho[2 * i]) * other_a) % PRIME
        new = {**new, "factors": factors}
        return verification._said(channel, "factors", {"factors": factors}, randomness), new

    def read(self, sealed: bytes, state: Message) -> None:
        opened = verification._heard(verification._channel(state), "opened", sealed)["products"]
        passed = check.accepted(state["products"], opened)
        self.seen = dict(zip(state["deposits"]["names"], passed.tolist(), strict=True))

    def trust(self) -> type[TwoServer]:
        liar = self

        class Lying(TwoServer):
            def assist(self, request: Request, state: Message, source: Randomness) -> tuple[Message, Message]:
                step = state.get("step")
                if step == "products":
                    liar.read(request.message["sealed"], state)
                reply, new = super().assist(request, state, source)
                if step == "deposits":
                    reply = liar.first_message(new, source)
                if step == "masked":
                    reply, new = liar.factors(request.message["sealed"], state, new, source)
                return reply, new

        return Lying


def attack(
    guesses: Guesses, *, seed: int = 1, store: EndpointStore | None = None, **more: Any
) -> tuple[Liar, Town]:
    liar = Liar(guesses)
    town = Town(plans=ASKED, counts=ONE_ROW, seed=seed, first=liar.trust(), **more)
    if store is not None:
        town.helpers["helper"] = town.helper("helper", SimulatedRandomness(seed), store)
    with contextlib.suppress(FederationError):
        town.go()
    return liar, town


def test_a_right_guess_does_not_show_and_a_wrong_one_costs_a_client() -> None:
    """The bit that is left: one client, one guess, one exchange. A wrong one is in the books of the second server."""
    for guess in range(LEAVES):
        liar, town = attack({"c03": {0: guess}})
        right = guess == TRUTH["c03"]
        assert liar.seen == {**dict.fromkeys(TRUTH, True), "c03": right}
        assert town.said["helper", 6]["clients"] == CLIENTS - (not right)
        assert town.helpers["helper"].store.doubts() == (
            [] if right else ["1 clients did not pass the check"]
        )


def test_all_guesses_of_an_exchange_about_one_client_are_one() -> None:
    """A guess with each query, and one of them right: that does not show, all of them together are wrong."""
    liar, _ = attack({"c03": {place: place for place in range(LEAVES)}})
    assert not liar.seen["c03"]
    liar, _ = attack({"c03": dict.fromkeys(range(LEAVES), TRUTH["c03"])})
    assert liar.seen["c03"]


@pytest.mark.parametrize("right", range(0, CLIENTS - 1, 2))
def test_who_guesses_about_many_learns_at_most_that_they_are_not_all_right(
    right: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever it got right, it hears the same word; who failed is in the log of the second server only."""
    guesses = {name: {0: TRUTH[name] if i < right else WRONG[name]} for i, name in enumerate(sorted(TRUTH))}
    with caplog.at_level(logging.WARNING, logger="fedassay.two_server"):
        liar, town = attack(guesses)
    assert liar.seen == {}
    assert town.said["helper", 6] == {"refused": True}
    (line,) = (record.getMessage() for record in caplog.records)
    assert line.startswith(f"{CLIENTS - right} of {CLIENTS} clients did not pass the check: c{right:02}")


def test_without_that_rule_it_would_learn_a_bit_of_everybody(monkeypatch: pytest.MonkeyPatch) -> None:
    """The attack is real: a second server that puts up with all failures tells it, guess by guess, every row."""
    monkeypatch.setattr(verification, "MOST_REJECTED", CLIENTS)
    known = {}
    for guess in range(LEAVES):
        liar, _ = attack({name: {0: guess} for name in TRUTH})
        known.update({name: guess for name, right in liar.seen.items() if right})
    assert known == TRUTH


def test_who_keeps_its_part_of_the_verdict_to_itself_learns_nothing() -> None:
    """It opens first: unless it has, the second server has said nothing that depends on a product."""
    liar, town = attack(
        {name: {0: TRUTH[name]} for name in TRUTH},
        to=lambda name, leg, message: None if (name, leg) == ("helper", 6) else message,
    )
    assert liar.seen == {}
    assert max(leg for name, leg in town.said if name == "helper") == 4
    assert len(town.said["helper", 4]["sealed"]) < 100  # a commitment of 32 bytes
    assert town.helpers["helper"].store.doubts() == [
        "it was broken off after this server had committed itself to the check"
    ]


def test_after_a_few_such_exchanges_the_second_server_begins_no_other(tmp_path: Path) -> None:
    """Of any kind: refused, finished without somebody, broken off. It holds on over restarts, until it is told."""
    folder = tmp_path / "exchanges"
    attacks: list[tuple[Guesses, Any]] = [
        ({name: {0: 0} for name in TRUTH}, same),
        ({"c03": {0: WRONG["c03"]}}, same),
        ({"c03": {0: 0}}, lambda name, leg, message: None if (name, leg) == ("helper", 6) else message),
    ]
    for number, (guesses, to) in enumerate(attacks, start=1):
        store = ServerStore(folder)
        attack(guesses, seed=number, store=store, to=to)
        store.close()
        assert len(list(folder.glob("*.doubt"))) == number
    store = ServerStore(folder)
    liar, town = attack({"c03": {0: 0}}, seed=9, store=store)
    assert ("helper", 0) not in town.said
    assert liar.seen == {}
    reason = str(town.helpers["helper"].reason)
    assert reason.startswith("helper: 3 exchanges should be looked into: ")
    assert "1 clients did not pass the check" in reason
    for mark in folder.glob("*.doubt"):
        mark.unlink()
    _, town = attack({}, seed=9, store=store)
    assert town.said["helper", 6]["clients"] == CLIENTS
    assert store.doubts() == []
    store.close()


def test_a_second_server_that_lies_sees_a_bit_of_each_client_and_the_first_sees_that() -> None:
    """It hears the verdict first. It can then go on, and shows what failed, or break off; either is remembered."""
    town = Town(plans=PLANS, counts=COUNTS, second=Guesser)
    town.go()
    assert town.helpers["coordinator"].store.doubts() == ["1 clients did not pass the check"]
    town = Town(
        plans=PLANS,
        counts=COUNTS,
        second=Guesser,
        back=lambda name, leg, reply: None if (name, leg) == ("helper", 6) else reply,
    )
    with pytest.raises(FederationError, match="helper did not answer"):
        town.go()
    assert town.helpers["coordinator"].store.doubts() == [
        "it was broken off after this server had opened its part of the check"
    ]


def test_the_statement_does_not_promise_that_a_wrong_guess_shows() -> None:
    statement = TwoServer().statement(setting())
    assert "however small its epsilon" in statement
    assert "a guess that is right does not show" in statement
