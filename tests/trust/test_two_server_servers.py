"""Servers of `two-server`, or the relay between them, that do something else than they should."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedassay.crypto.field61 import PRIME, add
from fedassay.crypto.identity import Credentials, Identity
from fedassay.crypto.keys import KeyPair
from fedassay.errors import FederationError, ProtocolError
from fedassay.protocol.vocabulary import Budget, Message, Randomness, Request, Sum
from fedassay.trust.introductions import Pair
from fedassay.trust.two_server import relay as two_server_relay
from fedassay.trust.two_server.messages import Channel
from fedassay.trust.two_server.model import TwoServer
from secure_sum_driver import Seeded
from two_server_driver import (
    ASKED,
    SERVERS,
    Cells,
    Town,
    counts_of,
    lists,
    plan_of,
    plans_of,
    setting,
    values,
)

PLANS = (plan_of(),)
COUNTS = counts_of(PLANS)

# --- answers that are none ----------------------------------------------------------------------------------

GARBAGE: list[Any] = [
    {},
    [],
    7,
    None,
    {"sealed": None},
    {"public": b""},
    {"shares": []},
    {"refused": 1},
    {"unknown": 1},
]


@pytest.mark.parametrize(("server", "leg"), ASKED)
def test_a_server_that_answers_garbage_ends_the_exchange(server: str, leg: int) -> None:
    for garbage in GARBAGE:
        town = Town(
            plans=PLANS,
            counts=COUNTS,
            back=lambda name, now, reply, g=garbage: g if (name, now) == (server, leg) else reply,
        )
        with pytest.raises(FederationError, match=rf"^two-server: .*{server}.*\.$"):
            town.go()


SHARES: list[Callable[[Any], Any]] = [
    lambda shares: shares[:-1],
    lambda shares: shares.astype(np.int64),
    lambda shares: shares.tolist(),
    lambda shares: np.full_like(shares, PRIME),
    lambda shares: shares.reshape(1, -1),
]


@pytest.mark.parametrize("change", SHARES)
def test_shares_of_another_form(change: Any) -> None:
    def back(name: str, leg: int, reply: Any) -> Any:
        if (name, leg) != ("helper", 6):
            return reply
        return {**reply, "shares": [change(reply["shares"][0])]}

    with pytest.raises(ProtocolError, match="share of helper"):
        Town(plans=PLANS, counts=COUNTS, back=back).go()


def test_servers_that_accepted_different_clients() -> None:
    def back(name: str, leg: int, reply: Any) -> Any:
        return {**reply, "clients": 3} if (name, leg) == ("helper", 6) else reply

    with pytest.raises(ProtocolError, match="coordinator accepted 4 clients and helper 3"):
        Town(plans=PLANS, counts=COUNTS, back=back).go()


# --- a relay that changes what it hands on ------------------------------------------------------------------


HEARS = [(server, leg) for server, leg in ASKED if leg > 2]
"""When a server hears something that the other one has sealed for it."""


@pytest.mark.parametrize(
    ("server", "leg", "field"), [*((*one, "sealed") for one in HEARS), ("coordinator", 5, "commitment")]
)
def test_nobody_can_change_what_one_server_says_to_the_other(server: str, leg: int, field: str) -> None:
    def flip(name: str, now: int, message: Any) -> Any:
        if (name, now) != (server, leg):
            return message
        sealed = bytearray(message[field])
        sealed[20] ^= 1
        return {**message, field: bytes(sealed)}

    town = Town(plans=PLANS, counts=COUNTS, to=flip)
    with pytest.raises(FederationError, match=f"{server} did not answer"):
        town.go()
    assert "the other server did not say" in str(town.helpers[server].reason)


def said_before(town: Town, by: str, leg: int, *, back: int) -> bytes:
    """What a server has sealed, so many of its own messages ago."""
    sealed = [
        message["sealed"]
        for (name, now), message in sorted(town.said.items(), key=lambda one: one[0][1])
        if name == by and now < leg and "sealed" in message
    ]
    return bytes(sealed[-back])


@pytest.mark.parametrize(("server", "leg"), HEARS)
def test_nor_hand_a_server_its_own_words(server: str, leg: int) -> None:
    town = Town(plans=PLANS, counts=COUNTS)

    def reflect(name: str, now: int, message: Any) -> Any:
        if (name, now) != (server, leg):
            return message
        return {**message, "sealed": said_before(town, server, leg, back=1)}

    town.to = reflect
    with pytest.raises(FederationError, match=f"{server} did not answer"):
        town.go()


@pytest.mark.parametrize(("server", "leg"), [(server, leg) for server, leg in HEARS if leg > 3])
def test_nor_repeat_an_earlier_step(server: str, leg: int) -> None:
    town = Town(plans=PLANS, counts=COUNTS)
    other = SERVERS[1 - SERVERS.index(server)]

    def repeat(name: str, now: int, message: Any) -> Any:
        if (name, now) != (server, leg):
            return message
        # At leg 5 the last word of the other one is its commitment, the one before that is meant.
        return {**message, "sealed": said_before(town, other, leg, back=3 if leg == 5 else 2)}

    town.to = repeat
    with pytest.raises(FederationError, match=f"{server} did not answer"):
        town.go()


DEPOSITS: list[tuple[str, Callable[[Any], Any]]] = [
    ("two deposits", lambda m: {**m, "pieces": [*m["pieces"], m["pieces"][0]]}),
    ("of 5 clients", lambda m: {**m, "pieces": [*m["pieces"], {**m["pieces"][0], "client": "ghost"}]}),
    ("for no query", lambda m: {**m, "pieces": [{**m["pieces"][0], "place": 1}]}),
    ("for no query", lambda m: {**m, "pieces": [{**m["pieces"][0], "place": True}]}),
    ("not sealed", lambda m: {**m, "pieces": [{**m["pieces"][0], "public": b"short"}]}),
    ("not sealed", lambda m: {**m, "pieces": [{**m["pieces"][0], "sealed": "text"}]}),
    ("without its fields", lambda m: {**m, "pieces": [{}]}),
    ("no list", lambda m: {**m, "pieces": {}}),
    ("no list", lambda m: {**m, "last": 1}),
    ("without its fields", lambda m: {**m, "more": 1}),
    ("other servers", lambda m: {**m, "servers": m["servers"][::-1]}),
    ("other servers", lambda m: {**m, "keys": m["keys"][::-1]}),
    ("no usable key", lambda m: {**m, "keys": [m["keys"][0], bytes(32)]}),
    ("they are one", lambda m: {**m, "keys": [m["keys"][1], m["keys"][1]]}),
]


@pytest.mark.parametrize(("words", "change"), DEPOSITS)
def test_a_server_does_not_trust_the_relay(words: str, change: Any) -> None:
    town = Town(
        plans=PLANS,
        counts=COUNTS,
        to=lambda name, leg, message: change(message) if (name, leg) == ("helper", 2) else message,
    )
    with pytest.raises(FederationError, match="helper did not answer"):
        town.go()
    assert words in str(town.helpers["helper"].reason)


HELLOS: list[Any] = [{}, {"servers": ["coordinator"]}, {"servers": ["a", "b"]}, {"servers": ["helper"] * 2}]


@pytest.mark.parametrize("hello", HELLOS)
def test_a_server_knows_that_it_is_one_of_two(hello: Any) -> None:
    town = Town(
        plans=PLANS,
        counts=COUNTS,
        to=lambda name, leg, message: hello if (name, leg) == ("helper", 0) else message,
    )
    with pytest.raises(FederationError, match="helper did not answer"):
        town.go()


def test_the_other_servers_key_does_not_change_between_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(two_server_relay, "LARGEST_DEPOSIT", 1000)

    def change(name: str, leg: int, message: Any) -> Any:
        if (name, leg) != ("helper", 3):
            return message
        return {**message, "keys": [KeyPair.draw(Seeded("other")).public, message["keys"][1]]}

    town = Town(plans=PLANS, counts=COUNTS, to=change)
    with pytest.raises(FederationError, match="helper did not answer"):
        town.go()
    assert "has changed" in str(town.helpers["helper"].reason)


def test_servers_that_were_told_different_questions_do_not_answer() -> None:
    """A server that shall add little noise, and one that shall add much, have no word in common."""
    dear = plans_of(Sum(of=Cells()), of=setting(budget=Budget(epsilon=0.1)))
    with pytest.raises(FederationError, match="did not answer"):
        Town(plans=PLANS, counts=COUNTS, told={"helper": dear}).go()


@pytest.mark.parametrize("clients", [-1, -(10**18)])
def test_a_negative_number_of_clients_is_no_question(clients: int) -> None:
    """It would pass for a total that cannot wrap."""
    town = Town(
        plans=PLANS, counts=COUNTS, told={"helper": plans_of(Sum(of=Cells()), of=setting(clients=clients))}
    )
    with pytest.raises(FederationError, match="helper did not answer"):
        town.go()
    assert ("helper", 0) not in town.said
    assert "a query's fields are not valid" in str(town.helpers["helper"].reason)


# --- a server that lies -------------------------------------------------------------------------------------


class ChangesItsMind(TwoServer):
    """The second server opens something else than it committed to."""

    def assist(self, request: Request, state: Message, randomness: Randomness) -> tuple[Message, Message]:
        if state.get("step") == "products":
            state = {**state, "products": add(state["products"], np.array([0, 0, 0, 1], np.uint64))}
        return super().assist(request, state, randomness)


def test_a_server_that_changes_its_mind_is_caught() -> None:
    town = Town(plans=PLANS, counts=COUNTS, second=ChangesItsMind)
    with pytest.raises(FederationError, match="coordinator did not answer"):
        town.go()
    assert "opened something else than it committed to" in str(town.helpers["coordinator"].reason)


class Lies(TwoServer):
    """Shifts its share of one client's check after the keys have come: a guess about its rows."""

    def assist(self, request: Request, state: Message, randomness: Randomness) -> tuple[Message, Message]:
        if state.get("step") == "masked":
            halves = [half.copy() for half in state["halves"]]
            halves[0][0, 0] = (int(halves[0][0, 0]) + 1) % PRIME
            state = {**state, "halves": halves}
        return super().assist(request, state, randomness)


