"""Sealed replies: opened where they belong and nowhere else, and their bytes as they are stored."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from fedassay.crypto.identity import Credentials, Identity
from fedassay.crypto.keys import KeyPair, Secret
from fedassay.errors import ProtocolError
from fedassay.kernel import envelope
from fedassay.kernel import envelope as sealing
from fedassay.kernel.envelope import Refusal
from fedassay.protocol import wire
from secure_sum_driver import credentials_of

VECTORS = json.loads((Path(__file__).parent / "vectors" / "file_drop.json").read_text())
OWN = KeyPair.of(Secret(bytes(range(100, 132))))
REQUEST = b"what do you measure?"

# The first key pair of RFC 8032, section 7.1.
SITE = Credentials(
    identity=Identity.of(
        Secret(bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60"))
    ),
    roster={},
)
COORDINATOR = Credentials(identity=SITE.identity, roster={"a": SITE.identity.public})


class Counting:
    """Bytes that count up: for vectors only."""

    simulated = True

    def __init__(self) -> None:
        self._next = count()

    def bytes(self, number: int) -> bytes:
        return bytes(next(self._next) % 256 for _ in range(number))


def sealed(credentials: Credentials | None = SITE) -> bytes:
    return sealing.sealed(
        b"hi",
        sealing.Addressee(OWN.public, REQUEST),
        sender="a",
        credentials=credentials,
        randomness=Counting(),  # type: ignore[arg-type]
    )


def opened(data: bytes, own: KeyPair = OWN, **changes: Any) -> bytes:
    return sealing.opened(
        data, own, **{"request": REQUEST, "sender": "a", "credentials": COORDINATOR, **changes}
    )


def test_the_stored_bytes_have_not_changed() -> None:
    assert sealed().hex() == VECTORS["sealed"]
    assert opened(sealed()) == b"hi"


@pytest.mark.parametrize(
    "changes",
    [
        {"request": REQUEST + b"!"},
        {"sender": "b"},
        {"own": KeyPair.of(Secret(bytes(32)))},
        {"credentials": credentials_of("a", ["a"])},
    ],
)
def test_a_reply_opens_only_where_it_belongs(changes: dict[str, Any]) -> None:
    with pytest.raises(ProtocolError):
        opened(sealed(), **changes)


def test_a_changed_byte_opens_nothing() -> None:
    for credentials in (SITE, None):
        data = sealed(credentials)
        for place in range(len(data)):
            changed = bytearray(data)
            changed[place] ^= 1
            try:
                found = opened(bytes(changed), credentials=None if credentials is None else COORDINATOR)
            except ProtocolError:
                continue
            # Who sent it is what the runtime says, and the text is bound to that; an unread word may change.
            assert found == b"hi"
            assert wire.decode(bytes(changed))["sealed"] == wire.decode(data)["sealed"]


def test_what_is_not_signed_counts_nowhere_but_in_a_simulation() -> None:
    assert opened(sealed(None), credentials=None) == b"hi"
    with pytest.raises(ProtocolError, match="not signed by a"):
        opened(sealed(None))


def test_only_a_refusal_comes_in_the_clear() -> None:
    """Whoever carries messages could otherwise put an answer of its own in the place of a site's."""
    refusal = envelope.pack_refusal(sender="a", code=Refusal.MALFORMED)
    assert opened(refusal) == refusal
    answer = envelope.pack_reply(sender="a", exchange=bytes(16), leg=0, message={"vectors": []})
    for credentials in (COORDINATOR, None):
        with pytest.raises(ProtocolError, match="not of the expected form"):
            opened(answer, credentials=credentials)
