"""The messages of `shuffle`: keys and their bindings, reports as texts, and their reading.

What the seals and signatures of `shuffle` are bound to: a letter inside an envelope.

A client writes a *letter* for each query: its report, sealed for the analyst. It puts each letter into an *envelope*,
sealed for the shuffler. Only the envelope knows the client's name. Letters have keys of their own, a fresh one for
each, so that two letters of one client have nothing in common.

Everything is bound to the *session*: a digest of the exchange, of the whole question, of the number of clients among
which a message must be hidden, and of the names of both servers. If clients were given a large number and the shuffler
a small one, it cannot open what they sealed.

Reading the messages of `shuffle`.

`read_envelopes` comes from a client, and is None for anything that is not of the expected form (the client then counts
as one that did not answer); the other `read_` functions come from a server, without which there is no release, and
raise `ProtocolError`. The relay is not trusted: each `told_` function returns the checked content of a request or
raises `ProtocolError`, and the party stays silent.

Reports as texts of one length: `shuffle` writes down all answers of clients so that sizes reveal nothing.

=========  =======================================================================================================
report     text
=========  =======================================================================================================
unary      the number of the partition (4 bytes), then its bits, filled up with zeros to the widest partition
choice     the number of the candidate (8 bytes)
noise      the entries of the vector (8 bytes each)
=========  =======================================================================================================

All numbers are little-endian. What is not exactly such a text is no report.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedassay.crypto.keys import KEY_BYTES, SEAL_OVERHEAD, KeyPair, context, is_usable, seal_for, unseal_from
from fedassay.errors import ProtocolError
from fedassay.privacy import samplers
from fedassay.privacy.accounting import CHOICE
from fedassay.protocol.vocabulary import Message, Plan, Randomness, Vector
from fedassay.trust.introductions import Introductions, Pair, is_signature
from fedassay.trust.local_reports import Question, Report
from fedassay.trust.question import question

LETTER_OVERHEAD = KEY_BYTES + SEAL_OVERHEAD
"""Bytes by which a letter is longer than its text: the key that it was sealed with in front, and the seal."""

ENVELOPE_OVERHEAD = SEAL_OVERHEAD
"""Bytes by which an envelope is longer than its letter; its key comes with all envelopes of the client."""

SIGNED_ENVELOPES = "shuffle envelopes"
"""Purpose for which clients sign."""


def session_of(
    *, exchange: bytes, plans: Sequence[Plan], numbers: Sequence[int], servers: Sequence[str]
) -> bytes:
    """Return the digest that everything of one exchange is bound to; `numbers` are those that hide a client."""
    sizes = (plan.setting.clients for plan in plans)
    words = context("fedassay shuffle 1", exchange, question(plans), *sizes, *numbers, *servers)
    return hashlib.sha256(words).digest()


@dataclass(frozen=True, kw_only=True)
class LetterRoute:
    """Route to the analyst, through the shuffler, for one query."""

    session: bytes
    place: int
    servers: Pair
    """The public keys of the analyst and of the shuffler."""

    def letter(self, text: bytes, randomness: Randomness) -> bytes:
        """Write a text that only the analyst can read, and that does not reveal its author (client side)."""
        own = KeyPair.draw(randomness)
        words = self._letter_words(own.public)
        return own.public + seal_for(
            own, self.servers.first, text, salt=self.session, words=words, randomness=randomness
        )

    def envelope(self, letter: bytes, own: KeyPair, client: str, randomness: Randomness) -> bytes:
        """Seal a letter that only the shuffler can take out, from this client (client side)."""
        words = self._envelope_words(own.public, client)
        return seal_for(
            own, self.servers.second, letter, salt=self.session, words=words, randomness=randomness
        )

    def open_envelope(self, own: KeyPair, client: str, public: bytes, sealed: bytes) -> bytes | None:
        """Open the letter (shuffler side); None if this client did not seal it for this route."""
        words = self._envelope_words(public, client)
        letter = unseal_from(own, public, sealed, salt=self.session, words=words)
        return None if letter is None else letter.data

    def open_letter(self, own: KeyPair, letter: bytes) -> bytes | None:
        """Open the text (analyst side); None if it was not sealed for this route."""
        public, sealed = letter[:KEY_BYTES], letter[KEY_BYTES:]
        text = unseal_from(own, public, sealed, salt=self.session, words=self._letter_words(public))
        return None if text is None else text.data

    def _letter_words(self, public: bytes) -> bytes:
        return context("shuffle letter", self.place, *self.servers, public)

    def _envelope_words(self, public: bytes, client: str) -> bytes:
        return context("shuffle envelope", client, self.place, *self.servers, public)


def signed_words(session: bytes, client: str, public: bytes, sealed: Sequence[bytes]) -> bytes:
    """Return what a client signs: these envelopes are mine."""
    return context("shuffle envelopes", session, client, public, *sealed)


# --- reading the messages of `shuffle` ----------------------------------------------------------------------

Bag = NDArray[np.uint8]
"""Letters, or texts, of one length: a row each."""

WORDS = Introductions("shuffle")


class Envelopes(NamedTuple):
    """Message of one client: a key for this exchange, an envelope for each query, and its signature."""

    public: bytes
    sealed: tuple[bytes, ...]
    signature: bytes


def read_envelopes(reply: object, *, lengths: Sequence[int]) -> Envelopes | None:
    """Read a client's reply, well formed from outside: envelopes of exactly these lengths."""
    if not isinstance(reply, dict) or reply.keys() != set(Envelopes._fields):
        return None
    public, sealed, signature = (reply[field] for field in Envelopes._fields)
    if not (is_usable(public) and is_signature(signature) and isinstance(sealed, list)):
        return None
    if [len(one) if isinstance(one, bytes) else -1 for one in sealed] != list(lengths):
        return None
    return Envelopes(public, tuple(sealed), signature)


