"""Identities: a stored signature, and nothing verifies that was signed otherwise or changed."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from hypothesis import given
from hypothesis import strategies as st

from fedassay.cli import run_command
from fedassay.crypto.identity import Credentials, Identity, fingerprint, key_from_text, key_to_text, verifies
from fedassay.crypto.keys import Secret
from fedassay.errors import UsageError
from fedassay.kernel.member_store import MemberStore
from fedassay.kernel.sites import prekeys_of
from fedassay.privacy.randomness import SecureRandomness

# The first key pair of RFC 8032, section 7.1.
PRIVATE = bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
PUBLIC = bytes.fromhex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a")
SIGNATURE = bytes.fromhex(
    "2aaa1446fc2e517798d1d58c4544a8b778a3bc03300a1ddd0cccae845fb3ca39"
    "d7bac77233b096118d3b93356bcdf2b8be7ac2b6e7bbc42bef690eabf230480a"
)
ME = Identity.of(Secret(PRIVATE))


def test_the_stored_bytes_have_not_changed() -> None:
    assert ME.public == PUBLIC
    assert ME.sign("file drop 1", b"my words") == SIGNATURE
    assert verifies(PUBLIC, "file drop 1", b"my words", SIGNATURE)
    assert key_to_text(PUBLIC) == "11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo="
    assert fingerprint(PUBLIC) == "21fe 31df a154 a261 626b f854 046f d227"


def test_what_is_signed_is_what_the_reference_says() -> None:
    """Each part with its length in front, big-endian: docs/reference/wire.md."""
    signed = b"\0\0\0\x12fedassay signature" + b"\0\0\0\x0bfile drop 1" + b"\0\0\0\x08my words"
    Ed25519PublicKey.from_public_bytes(PUBLIC).verify(SIGNATURE, signed)


@pytest.mark.parametrize(
    ("public", "purpose", "data", "signature"),
    [
        (Identity.draw(SecureRandomness()).public, "file drop 1", b"my words", SIGNATURE),
        (PUBLIC, "file drop 2", b"my words", SIGNATURE),
        (PUBLIC, "file drop 1m", b"y words", SIGNATURE),
        (PUBLIC, "file drop 1", b"my word", SIGNATURE),
        (PUBLIC, "file drop 1", b"my words", SIGNATURE[:-1]),
        (PUBLIC, "file drop 1", b"my words", SIGNATURE + b"\0"),
        (PUBLIC, "file drop 1", b"my words", b""),
        (PUBLIC, "file drop 1", b"my words", None),
        (PUBLIC, "file drop 1", b"my words", "text"),
        (b"short", "file drop 1", b"my words", SIGNATURE),
    ],
)
def test_nothing_else_verifies(public: bytes, purpose: str, data: bytes, signature: object) -> None:
    assert not verifies(public, purpose, data, signature)


@given(place=st.integers(0, 63), bit=st.integers(0, 7))
def test_a_flipped_bit_of_a_signature(place: int, bit: int) -> None:
    changed = bytearray(SIGNATURE)
    changed[place] ^= 1 << bit
    assert not verifies(PUBLIC, "file drop 1", b"my words", bytes(changed))


def test_a_roster_believes_only_its_names() -> None:
    mine = Credentials(identity=ME, roster={"me": PUBLIC})
    assert mine.verifies("me", "p", b"x", mine.sign("p", b"x"))
    assert not mine.verifies("you", "p", b"x", mine.sign("p", b"x"))
    assert not mine.verifies("me", "q", b"x", mine.sign("p", b"x"))


def test_a_saved_key_is_private_and_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "me.key"
    ME.save(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert Identity.load(path) == ME
    with pytest.raises(UsageError, match="a key is not overwritten"):
        ME.save(path)
    with pytest.raises(UsageError, match="cannot be written"):
        ME.save(tmp_path / "no" / "me.key")


@pytest.mark.parametrize(
    "content", [b"", b"fedassay private key\n", b"fedassay private key\nAAAA\n", b"\xff\xfe", b"a\nb\nc\n"]
)
def test_what_is_not_a_key_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.key"
    path.write_bytes(content)
    with pytest.raises(UsageError, match="is not a private key of fedassay"):
        Identity.load(path)
    with pytest.raises(UsageError, match="cannot be read"):
        Identity.load(tmp_path / "nowhere.key")


@pytest.mark.parametrize(
    "text", ["", "x", "AAAA", 3, None, key_to_text(PUBLIC)[:-2], key_to_text(PUBLIC) + "A"]
)
def test_what_is_not_a_public_key_is_refused(text: object) -> None:
    with pytest.raises(UsageError, match="public key of b: expected 44 characters"):
        key_from_text(text, whose="b")


def test_no_secret_is_in_a_repr() -> None:
    shown = repr(ME) + repr(Credentials(identity=ME, roster={"me": PUBLIC}))
    assert PRIVATE.hex() not in shown
    assert repr(PRIVATE) not in shown


def test_the_command_makes_a_key_once_and_shows_it_again(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "hospital-a.key"
    assert run_command(["keys", str(path)]) == 0
    first = capsys.readouterr().out
    public = Identity.load(path).public
    card = MemberStore(prekeys_of(path)).card(
        Credentials(identity=Identity.load(path), roster={}), SecureRandomness()
    )
    assert f'hospital-a = "{key_to_text(public)} {card.to_text()}"' in first
    assert fingerprint(public) in first
    content = path.read_bytes()
    assert content.split()[-1].decode() not in first
    assert run_command(["keys", str(path)]) == 0
    assert path.read_bytes() == content
    assert f'hospital-a = "{key_to_text(public)} {card.to_text()}"' in capsys.readouterr().out
    path.write_text("something else")
    assert run_command(["keys", str(path)]) == 2
    assert run_command(["keys", str(tmp_path / "no" / "a.key")]) == 2
