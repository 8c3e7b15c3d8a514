"""Clients of `two-server` that cheat, or whose messages somebody changed: they are left out, the others are counted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dcf_reference as reference
from fedassay.crypto.dcf import generate
from fedassay.crypto.dcf_keys import Keys
from fedassay.crypto.field61 import PRIME
from fedassay.crypto.keys import Secret
from fedassay.errors import FederationError, TooFewClients
from fedassay.protocol import wire
from fedassay.protocol.vocabulary import Budget, Neighbours, Protection, Sum
from fedassay.trust.two_server import deposits, verification
from fedassay.trust.two_server.deposits import Deposits
from fedassay.trust.two_server.layout import Layout
from secure_sum_driver import Seeded
from stated import Verify
from two_server_driver import Cells, Cheat, Slopes, Town, counts_of, lists, plan_of, plans_of, setting

CELLS, BITS = 15, 4
HALF, THIRD = pow(2, -1, PRIME), pow(3, -1, PRIME)
PLANS = (plan_of(Cells(cells=CELLS)),)
COUNTS = counts_of(PLANS, seed=2)
EVIL = "client1"
assert COUNTS[EVIL][0].sum() > 2


def is_left_out(town: Town) -> None:
    (released,) = town.go()
    assert [released.value.tolist()] == lists(town.exact(without=[EVIL]))
    assert released.clients == len(town.counts) - 1


# --- keys that do not count once ----------------------------------------------------------------------------


def with_key(x: int, leaving: list[int] | None = None, leaf: int = 1, error: int = 0) -> Cheat:
    """The last key of the client is this one; the others are as they should be."""

    def cheat(values: Any, *, bits: int, randomness: Any) -> tuple[Keys, Keys]:
        source = Seeded("evil", x, leaving, leaf, error)
        pair = reference.generate(x, bits, (source.bytes(16), source.bytes(16)), leaving, leaf, error)
        honest = generate(values[:-1], bits=bits, randomness=randomness)
        first, second = (
            Keys.from_bytes(
                np.concatenate([of.to_bytes(), np.frombuffer(key, np.uint8)[None]]), party=party, bits=bits
            )
            for party, (of, key) in enumerate(zip(honest, pair, strict=True))
        )
        return first, second

    return cheat


def test_an_honest_key_made_by_hand_is_counted() -> None:
    town = Town(plans=PLANS, counts=COUNTS, cheats={EVIL: with_key(5)})
    (released,) = town.go()
    assert released.clients == 4
    assert int(released.value[5]) >= 1


def test_right_at_the_top_and_1000_elsewhere() -> None:
    """The attack on a check of the largest threshold alone: 1 from the middle on, 1000 before."""
    is_left_out(Town(plans=PLANS, counts=COUNTS, cheats={EVIL: with_key(0, [1, 1000, 1000, 1000], 1000)}))


@pytest.mark.parametrize(
    "cheat",
    [
        (0, [1, -1000, -1000, -1000], -1000),
        (9, [0, 1, 1, 0], 1000),
        (1, [1, 1, 0, 1], 1),
        (14, [0, 1, 0, 1], 0),
        (5, [2, 0, 2, 0], 1),
        (5, [1, 0, 1, 0], HALF),
        (5, [1, 0, 1, 0], THIRD),
        (5, [0, 0, 0, 0], 0),
        (5, [-1, 0, -1, 0], -1),
        (5, [1000, 0, 1000, 0], 1000),
        (5, None, 1, 1),
        (5, None, 1, -2),
    ],
    ids=str,
)
def test_keys_that_do_not_count_once(cheat: Any) -> None:
    is_left_out(Town(plans=PLANS, counts=COUNTS, cheats={EVIL: with_key(*cheat)}))


def test_two_cheats_do_not_cancel(monkeypatch: pytest.MonkeyPatch) -> None:
    """One client counts twice, another not at all: the total would be right, both are left out."""
    monkeypatch.setattr(verification, "MOST_REJECTED", 2)
    cheats = {"client1": with_key(5, [2, 0, 2, 0], 2), "client2": with_key(5, [0, 0, 0, 0], 0)}
    town = Town(plans=PLANS, counts=COUNTS, cheats=cheats)
    (released,) = town.go()
    assert [released.value.tolist()] == lists(town.exact(without=list(cheats)))


def test_of_two_cheats_there_is_no_release_and_nobody_hears_who_they_are() -> None:
    cheats = {"client1": with_key(5, [2, 0, 2, 0], 2), "client2": with_key(5, [0, 0, 0, 0], 0)}
    town = Town(plans=PLANS, counts=COUNTS, cheats=cheats)
    with pytest.raises(FederationError, match="helper ends the exchange, as too many clients do not pass"):
        town.go()
    assert town.said["helper", 6] == {"refused": True}
    # The second server has nothing left that could be asked, and keeps in mind what happened.
    assert town.helpers["helper"].store.conversations[town.id].state == {
        "step": "over",
        "doubt": "2 clients did not pass the check",
    }


Forged = tuple[list[int] | None, int, int]
"""What leaving the path at each level is worth, what the leaf is worth, and the error of the square."""


@pytest.mark.parametrize(
    "pair",
    [[([1001, 0, 1001, 0], 1001, 0), ([-999, 0, -999, 0], -999, 0)], [(None, 1, 1), (None, 1, -1)]],
    ids=["worth", "squares"],
)
def test_two_cheats_of_one_client_do_not_cancel(pair: list[Forged]) -> None:
    """A key that counts 1001 and one that counts -999; squares that are wrong by 1 and by -1: nothing is just added."""

    def cheat(values: Any, *, bits: int, randomness: Any) -> tuple[Keys, Keys]:
        pairs = [
            reference.generate(5, bits, (bytes([i]) * 16, bytes([i + 9]) * 16), leaving, leaf, error)
            for i, (leaving, leaf, error) in enumerate(pair)
        ]
        honest = generate(values[:-2], bits=bits, randomness=randomness)
        forged = [np.stack([np.frombuffer(keys[party], np.uint8) for keys in pairs]) for party in (0, 1)]
        first, second = (
            Keys.from_bytes(np.concatenate([of.to_bytes(), forged[party]]), party=party, bits=bits)
            for party, of in enumerate(honest)
        )
        return first, second

    is_left_out(Town(plans=PLANS, counts=COUNTS, cheats={EVIL: cheat}))


def test_different_keys_to_the_two_servers() -> None:
    def cheat(values: Any, *, bits: int, randomness: Any) -> tuple[Keys, Keys]:
        first, _ = generate(values, bits=bits, randomness=randomness)
        _, second = generate(values, bits=bits, randomness=randomness)
        return first, second

    is_left_out(Town(plans=PLANS, counts=COUNTS, cheats={EVIL: cheat}))


def test_a_cheat_in_one_of_several_queries_costs_all() -> None:
    plans = plans_of(Sum(of=Cells(cells=CELLS), share=0.5), Sum(of=Slopes(cells=CELLS), share=0.5))
    cheats = iter([generate, with_key(5, [2, 0, 2, 0], 2)])

    def cheat(values: Any, *, bits: int, randomness: Any) -> tuple[Keys, Keys]:
        return next(cheats)(values, bits=bits, randomness=randomness)

    town = Town(plans=plans, counts=counts_of(plans, seed=2), cheats={EVIL: cheat})
    released = town.go()
    assert [one.value.tolist() for one in released] == lists(town.exact(without=[EVIL]))


@pytest.mark.parametrize("more", [-1, 1])
def test_more_or_fewer_keys_than_the_bound(more: int) -> None:
    def cheat(values: Any, *, bits: int, randomness: Any) -> tuple[Keys, Keys]:
        return generate(np.append(values, values)[: len(values) + more], bits=bits, randomness=randomness)

    is_left_out(Town(plans=PLANS, counts=COUNTS, cheats={EVIL: cheat}))


def test_not_as_many_keys_to_one_server_as_to_the_other() -> None:
    terms = setting(protection=Protection(neighbours=Neighbours.REPLACE_ONE))
    plans = plans_of(Sum(of=Cells(cells=CELLS)), of=terms)

    def cheat(values: Any, *, bits: int, randomness: Any) -> tuple[Keys, Keys]:
        first, second = generate(values, bits=bits, randomness=randomness)
        return first, Keys.from_bytes(second.to_bytes()[:-1], party=1, bits=bits)

    is_left_out(Town(plans=plans, counts=COUNTS, cheats={EVIL: cheat}))


@pytest.mark.parametrize("share", [0, 1, 2])
def test_a_false_triple(share: int, monkeypatch: pytest.MonkeyPatch) -> None:
    made = iter(range(len(COUNTS)))

    def deal(randomness: Any) -> Any:
        first, second = original(randomness)
        if next(made) == sorted(COUNTS).index(EVIL):
            second[share] = (int(second[share]) + 1) % PRIME
        return first, second

    original = deposits.deal_triple
    monkeypatch.setattr(deposits, "deal_triple", deal)
    is_left_out(Town(plans=PLANS, counts=COUNTS))


# --- messages that somebody changed -------------------------------------------------------------------------


def changed(change: Callable[[Any], Any]) -> Town:
    return Town(
        plans=PLANS, counts=COUNTS, back=lambda name, leg, reply: change(reply) if name == EVIL else reply
    )


@pytest.mark.parametrize("party", [0, 1])
@pytest.mark.parametrize("place", [0, 11, 12, 100, -1])
def test_a_changed_byte(party: int, place: int) -> None:
    def flip(reply: Any) -> Any:
        texts = [bytearray(one[0]) for one in reply["sealed"]]
        texts[party][place] ^= 1
        return {**reply, "sealed": [[bytes(text)] for text in texts]}

    is_left_out(changed(flip))


@pytest.mark.parametrize("party", [0, 1])
@pytest.mark.parametrize("length", [0, 1, 27, 28, 300, -1])
def test_a_text_cut_short(party: int, length: int) -> None:
    def cut(reply: Any) -> Any:
        texts = [one[0] for one in reply["sealed"]]
        texts[party] = texts[party][:length]
        return {**reply, "sealed": [[text] for text in texts]}

    is_left_out(changed(cut))


@pytest.mark.parametrize(
    "change",
    [
        lambda reply: {**reply, "sealed": reply["sealed"][::-1]},
        lambda reply: {**reply, "sealed": [reply["sealed"][0]] * 2},
        lambda reply: {**reply, "public": bytes(32)},
        lambda reply: {**reply, "public": b"\x09" + bytes(31)},
        lambda reply: {**reply, "public": reply["public"][:-1]},
        lambda reply: {**reply, "sealed": reply["sealed"][:1]},
        lambda reply: {**reply, "sealed": [[], []]},
        lambda reply: {**reply, "sealed": [one * 2 for one in reply["sealed"]]},
        lambda reply: {**reply, "sealed": [["text"], ["text"]]},
        lambda reply: {**reply, "sealed": None},
        lambda reply: {**reply, "more": 1},
        lambda reply: {},
        lambda reply: [],
        lambda reply: 7,
    ],
    ids=[
        *("swapped", "twice", "small", "foreign", "short", "one", "empty", "more", "text", "none", "also"),
        *("nothing", "list", "number"),
    ],
)
def test_a_reply_of_another_form(change: Any) -> None:
    is_left_out(changed(change))


def test_the_relay_asks_for_no_small_key_to_be_agreed_with() -> None:
    """A server survives such a key, should the relay hand it on: the client is left out."""
    town = Town(plans=PLANS, counts=COUNTS)

    def small(name: str, leg: int, message: Any) -> Any:
        if leg != 2:
            return message
        pieces = [{**one, "public": bytes(32)} if one["client"] == EVIL else one for one in message["pieces"]]
        return {**message, "pieces": pieces}

    town.to = small
    is_left_out(town)


def test_the_keys_of_another_client_cannot_be_handed_in_again() -> None:
    """Counting somebody's rows twice would halve the noise that hides them."""
    stolen: list[Any] = []

    def copy(name: str, leg: int, reply: Any) -> Any:
        if name == "client0":
            stolen.append(reply)
        return stolen[0] if name == EVIL else reply

    is_left_out(Town(plans=PLANS, counts=COUNTS, back=copy))


