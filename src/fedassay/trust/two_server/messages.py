"""The messages of `two-server`: bindings of seals and signatures, and their reading.

Bindings of the seals and signatures of `two-server`.

Everything is bound to the *session*: a digest of the exchange, of the whole question (summaries with all fields,
budget, protection) and of the names of both servers. A client that was asked for a release with much noise and a server
that was asked to add little have different sessions, and the server cannot open what the client sealed.

A client seals for each server with a key of its own for this exchange, bound also to its name, to the place of the
query and to the public keys of both servers: what one client sent cannot be handed in again under another name.

The servers share one secret (of their two keys of this exchange). From it come the keys for their messages to each
other, and the seed of the check, which clients cannot know.

Reading the messages of `two-server`.

Replies to the relay: `read_deposit` comes from a client, and is None for anything that is not of the expected form (the
client then counts as one that did not answer); the other `read_` functions come from a server, without which there is
no release, and raise `ProtocolError`. Neither client nor server trusts the relay: each `told_` function returns the
checked content of a request or raises `ProtocolError`, and the party stays silent.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedassay.crypto.field61 import Elements, require_reduced
from fedassay.crypto.keys import (
    KEY_BYTES,
    KeyPair,
    Secret,
    context,
    derive,
    is_usable,
    seal,
    seal_for,
    unseal,
    unseal_from,
)
from fedassay.crypto.prekeys import PAD_KEY_BYTES
from fedassay.crypto.sketch import SEED_BYTES
from fedassay.errors import FederationError, ProtocolError
from fedassay.protocol.vocabulary import Message, Plan, Randomness, Vector
from fedassay.trust.introductions import Introductions, Pair
from fedassay.trust.question import question


def session_of(*, exchange: bytes, plans: Sequence[Plan], servers: Sequence[str]) -> bytes:
    """Return the digest that everything of one exchange is bound to."""
    asked = question(plans)
    return hashlib.sha256(context("fedassay two-server 4", exchange, asked, *servers)).digest()


@dataclass(frozen=True, kw_only=True)
class DepositRoute:
    """Route of a deposit: from which client, for which query, to which server."""

    session: bytes
    client: str
    place: int
    party: int
    servers: Pair
    """Public keys of the servers."""

    def seal(self, own: KeyPair, text: bytes, randomness: Randomness) -> bytes:
        """Seal a text that only the server of this route can open, and as nothing else (client side)."""
        public, words = self.servers[self.party], self._words(own.public)
        return seal_for(own, public, text, salt=self.session, words=words, randomness=randomness)

    def open(self, own: KeyPair, public: bytes, sealed: bytes) -> Secret | None:
        """Open the text (server side); None if it was not sealed for this route by the holder of `public`."""
        return unseal_from(own, public, sealed, salt=self.session, words=self._words(public))

    def _words(self, public: bytes) -> bytes:
        return context("two-server deposit", self.client, self.place, self.party, *self.servers, public)


@dataclass(frozen=True, kw_only=True, repr=False)
class Channel:
    """Secrets that one server shares with the other: keys for both directions, and the seed of the check."""

    party: int
    session: bytes
    secret: Secret

    @classmethod
    def between(cls, own: KeyPair, servers: Pair, *, party: int, session: bytes) -> Channel:
        """Return the channel between the holders of these two keys."""
        info = context("two-server channel", *servers)
        secret = own.agree(servers[1 - party], salt=session, info=info)
        return cls(party=party, session=session, secret=secret)

    def __repr__(self) -> str:
        return f"Channel(party={self.party})"

    def seal(self, step: str, text: bytes, randomness: Randomness) -> bytes:
        """Seal a text for the other server, at this step of the protocol."""
        words = self._words(step, self.party)
        return seal(self._key(words, KEY_BYTES), text, associated=words, randomness=randomness)

    def open(self, step: str, sealed: bytes) -> Secret | None:
        """Open what the other server sealed at this step; None if it did not."""
        words = self._words(step, 1 - self.party)
        return unseal(self._key(words, KEY_BYTES), sealed, associated=words)

    def challenge(self, place: int) -> bytes:
        """Return the seed of the check of one query's keys; both servers have the same, clients do not know it."""
        return self._key(context("two-server challenge", place), SEED_BYTES).data

    def weights(self, place: int) -> Secret:
        """Return the key of the numbers by which the checks of a client's keys are added up."""
        return self._key(context("two-server weights", place), PAD_KEY_BYTES)

    def _words(self, step: str, sender: int) -> bytes:
        return context("two-server message", step, sender)

    def _key(self, info: bytes, length: int) -> Secret:
        return derive(self.secret, salt=self.session, info=info, length=length)


def commitment(session: bytes, nonce: bytes, content: bytes) -> bytes:
    """Return the commitment of the second server; it hides because the nonce has 32 random bytes."""
    return hashlib.sha256(context("two-server commitment", session, nonce, content)).digest()


# --- reading the messages of `two-server` -------------------------------------------------------------------

