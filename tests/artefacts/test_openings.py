"""Who opened a total, as a certificate says it: every word of it is what members have signed, or is doubted."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable
from typing import Any

import pytest

from fedassay.artefacts.certificate_ledger import opening_doubts as doubts
from fedassay.artefacts.certificate_ledger import openings_in_words as in_words
from fedassay.crypto.identity import key_to_text
from fedassay.protocol import wire
from fedassay.trust.one_shot.messages import ANSWERED, answered_words
from secure_sum_driver import Run, identity_of

PRIVACY = {"trust_model": "secure-sum", "simulated": False}


@pytest.fixture(scope="module")
def opening() -> dict[str, Any]:
    """Ten sites with keys, of which one has not spoken and another has not answered."""
    run = Run.of(10, signed=True, silent={"client-003": 0, "client-004": 1})
    found = run.go()[0].opening
    assert found is not None
    return found


def ledger(*openings: dict[str, Any]) -> dict[str, Any]:
    return {"entries": [{"id": f"{one['exchange']}/{i}/coordinator"} for one in openings for i in range(2)]}


def doubted(changed: Any, opening: dict[str, Any], privacy: dict[str, Any] = PRIVACY) -> list[str]:
    return list(doubts([changed], ledger(opening), privacy))


def test_what_was_opened_holds_and_says_how_many_answers_were_spare(opening: dict[str, Any]) -> None:
    assert doubted(opening, opening) == []
    assert opening["statement"] == (
        "9 of 10 members answered, 8 were needed: 1 spare. False rows were checked for."
    )
    assert "client-003" not in opening["clients"]
    assert "client-004" not in opening["members"]
    assert in_words([opening]).endswith("false rows were checked for.")
    assert "could not be noticed" in in_words([opening, {**opening, "needed": 9}])


def test_with_three_sites_nothing_is_spare() -> None:
    found = Run.of(3, signed=True).go()[0].opening
    assert found is not None
    assert found["statement"].endswith("none spare. False rows could not be noticed.")
    assert doubted(found, found) == []


def without_one(mapping: dict[str, str]) -> dict[str, str]:
    return dict(list(mapping.items())[1:])


def other_terms(opening: dict[str, Any], **changes: Any) -> dict[str, Any]:
    terms = wire.decode(bytes.fromhex(opening["terms"]))
    return {**opening, "terms": wire.encode({**terms, **changes}).hex()}


CHANGES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "no opening": lambda one: None,
    "a text": lambda one: "opened",
    "an entry too many": lambda one: {**one, "more": 1},
    "an entry missing": lambda one: {key: value for key, value in one.items() if key != "set"},
    "another exchange": lambda one: {**one, "exchange": "0" * 32},
    "a client less": lambda one: {**one, "clients": one["clients"][1:]},
    "a client twice": lambda one: {**one, "clients": [*one["clients"], one["clients"][-1]]},
    "a client that did not speak": lambda one: {**one, "clients": sorted([*one["clients"], "client-003"])},
    "too few clients": lambda one: {**one, "clients": one["clients"][:7]},
    "another set": lambda one: {**one, "set": "0" * 64},
    "a signature of somebody else": lambda one: {
        **one,
        "members": {**one["members"], "client-000": one["members"]["client-001"]},
    },
    "no signature": lambda one: {**one, "members": {**one["members"], "client-000": ""}},
    "too few members": lambda one: {**one, "members": without_one(without_one(one["members"]))},
    "a member less, and the old words": lambda one: {**one, "members": without_one(one["members"])},
    "a stranger as a member": lambda one: {**one, "members": {**one["members"], "mallory": "00" * 64}},
    "another key": lambda one: {
        **one,
        "keys": {**one["keys"], "client-000": identity_of("mallory").public.hex()},
    },
    "no keys": lambda one: {**one, "keys": {}},
    "a key that is no text": lambda one: {**one, "keys": {**one["keys"], "client-000": 7}},
    "fewer needed": lambda one: {**one, "needed": 7},
    "more asked": lambda one: {**one, "asked": 11},
    "other words": lambda one: {**one, "statement": one["statement"].replace("1 spare", "2 spare")},
    "terms of another question": lambda one: other_terms(one, question=bytes(32)),
    "terms by which more than one total opens": lambda one: other_terms(
        one, sizes=[10, 10, 1, 1, 2, 4, 1, 8]
    ),
    "terms that are none": lambda one: {**one, "terms": "00"},
    "terms with other sizes": lambda one: other_terms(one, sizes=[1]),
    "terms without members": lambda one: other_terms(one, members=[]),
}


@pytest.mark.parametrize("change", CHANGES)
def test_whatever_is_changed_is_doubted(opening: dict[str, Any], change: str) -> None:
    assert doubted(CHANGES[change](copy.deepcopy(opening)), opening) != []


def test_a_coordinator_cannot_sign_for_members_with_keys_that_it_has_made_up(opening: dict[str, Any]) -> None:
    """Its own keys under the sites' names, and everything signed anew: the terms hold no digest of these keys."""
    forged = copy.deepcopy(opening)
    terms = bytes.fromhex(opening["terms"])
    forged["clients"] = opening["clients"][:-1]
    session = hashlib.sha256(terms).digest()
    words = answered_words(session, forged["clients"], bytes.fromhex(opening["set"]))
    for name in forged["members"]:
        stranger = identity_of(f"false {name}")
        forged["keys"][name] = stranger.public.hex()
        forged["members"][name] = stranger.sign(ANSWERED, words).hex()
    (sentence,) = doubted(forged, opening)[:1]
    assert sentence == "opening 1: its keys are not those that the sites have pinned."


def test_every_exchange_has_its_opening_and_no_other(opening: dict[str, Any]) -> None:
    other = Run.of(5, signed=True, seed="another").go()[0].opening
    assert other is not None
    assert list(doubts([opening, other], ledger(opening, other), PRIVACY)) == []
    expected = ["openings: expected one for each exchange of the ledger, and no other."]
    for openings, books in (
        ([], ledger(opening)),
        ([opening], ledger(opening, other)),
        ([opening, other], ledger(opening)),
        ([opening, opening], ledger(opening)),
    ):
        assert list(doubts(openings, books, PRIVACY)) == expected


@pytest.mark.parametrize("change", [{"simulated": True}, {"trust_model": "plain"}, {"trust_model": "none"}])
def test_where_members_open_nothing_there_are_no_openings(opening: dict[str, Any], change: Any) -> None:
    privacy = {**PRIVACY, **change}
    assert list(doubts([], ledger(opening), privacy)) == []
    assert "expected none" in doubted(opening, opening, privacy)[-1]


@pytest.mark.parametrize("content", [None, 3, {}, [None], [[]], [{}], "x"])
def test_anything_may_come(content: Any) -> None:
    assert list(doubts(content, None, PRIVACY)) != [] or content == []
    assert list(doubts(content, {"entries": 3}, PRIVACY)) != []


def test_keys_are_written_as_bytes_and_not_as_rosters_have_them(opening: dict[str, Any]) -> None:
    assert opening["keys"]["client-000"] == identity_of("client-000").public.hex()
    assert key_to_text(identity_of("client-000").public) not in str(opening)