def test_keys_for_one_query_do_not_serve_for_another() -> None:
    plans = plans_of(Sum(of=Cells(cells=CELLS), share=0.5), Sum(of=Cells(cells=CELLS), share=0.5))
    town = Town(plans=plans, counts=counts_of(plans, seed=2))

    def exchange(name: str, leg: int, reply: Any) -> Any:
        return {**reply, "sealed": [one[::-1] for one in reply["sealed"]]} if name == EVIL else reply

    town.back = exchange
    released = town.go()
    assert [one.value.tolist() for one in released] == lists(town.exact(without=[EVIL]))


def test_keys_of_another_exchange_do_not_open() -> None:
    old = Town(plans=PLANS, counts=COUNTS, seed=8)
    old.go()
    is_left_out(changed(lambda reply: old.said[EVIL, 1]))


def test_what_was_sealed_for_much_noise_does_not_open_for_little() -> None:
    """The coordinator tells a client one budget and the servers another: they cannot read what it sent."""
    dear = plans_of(Sum(of=Cells(cells=CELLS)), of=setting(budget=Budget(epsilon=0.1)))
    is_left_out(Town(plans=PLANS, counts=COUNTS, told={EVIL: dear}))
    with pytest.raises(TooFewClients, match="pass the servers' check"):
        Town(plans=PLANS, counts=COUNTS, told=dict.fromkeys(COUNTS, dear)).go()


