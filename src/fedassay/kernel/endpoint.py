"""Common part of every party that answers: bytes in, bytes out, each question answered once.

`Endpoint.answer` never raises and never lets an exception's text out: what goes wrong is logged where it
happened and leaves as one of the codes of `envelope.Refusal`.
"""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from pathlib import Path

from fedassay.errors import (
    AnswerLost,
    BudgetExceeded,
    DataError,
    FederationError,
    LedgerUnusable,
    PolicyRefusal,
    ProtocolError,
    UnsupportedQuery,
    UsageError,
)
from fedassay.kernel import envelope
from fedassay.kernel.envelope import Envelope, Refusal, Summaries, TrustModels
from fedassay.privacy.randomness import SecureRandomness
from fedassay.protocol import wire
from fedassay.protocol.files import Lock, sync_folder
from fedassay.protocol.texts import SafeLogger
from fedassay.protocol.vocabulary import Memory, Message, Part, PartyKeys
from fedassay.trust.question import DOUBT

log = SafeLogger("fedassay.kernel.endpoint")

KEPT_EXCHANGES = 4
"""Number of exchanges whose replies are kept; a question about an older one is refused, not answered anew."""


@dataclass
class Conversation:
    """State of one exchange at an endpoint."""

    terms: bytes
    state: Message = field(default_factory=dict, repr=False)
    replies: dict[int, tuple[bytes, bytes]] = field(default_factory=dict, repr=False)
    """Leg to (digest of the request, reply)."""

    def to_message(self) -> Message:
        """Return the conversation as plain values."""
        return {
            "terms": self.terms,
            "state": self.state,
            "replies": [[leg, digest, reply] for leg, (digest, reply) in self.replies.items()],
        }

    @classmethod
    def from_message(cls, message: Message) -> Conversation:
        """Restore the conversation from which `to_message` was made."""
        return cls(
            terms=message["terms"],
            state=message["state"],
            replies={leg: (digest, reply) for leg, digest, reply in message["replies"]},
        )


Memories = dict[tuple[str, str, Part], Memory]
"""Memory of a summary between rounds, by study, task and part of the rows."""


@dataclass
class EndpointStore:
    """Memory of an endpoint between messages; `FileStore` and `ServerStore` keep the same things on disk.

    It holds keys and answers: a reader of it can uncover what its endpoint has hidden.
    """

    conversations: dict[bytes, Conversation] = field(default_factory=dict, repr=False)
    closed: set[bytes] = field(default_factory=set, repr=False)
    memories: Memories = field(default_factory=dict, repr=False)
    kept: int = KEPT_EXCHANGES

    def find(self, exchange: bytes) -> Conversation | None:
        """Return the conversation of an exchange, if it has begun and is remembered."""
        return self.conversations.get(exchange)

    def begin(self, exchange: bytes, terms: bytes) -> Conversation:
        """Open a conversation, forgetting the oldest if there are too many."""
        while len(self.conversations) >= self.kept:
            oldest = next(iter(self.conversations))
            del self.conversations[oldest]
            self.closed.add(oldest)
        self.conversations[exchange] = Conversation(terms=terms)
        return self.conversations[exchange]

    def doubts(self) -> list[str]:
        """Return the reasons why some exchanges of a server should be asked about (see `fedassay.trust.question`)."""
        states = (talk.state for talk in self.conversations.values())
        return [str(state[DOUBT]) for state in states if DOUBT in state]

    def save(self) -> None:
        """Save before a reply leaves: a store that outlives the process makes sure of it here."""

    def save_exchange(self, exchange: bytes) -> None:
        """Save, if only this exchange has changed."""
        self.save()

    def dump(self) -> bytes:
        """Return everything, as bytes."""
        return wire.encode(
            {
                "conversations": [
                    {"exchange": exchange, **talk.to_message()}
                    for exchange, talk in self.conversations.items()
                ],
                "closed": sorted(self.closed),
                "memories": [
                    [study, task, str(part), dict(memory)]
                    for (study, task, part), memory in self.memories.items()
                ],
            }
        )

    def restore(self, data: bytes) -> None:
        """Restore what was dumped."""
        content = wire.decode(data)
        self.conversations = {
            talk["exchange"]: Conversation.from_message(talk) for talk in content["conversations"]
        }
        self.closed = set(content["closed"])
        self.memories = {
            (study, task, Part(part)): memory for study, task, part, memory in content["memories"]
        }


