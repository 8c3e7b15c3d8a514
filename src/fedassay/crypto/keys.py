"""Key agreement, key derivation and sealing: X25519, HKDF-SHA256 and ChaCha20-Poly1305.

Thin, typed covers over the `cryptography` library. There is no policy here: callers state what a key is for
by passing a *context* (see `context`), and two keys with different contexts have nothing in common.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fedassay.errors import ProtocolError
from fedassay.protocol.vocabulary import Randomness

KEY_BYTES = 32
"""The length of an X25519 key, private or public, and of a sealing key."""

NONCE_BYTES = 12
SEAL_OVERHEAD = NONCE_BYTES + 16
"""Bytes by which a sealed text is longer than the text: the nonce in front, the tag behind."""


@dataclass(frozen=True, repr=False)
class Secret:
    """Bytes that must not be printed.

    Examples
    --------
    >>> Secret(b"do not tell")
    Secret(11 bytes)
    """

    data: bytes

    def __repr__(self) -> str:
        return f"Secret({len(self.data)} bytes)"


def context(purpose: str, *parts: str | bytes | int) -> bytes:
    """Return one unambiguous byte string for a purpose and what it is bound to: each part after its length.

    Examples
    --------
    >>> context("mask", "ab", "c") == context("mask", "a", "bc")
    False
    """
    encoded = [part if isinstance(part, bytes) else str(part).encode() for part in (purpose, *parts)]
    return b"".join([piece for part in encoded for piece in (len(part).to_bytes(4, "big"), part)])


def derive(secret: Secret, *, salt: bytes, info: bytes, length: int = KEY_BYTES) -> Secret:
    """Derive a key of `length` bytes for one purpose (HKDF-SHA256, RFC 5869)."""
    return Secret(HKDF(algorithm=SHA256(), length=length, salt=salt, info=info).derive(secret.data))


@dataclass(frozen=True, kw_only=True)
class KeyPair:
    """An X25519 key pair (RFC 7748)."""

    private: Secret
    public: bytes
    _loaded: X25519PrivateKey = field(repr=False, compare=False)

    @classmethod
    def of(cls, private: Secret) -> KeyPair:
        """Return the pair that belongs to a private key; every string of 32 bytes is one."""
        loaded = X25519PrivateKey.from_private_bytes(private.data)
        return cls(private=private, public=loaded.public_key().public_bytes_raw(), _loaded=loaded)

    @classmethod
    def draw(cls, randomness: Randomness) -> KeyPair:
        """Draw a fresh pair."""
        return cls.of(Secret(randomness.bytes(KEY_BYTES)))

    def agree(self, public: bytes, *, salt: bytes, info: bytes, length: int = KEY_BYTES) -> Secret:
        """Return the key that only the holders of the two private keys can compute.

        Raises `ProtocolError` for a public key that is not one, or of small order: such a key would make
        the agreed secret known to everyone.
        """
        try:
            shared = self._loaded.exchange(X25519PublicKey.from_public_bytes(public))
        except ValueError as error:
            raise ProtocolError("public key: expected 32 bytes that are a usable X25519 key.") from error
        return derive(Secret(shared), salt=salt, info=info, length=length)


# Private keys are multiples of the cofactor, so a point of small order gives zero with this one if and only
# if it gives zero with all of them. The key protects nothing.
_PROBE = X25519PrivateKey.from_private_bytes(bytes(range(KEY_BYTES)))

_FIELD = 2**255 - 19


def is_usable(public: object) -> bool:
    r"""Return whether `KeyPair.agree` will succeed with this public key, given in the only bytes that it should have.

    Examples
    --------
    >>> is_usable(bytes(32)), is_usable(b"\x09" + bytes(31)), is_usable("nine")
    (False, True, False)
    >>> is_usable(b"\x09" + bytes(30) + b"\x80")  # the same point in other bytes
    False
    """
    if not isinstance(public, bytes) or len(public) != KEY_BYTES:
        return False
    if int.from_bytes(public, "little") >= _FIELD:
        return False
    try:
        _PROBE.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:
        return False
    return True


def seal(key: Secret, text: bytes, *, associated: bytes, randomness: Randomness) -> bytes:
    """Encrypt and authenticate `text`, bound to `associated` (ChaCha20-Poly1305, RFC 8439)."""
    nonce = randomness.bytes(NONCE_BYTES)
    return nonce + ChaCha20Poly1305(key.data).encrypt(nonce, text, associated)


def seal_for(
    own: KeyPair, public: bytes, text: bytes, *, salt: bytes, words: bytes, randomness: Randomness
) -> bytes:
    """Seal for the holder of the private half of `public`, as the holder of `own` and bound to `words`."""
    return seal(own.agree(public, salt=salt, info=words), text, associated=words, randomness=randomness)


def unseal_from(own: KeyPair, public: bytes, sealed: bytes, *, salt: bytes, words: bytes) -> Secret | None:
    """Open what the holder of `public` sealed for `own` with these words; None if it was not so sealed."""
    try:
        key = own.agree(public, salt=salt, info=words)
    except ProtocolError:
        return None
    return unseal(key, sealed, associated=words)


def unseal(key: Secret, sealed: bytes, *, associated: bytes) -> Secret | None:
    """Return the text, or None if it was not sealed with this key for this `associated`, or was changed since."""
    if len(sealed) < SEAL_OVERHEAD:
        return None
    nonce, text = sealed[:NONCE_BYTES], sealed[NONCE_BYTES:]
    try:
        return Secret(ChaCha20Poly1305(key.data).decrypt(nonce, text, associated))
    except InvalidTag:
        return None