# --- what a server makes of an opened text ---------------------------------------------------------------------


def test_only_a_text_that_is_right_in_every_detail_is_kept() -> None:
    layout = Layout(leaves=3, rows=2)
    texts = deposits.make(np.array([1, 0, 0]), layout, Seeded("text"), place=0)
    assert deposits.content(Secret(texts[0]), layout, party=0, place=0) is not None
    assert deposits.content(Secret(texts[0]), layout, party=1, place=0) is None
    found = wire.decode(texts[0])
    keys, triple = found["keys"], found["triple"]
    beyond = keys.copy()
    beyond[0, 24:32] = 255
    for wrong in (
        {"keys": keys},
        {"keys": keys, "triple": triple, "more": 1},
        {"keys": keys[:1], "triple": triple},
        {"keys": keys[:, :-1], "triple": triple},
        {"keys": beyond, "triple": triple},
        {"keys": keys.tobytes(), "triple": triple},
        {"keys": keys, "triple": triple[:2]},
        {"keys": keys, "triple": triple.astype(np.int64)},
        {"keys": keys, "triple": np.full(3, PRIME, np.uint64)},
        {"keys": keys, "triple": None},
    ):
        assert deposits.content(Secret(wire.encode(wrong)), layout, party=0, place=0) is None
    assert deposits.content(Secret(b"\xc1"), layout, party=0, place=0) is None
    other = Layout(leaves=4, rows=2)
    assert deposits.content(Secret(texts[0]), other, party=0, place=0) is None


