"""Replies sealed for the coordinator and signed by their sender, in the same way on every runtime.

A fresh X25519 key for each reply and the coordinator's reply key agree on a ChaCha20-Poly1305 key (HKDF-SHA256). The
sealed text is bound to the request that it answers and to its sender; so is the signature over it. Whoever carries the
messages learns who answered, and how long the answer is. A refusal of bytes that were no request is in the clear: there
is no key to seal it for.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from fedassay import wire
from fedassay.crypto.keys import KEY_BYTES, KeyPair, context, seal, unseal
from fedassay.errors import ProtocolError
from fedassay.protocol import Credentials, Randomness

VERSION = 1
_PURPOSE = "reply 1"
_OVERHEAD = 1024


class Addressee(NamedTuple):
    """Whom a reply is for: the key that opens it, and the request that it answers."""

    reply_key: bytes
    request: bytes


def sealed(
    reply: bytes, to: Addressee, *, sender: str, credentials: Credentials | None, randomness: Randomness
) -> bytes:
    """The sealed and signed reply; not signed where the sender has no identity, as in a simulation.

    Examples
    --------
    >>> from fedassay.privacy.randomness import SecureRandomness
    >>> source = SecureRandomness()
    >>> own = KeyPair.draw(source)
    >>> data = sealed(b"hi", Addressee(own.public, b"who?"), sender="a", credentials=None, randomness=source)
    >>> opened(data, own, request=b"who?", sender="a", credentials=None)
    b'hi'
    >>> opened(data, own, request=b"what?", sender="a", credentials=None)
    Traceback (most recent call last):
    fedassay.errors.ProtocolError: reply: it is not sealed for this coordinator, or answers another request.
    """
    fresh = KeyPair.draw(randomness)
    bound = _bound(to, sender, fresh.public)
    key = fresh.agree(to.reply_key, salt=b"", info=bound)
    text = fresh.public + seal(key, reply, associated=bound, randomness=randomness)
    signature = b"" if credentials is None else credentials.sign(_PURPOSE, bound + text)
    return wire.encode({"version": VERSION, "sender": sender, "sealed": text, "signature": signature})


def opened(
    data: bytes,
    own: KeyPair,
    *,
    request: bytes,
    sender: str,
    credentials: Credentials | None,
    largest: int = wire.LARGEST_MESSAGE,
) -> bytes:
    """The reply of this sender to this request, or a refusal in the clear; `ProtocolError` for anything else.

    With `credentials`, nothing is decrypted that its sender has not signed.
    """
    outer = wire.decode(data, largest=largest + _OVERHEAD)
    if "refusal" in outer and "sealed" not in outer:
        return data
    text, signature = outer.get("sealed"), outer.get("signature")
    if outer.get("version") != VERSION or not isinstance(text, bytes) or len(text) < KEY_BYTES:
        raise ProtocolError("reply: another version, or not of the expected form.")
    bound = _bound(Addressee(own.public, request), sender, text[:KEY_BYTES])
    if credentials is not None and not credentials.verifies(sender, _PURPOSE, bound + text, signature):
        raise ProtocolError(f"reply: it is not signed by {sender}, or answers another request.")
    key = own.agree(text[:KEY_BYTES], salt=b"", info=bound)
    found = unseal(key, text[KEY_BYTES:], associated=bound)
    if found is None:
        raise ProtocolError("reply: it is not sealed for this coordinator, or answers another request.")
    return found.data


def _bound(to: Addressee, sender: str, fresh: bytes) -> bytes:
    return context("reply", hashlib.sha256(to.request).digest(), sender, fresh, to.reply_key)
