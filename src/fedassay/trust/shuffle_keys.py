"""What the seals and signatures of `shuffle` are bound to: a letter inside an envelope.

A client writes a *letter* for each query: its report, sealed for the analyst. It puts each letter into an *envelope*,
sealed for the shuffler. Only the envelope knows the client's name. Letters have keys of their own, a fresh one for
each, so that two letters of one client have nothing in common.

Everything is bound to the *session*: a digest of the exchange, of the whole question, of the number of clients among
which a message must be hidden, and of the names of both servers. If clients were told that they are many, and the
shuffler that they are few, it cannot open what they sealed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from fedassay.crypto.keys import KEY_BYTES, SEAL_OVERHEAD, KeyPair, context, seal_for, unseal_from
from fedassay.protocol import Plan, Randomness
from fedassay.trust.introductions import Pair
from fedassay.trust.question import question

LETTER_OVERHEAD = KEY_BYTES + SEAL_OVERHEAD
"""How much longer a letter is than its text: the key that it was sealed with in front, and the seal."""

ENVELOPE_OVERHEAD = SEAL_OVERHEAD
"""How much longer an envelope is than its letter; its key comes with all envelopes of the client."""

SIGNED_ENVELOPES = "shuffle envelopes"
"""The purpose for which clients sign."""


def session_of(
    *, exchange: bytes, plans: Sequence[Plan], numbers: Sequence[int], servers: Sequence[str]
) -> bytes:
    """The digest that everything of one exchange is bound to; `numbers` are those that hide a client."""
    sizes = (plan.setting.clients for plan in plans)
    words = context("fedassay shuffle 1", exchange, question(plans), *sizes, *numbers, *servers)
    return hashlib.sha256(words).digest()


@dataclass(frozen=True, kw_only=True)
class Route:
    """To the analyst, through the shuffler, for one query."""

    session: bytes
    place: int
    servers: Pair
    """The public keys of the analyst and of the shuffler."""

    def letter(self, text: bytes, randomness: Randomness) -> bytes:
        """Client side: a text that only the analyst can read, and that does not say who wrote it."""
        own = KeyPair.draw(randomness)
        words = self._letter_words(own.public)
        return own.public + seal_for(
            own, self.servers.first, text, salt=self.session, words=words, randomness=randomness
        )

    def envelope(self, letter: bytes, own: KeyPair, client: str, randomness: Randomness) -> bytes:
        """Client side: a letter that only the shuffler can take out, from this client."""
        words = self._envelope_words(own.public, client)
        return seal_for(
            own, self.servers.second, letter, salt=self.session, words=words, randomness=randomness
        )

    def open_envelope(self, own: KeyPair, client: str, public: bytes, sealed: bytes) -> bytes | None:
        """Shuffler side: the letter, or None if this client did not seal it for this route."""
        words = self._envelope_words(public, client)
        letter = unseal_from(own, public, sealed, salt=self.session, words=words)
        return None if letter is None else letter.data

    def open_letter(self, own: KeyPair, letter: bytes) -> bytes | None:
        """Analyst side: the text, or None if it was not sealed for this route."""
        public, sealed = letter[:KEY_BYTES], letter[KEY_BYTES:]
        text = unseal_from(own, public, sealed, salt=self.session, words=self._letter_words(public))
        return None if text is None else text.data

    def _letter_words(self, public: bytes) -> bytes:
        return context("shuffle letter", self.place, *self.servers, public)

    def _envelope_words(self, public: bytes, client: str) -> bytes:
        return context("shuffle envelope", client, self.place, *self.servers, public)


def signed_words(session: bytes, client: str, public: bytes, sealed: Sequence[bytes]) -> bytes:
    """What a client signs: these envelopes are mine."""
    return context("shuffle envelopes", session, client, public, *sealed)