def test_a_lie_in_the_check_costs_a_client_and_both_see_it() -> None:
    town = Town(plans=PLANS, counts=COUNTS, second=Lies)
    (released,) = town.go()
    assert released.clients == 3
    assert [released.value.tolist()] == lists(town.exact(without=["client0"]))


# --- signatures ---------------------------------------------------------------------------------------------

NAMES = [*SERVERS, *COUNTS]
IDENTITIES = {name: Identity.draw(Seeded("identity", name)) for name in NAMES}
ROSTER = {name: identity.public for name, identity in IDENTITIES.items()}
PINNED = {name: Credentials(identity=IDENTITIES[name], roster=ROSTER) for name in NAMES}
AT_SITES = {name: one.among(set(ROSTER) - {"coordinator"}) for name, one in PINNED.items()}
"""As sites have them: among their peers the coordinator is nobody."""


@pytest.mark.parametrize("clients", [PINNED, AT_SITES])
def test_signed_keys_are_believed(clients: dict[str, Credentials]) -> None:
    credentials = {**clients, **{name: PINNED[name] for name in SERVERS}}
    town = Town(plans=PLANS, counts=COUNTS, credentials=credentials)
    assert values(town.go()) == lists(town.exact())
    assert all(len(town.said[name, 0]["signature"]) == 64 for name in SERVERS)


