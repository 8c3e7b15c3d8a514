"""The signed file: a wire message, whom it is from and for, and a signature that is checked before parsing.

::

    8 bytes    "FEDASSAY"
    2 bytes    version of the format, little-endian (1)
    64 bytes   Ed25519 signature over the rest, with its purpose (`Identity.sign`)
    the rest   wire message {study, sender, recipient, kind, number, body}

Nobody's bytes are parsed before the signature of whoever should have sent them has been found good.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from fedassay import wire
from fedassay.crypto.identity import Identity, verifies
from fedassay.errors import ProtocolError, UsageError

MAGIC = b"FEDASSAY"
VERSION = 1
PURPOSE = "file drop 1"
"""What the signature is for: a signature on anything else is worth nothing here, and the other way round."""

_SIGNATURE = len(MAGIC) + 2
_MESSAGE = _SIGNATURE + 64
LARGEST_FILE = _MESSAGE + wire.LARGEST_MESSAGE

EVERYONE = "*"
"""The recipient of an announcement; no party can have this name."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class Kind(StrEnum):
    """What a letter is."""

    ANNOUNCEMENT = "announcement"
    REQUEST = "request"
    REPLY = "reply"
    OVER = "over"


@dataclass(frozen=True, kw_only=True)
class Letter:
    """What a signed file says. `number` counts the passes of a study from 1; an announcement has 0.

    Examples
    --------
    >>> from fedassay.privacy.randomness import SecureRandomness
    >>> me = Identity.draw(SecureRandomness())
    >>> letter = Letter(study="demo-1", sender="a", recipient="b", kind=Kind.REPLY, number=1, body=b"hi")
    >>> data = letter.signed(me)
    >>> place = {"where": "from-a/1", "sender": "a", "believed": {"a": me.public}, "recipient": "b",
    ...          "kinds": (Kind.REPLY,), "study": "demo-1"}
    >>> open_letter(data, number=1, **place).body
    b'hi'
    >>> open_letter(data, number=2, **place)
    Traceback (most recent call last):
    fedassay.errors.ProtocolError: from-a/1: its number is 1, expected 2; it belongs to another pass and is refused.
    """

    study: str
    sender: str
    recipient: str
    kind: Kind
    number: int
    body: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if not 0 <= self.number < 2**32:
            raise ProtocolError(f"letter: got number {self.number}, expected one from 0 to 2^32 - 1.")

    def signed(self, identity: Identity) -> bytes:
        """The file: always the same bytes for the same letter and identity."""
        message = wire.encode(
            {
                "study": self.study,
                "sender": self.sender,
                "recipient": self.recipient,
                "kind": str(self.kind),
                "number": self.number,
                "body": self.body,
            }
        )
        return MAGIC + VERSION.to_bytes(2, "little") + identity.sign(PURPOSE, message) + message


def check_name(name: str, *, what: str) -> str:
    """The name, if it can be part of a path on every system; `UsageError` otherwise.

    Examples
    --------
    >>> check_name("hospital-a", what="site")
    'hospital-a'
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise UsageError(
            f"{what}: got {name!r}, expected up to 64 letters (a to z), digits, dots, - and _, beginning with a "
            "letter or a digit."
        )
    return name


def open_letter(
    data: bytes,
    *,
    where: str,
    sender: str,
    believed: Mapping[str, bytes],
    recipient: str,
    kinds: tuple[Kind, ...],
    number: int,
    study: str | None,
) -> Letter:
    """The letter in a file, if it is exactly the one that belongs there; `ProtocolError` otherwise.

    Parameters
    ----------
    where : the file's name, for the sentence that refuses it.
    believed : public keys by name; the one of `sender` must have signed.
    study : None accepts any, which only the first look at an announcement does.
    """
    message = _checked(data, where=where, sender=sender, believed=believed)
    try:
        content = wire.decode(message)
        wanted = {
            "study": str,
            "sender": str,
            "recipient": str,
            "kind": str,
            "number": int,
            "body": bytes,
        }
        if {key: type(value) for key, value in content.items()} != wanted:
            raise ProtocolError("its fields are not those of a letter.")
        letter = Letter(**{**content, "kind": Kind(content["kind"])})
    except (ProtocolError, ValueError) as error:
        raise ProtocolError(f"{where}: is signed by {sender}, but malformed ({error})") from error
    expected = {"study": study, "sender": sender, "recipient": recipient, "number": number}
    for name, value in expected.items():
        if value is not None and getattr(letter, name) != value:
            raise ProtocolError(
                f"{where}: its {name} is {getattr(letter, name)!r}, expected {value!r}; "
                f"{_LIKELY.get(name, 'put the right file there')}."
            )
    if letter.kind not in kinds:
        raise ProtocolError(f"{where}: got a letter of kind {letter.kind}, expected {' or '.join(kinds)}.")
    return letter


_LIKELY = {
    "study": "it belongs to another study and is refused",
    "recipient": "it is meant for somebody else and is refused",
    "number": "it belongs to another pass and is refused",
}


def _checked(data: bytes, *, where: str, sender: str, believed: Mapping[str, bytes]) -> bytes:
    """The signed bytes, after the signature."""
    if len(data) > LARGEST_FILE:
        raise ProtocolError(f"{where}: got {len(data):,} bytes, expected at most {LARGEST_FILE:,}.")
    if data[: len(MAGIC)] != MAGIC:
        raise ProtocolError(f"{where}: is not a file of fedassay; remove it or copy the right one again.")
    version = int.from_bytes(data[len(MAGIC) : _SIGNATURE], "little")
    if len(data) >= _SIGNATURE and version != VERSION:
        raise ProtocolError(
            f"{where}: got format version {version}, expected {VERSION}; both sides need the same fedassay."
        )
    signature, message = data[_SIGNATURE:_MESSAGE], data[_MESSAGE:]
    if not message:
        raise ProtocolError(f"{where}: is cut short ({len(data)} bytes); copy it again.")
    if sender not in believed:
        raise ProtocolError(f"{where}: there is no public key of {sender} in the roster; add it first.")
    if not verifies(believed[sender], PURPOSE, message, signature):
        # Only to say it better: whoever else signed it, it is refused.
        other = next((n for n, key in believed.items() if verifies(key, PURPOSE, message, signature)), None)
        if other is not None:
            raise ProtocolError(f"{where}: is signed by {other}, expected {sender}; it is refused.")
        raise ProtocolError(
            f"{where}: was changed or cut after {sender} signed it, or signed with a key that is not in the "
            f"roster; it is refused. Copy it again, or compare the fingerprint of {sender}'s key."
        )
    return message