def read_letters(reply: object, *, lengths: Sequence[int], server: str) -> list[Bag]:
    """Read the letters that the shuffler has taken out: a bag for each query, all with as many letters."""
    bags = _bags(WORDS.fields(reply, {"letters"}, who=server)["letters"], lengths, who=server)
    WORDS.require(len({len(bag) for bag in bags}) == 1, f"got bags of different sizes from {server}.")
    return bags


def read_texts(reply: object, *, lengths: Sequence[int], server: str) -> list[Bag]:
    """Read what the analyst has found in the letters: the texts for each query."""
    return _bags(WORDS.fields(reply, {"texts"}, who=server)["texts"], lengths, who=server)


def read_refusal(reply: object) -> int | None:
    """Return the number of clients whose envelopes the shuffler got, if it reports that they are too few."""
    if isinstance(reply, dict) and reply.keys() == {"too_few"} and type(reply["too_few"]) is int:
        return int(reply["too_few"])
    return None


# --- what clients and servers receive ---------------------------------------------------------------------------


def told_envelopes(told: Message, *, lengths: Sequence[int]) -> tuple[list[tuple[str, Envelopes]], bool]:
    """Read the envelopes of clients, by name, and whether they are the last (shuffler)."""
    envelopes, last = told["envelopes"], told["last"]
    if not isinstance(envelopes, list) or not isinstance(last, bool):
        raise ProtocolError("shuffle: got no list of envelopes.")
    read = []
    for one in envelopes:
        found = dict(WORDS.fields(one, {"client", *Envelopes._fields}))
        client = found.pop("client")
        of_client = read_envelopes(found, lengths=lengths)
        if not isinstance(client, str) or of_client is None:
            raise ProtocolError(
                "shuffle: got envelopes of unknown clients, or of other lengths than they have."
            )
        read.append((client, of_client))
    return read, last


def told_letters(told: Message, *, lengths: Sequence[int]) -> tuple[list[Bag], bool]:
    """Read the letters for each query, and whether they are the last (analyst)."""
    bags, last = _bags(told["letters"], lengths, who="the relay"), told["last"]
    if not isinstance(last, bool):
        raise ProtocolError("shuffle: got letters, but not whether they are the last.")
    return bags, last


def _bags(value: object, lengths: Sequence[int], *, who: str) -> list[Bag]:
    if not isinstance(value, list) or len(value) != len(lengths):
        raise ProtocolError(f"shuffle: got no bag for each query from {who}.")
    for bag, length in zip(value, lengths, strict=True):
        if not (isinstance(bag, np.ndarray) and bag.dtype == np.uint8 and bag.shape == (len(bag), length)):
            raise ProtocolError(
                f"shuffle: got a bag from {who} whose pieces have another length than they have."
            )
    return value


def to_bag(pieces: Sequence[bytes], length: int) -> Bag:
    """Return pieces of this length as a bag, in this order."""
    return np.frombuffer(b"".join(pieces), dtype=np.uint8).reshape(len(pieces), length)


def from_bag(bag: Bag) -> list[bytes]:
    """Return the pieces of a bag."""
    return [row.tobytes() for row in bag]


def as_message(client: str, envelopes: Envelopes) -> Message:
    """Return what the relay hands on."""
    return {"client": client, **envelopes._asdict()}


# --- reports as texts of one length -------------------------------------------------------------------------

_PARTITION_BYTES = 4
_NUMBER_BYTES = 8


def text_bytes(question: Question) -> int:
    """Return the length of every text for this question."""
    if question.partitions:
        return _PARTITION_BYTES + -(-max(map(len, question.partitions)) // 8)
    return (
        _NUMBER_BYTES if question.plan.noise.law == CHOICE else _NUMBER_BYTES * question.plan.query.of.length
    )


def drawn_text(question: Question, vector: Vector, randomness: Randomness) -> bytes:
    """Make a private report on what was measured (client side), on a partition of the client's own drawing.

    The partition is uniform, not a hash of the name as under `local-dp`: here nothing may depend on the identity of a
    client, and for amplification all clients must use the same randomiser.
    """
    parts = len(question.partitions)
    partition = int(samplers.below(parts, 1, randomness)[0]) if parts else 0
    return to_text(question, Report(question.report(vector, partition, randomness), partition))


def to_text(question: Question, report: Report) -> bytes:
    """Write a fitting report as a text."""
    if question.partitions:
        text = report.partition.to_bytes(_PARTITION_BYTES, "little") + bytes(report.content)
        return text.ljust(text_bytes(question), b"\0")
    if question.plan.noise.law == CHOICE:
        return int(report.content).to_bytes(_NUMBER_BYTES, "little")
    return np.ascontiguousarray(report.content, dtype="<i8").tobytes()


def from_text(question: Question, text: bytes) -> Report | None:
    """Read the report that was written down; None if no honest client could have written this."""
    if len(text) != text_bytes(question):
        return None
    if question.partitions:
        partition = int.from_bytes(text[:_PARTITION_BYTES], "little")
        if partition >= len(question.partitions):
            return None
        bits = -(-len(question.partitions[partition]) // 8)
        content, rest = text[_PARTITION_BYTES:][:bits], text[_PARTITION_BYTES:][bits:]
        report = Report(content, partition)
        return report if question.fits(report) and not any(rest) else None
    if question.plan.noise.law == CHOICE:
        report = Report(int.from_bytes(text, "little"))
    else:
        report = Report(np.frombuffer(text, dtype="<i8").astype(np.int64))
    return report if question.fits(report) else None