def impostor(name: str, leg: int, reply: Any) -> Any:
    """The relay puts a key of its own in the place of the second server's."""
    return {**reply, "public": KeyPair.draw(Seeded("evil")).public} if (name, leg) == ("helper", 0) else reply


def unsigned(name: str, leg: int, reply: Any) -> Any:
    return {**reply, "signature": b""} if (name, leg) == ("helper", 0) else reply


def signed_by_another(name: str, leg: int, reply: Any) -> Any:
    if (name, leg) != ("helper", 0):
        return reply
    return {**reply, "signature": IDENTITIES["client0"].sign("two-server key", b"anything")}


@pytest.mark.parametrize("back", [impostor, unsigned, signed_by_another])
def test_clients_believe_no_key_that_the_second_server_did_not_sign(back: Any) -> None:
    with pytest.raises(ProtocolError, match="'helper' is not signed by the key that is pinned for it"):
        Town(
            plans=PLANS, counts=COUNTS, credentials={**AT_SITES, **{"helper": PINNED["helper"]}}, back=back
        ).go()


def test_without_pinned_keys_the_impostor_would_succeed() -> None:
    """What the signature is for: clients seal for the relay, and only the true server notices that it cannot read."""
    town = Town(plans=PLANS, counts=COUNTS, back=impostor)
    with pytest.raises(FederationError, match="helper did not answer"):
        town.go()
    assert {leg for name, leg in town.said if name in COUNTS} == {1}


