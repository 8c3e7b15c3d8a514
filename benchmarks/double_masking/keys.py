"""What each key, seal and commitment of a secure sum is bound to.

Everything is bound to the *session*: the digest of all that the clients of one run must agree on. Two clients
that were told different things (another question, another number of clients, another threshold) derive
different masks, which then do not cancel: a server that asks one client something else than the others
learns nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from double_masking.masks import MASK_KEY_BYTES
from double_masking.shamir import SHARE_BYTES
from fedassay.crypto.keys import KEY_BYTES, SEAL_OVERHEAD, KeyPair, Secret, context, derive, seal, unseal
from fedassay.protocol.vocabulary import Randomness
from fedassay.trust.question import question  # noqa: F401

SEED = "seed"
KEY = "key"
"""The two secrets of which a client deals shares: the seed of its own mask, and its private mask key."""

SEALED_BYTES = 2 * SHARE_BYTES + SEAL_OVERHEAD
COMMITMENT_BYTES = 32

SIGNED_KEYS = "secure-sum keys"
"""The purpose for which clients sign their public keys."""


def session_of(*, exchange: bytes, asked: bytes, numbers: Sequence[int], names: Sequence[str]) -> bytes:
    """The digest that all keys of one run are bound to: two clients that were told different things share none.

    `numbers` are the sizes that clients agree on, `names` the cohort, where not everybody is a neighbour.
    """
    cohort = hashlib.sha256(context("cohort", *names)).digest()
    return hashlib.sha256(context("fedassay secure-sum 2", exchange, asked, cohort, *numbers)).digest()


def signed_words(session: bytes, name: str, seal_key: bytes, mask_key: bytes) -> bytes:
    """What a client signs in leg 0: these keys are mine, in this session."""
    return context("secure-sum keys", session, name, seal_key, mask_key)


def pair_mask(session: bytes, own: KeyPair, own_name: str, other_name: str, other_public: bytes) -> Secret:
    """The key of the mask between two clients; both compute the same."""
    info = context("pair mask", *sorted((own_name, other_name)))
    return own.agree(other_public, salt=session, info=info, length=MASK_KEY_BYTES)


def self_mask(session: bytes, seed: Secret, name: str) -> Secret:
    """The key of the mask that a client shares with nobody, from its seed."""
    return derive(seed, salt=session, info=context("self mask", name), length=MASK_KEY_BYTES)


def adds(name: str, other: str) -> bool:
    """Whether the first of two clients adds the mask between them; the other one subtracts it."""
    return name < other


def channel(
    session: bytes, own: KeyPair, own_name: str, other_name: str, other_public: bytes
) -> tuple[Secret, Secret]:
    """Two keys with one neighbour: for what we seal for it, and for what it seals for us."""
    info = context("channel", *sorted((own_name, other_name)))
    agreed = own.agree(other_public, salt=session, info=info, length=2 * KEY_BYTES).data
    first, second = Secret(agreed[:KEY_BYTES]), Secret(agreed[KEY_BYTES:])
    return (first, second) if own_name < other_name else (second, first)


def seal_shares(
    key: Secret, shares: tuple[Secret, Secret], *, session: bytes, route: tuple[str, str], source: Randomness
) -> bytes:
    """A share of a seed and one of a mask key, on the route from sender to receiver."""
    text = shares[0].data + shares[1].data
    return seal(key, text, associated=context("sealed", session, *route), randomness=source)


def unseal_shares(
    key: Secret, sealed: bytes, *, session: bytes, route: tuple[str, str]
) -> tuple[Secret, Secret] | None:
    """The two shares, or None if they were not sealed like this."""
    opened = unseal(key, sealed, associated=context("sealed", session, *route))
    if opened is None or len(opened.data) != 2 * SHARE_BYTES:
        return None
    return Secret(opened.data[:SHARE_BYTES]), Secret(opened.data[SHARE_BYTES:])


def commit(session: bytes, kind: str, dealer: str, holder: str, secret: Secret) -> bytes:
    """A commitment to a share, or (holder ``""``) to a seed.

    It hides because what is committed to is uniform over at least 2^256 values, also to whoever knows all
    the shares that the threshold allows; it binds because SHA-256 is collision-resistant.
    """
    return hashlib.sha256(context("commitment", session, kind, dealer, holder, secret.data)).digest()
