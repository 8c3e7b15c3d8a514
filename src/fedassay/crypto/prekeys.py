"""Prekeys: X25519 keys that a member of a secure sum publishes beforehand, for one answer each.

A client pads its message with what it shares with each member's prekey. Whoever holds enough private halves, and the
messages, could read them; so a private half is deleted in the moment in which its answer is recorded, and at its expiry
if it was never asked (`fedassay.member_store`).
"""

from __future__ import annotations

import base64
import struct
from dataclasses import dataclass

from fedassay.crypto.keys import context, is_usable
from fedassay.errors import ProtocolError, UsageError
from fedassay.protocol import Credentials

PURPOSE = "prekey 1"
DAY = 86_400
DAYS_VALID = 90
DAYS_APART = 30
"""A statement that was issued so much earlier than the newest of the same member is refused: it may be stolen."""

DAYS_NAMED = DAYS_APART - 2
"""An honest coordinator names none that was issued earlier than so long ago: then no client refuses it as too old."""

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
        """The statement as 113 bytes."""
        return _LAYOUT.pack(self.for_any, self.issued, self.expires, self.public, self.signature)

    @classmethod
    def unpacked(cls, data: object) -> Prekey:
        """The statement in these bytes; `ProtocolError` if there is none. Its key is judged by those who use it."""
        if not isinstance(data, bytes) or len(data) != _LAYOUT.size or data[0] > 1:
            raise ProtocolError(f"prekey: expected a statement of {_LAYOUT.size} bytes.")
        for_any, issued, expires, public, signature = _LAYOUT.unpack(data)
        return cls(public=public, issued=issued, expires=expires, for_any=for_any, signature=signature)

    def to_text(self) -> str:
        """The statement as it follows the public key on a roster card."""
        return base64.b64encode(self.packed()).decode()

    @classmethod
    def from_text(cls, text: str, *, whose: str) -> Prekey:
        """The statement on a roster card, or a `UsageError` that says whose it should be."""
        try:
            return cls.unpacked(base64.b64decode(text, validate=True))
        except (ValueError, ProtocolError):
            raise UsageError(
                f"card of {whose}: expected the key and the prekey as `fedassay keys` prints them, in one line."
            ) from None

    def words(self, coordinator: str) -> bytes:
        """What the member signs."""
        whom = "" if self.for_any else coordinator
        return context("prekey", int(self.for_any), whom, self.issued, self.expires, self.public)

    def is_of(self, member: str, *, coordinator: str, credentials: Credentials) -> bool:
        """Whether the member of this name in the roster has signed it, for this coordinator or for all."""
        return credentials.verifies(member, PURPOSE, self.words(coordinator), self.signature)

    def may_be_named(self, *, now: float, until: float) -> bool:
        """Whether all clients will take it, by clocks that are an hour off; one that they refuse stops them all."""
        fresh = now - DAYS_NAMED * DAY <= self.issued <= now + 3_600
        return fresh and self.expires >= until and is_usable(self.public)
