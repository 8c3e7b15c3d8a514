"""What the seals and signatures of `two-server` are bound to.

Everything is bound to the *session*: a digest of the exchange, of the whole question (summaries with all fields,
budget, protection) and of the names of both servers. A client that was asked for a release with much noise and a server
that was told to add little have different sessions, and the server cannot open what the client sealed.

A client seals for each server with a key of its own for this exchange, bound besides to its name, to the place of the
query and to the public keys of both servers: what one client sent cannot be handed in again under another name.

The servers share one secret (of their two keys of this exchange). From it come the keys for what they say to each
other, and the seed of the check, which clients cannot know.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from fedassay.crypto.keys import (
    KEY_BYTES,
    KeyPair,
    Secret,
    context,
    derive,
    seal,
    seal_for,
    unseal,
    unseal_from,
)
from fedassay.crypto.pads import PAD_KEY_BYTES
from fedassay.crypto.sketch import SEED_BYTES
from fedassay.protocol import Plan, Randomness
from fedassay.trust.introductions import Pair
from fedassay.trust.question import question


def session_of(*, exchange: bytes, plans: Sequence[Plan], servers: Sequence[str]) -> bytes:
    """The digest that everything of one exchange is bound to."""
    asked = question(plans)
    return hashlib.sha256(context("fedassay two-server 3", exchange, asked, *servers)).digest()


@dataclass(frozen=True, kw_only=True)
class Route:
    """From which client, for which query, to which server."""

    session: bytes
    client: str
    place: int
    party: int
    servers: Pair
    """The servers' public keys."""

    def seal(self, own: KeyPair, text: bytes, randomness: Randomness) -> bytes:
        """Client side: only the server of this route can open it, and as nothing else."""
        public, words = self.servers[self.party], self._words(own.public)
        return seal_for(own, public, text, salt=self.session, words=words, randomness=randomness)

    def open(self, own: KeyPair, public: bytes, sealed: bytes) -> Secret | None:
        """Server side: the text, or None if it was not sealed for this route by the holder of `public`."""
        return unseal_from(own, public, sealed, salt=self.session, words=self._words(public))

    def _words(self, public: bytes) -> bytes:
        return context("two-server deposit", self.client, self.place, self.party, *self.servers, public)


@dataclass(frozen=True, kw_only=True, repr=False)
class Channel:
    """What one server shares with the other: keys for both directions, and the seed of the check."""

    party: int
    session: bytes
    secret: Secret

    @classmethod
    def between(cls, own: KeyPair, servers: Pair, *, party: int, session: bytes) -> Channel:
        """The channel between the holders of these two keys."""
        info = context("two-server channel", *servers)
        secret = own.agree(servers[1 - party], salt=session, info=info)
        return cls(party=party, session=session, secret=secret)

    def __repr__(self) -> str:
        return f"Channel(party={self.party})"

    def seal(self, step: str, text: bytes, randomness: Randomness) -> bytes:
        """For the other server, at this step of the protocol."""
        words = self._words(step, self.party)
        return seal(self._key(words, KEY_BYTES), text, associated=words, randomness=randomness)

    def open(self, step: str, sealed: bytes) -> Secret | None:
        """What the other server sealed at this step; None if it did not."""
        words = self._words(step, 1 - self.party)
        return unseal(self._key(words, KEY_BYTES), sealed, associated=words)

    def challenge(self, place: int) -> bytes:
        """The seed of the check of one query's keys; both servers have the same, clients do not know it."""
        return self._key(context("two-server challenge", place), SEED_BYTES).data

    def weights(self, place: int) -> Secret:
        """The key of the numbers by which the checks of a client's keys are added up."""
        return self._key(context("two-server weights", place), PAD_KEY_BYTES)

    def _words(self, step: str, sender: int) -> bytes:
        return context("two-server message", step, sender)

    def _key(self, info: bytes, length: int) -> Secret:
        return derive(self.secret, salt=self.session, info=info, length=length)


def commitment(session: bytes, nonce: bytes, content: bytes) -> bytes:
    """What the second server commits itself by; it hides because the nonce has 32 random bytes."""
    return hashlib.sha256(context("two-server commitment", session, nonce, content)).digest()
