"""Whom the parties of `shuffle` believe: pinned keys, and clients that sign what they send."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedassay.crypto.identity import Credentials, Identity
from fedassay.crypto.keys import KeyPair
from fedassay.errors import FederationError, ProtocolError, TooFewClients
from fedassay.privacy.randomness import SimulatedRandomness as Seeded
from fedassay.protocol.vocabulary import Budget, Request, Select
from fedassay.trust.introductions import Pair
from fedassay.trust.shuffle.messages import SIGNED_ENVELOPES, LetterRoute
from fedassay.trust.shuffle.model import Shuffle
from shuffle_driver import OPENED, SERVERS, SHUFFLER, Losses, Town, plan_of

N = 10
NAMES = [f"client{i}" for i in range(N)]
PLANS = (plan_of(Select(of=Losses(cells=N)), budget=Budget(epsilon=200.0, delta=1e-6), clients=N),)
VECTORS = {name: (90 * (np.arange(N) != i),) for i, name in enumerate(NAMES)}
IDENTITIES = {name: Identity.draw(Seeded(1, name)) for name in (*SERVERS, *NAMES)}
ROSTER = {name: identity.public for name, identity in IDENTITIES.items()}
PINNED = {name: Credentials(identity=IDENTITIES[name], roster=ROSTER) for name in ROSTER}
AT_SITES = {name: PINNED[name].among(set(ROSTER) - {"coordinator"}) for name in NAMES}
ALL = {**AT_SITES, **{name: PINNED[name] for name in SERVERS}}


def town(**more: Any) -> Town:
    return Town(plans=PLANS, vectors=VECTORS, **{"credentials": ALL, **more})


def counted(here: Town) -> list[str]:
    (released,) = here.go()
    return sorted(NAMES[int(np.argmax(vector))] for vector in released.value)


def test_everybody_signs_and_is_believed() -> None:
    here = town()
    assert counted(here) == NAMES
    assert all(len(here.said[name, 0]["signature"]) == 64 for name in SERVERS)
    assert all(len(here.said[name, 1]["signature"]) == 64 for name in NAMES)


@pytest.mark.parametrize(
    "signature",
    [b"", bytes(64), IDENTITIES["client1"].sign(SIGNED_ENVELOPES, b"anything")],
    ids=["none", "zeros", "of other words"],
)
def test_who_does_not_sign_is_not_counted(signature: bytes) -> None:
    """One of ten may be missing."""

    def back(name: str, leg: int, reply: Any) -> Any:
        return {**reply, "signature": signature} if (name, leg) == ("client1", 1) else reply

    assert counted(town(back=back)) == [name for name in NAMES if name != "client1"]


def test_whom_the_shuffler_does_not_know_is_not_counted() -> None:
    """A coordinator that makes up clients to hide one among them gets nothing."""
    known = PINNED[SHUFFLER].among(set(ROSTER) - set(NAMES[1:]))
    here = town(credentials={**ALL, SHUFFLER: known})
    with pytest.raises(TooFewClients, match="1 of 10"):
        here.go()
    assert here.said[SHUFFLER, OPENED] == {"too_few": 1}


def test_a_server_is_no_client() -> None:
    """The coordinator's key is in the roster too: what it signs in its own name does not count."""
    here = town()

    def as_client(name: str, leg: int, message: Any) -> Any:
        if (name, leg) != (SHUFFLER, OPENED):
            return message
        request = Request(
            exchange=here.id,
            plans=PLANS,
            cohort=N,
            leg=1,
            recipient="coordinator",
            message={field: message[field] for field in ("servers", "keys", "signatures")},
            credentials=PINNED["coordinator"],
        )
        fake, _ = Shuffle().respond(request, lambda: VECTORS["client0"], {}, Seeded(5))
        return {**message, "envelopes": [{"client": "coordinator", **fake}, *message["envelopes"][2:]]}

    here.to = as_client
    with pytest.raises(TooFewClients, match="8 of 10"):
        here.go()


def impostor(name: str, leg: int, reply: Any) -> Any:
    """The relay puts a key of its own in the place of the shuffler's."""
    return {**reply, "public": KeyPair.draw(Seeded(3)).public} if (name, leg) == (SHUFFLER, 0) else reply


def test_clients_seal_for_no_other_shuffler() -> None:
    with pytest.raises(ProtocolError, match="'helper' is not signed by the key that is pinned for it"):
        town(back=impostor).go()
    evil = {"servers": ["coordinator", "client3"]}
    with pytest.raises(ProtocolError, match="got 'client3' as the second server"):
        town(to=lambda name, leg, message: {**message, **evil} if leg == 1 else message).go()


def test_without_pinned_keys_the_impostor_would_succeed() -> None:
    """What the signature is for: the relay could take the letters out by itself, and see whose they are."""
    here = town(credentials={}, back=impostor)
    with pytest.raises(FederationError, match="helper did not answer"):
        here.go()
    sealed = here.said["client4", 1]
    keys = here.said["coordinator", 0]["public"], KeyPair.draw(Seeded(3)).public
    session = here.helpers["coordinator"].store.conversations[here.id].state["session"]
    route = LetterRoute(session=session, place=0, servers=Pair(*keys))
    opened = route.open_envelope(KeyPair.draw(Seeded(3)), "client4", sealed["public"], sealed["sealed"][0])
    assert opened is not None


def test_the_shuffler_believes_no_other_coordinator() -> None:
    def unsigned(name: str, leg: int, message: Any) -> Any:
        if (name, leg) != (SHUFFLER, OPENED):
            return message
        return {**message, "signatures": [b"", message["signatures"][1]]}

    here = town(to=unsigned)
    with pytest.raises(FederationError, match="helper did not answer"):
        here.go()
    assert "'coordinator' is not signed" in str(here.helpers[SHUFFLER].reason)


def test_a_signature_is_worth_nothing_in_another_exchange() -> None:
    old = town(seed=5)
    old.go()

    def replayed(name: str, leg: int, reply: Any) -> Any:
        return old.said[SHUFFLER, 0] if (name, leg) == (SHUFFLER, 0) else reply

    with pytest.raises(ProtocolError, match="not signed"):
        town(back=replayed).go()


def test_clients_answer_in_their_leg_only() -> None:
    request = Request(exchange=bytes(16), plans=PLANS, cohort=N, leg=0, recipient="client0", message={})
    with pytest.raises(ProtocolError, match="got leg 0, expected only leg 1"):
        Shuffle().respond(request, lambda: (), {}, Seeded(1))
