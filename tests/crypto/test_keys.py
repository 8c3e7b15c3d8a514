from __future__ import annotations

import hmac

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from fedassay.crypto.keys import KeyPair, Secret, context, derive, is_usable, seal, unseal
from fedassay.errors import ProtocolError
from secure_sum_driver import Seeded

# Points of order 1, 2, 4 and 8 on Curve25519 and on its twist, in all their encodings below 2^255.
SMALL_ORDER = [
    (0).to_bytes(32, "little"),
    (1).to_bytes(32, "little"),
    (325606250916557431795983626356110631294008115727848805560023387167927233504).to_bytes(32, "little"),
    (39382357235489614581723060781553021112529911719440698176882885853963445705823).to_bytes(32, "little"),
    (2**255 - 20).to_bytes(32, "little"),
    (2**255 - 19).to_bytes(32, "little"),
    (2**255 - 18).to_bytes(32, "little"),
]


def hkdf(secret: bytes, salt: bytes, info: bytes, length: int) -> bytes:
    """RFC 5869, written out."""
    key = hmac.digest(salt, secret, "sha256")
    block, output = b"", b""
    for counter in range(1, -(-length // 32) + 1):
        block = hmac.digest(key, block + info + bytes([counter]), "sha256")
        output += block
    return output[:length]


def test_derivation_is_rfc_5869():
    for length in (16, 32, 64):
        expected = hkdf(b"secret", b"salt", b"info", length)
        assert derive(Secret(b"secret"), salt=b"salt", info=b"info", length=length).data == expected


def test_both_sides_agree_on_a_derivation_of_the_x25519_secret():
    a, b = KeyPair.draw(Seeded("a")), KeyPair.draw(Seeded("b"))
    raw = X25519PrivateKey.from_private_bytes(a.private.data).exchange(
        X25519PublicKey.from_public_bytes(b.public)
    )
    agreed = a.agree(b.public, salt=b"s", info=b"i")
    assert agreed == b.agree(a.public, salt=b"s", info=b"i")
    assert agreed.data == hkdf(raw, b"s", b"i", 32)
    assert agreed != a.agree(b.public, salt=b"s", info=b"j")
    assert agreed != a.agree(b.public, salt=b"t", info=b"i")


@pytest.mark.parametrize("public", SMALL_ORDER)
def test_points_of_small_order_are_refused(public: bytes):
    assert not is_usable(public)
    with pytest.raises(ProtocolError, match="X25519"):
        KeyPair.draw(Seeded()).agree(public, salt=b"", info=b"")


@pytest.mark.parametrize("public", [b"", bytes(31), b"\x09" * 33, "x" * 32, None, 9])
def test_what_is_not_a_key_is_not_usable(public: object):
    assert not is_usable(public)


def test_a_seal_opens_only_unchanged_with_its_key_and_its_context():
    key, other = Secret(bytes(32)), Secret(b"\x01" * 32)
    sealed = seal(key, b"text", associated=b"a to b", randomness=Seeded())
    assert unseal(key, sealed, associated=b"a to b") == Secret(b"text")
    assert unseal(other, sealed, associated=b"a to b") is None
    assert unseal(key, sealed, associated=b"b to a") is None
    assert unseal(key, b"", associated=b"a to b") is None
    for place in range(len(sealed)):
        changed = bytearray(sealed)
        changed[place] ^= 1
        assert unseal(key, bytes(changed), associated=b"a to b") is None


def test_contexts_cannot_run_into_each_other():
    seen = {context("x", *parts) for parts in [("ab", "c"), ("a", "bc"), ("abc",), ("", "abc"), ("abc", "")]}
    assert len(seen) == 5
    assert context("x", 12) == context("x", "12")  # numbers are written in decimal


def test_secrets_are_not_printed():
    pair = KeyPair.draw(Seeded())
    for text in (repr(pair), str(pair), f"{pair}", repr(pair.private), repr([pair.private])):
        assert pair.private.data.hex() not in text
        assert repr(pair.private.data) not in text
        assert "Secret(32 bytes)" in text
