"""One client sends anything but what it should: the server goes on, and the others' contributions stay."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from fedassay.crypto.keys import KeyPair
from fedassay.errors import ProtocolError
from fedassay.protocol import Message
from fedassay.trust.secure_sum_messages import read_dealt, read_keys, read_masked, read_revealed
from secure_sum_driver import Run, Seeded, vectors

VILLAIN = "client-002"
OTHERS = [f"client-{i:03}" for i in range(6) if i != 2]

JUNK: list[Any] = [
    None,
    True,
    -1,
    2**70,
    1.5,
    float("nan"),
    "text",
    b"",
    b"x" * 10**6,
    [],
    [b""],
    {},
    {"client-000": b""},
    {"client-000": None},
    {7: b"x" * 33},
    np.zeros(3),
    np.zeros(3, np.int64),
    np.zeros((3, 1), np.uint64),
    np.zeros(4, np.uint64),
    np.zeros(0, np.uint64),
    np.array([None, 1, 2], dtype=object),
    np.zeros(3, np.dtype(">u8")),
    {"masked": {"masked": np.zeros(3, np.uint64)}},
]


def mutations(reply: Message) -> Iterator[Any]:
    """Everything a reply could be replaced with that is not of its form."""
    yield from JUNK
    yield {**reply, "more": 1}
    yield {**reply, 7: 1}
    for field, value in reply.items():
        yield {name: other for name, other in reply.items() if name != field}
        for junk in JUNK:
            # An empty set of shares is what a client sends that has none, an empty signature what nobody signed.
            empty = field in ("seed_shares", "key_shares") and isinstance(junk, dict) and not junk
            unsigned = field == "signature" and isinstance(junk, bytes) and not junk
            if not (empty or unsigned):
                yield {**reply, field: junk}
        if isinstance(value, dict) and value:
            first = min(value)
            yield {**reply, field: {**value, "nobody": value[first]}}
            yield {**reply, field: {**value, 7: value[first]}}
            yield {**reply, field: {**value, first: value[first] + b"x"}}
            yield {**reply, field: {**value, first: value[first][:-1]}}
            yield {**reply, field: {**value, first: "x" * len(value[first])}}
            if field not in ("seed_shares", "key_shares"):  # there, fewer shares are well-formed
                yield {**reply, field: {name: text for name, text in value.items() if name != first}}


@pytest.fixture(scope="module")
def whole() -> Run:
    run = Run.of(6, silent={"client-005": 2})
    run.go()
    return run


@pytest.mark.parametrize("leg", range(4))
def test_readers_take_nothing_that_is_not_of_the_expected_form(whole: Run, leg: int):
    reply = whole.replies[leg][VILLAIN]
    holders = whole.requests[1][VILLAIN]["seal_keys"]
    survivors = whole.requests[3][VILLAIN]["survivors"]
    read = [
        read_keys,
        lambda message: read_dealt(message, holders),
        lambda message: read_masked(message, 3),
        lambda message: read_revealed(message, survivors=survivors, silent=["client-005"]),
    ][leg]
    assert read(reply) is not None
    tried = 0
    for changed in mutations(reply):
        assert read(changed) is None, changed
        tried += 1
    assert tried > 45


@pytest.mark.parametrize("leg", range(4))
def test_a_malformed_reply_is_a_dropout_and_nothing_else(leg: int):
    honest = Run.of(6)
    honest.go()
    for changed in mutations(honest.replies[leg][VILLAIN]):
        run = Run.of(
            6,
            through_bytes=False,
            tamper=lambda at, name, said, changed=changed: changed if (at, name) == (leg, VILLAIN) else said,
        )
        released = run.go()
        counted = [*OTHERS, VILLAIN] if leg == 3 else OTHERS
        assert vectors(released) == run.total(counted)
        assert released[0].clients == len(counted)


@pytest.mark.parametrize(
    ("leg", "earlier"),
    [(leg, earlier) for leg in range(4) for earlier in range(4) if leg != earlier or leg == 3],
)
def test_replies_to_other_legs_and_other_exchanges_are_dropouts(leg: int, earlier: int):
    """The same leg of another exchange is a well-formed lie, see below; in leg 3 it is only false shares."""
    other = Run.of(6, seed="another exchange")
    other.go()
    replayed = other.replies[earlier][VILLAIN]
    run = Run.of(6, tamper=lambda at, name, said: replayed if (at, name) == (leg, VILLAIN) else said)
    released = run.go()
    counted = [*OTHERS, VILLAIN] if leg == 3 else OTHERS
    assert vectors(released) == run.total(counted)


def test_replies_of_clients_who_were_not_asked_are_ignored():
    run = Run.of(6, silent={VILLAIN: 1})
    flow = run.trust.exchange(run.exchange, Seeded())
    honest, whole = Run.of(6, silent={VILLAIN: 1}), Run.of(6)
    honest.go()
    whole.go()
    next(flow)

    def late(leg: int) -> dict[str, Message]:
        """What the villain would have said had it been asked; it was silent in leg 1."""
        return {} if leg == 1 else {VILLAIN: whole.replies[leg][VILLAIN]}

    for leg in range(3):
        flow.send({"nobody": honest.replies[leg]["client-000"], **late(leg), **honest.replies[leg]})
    with pytest.raises(StopIteration) as finished:
        flow.send({"nobody": honest.replies[3]["client-000"], **late(3), **honest.replies[3]})
    assert vectors(finished.value.value) == run.total(OTHERS)


# --- well-formed lies -------------------------------------------------------------------------------------


def lie(leg: int, change: Any, **options: Any) -> Run:
    def tamper(at: int, name: str, said: Message) -> Any:
        return change(copy.deepcopy(said)) if (at, name) == (leg, VILLAIN) else said

    return Run.of(6, tamper=tamper, **options)


def flipped(text: bytes) -> bytes:
    return text[:-1] + bytes([text[-1] ^ 1])


def test_false_shares_are_ignored_one_by_one():
    """A neighbour that lies about every share it holds changes nothing, with and without silent clients."""

    def all_false(said: Message) -> Message:
        return {
            kind: {name: flipped(share) for name, share in shares.items()} for kind, shares in said.items()
        }

    for silent in ({}, {"client-005": 2}):
        run = lie(3, all_false, silent=silent)
        survivors = [name for name in run.values if name not in silent]
        assert vectors(run.go()) == run.total(survivors)


def test_lying_about_ones_own_vector_changes_exactly_ones_own_contribution():
    change = np.array([1, 2**63, 12345], dtype=np.uint64)
    run = lie(2, lambda said: {"masked": said["masked"] + change})
    [total] = vectors(run.go())
    plain = run.total([*OTHERS, VILLAIN])[0]
    assert [(got - want) % 2**64 for got, want in zip(total, plain, strict=True)] == change.tolist()


@pytest.mark.parametrize(
    ("field", "silent_from"),
    [("sealed", 4), ("sealed", 2), ("seed_commitments", 4), ("key_commitments", 2), ("seed_commitment", 4)],
)
def test_a_dealer_whose_shares_do_not_open_is_named(field: str, silent_from: int):
    def spoil(said: Message) -> Message:
        value = said[field]
        said[field] = (
            flipped(value) if isinstance(value, bytes) else {n: flipped(t) for n, t in value.items()}
        )
        return said

    run = lie(1, spoil, silent={VILLAIN: silent_from})
    with pytest.raises(ProtocolError, match=f"client '{VILLAIN}' dealt shares"):
        run.go()


def test_a_few_spoiled_shares_of_a_dealer_do_no_harm():
    def spoil_two(said: Message) -> Message:
        for name in sorted(said["sealed"])[:2]:
            said["sealed"][name] = flipped(said["sealed"][name])
        return said

    for silent in ({}, {VILLAIN: 2}):
        run = lie(1, spoil_two, silent=silent)
        assert vectors(run.go()) == run.total([name for name in run.values if name not in silent])


@pytest.mark.parametrize("silent_from", [2, 4])
def test_a_public_key_that_is_not_ones_own_spoils_nobody_elses_secret(silent_from: int):
    """The liar's masks no longer cancel. If it must be opened, it is named; otherwise only its own share of
    the sum is arbitrary: what is left of the total is the mismatch of its masks, which it could have added
    to its vector as well.
    """
    stolen = KeyPair.draw(Seeded("stolen"))
    run = lie(0, lambda said: {**said, "mask_key": stolen.public}, silent={VILLAIN: silent_from})
    if silent_from == 2:
        with pytest.raises(ProtocolError, match=f"client '{VILLAIN}' dealt shares of something else"):
            run.go()
    else:
        released = run.go()
        assert released[0].clients == 6
        assert vectors(released) != run.total(list(run.values))


@pytest.mark.parametrize("leg", [0, 1])
def test_the_same_leg_of_another_exchange_never_passes_for_this_one(leg: int):
    """Keys and shares of an earlier run: the replayer is named as soon as it must be opened."""
    other = Run.of(6, seed="another exchange")
    other.go()
    run = lie(leg, lambda said: other.replies[leg][VILLAIN], silent={VILLAIN: 2})
    with pytest.raises(ProtocolError, match=f"client '{VILLAIN}' dealt shares"):
        run.go()


def test_a_small_order_key_is_a_dropout_before_it_reaches_anyone():
    run = lie(0, lambda said: {**said, "mask_key": bytes(32)})
    assert vectors(run.go()) == run.total(OTHERS)
    assert all(VILLAIN not in asked["mask_keys"] for asked in run.requests[1].values())
