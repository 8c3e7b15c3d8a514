"""Our bytes inside a Flower message, signed by whoever has a key.

A request is signed by the coordinator; it names its study, exchange, leg and recipient, so a copy is worth
nothing elsewhere. A reply is signed together with the digest of the request that it answers, so an old reply
does not pass for a new one. In a simulation nobody has keys and nothing is signed.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from flwr.app import ConfigRecord, Message, RecordDict

from fedassay.errors import ProtocolError
from fedassay.protocol import Credentials
from fedassay.wire import LARGEST_MESSAGE

HELLO = "query.hello"
REQUEST = "query.fedassay"
_RECORD = "fedassay"
_REQUEST_PURPOSE = "flower request"
_REPLY_PURPOSE = "flower reply"


@dataclass(frozen=True, kw_only=True)
class Frame:
    """Bytes and the signature on them (empty in a simulation)."""

    body: bytes
    signature: bytes = b""

    def pack(self) -> RecordDict:
        """The frame as the content of a Flower message."""
        return RecordDict({_RECORD: ConfigRecord({"body": self.body, "signature": self.signature})})

    @classmethod
    def unpack(cls, message: Message) -> Frame:
        """The frame in a Flower message, or `ProtocolError` if there is none of exactly this form."""
        if not message.has_content():
            raise ProtocolError("message: it has no content.")
        record = message.content.config_records.get(_RECORD)
        if record is None:
            raise ProtocolError("message: it is not one of fedassay.")
        body, signature = record.get("body"), record.get("signature")
        if not isinstance(body, bytes) or not isinstance(signature, bytes):
            raise ProtocolError("message: body and signature are not bytes.")
        if len(body) > LARGEST_MESSAGE or len(signature) > 64:
            raise ProtocolError(f"message of {len(body):,} bytes: expected at most {LARGEST_MESSAGE:,}.")
        return cls(body=body, signature=signature)


def signed_request(body: bytes, credentials: Credentials | None) -> Frame:
    """A request as its sender frames it."""
    return Frame(
        body=body, signature=b"" if credentials is None else credentials.sign(_REQUEST_PURPOSE, body)
    )


def opened_request(frame: Frame, credentials: Credentials | None, *, sender: str) -> bytes:
    """The request, if it is signed by `sender` as the recipient's roster knows them; else `ProtocolError`."""
    if credentials is not None and not credentials.verifies(
        sender, _REQUEST_PURPOSE, frame.body, frame.signature
    ):
        raise ProtocolError(f"request: it is not signed by the {sender} of this site's roster.")
    return frame.body


def signed_reply(body: bytes, credentials: Credentials | None, *, request: bytes) -> Frame:
    """A reply as its sender frames it."""
    signature = b"" if credentials is None else credentials.sign(_REPLY_PURPOSE, _bound(body, request))
    return Frame(body=body, signature=signature)


def opened_reply(frame: Frame, credentials: Credentials | None, *, sender: str, request: bytes) -> bytes:
    """The reply, if `sender` signed it as the answer to this request; else `ProtocolError`."""
    if credentials is not None and not credentials.verifies(
        sender, _REPLY_PURPOSE, _bound(frame.body, request), frame.signature
    ):
        raise ProtocolError(f"reply: it is not signed by {sender}, or it answers another request.")
    return frame.body


def _bound(body: bytes, request: bytes) -> bytes:
    return hashlib.sha256(request).digest() + body
