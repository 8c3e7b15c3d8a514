"""Replies sealed for the coordinator: whoever else reads the folder learns their size and nothing more.

A fresh X25519 key per reply and the announced reply key agree on a ChaCha20-Poly1305 key (HKDF-SHA256). The
sealed text is bound to the study, the sender and the number; the signature around it says who sent it.
"""

from __future__ import annotations

from fedassay.crypto.keys import KEY_BYTES, KeyPair, context, seal, unseal
from fedassay.errors import ProtocolError
from fedassay.protocol import Randomness

_PURPOSE = "file drop reply"


def seal_reply(
    reply: bytes, *, reply_key: bytes, study: str, sender: str, number: int, randomness: Randomness
) -> bytes:
    """The fresh public key, then the sealed reply.

    Examples
    --------
    >>> from fedassay.privacy.randomness import SecureRandomness
    >>> source = SecureRandomness()
    >>> own, place = KeyPair.draw(source), {"study": "demo-1", "sender": "a"}
    >>> sealed = seal_reply(b"hi", reply_key=own.public, number=1, randomness=source, **place)
    >>> open_reply(sealed, own=own, number=1, **place), open_reply(sealed, own=own, number=2, **place)
    (b'hi', None)
    """
    fresh = KeyPair.draw(randomness)
    bound = context(_PURPOSE, study, sender, number, fresh.public, reply_key)
    key = fresh.agree(reply_key, salt=b"", info=bound)
    return fresh.public + seal(key, reply, associated=bound, randomness=randomness)


def open_reply(sealed: bytes, *, own: KeyPair, study: str, sender: str, number: int) -> bytes | None:
    """The reply, or None if it was not sealed for this key, study, sender and number."""
    public = sealed[:KEY_BYTES]
    bound = context(_PURPOSE, study, sender, number, public, own.public)
    try:
        key = own.agree(public, salt=b"", info=bound)
    except ProtocolError:
        return None
    opened = unseal(key, sealed[KEY_BYTES:], associated=bound)
    return None if opened is None else opened.data