def write_durably(path: Path, data: bytes) -> None:
    """Replace a file that only its owner may read, as a whole; when this returns, it is on the disk.

    An `OSError` names the file, which that of a full disk does not do by itself.
    """
    partial = path.with_name(path.name + ".partial")
    try:
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        error.filename = str(path)
        raise


def kept_secret(path: Path, length: int) -> bytes:
    """Return the secret in a file of its owner, made once and kept for ever."""
    if not path.exists():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_durably(path, SecureRandomness().bytes(length))
    return path.read_bytes()


class FileStore(EndpointStore):
    """A store in one file that only its owner may read, replaced as a whole before each reply leaves.

    One process at a time: two that answered from the same state could be made to reveal both kinds of a
    share. The lock lasts as long as this object, or until `close`.
    """

    def __init__(self, path: Path, *, kept: int = KEPT_EXCHANGES) -> None:
        super().__init__(kept=kept)
        self.path = path
        self._lock = Lock(path.with_name(path.name + ".lock"))
        if path.exists():
            self.restore(path.read_bytes())

    def save(self) -> None:
        """Write everything to the disk; when this returns it is there."""
        write_durably(self.path, self.dump())

    def close(self) -> None:
        """Let another process go on."""
        self._lock.close()


class Endpoint(ABC):
    """A party that answers requests: a client, or a helper."""

    def __init__(
        self,
        name: str,
        *,
        store: EndpointStore,
        credentials: PartyKeys | None,
        summaries: Summaries,
        trust_models: TrustModels,
    ) -> None:
        self.name = name
        self.store = store
        self._credentials = credentials
        self._summaries = summaries
        self._trust_models = trust_models
        self.unsealed: bytes | None = None
        """The last reply before it was sealed: for the operator of the site."""
        self.reason: Exception | None = None
        """Reason why the last request was refused. For the operator of the site; it never leaves."""

    def answer(self, data: bytes, *, asker: str | None = None, read: Envelope | None = None) -> bytes:
        """Return the reply to a request, or a refusal.

        Guarantee: a leg that was answered is never answered differently; the same request gets the same
        bytes again. The terms of an exchange (trust model, queries, settings) cannot change between legs.

        `asker` is the public key whose signature the transport has checked; None if nothing was signed. `read` is what
        the transport has read in these very bytes, with the same catalogues, if it had to.
        """
        self.reason = None
        opened: Envelope | None = None
        try:
            opened = read or envelope.open_request(
                data, summaries=self._summaries, trust_models=self._trust_models
            )
            opened = replace(opened, asker=asker, request=replace(opened.request, asker=asker or ""))
            return self._answer(opened, data)
        except Exception as error:  # the boundary of a site: whatever happened leaves as a fixed code
            self.reason = error
            code = _code(error)
            say = log.failure if code is Refusal.INTERNAL else log.warning
            say("%s refuses (%s): %s", self.name, code, error)
            try:
                self.note_refusal(opened, asker, code, error)
            except LedgerUnusable as unusable:
                log.warning("%s: the refusal could not be recorded: %s", self.name, unusable)
            except Exception:  # nothing leaves but the code, whatever became of the note
                log.failure("%s: the refusal could not be recorded", self.name)
            refusal = envelope.pack_refusal(sender=self.name, code=code)
            return refusal if opened is None else self._sealed(refusal, opened, data)

    def _sealed(self, reply: bytes, opened: Envelope, request: bytes) -> bytes:
        self.unsealed = reply
        # Always from the secure source: what is sealed must not depend on a simulation's seed, nor its draws on this.
        return envelope.sealed(
            reply,
            envelope.Addressee(opened.reply_key, request),
            sender=self.name,
            credentials=self._credentials,
            randomness=SecureRandomness(),
        )

    def offer(self, count: int, *, asker: str) -> tuple[bytes, ...]:
        """Return fresh prekeys for a coordinator (its public key as text); none from a party that opens no sums."""
        return ()

    def note_refusal(  # noqa: B027 (a party that keeps no log of its own does nothing)
        self, opened: Envelope | None, asker: str | None, code: Refusal, error: Exception
    ) -> None:
        """Note a refusal; `opened` is None if the request could not be read."""

    def allow(self, opened: Envelope) -> None:  # noqa: B027 (a party that has no rules does nothing)
        """Allow each leg that has not been answered yet, before `agree`; raise to refuse it."""

    @abstractmethod
    def begins(self, opened: Envelope) -> bool:
        """Return whether this may be the first message of its exchange that reaches this party."""

    @abstractmethod
    def agree(self, opened: Envelope) -> None:
        """Agree once per exchange, before anything is computed or sent; raise to refuse it."""

    @abstractmethod
    def reply(self, opened: Envelope, state: Message) -> tuple[Message, Message]:
        """Return the reply to one leg, and the state for the next."""

    def _answer(self, opened: Envelope, data: bytes) -> bytes:
        request, terms = opened.request, _terms(opened)
        if request.recipient != self.name:
            raise ProtocolError(f"request: it is for {request.recipient!r}.")
        conversation = self.store.find(request.exchange)
        if conversation is None:
            if request.exchange in self.store.closed:
                raise _OutOfTurn("request: the exchange is over.")
            if not self.begins(opened):
                raise _OutOfTurn("request: the exchange is unknown and this is not its first leg.")
            self.allow(opened)
            self.agree(opened)
            conversation = self.store.begin(request.exchange, terms)
        elif conversation.terms != terms:
            raise _Changed("request: the terms of the exchange have changed.")
        elif request.leg in conversation.replies:
            known, reply = conversation.replies[request.leg]
            if known != hashlib.sha256(data).digest():
                raise _Changed("request: this leg was answered for another request.")
            return reply
        elif conversation.replies and request.leg < max(conversation.replies):
            raise _OutOfTurn("request: a later leg was answered already.")
        else:
            self.allow(opened)
        message, state = self.reply(opened, conversation.state)
        digest = hashlib.sha256(data).digest()
        reply = envelope.pack_reply(
            sender=self.name,
            exchange=request.exchange,
            leg=request.leg,
            message=message,
            prekeys=self.offer(1, asker=request.asker) if opened.trust.member_leg is not None else (),
        )
        reply = self._sealed(reply, opened, data)
        before = conversation.state
        conversation.state = state
        conversation.replies[request.leg] = (digest, reply)
        try:
            self.store.save_exchange(request.exchange)
        except BaseException:
            # A reply that is not on the disk has not been sent: it must not be sent later from memory either.
            conversation.state = before
            del conversation.replies[request.leg]
            raise
        return reply


