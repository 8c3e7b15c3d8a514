"""Identities: an Ed25519 key pair at each party, and a roster of the public keys that are believed.

A signature covers a purpose and the bytes; a roster is what a person has checked by hand (read a fingerprint
over the telephone) and pinned. No certificate authority, no renewal, nothing to look up.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from fedassay.crypto.keys import KEY_BYTES, Secret, context
from fedassay.errors import UsageError
from fedassay.protocol.files import unwritable
from fedassay.protocol.vocabulary import COORDINATOR, SECOND_SERVER, Randomness


@dataclass(frozen=True, kw_only=True)
class Identity:
    """A party's signing key. The private half stays in its file.

    Examples
    --------
    >>> from fedassay.privacy.randomness import SecureRandomness
    >>> me = Identity.draw(SecureRandomness())
    >>> signature = me.sign("key", b"my words")
    >>> verifies(me.public, "key", b"my words", signature), verifies(me.public, "key", b"other", signature)
    (True, False)
    """

    private: Secret
    public: bytes

    @classmethod
    def of(cls, private: Secret) -> Identity:
        """Return the identity that belongs to a private key of 32 bytes."""
        key = Ed25519PrivateKey.from_private_bytes(private.data)
        return cls(private=private, public=key.public_key().public_bytes_raw())

    @classmethod
    def draw(cls, randomness: Randomness) -> Identity:
        """Draw a fresh identity."""
        return cls.of(Secret(randomness.bytes(KEY_BYTES)))

    def sign(self, purpose: str, data: bytes) -> bytes:
        """Sign `data`; the signature is worth nothing for any other purpose."""
        key = Ed25519PrivateKey.from_private_bytes(self.private.data)
        return key.sign(context("fedassay signature", purpose, data))

    def save(self, path: Path) -> None:
        """Write the private key to a new file that only its owner may read."""
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            raise UsageError(
                f"{path}: exists already, and a key is not overwritten; give another file."
            ) from None
        except OSError as error:
            raise unwritable(path, error) from error
        try:
            with os.fdopen(descriptor, "w", encoding="ascii") as file:
                file.write(f"fedassay private key\n{base64.b64encode(self.private.data).decode()}\n")
        except OSError as error:
            path.unlink(missing_ok=True)
            raise unwritable(path, error) from error

    @classmethod
    def load(cls, path: Path) -> Identity:
        """Read a private key from its file."""
        try:
            if path.is_dir():
                raise UsageError(
                    f"{path}: is a folder, expected the file of a private key, such as {path}/site.key."
                )
            title, text = path.read_text(encoding="ascii").splitlines()
            private = base64.b64decode(text, validate=True)
        except OSError as error:
            raise UsageError(f"{path}: cannot be read ({error.strerror}); expected a private key.") from error
        except ValueError:
            title, private = "", b""
        if title != "fedassay private key" or len(private) != KEY_BYTES:
            raise UsageError(f"{path}: is not a private key of fedassay; make one with `fedassay keys`.")
        return cls.of(Secret(private))


def verifies(public: bytes, purpose: str, data: bytes, signature: object) -> bool:
    """Return whether the holder of `public` signed `data` for this purpose."""
    if not isinstance(signature, bytes):
        return False
    try:
        key = Ed25519PublicKey.from_public_bytes(public)
        key.verify(signature, context("fedassay signature", purpose, data))
    except (InvalidSignature, ValueError):
        return False
    return True


def fingerprint(public: bytes) -> str:
    """Return a public key as eight groups that two people can compare by telephone.

    Examples
    --------
    >>> fingerprint(bytes(32))
    '6668 7aad f862 bd77 6c8f c18b 8e9f 8e20'
    """
    digest = hashlib.sha256(public).hexdigest()[:32]
    return " ".join(digest[i : i + 4] for i in range(0, 32, 4))


def key_to_text(public: bytes) -> str:
    """Return a public key as it stands in a roster."""
    return base64.b64encode(public).decode()


def key_from_text(text: object, *, whose: str) -> bytes:
    """Read the public key on a roster card (a prekey after it is left alone); `UsageError` if there is none."""
    try:
        public = base64.b64decode(str(text).partition(" ")[0], validate=True)
        Ed25519PublicKey.from_public_bytes(public)
    except ValueError:
        raise UsageError(
            f"public key of {whose}: expected 44 characters of base64, as `fedassay keys` prints."
        ) from None
    return public


@dataclass(frozen=True, kw_only=True)
class Credentials:
    """Identity and the public keys that its holder believes: used by a client half to sign and to check."""

    identity: Identity
    roster: Mapping[str, bytes] = field(repr=False)
    wider: int = 0
    """Number of sites in the roster before it was narrowed to those of one study; 0 if it was not narrowed."""

    @property
    def pinned(self) -> int:
        """Number of sites that this party has pinned: those among whom colluders are assumed."""
        return max(self.wider, len(self.sites))

    def among(self, names: Collection[str]) -> Credentials:
        """Narrow the roster to these parties; no other party's key is then believed under any name."""
        others = {key for name, key in self.roster.items() if name not in names}
        kept = {name: key for name, key in self.roster.items() if name in names and key not in others}
        return Credentials(identity=self.identity, roster=kept, wider=self.pinned)

    @cached_property
    def sites(self) -> Mapping[str, bytes]:
        """The sites of the roster and their public keys: neither coordinator nor second server."""
        return {n: key for n, key in self.roster.items() if n not in (COORDINATOR, SECOND_SERVER)}

    def knows(self, name: str) -> bool:
        """Return whether a party is in the roster."""
        return name in self.roster

    def sign(self, purpose: str, data: bytes) -> bytes:
        """Sign as oneself."""
        return self.identity.sign(purpose, data)

    def verifies(self, name: str, purpose: str, data: bytes, signature: object) -> bool:
        """Return whether the party called `name` in the roster signed this; False if it is not in the roster."""
        return name in self.roster and verifies(self.roster[name], purpose, data, signature)
