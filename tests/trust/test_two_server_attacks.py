"""Attacks on `two-server` that once succeeded, or that its words must not promise to prevent."""

from __future__ import annotations

import logging
import tracemalloc
from typing import Any

import numpy as np
import pytest

from fedassay import wire
from fedassay.crypto.keys import SEAL_OVERHEAD, Secret
from fedassay.errors import UnsupportedQuery
from fedassay.privacy.randomness import SimulatedRandomness
from fedassay.protocol import Exchange, Message, Protection, Randomness, Request
from fedassay.trust import two_server_relay
from fedassay.trust.two_server import TwoServer
from fedassay.trust.two_server_deposits import content, make
from fedassay.trust.two_server_layout import Layout
from two_server_driver import SERVERS, Town, counts_of, lists, plan_of, setting

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


class Guesses(TwoServer):
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
        Town(plans=PLANS, counts=COUNTS, second=Guesses).go()
    assert [record.getMessage() for record in caplog.records] == 2 * [
        "1 of 40 clients did not pass the check: client0. They sent false keys, or the other server lies."
    ]


def test_the_statement_does_not_promise_that_a_wrong_guess_shows() -> None:
    statement = TwoServer().statement(setting())
    assert "however small its epsilon" in statement
    assert "or only that the exchange broke off" in statement
