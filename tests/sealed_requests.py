"""Requests that a test makes itself, and what is in the sealed replies to them."""

from __future__ import annotations

from typing import Any

from fedassay.crypto.keys import KeyPair, Secret
from fedassay.kernel import envelope
from fedassay.kernel import envelope as sealing
from fedassay.kernel.endpoint import Endpoint
from fedassay.protocol import wire
from fedassay.protocol.vocabulary import Message

REPLY_PAIR = KeyPair.of(Secret(b"the key that the replies are for"))


def packed(**options: Any) -> bytes:
    """A request whose reply is sealed for the tests."""
    return envelope.pack_request(**options, reply_key=REPLY_PAIR.public)


def said(reply: bytes, request: bytes, *, sender: str = "a") -> Message:
    """What is in the reply of this sender to this request, or in its refusal."""
    return wire.decode(sealing.opened(reply, REPLY_PAIR, request=request, sender=sender, credentials=None))


def answer(endpoint: Endpoint, request: bytes, **options: Any) -> Message:
    """What an endpoint says to a request."""
    return said(endpoint.answer(request, **options), request, sender=endpoint.name)


def refused(endpoint: Endpoint, request: bytes, **options: Any) -> str | None:
    """The code with which it refuses; None if it answers."""
    code = answer(endpoint, request, **options).get("refusal")
    return None if code is None else str(code)