def test_deposits_do_not_print_their_secrets() -> None:
    layout = Layout(leaves=3, rows=2)
    made = deposits.make(np.array([1, 0, 0]), layout, Seeded(1), place=0)
    text = deposits.content(Secret(made[0]), layout, party=0, place=0)
    held = Deposits.of({"a": {"0": text}, "b": {}}, [layout])
    assert repr(held) == "Deposits(1 clients)"
    assert held.names == ("a",)


@pytest.mark.full
def test_no_cheat_of_many_is_counted_and_nobody_honest_is_left_out(
    verify: Verify, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Random worths at every level and leaf; half of the clients are honest, and servers that put up with it."""
    monkeypatch.setattr(verification, "MOST_REJECTED", 2000)
    generator = np.random.default_rng(3)
    counts = {f"client{i:04}": COUNTS[EVIL] for i in range(2000)}
    cheats = {
        name: with_key(
            int(generator.integers(0, CELLS)),
            [int(worth) for worth in generator.integers(-2, 3, BITS)],
            int(generator.integers(2, 1000)),
        )
        for name in list(counts)[::2]
    }
    plans = plans_of(Sum(of=Cells(cells=CELLS)), of=setting(clients=len(counts)))
    town = Town(plans=plans, counts=counts, cheats=cheats)
    (released,) = town.go()
    assert released.clients == len(counts) - len(cheats)
    assert [released.value.tolist()] == lists(town.exact(without=list(cheats)))
    verify("two-server: cheating clients counted, honest ones left out", f"0 of {len(cheats):,}, 0 of 1,000")
