"""Messages out, replies back: each reply is matched to its request by the request's id, and counted once.

Our bytes inside a Flower message, signed by the holder of a key.

A request is signed by the coordinator; it names its study, exchange, leg and recipient, so a copy is worth
nothing elsewhere. A reply is signed together with the digest of the request that it answers, so an old reply
does not pass for a new one. In a simulation there are no keys and nothing is signed.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import httpx
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from fedassay.errors import FederationError, ProtocolError
from fedassay.protocol.texts import SafeLogger
from fedassay.protocol.vocabulary import PartyKeys
from fedassay.protocol.wire import LARGEST_MESSAGE

# --- our bytes inside a Flower message ----------------------------------------------------------------------

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
        """Return the frame as the content of a Flower message."""
        return RecordDict({_RECORD: ConfigRecord({"body": self.body, "signature": self.signature})})

    @classmethod
    def unpack(cls, message: Message) -> Frame:
        """Read the frame in a Flower message, or raise `ProtocolError` if there is none of exactly this form."""
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


def signed_request(body: bytes, credentials: PartyKeys | None) -> Frame:
    """Frame a request as its sender does."""
    signature = b"" if credentials is None else credentials.sign(_REQUEST_PURPOSE, body)
    return Frame(body=body, signature=signature)


def opened_request(frame: Frame, credentials: PartyKeys | None, *, sender: str) -> bytes:
    """Return the request, if `sender` signed it with the key in the recipient's roster; else raise `ProtocolError`."""
    if credentials is not None and not credentials.verifies(
        sender, _REQUEST_PURPOSE, frame.body, frame.signature
    ):
        raise ProtocolError(f"request: it is not signed by the {sender} of this site's roster.")
    return frame.body


def signed_reply(body: bytes, credentials: PartyKeys | None, *, request: bytes) -> Frame:
    """Frame a reply as its sender does."""
    signature = b"" if credentials is None else credentials.sign(_REPLY_PURPOSE, _bound(body, request))
    return Frame(body=body, signature=signature)


def opened_reply(frame: Frame, credentials: PartyKeys | None, *, sender: str, request: bytes) -> bytes:
    """Return the reply, if `sender` signed it as the answer to this request; else raise `ProtocolError`."""
    if credentials is not None and not credentials.verifies(
        sender, _REPLY_PURPOSE, _bound(frame.body, request), frame.signature
    ):
        raise ProtocolError(f"reply: it is not signed by {sender}, or it answers another request.")
    return frame.body


def _bound(body: bytes, request: bytes) -> bytes:
    return hashlib.sha256(request).digest() + body


# --- messages out -------------------------------------------------------------------------------------------

log = SafeLogger("fedassay.flower")

CLOCKS_APART = 3600.0
"""Seconds that a site's clock may be wrong before Flower takes its replies for expired."""

_Opened = Callable[[int, int], None]
"""Function that is called with the replies that have arrived and the requests in all."""


@dataclass(frozen=True, kw_only=True)
class NodeLetter:
    """Request for one node, and the party whose signature the reply must carry."""

    node: int
    kind: str
    body: bytes
    sender_of_reply: str | None = None
    """Party expected to sign; None if only the reply names its sender: the reader checks the signature then."""


Out = dict[str, tuple[str, NodeLetter]]
"""Letters without a reply so far: message id to the letter's name and the letter."""


@dataclass(frozen=True, kw_only=True)
class Post:
    """Carrier of letters over a Flower grid.

    Guarantee: what comes back for a letter is the first reply to this very letter (by message id, never by
    the node that Flower names as its source), well formed and, with `credentials`, signed by whom it should
    be from. Everything else (errors, late, second, strange or malformed replies) is as if nothing had come.

    Assumption: Flower's own transport raises if the SuperLink is gone. That is passed on: a lost SuperLink is
    a crash of the run, to be resumed from its journal, and not a silence of the clients.

    Parameters
    ----------
    interval : seconds between two looks for replies.
    together : replies to look for in one call. In a deployment it is 1: Flower parses all replies of a call,
        and one that cannot be parsed would take the others of its call with it.
    """

    grid: Grid
    credentials: PartyKeys | None = None
    interval: float = 0.5
    together: int = 1

    def deliver(
        self,
        letters: Mapping[str, NodeLetter],
        *,
        timeout: float,
        arrived: _Opened = lambda done, total: None,
    ) -> dict[str, Frame]:
        """Send the letters and wait, at most `timeout` seconds, for their replies."""
        out = self.send(letters, timeout=timeout)
        replies: dict[str, Frame] = {}
        deadline = time.monotonic() + timeout
        arrived(0, len(letters))
        while out:
            last = time.monotonic() >= deadline
            for name, _, frame in self.look(out):
                if frame is not None:
                    replies[name] = frame
                    arrived(len(replies), len(letters))
            if last or not out:
                break
            time.sleep(min(self.interval, max(0.0, deadline - time.monotonic())))
        return replies

    def send(self, letters: Mapping[str, NodeLetter], *, timeout: float) -> Out:
        """Send the letters, whose replies are awaited for `timeout` seconds: message id to name and letter."""
        out: Out = {}
        for name, letter in letters.items():
            content = signed_request(letter.body, self.credentials).pack()
            message = Message(content, letter.node, letter.kind, ttl=timeout + CLOCKS_APART)
            for message_id in self.grid.push_messages([message]):
                if message_id:
                    out[message_id] = (name, letter)
        return out

    def look(self, out: Out) -> Iterator[tuple[str, NodeLetter, Frame | None]]:
        """Yield what has arrived by now for letters that are out, which are then taken from `out`.

        A frame of None stands for something that is not a reply: an error of Flower's, or nonsense.
        """
        for message in self._pull(list(out)):
            answered = out.pop(message.metadata.reply_to_message_id, None)
            if answered is not None:
                yield *answered, self._open(message, answered[1])

    def _pull(self, ids: list[str]) -> Iterable[Message]:
        for start in range(0, len(ids), self.together):
            try:
                yield from self.grid.pull_messages(ids[start : start + self.together])
            except (httpx.HTTPError, OSError, FederationError):
                raise
            except Exception as error:  # Flower could not parse what a node sent: as good as no reply
                log.warning("a reply could not be parsed (%s)", type(error).__name__)

    def _open(self, message: Message, letter: NodeLetter) -> Frame | None:
        if message.has_error():
            log.warning("no reply from node %d (Flower's error code %d)", letter.node, message.error.code)
            return None
        try:
            frame = Frame.unpack(message)
            if letter.sender_of_reply is not None:
                opened_reply(frame, self.credentials, sender=letter.sender_of_reply, request=letter.body)
        except Exception as error:  # whatever a stranger sent, it is not a reply
            log.warning("node %d: %s", letter.node, error)
            return None
        return frame