class _OutOfTurn(ProtocolError):
    pass


class _Changed(ProtocolError):
    pass


def _terms(opened: Envelope) -> bytes:
    described = {
        "study": opened.study,
        "trust": envelope.describe(opened.trust),
        "plans": [envelope.describe_plan(plan) for plan in opened.request.plans],
        "tasks": list(opened.tasks),
        "cohort": opened.request.cohort,
        "reply_key": opened.reply_key,
        "asker": opened.asker,
    }
    return hashlib.sha256(wire.encode(described)).digest()


_CODES: tuple[tuple[type[Exception], Refusal], ...] = (
    (_OutOfTurn, Refusal.OUT_OF_TURN),
    (_Changed, Refusal.CHANGED),
    (AnswerLost, Refusal.LOST),
    (PolicyRefusal, Refusal.POLICY),
    (BudgetExceeded, Refusal.BUDGET),
    (LedgerUnusable, Refusal.LEDGER),
    (DataError, Refusal.DATA),
    (UnsupportedQuery, Refusal.UNSUPPORTED),
    (UsageError, Refusal.UNSUPPORTED),
    (ProtocolError, Refusal.MALFORMED),
    (FederationError, Refusal.PROTOCOL),
)


def _code(error: Exception) -> Refusal:
    return next((code for kind, code in _CODES if isinstance(error, kind)), Refusal.INTERNAL)
