"""Clients that have pinned each other's identities believe no key that its owner has not signed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fedassay.crypto.identity import Credentials, Identity
from fedassay.crypto.keys import KeyPair
from fedassay.errors import ProtocolError
from fedassay.protocol import SECOND_SERVER, Message, Request
from fedassay.trust.secure_sum import SecureSum
from secure_sum_driver import Run, Seeded, vectors

NAMES = [f"client-{i:03}" for i in range(4)]
IDENTITIES = {name: Identity.draw(Seeded("identity", name)) for name in NAMES}
ROSTER = {name: identity.public for name, identity in IDENTITIES.items()}


class Pinned(SecureSum):
    """A secure sum whose clients have credentials, as a deployed site gives them."""

    def respond(self, request: Request, measure: Any, state: Message, randomness: Any) -> Any:
        credentials = Credentials(identity=IDENTITIES[request.recipient], roster=ROSTER)
        return super().respond(replace(request, credentials=credentials), measure, state, randomness)


def test_signed_keys_give_the_exact_sum() -> None:
    run = Run.of(4, Pinned())
    assert vectors(run.go()) == run.total(NAMES)
    assert all(len(reply["signature"]) == 64 for reply in run.replies[0].values())


def impostor(leg: int, client: str, reply: Message) -> Message:
    """The server (or anyone on the way) puts its own keys in the place of one client's."""
    if leg != 0 or client != NAMES[1]:
        return reply
    return {**reply, "seal_key": KeyPair.draw(Seeded("evil")).public}


def resigned(leg: int, client: str, reply: Message) -> Message:
    """The same, signed by somebody whose key is not pinned for this client."""
    if leg != 0 or client != NAMES[1]:
        return reply
    mallory = Identity.draw(Seeded("mallory"))
    return {**reply, "signature": mallory.sign("secure-sum keys", b"anything")}


def unsigned(leg: int, client: str, reply: Message) -> Message:
    return {**reply, "signature": b""} if leg == 0 and client == NAMES[1] else reply


@pytest.mark.parametrize("tamper", [impostor, resigned, unsigned])
def test_keys_that_are_not_signed_by_their_owner_stop_everybody(tamper: Any) -> None:
    with pytest.raises(ProtocolError, match="not signed by the key that is pinned"):
        Run.of(4, Pinned(), tamper=tamper).go()


def test_without_pinned_keys_the_impostor_would_succeed() -> None:
    """What the signature is for: the same replacement passes unnoticed where nobody signs."""
    run = Run.of(4, SecureSum(), tamper=impostor)
    with pytest.raises(ProtocolError, match="dealt shares that do not open"):
        run.go()
    assert len(run.replies[2]) == 4  # no client has noticed it: all have sent their vectors


def test_a_signature_is_worth_nothing_in_another_run() -> None:
    other = Run.of(4, Pinned(), seed="yesterday")
    other.go()
    old = other.replies[0][NAMES[1]]

    def replayed(leg: int, client: str, reply: Message) -> Message:
        return old if leg == 0 and client == NAMES[1] else reply

    with pytest.raises(ProtocolError, match="not signed"):
        Run.of(4, Pinned(), seed="today", tamper=replayed).go()


def test_the_coordinator_cannot_pose_as_a_client() -> None:
    """A site's client half does not believe the coordinator's key: with it, two clients would be three."""
    coordinator = Identity.draw(Seeded("coordinator"))
    everybody = Credentials(
        identity=IDENTITIES[NAMES[0]], roster={**ROSTER, "coordinator": coordinator.public}
    )
    signature = coordinator.sign("secure-sum keys", b"words")
    assert everybody.verifies("coordinator", "secure-sum keys", b"words", signature)
    peers = everybody.among(ROSTER)
    assert not peers.verifies("coordinator", "secure-sum keys", b"words", signature)
    twice = Credentials(
        identity=IDENTITIES[NAMES[0]],
        roster={**ROSTER, "friend": coordinator.public, "coordinator": coordinator.public},
    )
    assert not twice.among([*ROSTER, "friend"]).verifies("friend", "secure-sum keys", b"words", signature)


def test_the_second_server_cannot_pose_as_a_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is in every roster and signs for itself; but it holds no rows, so that a cohort with it is one too small."""
    names = [*NAMES[:3], SECOND_SERVER]
    identity = Identity.draw(Seeded("identity", SECOND_SERVER))
    monkeypatch.setitem(IDENTITIES, SECOND_SERVER, identity)
    monkeypatch.setitem(ROSTER, SECOND_SERVER, identity.public)
    with pytest.raises(ProtocolError, match="not signed by the key that is pinned"):
        Run(trust=Pinned(), values=dict.fromkeys(names, Run.of(4).values[NAMES[0]])).go()


def test_a_cohort_is_as_large_as_the_request_says() -> None:
    """The site's policy has judged the request's cohort; the server cannot run a smaller one under it."""
    run = Run.of(4)
    run.go(until=1)
    told = run.requests[0][NAMES[0]]
    request = replace(run.request(0, NAMES[0], told), cohort=1000)
    with pytest.raises(ProtocolError, match="expected 1000"):
        run.trust.respond(request, lambda: (), {}, Seeded("again"))
