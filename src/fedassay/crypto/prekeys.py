"""Prekeys: X25519 keys that a member of a secure sum publishes beforehand, for one answer each.

A client pads its message with what it shares with each member's prekey. A holder of enough private halves, and of the
messages, could read them; so a private half is deleted in the moment in which its answer is recorded, and at its expiry
if it was never asked (`fedassay.kernel.member_store`).
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes

from fedassay.crypto import field61
from fedassay.crypto.field61 import Elements, P
from fedassay.crypto.keys import Secret, context, is_usable
from fedassay.errors import ProtocolError, UsageError
from fedassay.protocol.arrays import Words
from fedassay.protocol.vocabulary import PartyKeys

PURPOSE = "prekey 1"
DAY = 86_400
DAYS_VALID = 90
DAYS_APART = 30
"""Days by which a statement may be older than the newest of its member; an older one is refused: it may be stolen."""

DAYS_NAMED = DAYS_APART - 2
"""Age in days beyond which an honest coordinator names no prekey, so that no client refuses it as too old."""

_LAYOUT = struct.Struct("<?QQ32s64s")


@dataclass(frozen=True, kw_only=True)
class Prekey:
    """A public prekey as its member has signed it, for one coordinator or (`for_any`) for all of them.

    Times are seconds since 1970. In a simulation parties have no identities and the signature is zeros.
    """

    public: bytes
    issued: int
    expires: int
    for_any: bool
    signature: bytes

    def packed(self) -> bytes:
        """Return the statement as 113 bytes."""
        return _LAYOUT.pack(self.for_any, self.issued, self.expires, self.public, self.signature)

    @classmethod
    def unpacked(cls, data: object) -> Prekey:
        """Read the statement in these bytes; `ProtocolError` if there is none. Its users judge its key."""
        if not isinstance(data, bytes) or len(data) != _LAYOUT.size or data[0] > 1:
            raise ProtocolError(f"prekey: expected a statement of {_LAYOUT.size} bytes.")
        for_any, issued, expires, public, signature = _LAYOUT.unpack(data)
        return cls(public=public, issued=issued, expires=expires, for_any=for_any, signature=signature)

    def to_text(self) -> str:
        """Return the statement as it follows the public key on a roster card."""
        return base64.b64encode(self.packed()).decode()

    @classmethod
    def from_text(cls, text: str, *, whose: str) -> Prekey:
        """Read the statement on a roster card; raise a `UsageError` that names its owner if there is none."""
        try:
            return cls.unpacked(base64.b64decode(text, validate=True))
        except (ValueError, ProtocolError):
            raise UsageError(
                f"card of {whose}: expected the key and the prekey as `fedassay keys` prints them, in one line."
            ) from None

    def words(self, coordinator: str) -> bytes:
        """Return what the member signs."""
        whom = "" if self.for_any else coordinator
        return context("prekey", int(self.for_any), whom, self.issued, self.expires, self.public)

    def is_of(self, member: str, *, coordinator: str, credentials: PartyKeys) -> bool:
        """Return whether the member of this name in the roster signed it, for this coordinator or for all."""
        return credentials.verifies(member, PURPOSE, self.words(coordinator), self.signature)

    def may_be_named(self, *, now: float, until: float) -> bool:
        """Return whether all clients will take it, by clocks that are an hour off; a refused one stops them all."""
        fresh = now - DAYS_NAMED * DAY <= self.issued <= now + 3_600
        return fresh and self.expires >= until and is_usable(self.public)


# --- one-time pads over the prime field ---------------------------------------------------------------------

PAD_KEY_BYTES = 32

UNFOLDED = 7
"""Number of elements that fit into a word together with a folded sum."""

_AT_ONCE = 1 << 13
"""Columns of a sum of pads at a time: this many of `UNFOLDED` pads fit into a core's own cache."""


def pad(key: Secret, count: int) -> Elements:
    """Expand a key of 32 bytes into `count` elements: the key stream of AES-256-GCM, 61 bits of each word.

    Guarantee: each element is at a statistical distance of 2^-61 from uniform if the key stream is uniform, because the
    word p = 2^61 − 1 also stands for 0. Who hides something under a pad takes none that holds this word
    (`Packing.corrections`). Equal keys give equal pads on every platform; a key must serve one pad only.

    Examples
    --------
    >>> pad(Secret(bytes(32)), 2).tolist()
    [1039030023895427022, 1773841811996233223]
    """
    return total([key], count)


def total(keys: Sequence[Secret], count: int) -> Elements:
    """Return the sum of the keys' pads."""
    sums, spare = np.zeros(count, np.uint64), np.empty(_AT_ONCE, np.uint64)
    for first in range(0, len(keys), UNFOLDED):
        for part, pads in expand(keys[first : first + UNFOLDED], count, _AT_ONCE):
            some, more = sums[part], spare[: part.stop - part.start]
            some += np.add.reduce(pads, axis=0, out=more)
            field61.fold_in_place(some, more)
    return field61.reduce(sums)


def expand(keys: Sequence[Secret], count: int, at_once: int) -> Iterator[tuple[slice, Words]]:
    """Yield the pads of all keys, a row each, some columns at a time: where these are, and their words of at most p.

    The rows last until the next ones are asked for.
    """
    at_once = max(1, min(count, at_once))
    zeros = memoryview(bytes(8 * at_once))
    buffer = np.empty((len(keys), at_once + 2), "<u8")  # the cipher library wants room for one more block
    rows, streams = [row.data.cast("B") for row in buffer], [*map(_stream, keys)]
    for start in range(0, count, at_once):
        part = slice(start, min(start + at_once, count))
        plain = zeros[: 8 * (part.stop - start)]
        for stream, row in zip(streams, rows, strict=True):
            stream.update_into(plain, row)
        words = buffer[:, : part.stop - start].astype(np.uint64, copy=False)
        words &= P
        yield part, words


def _stream(key: Secret) -> CipherContext:
    """Return the key stream: AES in counter mode from 2 on, as in GCM, which is faster in libraries than the mode."""
    assert len(key.data) == PAD_KEY_BYTES
    return Cipher(algorithms.AES(key.data), modes.GCM(bytes(12))).encryptor()
