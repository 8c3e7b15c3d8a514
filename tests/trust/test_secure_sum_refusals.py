"""What clients and members refuse, and what the coordinator takes for silence."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedassay.crypto.field61 import PRIME
from fedassay.crypto.keys import KeyPair
from fedassay.crypto.prekeys import DAY
from fedassay.errors import PolicyRefusal, ProtocolError, TooFewClients
from fedassay.kernel.member_store import MemberStore
from fedassay.privacy.policy.rules import SitePolicy
from fedassay.protocol import wire
from fedassay.protocol.vocabulary import COORDINATOR, SECOND_SERVER, Budget, Message, Part, Protection, Sum
from fedassay.trust.one_shot.messages import SPOKEN
from fedassay.trust.question import question
from fedassay.trust.secure_sum import SecureSum
from secure_sum_driver import (
    DEADLINE,
    NOW,
    Anything,
    Run,
    Seeded,
    credentials_of,
    identity_of,
    plans_of,
    vectors,
)

VICTIM = "client-000"
VILLAIN = "client-002"


@pytest.fixture(scope="module")
def seven() -> Run:
    """A signed run of seven, of which one has not spoken."""
    run = Run.of(7, signed=True, silent={"client-006": 0})
    run.go()
    return run


def fresh(run: Run, client: str) -> None:
    """A member that has not answered yet, with the prekey that the run names."""
    twin = Run.of(len(run.values), run.trust, signed=run.signed)
    run.stores[client] = twin.stores[client]


# --- requests that no honest coordinator sends --------------------------------------------------------------

HOSTILE: list[Any] = [
    None,
    -1,
    2**62,
    1.5,
    float("nan"),
    "x",
    b"x",
    [],
    [None],
    [[]],
    [["client-001"]],
    ["client-001", 7],
    [["client-001", b"short"]],
    {},
    {"client-001": b"short"},
    np.zeros(3),
    np.array([7, 7]),
]


def changes(message: Message) -> Iterator[Message]:
    """A request with one thing wrong."""
    yield from ({}, {**message, "more": 1}, {"x": 1})
    for field, value in message.items():
        yield {name: other for name, other in message.items() if name != field}
        for junk in HOSTILE:
            if repr(junk) != repr(value):
                yield {**message, field: junk}
        if isinstance(value, list):
            yield {**message, field: value[::-1]}
            yield {**message, field: value[1:]}
            yield {**message, field: [*value, value[0]]}
            for place in range(len(value[0]) if isinstance(value[0], list) else 0):
                for junk in (None, b"", -1, bytes(64)):
                    changed = copy.deepcopy(value)
                    changed[0][place] = junk
                    yield {**message, field: changed}


@pytest.mark.parametrize("leg", range(2))
def test_a_hostile_request_gets_no_answer_and_no_measurement(seven: Run, leg: int):
    fresh(seven, VICTIM)
    tried = 0
    for hostile in changes(seven.requests[leg][VICTIM]):
        with pytest.raises(ProtocolError):
            seven.trust.respond(
                seven.request(leg, VICTIM, hostile), lambda: pytest.fail("measured"), {}, Seeded()
            )
        tried += 1
    assert tried > 60
    assert seven.stores[VICTIM].sets("rows") == ()


@pytest.mark.parametrize("leg", [2, 3, 7])
def test_there_are_two_legs(seven: Run, leg: int):
    with pytest.raises(ProtocolError, match=f"got leg {leg}"):
        seven.trust.respond(replace(seven.request(1, VICTIM), leg=leg), tuple, {}, Seeded())


@pytest.mark.parametrize("name", [COORDINATOR, SECOND_SERVER])
@pytest.mark.parametrize("field", ["cohort", "members"])
def test_neither_coordinator_nor_second_server_passes_for_a_site(name: str, field: str):
    names = sorted([*Run.of(5).values, name])
    run = Run(trust=SecureSum(), values=dict.fromkeys(names, (np.zeros(3, np.int64),)))
    told = {**next(SecureSum().exchange(run.exchange, Seeded())).requests["client-000"]}
    if field == "members":
        told["cohort"] = [one for one in told["cohort"] if one != name]
    with pytest.raises(ProtocolError, match="no site's"):
        run.trust.respond(
            replace(run.request(0, "client-000", told), cohort=len(told["cohort"])), tuple, {}, Seeded()
        )


def test_the_cohort_is_as_large_as_the_request_says(seven: Run):
    with pytest.raises(ProtocolError, match="expected 1000 as was said"):
        seven.answer(0, VICTIM, cohort=1000)


def test_all_clients_are_members_unless_the_study_names_some(seven: Run):
    fewer = {**seven.requests[0][VICTIM], "members": seven.requests[0][VICTIM]["members"][:5]}
    with pytest.raises(ProtocolError, match="a client of the cohort is no member"):
        seven.answer(0, VICTIM, fewer)
    members = ("client-001", "client-003", "client-005", "client-002")
    run = Run.of(9, SecureSum(members=members))
    assert vectors(run.go()) == run.total(list(run.values))
    told = run.requests[0][VICTIM]
    for wrong in (told["members"][::-1], told["members"][:3], seven.requests[0][VICTIM]["members"]):
        with pytest.raises(ProtocolError, match="other members than the study names"):
            run.answer(0, VICTIM, {**told, "members": wrong})


# --- keys that are pinned -----------------------------------------------------------------------------------


def test_a_signed_run_gives_the_exact_sum(seven: Run):
    run = Run.of(7, signed=True)
    released = run.go()
    assert vectors(released) == run.total(list(run.values))
    opening = released[0].opening
    assert opening is not None
    assert {len(signature) for signature in opening["members"].values()} == {128}


def test_a_cohort_of_strangers_is_refused(seven: Run):
    five = credentials_of(VICTIM, list(seven.values)[:5])
    for leg in range(2):
        with pytest.raises(ProtocolError, match="not pinned"):
            seven.answer(leg, VICTIM, credentials=five)


def test_colluders_are_counted_over_all_that_are_pinned(seven: Run):
    """With forty pinned sites, four of them may collude: a cohort of seven that allows for one is no secure sum."""
    wide = credentials_of(VICTIM, list(seven.values), wider=40)
    for leg in range(2):
        fresh(seven, VICTIM)
        with pytest.raises(ProtocolError, match="counted over 7 sites, expected the 40"):
            seven.answer(leg, VICTIM, credentials=wide)


def swapped(run: Run, place: int, statement: bytes) -> Message:
    members = [list(one) for one in run.requests[0][VICTIM]["members"]]
    members[place][1] = statement
    return {**run.requests[0][VICTIM], "members": members}


def test_a_prekey_is_its_members_own(seven: Run):
    forged = MemberStore(None, clock=lambda: NOW).issue(
        1, coordinator=seven.asker, credentials=credentials_of("mallory", []), randomness=Seeded("evil")
    )[0]
    for wrong in (forged.packed(), seven.requests[0][VICTIM]["members"][1][1]):
        with pytest.raises(ProtocolError, match="not signed by the key that is pinned|named twice"):
            seven.answer(0, VICTIM, swapped(seven, 2, wrong))
    with pytest.raises(ProtocolError, match="not signed"):
        seven.answer(0, VICTIM, asker="another coordinator")


def test_an_old_prekey_and_a_late_request_are_refused(seven: Run):
    for deadline in (NOW - 1, NOW + 91 * DAY):
        with pytest.raises(ProtocolError, match="deadline"):
            seven.answer(0, VICTIM, {**seven.requests[0][VICTIM], "deadline": deadline})


def test_a_small_order_key_is_not_used():
    run = Run.of(5)
    run.go()
    small = bytearray(run.requests[0][VICTIM]["members"][1][1])
    small[17:49] = bytes(32)
    with pytest.raises(ProtocolError, match="X25519"):
        run.answer(0, VICTIM, swapped(run, 1, bytes(small)))


# --- sets ---------------------------------------------------------------------------------------------------


def test_a_set_of_another_session_is_refused(seven: Run):
    """Whatever of the terms differs, the session does, and with it what clients have signed."""
    told = seven.requests[1][VICTIM]
    fresh(seven, VICTIM)
    [plan] = plans_of(seven.trust, 7)
    others: list[dict[str, Any]] = [
        {"message": {**told, "deadline": DEADLINE - 1}},
        {"exchange": b"another exchange"},
        {"plans": (replace(plan, query=Sum(of=Anything(bound=7))),)},
        {"plans": (replace(plan, query=Sum(of=plan.query.of, part=Part.HELD_OUT)),)},
        {"plans": (plan, plan)},
    ]
    for changed in others:
        message = changed.pop("message", None)
        with pytest.raises(ProtocolError, match="not signed"):
            seven.answer(1, VICTIM, message, **changed)
    other = SecureSum(dropout=0.19)
    with pytest.raises(ProtocolError, match="not signed"):
        other.respond(seven.request(1, VICTIM), tuple, {}, Seeded())
    assert wire.encode(seven.answer(1, VICTIM)) == wire.encode(seven.replies[1][VICTIM])


@pytest.mark.parametrize("place", [1, 2])
def test_what_is_said_of_a_client_is_what_it_has_signed(seven: Run, place: int):
    fresh(seven, VICTIM)
    named = [list(one) for one in seven.requests[1][VICTIM]["named"]]
    other = KeyPair.draw(Seeded("evil")).public
    named[1][place] = {1: other, 2: identity_of("mallory").sign(SPOKEN, b"x")}[place]
    with pytest.raises(ProtocolError, match="not signed by the key that is pinned"):
        seven.answer(1, VICTIM, {**seven.requests[1][VICTIM], "named": named})


def test_one_message_does_not_count_for_two_clients(seven: Run):
    fresh(seven, VICTIM)
    named = [list(one) for one in seven.requests[1][VICTIM]["named"]]
    named[1][1:] = named[0][1:]
    with pytest.raises(ProtocolError, match="two clients have one key"):
        seven.answer(1, VICTIM, {**seven.requests[1][VICTIM], "named": named})


def test_small_sets_are_refused(seven: Run):
    fresh(seven, VICTIM)
    named = seven.requests[1][VICTIM]["named"]
    assert len(named) == seven.trust.sizes(7).least == 6
    for fewer in itertools.combinations(named, 5):
        with pytest.raises(ProtocolError, match="got a set of 5 clients, expected at least 6"):
            seven.answer(1, VICTIM, {**seven.requests[1][VICTIM], "named": list(fewer)})


def test_a_session_is_answered_for_one_set():
    run = Run.of(7, signed=True)
    run.go()
    told = run.requests[1][VICTIM]
    assert wire.encode(run.answer(1, VICTIM)) == wire.encode(run.replies[1][VICTIM])
    for fewer in itertools.combinations(told["named"], 6):
        with pytest.raises(ProtocolError, match="another set"):
            run.answer(1, VICTIM, {**told, "named": list(fewer)})


def test_a_site_that_is_no_member_does_not_answer():
    run = Run.of(9, SecureSum(members=tuple(f"client-{i:03}" for i in range(1, 5))))
    run.go()
    with pytest.raises(ProtocolError, match="no member"):
        run.answer(1, VICTIM, run.requests[1]["client-001"])


def test_variants_of_a_question_have_digests_of_their_own():
    [plan] = plans_of(SecureSum(), 4)
    asked = plan.query
    variants = [
        plan,
        replace(plan, query=Sum(of=Anything(bound=7))),
        replace(plan, query=Sum(of=asked.of, part=Part.HELD_OUT)),
        replace(plan, query=Sum(of=asked.of, share=0.5)),
        replace(plan, setting=replace(plan.setting, protection=Protection(rows_per_client=5))),
        replace(plan, setting=replace(plan.setting, budget=Budget(epsilon=1.0))),
    ]
    assert len({question([one]) for one in variants}) == len(variants)
    travelled = replace(plan, query=Sum(of=Anything(), share=1), setting=replace(plan.setting, clients=4))
    assert question([plan]) == question([travelled])
    assert question([plan]) != question([plan, plan])


# --- other sets of clients ----------------------------------------------------------------------------------


def second(first: Run, missing: list[str], **options: Any) -> Run:
    """Another exchange over the same sites, some of which do not speak in it."""
    run = Run.of(10, first.trust, seed="second", silent=dict.fromkeys(missing, 0), **options)
    run.values = first.values
    for name, store in first.stores.items():  # sites remember what they have opened
        for clients in store.sets("rows"):
            prekey = run.stores[name].issue(
                1, coordinator="", credentials=None, randomness=Seeded(name, "old")
            )[0]
            run.stores[name].answer(
                b"",
                session=bytes(32),
                digest=bytes(32),
                public=prekey.public,
                opened=("rows", clients),
                rule=lambda earlier: None,
            )
    return run


@pytest.mark.parametrize("missing", [["client-003"], ["client-003", "client-004"]])
def test_the_same_set_or_nothing_where_that_was_agreed(missing: list[str]):
    """The first set is the whole roster, and is waited for: one site that is silent once shuts none out for good."""
    first = Run.of(10, SecureSum(same_set=True))
    first.go()
    with pytest.raises(TooFewClients, match=f"{10 - len(missing)} of 10 clients spoke, expected at least 10"):
        second(first, missing).go()
    assert vectors(second(first, []).go()) == first.total(list(first.values))
    late = second(first, [])
    late.go()
    told = late.requests[1]["client-000"]
    fewer = [entry for entry in told["named"] if f"client-{entry[0]:03}" not in missing]
    with pytest.raises(ProtocolError, match="expected at least 10"):
        late.answer(1, "client-000", {**told, "named": fewer})


@pytest.mark.parametrize("missing", [["client-003"], ["client-003", "client-004"]])
def test_a_site_with_the_rule_refuses_other_sets_whatever_was_agreed(missing: list[str]):
    free = Run.of(10)
    free.go()
    # What two such totals reveal is said where the policy is written.
    assert vectors(second(free, missing).go())
    with pytest.raises(PolicyRefusal, match="expected the same ones"):
        second(free, missing, policy=SitePolicy(same_set=True)).go()


def test_sets_are_as_far_apart_as_was_agreed():
    apart = Run.of(10, SecureSum(cohort_difference=2))
    apart.go()
    with pytest.raises(PolicyRefusal, match=r"by 1 \(client-003\), expected none or at least 2"):
        second(apart, ["client-003"]).go()
    assert second(apart, ["client-003", "client-004"]).go()


@pytest.mark.parametrize("rule", [{"same_set": True}, {"cohort_difference": 2}])
def test_rules_about_other_sets_need_the_whole_roster(rule: dict[str, Any]):
    """A site that was in no earlier cohort has no record of it: enough of these could open what others refuse."""
    run = Run.of(10, SecureSum(**rule), cohort=[f"client-{i:03}" for i in range(9)])
    with pytest.raises(ProtocolError, match="not the whole roster"):
        run.go()


# --- replies that no honest party sends ---------------------------------------------------------------------

JUNK: list[Any] = [
    None,
    True,
    -1,
    2**62,
    1.5,
    float("nan"),
    "text",
    b"",
    b"x" * 10**4,
    [],
    {},
    np.zeros(3),
    np.zeros(3, np.int64),
    np.zeros((3, 1), np.uint64),
    np.zeros(4, np.uint64),
    np.zeros(0, np.uint64),
    np.zeros(3, np.dtype(">u8")),
    np.full(3, PRIME, np.uint64),
    np.full((2, 3), 2**64 - 1, np.uint64),
]


def mutations(reply: Message) -> Iterator[Any]:
    """Everything a reply could be replaced with that is not of its form."""
    yield from ({**reply, "more": 1}, {**reply, 7: 1}, {}, {"x": 1})
    for field in reply:
        yield {name: other for name, other in reply.items() if name != field}
        for junk in JUNK:
            if not (field == "signature" and isinstance(junk, bytes) and not junk):  # what nobody has signed
                yield {**reply, field: junk}


@pytest.mark.parametrize("leg", range(2))
def test_a_malformed_reply_is_silence_and_nothing_else(leg: int):
    whole = Run.of(6)
    whole.go()
    tried = 0
    for changed in mutations(whole.replies[leg][VILLAIN]):
        run = Run.of(
            6,
            through_bytes=False,
            tamper=lambda at, name, said, changed=changed: changed if (at, name) == (leg, VILLAIN) else said,
        )
        released = run.go()
        counted = [name for name in run.values if leg == 1 or name != VILLAIN]
        assert vectors(released) == run.total(counted)
        tried += 1
    assert tried > 40


def test_replies_to_other_exchanges_are_silence():
    other = Run.of(6, seed="another exchange", signed=True)
    other.go()
    for leg, earlier in itertools.product(range(2), range(2)):
        run = Run.of(
            6,
            signed=True,
            tamper=lambda at, name, said, leg=leg, old=other.replies[earlier]: (
                old[VILLAIN] if (at, name) == (leg, VILLAIN) else said
            ),
        )
        counted = [name for name in run.values if leg == 1 or name != VILLAIN]
        assert vectors(run.go()) == run.total(counted)


def test_a_key_that_would_stop_everybody_is_left_out_before_anybody_is_told():
    """One signed key of small order in the set would make every member refuse."""

    def small(leg: int, name: str, reply: Message) -> Message:
        if (leg, name) != (0, VILLAIN):
            return reply
        return {**reply, "public": bytes(32)}

    run = Run.of(6, tamper=small)
    assert vectors(run.go()) == run.total([name for name in run.values if name != VILLAIN])


def test_a_client_that_copies_another_ones_message_is_left_out():
    said: dict[str, Message] = {}

    def copying(leg: int, name: str, reply: Message) -> Message:
        said.setdefault(f"{leg} {name}", reply)
        return said["0 client-001"] if (leg, name) == (0, VILLAIN) else reply

    run = Run.of(6, tamper=copying)
    assert vectors(run.go()) == run.total([name for name in run.values if name != VILLAIN])