MOST_PLACES = 1 << 16
"""Largest number of entries that may be asked for at once."""


class Piece(NamedTuple):
    """Text that one client has sealed for one server and one query."""

    client: str
    place: int
    public: bytes
    sealed: bytes


class Sealed(NamedTuple):
    """A client's reply: its public key, and a sealed text per query for each server."""

    public: bytes
    texts: tuple[tuple[bytes, ...], tuple[bytes, ...]]


WORDS = Introductions("two-server")
require, fields = WORDS.require, WORDS.fields


# --- what the relay reads -------------------------------------------------------------------------------------


def read_deposit(reply: object, *, longest: Sequence[int]) -> Sealed | None:
    """Read a client's reply, well formed from outside; only the servers can look into it.

    `longest` has for each query the most bytes of a text (`Layout.text_bytes`). Longer ones would count against what
    a server can hold, and one client could end the exchange for all.
    """
    if not isinstance(reply, dict) or reply.keys() != {"public", "sealed"}:
        return None
    public, sealed = reply["public"], reply["sealed"]
    if not (
        isinstance(public, bytes) and is_usable(public) and isinstance(sealed, list) and len(sealed) == 2
    ):
        return None
    for texts in sealed:
        if not isinstance(texts, list) or len(texts) != len(longest):
            return None
        if not all(
            isinstance(text, bytes) and len(text) <= most for text, most in zip(texts, longest, strict=True)
        ):
            return None
    return Sealed(public, (tuple(sealed[0]), tuple(sealed[1])))


def read_sealed(reply: object, *, server: str) -> bytes:
    """Read what one server has sealed for the other."""
    sealed = fields(reply, {"sealed"}, who=server)["sealed"]
    if not isinstance(sealed, bytes):
        raise ProtocolError(f"two-server: got nothing from {server} to hand on.")
    return sealed


def read_verdict(reply: object, *, server: str) -> tuple[Message, bytes]:
    """Read the second server's answer, and what it has sealed for the first: whom it accepted."""
    _check_answered(reply, server=server)
    found = dict(fields(reply, {"sealed", "shares", "clients"}, who=server))
    return found, read_sealed({"sealed": found.pop("sealed")}, server=server)


def read_shares(reply: object, *, lengths: list[int], server: str) -> tuple[list[Elements], int]:
    """Read a server's answer: its noisy share for each query, and how many clients it accepted."""
    _check_answered(reply, server=server)
    found = fields(reply, {"shares", "clients"}, who=server)
    shares, clients = found["shares"], found["clients"]
    if not isinstance(shares, list) or len(shares) != len(lengths) or type(clients) is not int:
        raise ProtocolError(f"two-server: got no share for each query from {server}.")
    what = f"share of {server}"
    return [
        require_reduced(one, shape=(n,), what=what) for one, n in zip(shares, lengths, strict=True)
    ], clients


def _check_answered(reply: object, *, server: str) -> None:
    """Raise if the server refused. It keeps the reasons: the asker may have given it reason to refuse."""
    if isinstance(reply, dict) and reply.keys() == {"refused"}:
        raise FederationError(
            f"two-server: {server} ends the exchange, as too many clients do not pass the check; ask its operator: "
            "its log names them."
        )


# --- what clients and servers receive ---------------------------------------------------------------------------


def told_pieces(told: Message, *, plans: int) -> tuple[list[Piece], bool]:
    """Read the deposits of clients, and whether they are the last."""
    pieces, last = told["pieces"], told["last"]
    if not isinstance(pieces, list) or not isinstance(last, bool):
        raise ProtocolError("two-server: got no list of deposits.")
    read = []
    for piece in pieces:
        found = fields(piece, set(Piece._fields))
        client, place, public, sealed = (found[field] for field in Piece._fields)
        if not (isinstance(client, str) and type(place) is int and 0 <= place < plans):
            raise ProtocolError("two-server: got a deposit of no client, or for no query.")
        if not (isinstance(public, bytes) and len(public) == KEY_BYTES and isinstance(sealed, bytes)):
            raise ProtocolError("two-server: got a deposit that is not sealed.")
        read.append(Piece(client, place, public, sealed))
    return read, last


def told_places(places: object, *, lengths: list[int | None]) -> list[Vector | None]:
    """Read which entries are asked for: an array for each query of points, None for a whole total."""
    if not isinstance(places, list) or len(places) != len(lengths):
        raise ProtocolError("two-server: got no places for each query.")
    for one, length in zip(places, lengths, strict=True):
        if length is None:
            require(one is None, "got places in a total that is asked for as a whole.")
        elif not isinstance(one, np.ndarray) or one.dtype != np.int64 or not 0 < one.size <= MOST_PLACES:
            raise ProtocolError(f"two-server: got no list of 1 to {MOST_PLACES:,} places.")
        else:
            require(
                one.ndim == 1 and bool(one.min() >= 0 and one.max() < length),
                f"got places from {one.min()} to {one.max()}, expected 0 to {length - 1}.",
            )
    return places