def test_a_signature_is_worth_nothing_in_another_exchange() -> None:
    old = Town(plans=PLANS, counts=COUNTS, credentials=PINNED, seed=5)
    old.go()

    def replayed(name: str, leg: int, reply: Any) -> Any:
        return old.said["helper", 0] if (name, leg) == ("helper", 0) else reply

    with pytest.raises(ProtocolError, match="not signed"):
        Town(plans=PLANS, counts=COUNTS, credentials=PINNED, back=replayed).go()


def introduction(**changes: Any) -> Any:
    """The clients' leg, with other words."""
    return lambda name, leg, message: {**message, **changes} if leg == 1 else message


def test_no_other_party_of_the_roster_can_be_the_second_server() -> None:
    """A site that works with the coordinator signs as a server: its name is not the one of the second server."""
    evil = Town(
        plans=PLANS, counts=COUNTS, credentials=PINNED, to=introduction(servers=["coordinator", "client3"])
    )
    with pytest.raises(ProtocolError, match="got 'client3' as the second server"):
        evil.go()
    unknown = {name: one.among(set(ROSTER) - {"helper"}) for name, one in AT_SITES.items()}
    with pytest.raises(ProtocolError, match="got 'helper' as the second server, expected the one"):
        Town(plans=PLANS, counts=COUNTS, credentials=unknown).go()


SAME_KEY = KeyPair.draw(Seeded("same")).public
INTRODUCTIONS: list[tuple[str, dict[str, Any]]] = [
    ("expected two", {"servers": ["helper", "helper"]}),
    ("no names of two", {"servers": ["helper"]}),
    ("no names of two", {"servers": ["helper", 7]}),
    ("they are one", {"keys": [SAME_KEY, SAME_KEY]}),
    ("no usable key", {"keys": [SAME_KEY, bytes(32)]}),
    ("no usable key", {"keys": [SAME_KEY]}),
    ("no usable key", {"keys": None}),
    ("no signature", {"signatures": [b"", b"short"]}),
    ("no signature", {"signatures": [b""]}),
    ("without its fields", {"more": 1}),
]


@pytest.mark.parametrize(("words", "changes"), INTRODUCTIONS)
def test_a_client_sends_nothing_unless_there_are_two_servers(words: str, changes: Any) -> None:
    with pytest.raises(ProtocolError, match=words):
        Town(plans=PLANS, counts=COUNTS, to=introduction(**changes)).go()


def test_clients_answer_in_their_leg_only() -> None:
    town = Town(plans=PLANS, counts=COUNTS)
    town.go()
    message = {"servers": list(SERVERS), "keys": [], "signatures": []}
    request = Request(exchange=town.id, plans=PLANS, cohort=4, leg=0, recipient="client0", message=message)
    with pytest.raises(ProtocolError, match="got leg 0, expected only leg 1"):
        TwoServer().respond(request, lambda: (), {}, Seeded(1))


@pytest.mark.parametrize("side", SERVERS)
def test_servers_believe_each_other_only_if_signed(side: str) -> None:
    other = SERVERS[1 - SERVERS.index(side)]

    def strip(name: str, leg: int, message: Any) -> Any:
        if (name, leg) != (side, 2):
            return message
        signatures = [
            b"" if one == other else s for one, s in zip(SERVERS, message["signatures"], strict=True)
        ]
        return {**message, "signatures": signatures}

    town = Town(plans=PLANS, counts=COUNTS, credentials=PINNED, to=strip)
    with pytest.raises(FederationError, match=f"{side} did not answer"):
        town.go()
    assert f"{other!r} is not signed" in str(town.helpers[side].reason)


def test_a_channel_is_for_one_direction_one_step_and_one_session() -> None:
    pairs = [KeyPair.draw(Seeded("pair", i)) for i in range(2)]
    keys = Pair(*(pair.public for pair in pairs))
    one, two = (Channel.between(pair, keys, party=i, session=b"s") for i, pair in enumerate(pairs))
    sealed = one.seal("step", b"words", Seeded("nonce"))
    opened = two.open("step", sealed)
    assert opened is not None
    assert opened.data == b"words"
    assert two.open("other", sealed) is None
    assert one.open("step", sealed) is None
    assert replace(two, session=b"t").open("step", sealed) is None
    assert repr(one) == "Channel(party=0)"
    assert one.challenge(0) == two.challenge(0) != one.challenge(1)
    assert one.weights(0) == two.weights(0) != one.weights(1)
