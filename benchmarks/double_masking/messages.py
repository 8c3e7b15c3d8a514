"""Reading the messages of a secure sum, in both directions.

Replies to the server come from strangers: each `read_` function returns the checked content, or None for
anything that is not exactly of the expected form; the server then treats the client as one that did not
answer. A client does not trust the server either: each `told_` function returns the checked content or raises
`ProtocolError`, and the client stays silent.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple, TypeVar

import numpy as np

from double_masking.keys import COMMITMENT_BYTES, KEY, SEALED_BYTES, SEED
from double_masking.masks import Words
from double_masking.shamir import SHARE_BYTES
from fedassay.crypto.keys import KEY_BYTES, Secret, is_usable
from fedassay.errors import ProtocolError
from fedassay.protocol.vocabulary import Message, Replies

Content = TypeVar("Content")

SIGNATURE_BYTES = 64


class Keys(NamedTuple):
    """Leg 0: the public keys of a client, for sealing shares and for making masks."""

    seal: bytes
    mask: bytes
    signature: bytes
    """Of the client, over both keys and the session; empty where clients have no keys to sign with."""


class Dealt(NamedTuple):
    """Leg 1: a client's sealed shares by holder, its commitments to them, and to its seed."""

    sealed: dict[str, bytes]
    commitments: dict[str, dict[str, bytes]]
    seed: bytes


Revealed = dict[str, dict[str, Secret]]
"""Leg 3: kind of share, then dealer, to the share that this client held."""


def readable(
    replies: Replies, asked: Iterable[str], read: Callable[[str, object], Content | None]
) -> dict[str, Content]:
    """The content of all replies that came from clients who were asked and could be read."""
    found = {name: read(name, replies[name]) for name in sorted(asked) if name in replies}
    return {name: content for name, content in found.items() if content is not None}


def read_keys(reply: object) -> Keys | None:
    """Both public keys, usable ones: a key of small order would make the neighbours' agreement fail."""
    found = _exactly(reply, {"seal_key", "mask_key", "signature"})
    if found is None:
        return None
    seal, mask, signature = found["seal_key"], found["mask_key"], found["signature"]
    if not (isinstance(seal, bytes) and isinstance(mask, bytes) and is_usable(seal) and is_usable(mask)):
        return None
    if not _is_signature(signature):
        return None
    assert isinstance(signature, bytes)
    return Keys(seal, mask, signature)


def read_dealt(reply: object, holders: Collection[str]) -> Dealt | None:
    """Exactly one sealed pair of shares and two commitments for each holder."""
    found = _exactly(reply, {"sealed", "seed_commitments", "key_commitments", "seed_commitment"})
    if found is None:
        return None
    sealed = _byte_strings(found["sealed"], SEALED_BYTES)
    seeds = _byte_strings(found["seed_commitments"], COMMITMENT_BYTES)
    keys = _byte_strings(found["key_commitments"], COMMITMENT_BYTES)
    seed = found["seed_commitment"]
    if sealed is None or seeds is None or keys is None:
        return None
    if not (sealed.keys() == seeds.keys() == keys.keys() == set(holders)):
        return None
    if not isinstance(seed, bytes) or len(seed) != COMMITMENT_BYTES:
        return None
    return Dealt(sealed, {SEED: seeds, KEY: keys}, seed)


def read_masked(reply: object, length: int) -> Words | None:
    """A vector of the right length over Z_{2^64}."""
    found = _exactly(reply, {"masked"})
    masked = None if found is None else found["masked"]
    if type(masked) is not np.ndarray or masked.dtype != np.uint64 or masked.shape != (length,):
        return None
    return masked


def read_revealed(reply: object, *, survivors: Collection[str], silent: Collection[str]) -> Revealed | None:
    """Shares of the seeds of survivors and of the keys of silent clients, and of nothing else."""
    found = _exactly(reply, {"seed_shares", "key_shares"})
    if found is None:
        return None
    seeds = _byte_strings(found["seed_shares"], SHARE_BYTES)
    keys = _byte_strings(found["key_shares"], SHARE_BYTES)
    if seeds is None or keys is None or not seeds.keys() <= set(survivors) or not keys.keys() <= set(silent):
        return None
    return {
        SEED: {name: Secret(share) for name, share in seeds.items()},
        KEY: {name: Secret(share) for name, share in keys.items()},
    }


def require(holds: bool, sentence: str) -> None:  # noqa: FBT001
    """Refuse what the server sent."""
    if not holds:
        raise ProtocolError(f"secure sum: {sentence}")


class Told(NamedTuple):
    """Leg 0: how many clients, neighbours and shares, the digest of the question, and who is in the ring."""

    clients: int
    neighbours: int
    threshold: int
    question: bytes
    names: tuple[str, ...]
    """The whole cohort, where it is too large for everybody to be a neighbour; else empty."""


def told_terms(message: Message, *, name: str) -> Told:
    """Leg 0, well formed; the numbers are not judged here."""
    told = _exactly(message, set(Told._fields)) or {}
    n, k, t, asked, names = (told.get(field) for field in Told._fields)
    if not (isinstance(n, int) and isinstance(k, int) and isinstance(t, int) and isinstance(asked, bytes)):
        raise ProtocolError("secure sum: got no numbers of clients, neighbours and shares.")
    if not isinstance(names, list) or not all(isinstance(one, str) for one in names):
        raise ProtocolError("secure sum: got no list of the clients.")
    expected = 0 if k == n - 1 else n
    require(
        len(names) == len(set(names)) == expected and (not names or name in names),
        f"got the names of {len(names)} clients, expected {expected} different ones, mine among them.",
    )
    return Told(n, k, t, asked, tuple(names))


def told_keys(
    message: Message,
    *,
    name: str,
    least: int,
    most: int,
    among: Collection[str],
    signed: Callable[[str, Keys], bool],
) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """Leg 1: the sealing keys and the mask keys of the same neighbours, neither too few nor too many.

    `among` are the neighbours in the ring, which the client has found by itself (empty if all are neighbours):
    without that, a server could arrange the clients in small groups and open a total over each.

    `signed` says whether a neighbour's keys are believed: without that, a server could put its own keys
    in the place of the neighbours' and read everything.
    """
    told = _exactly(message, {"seal_keys", "mask_keys", "signatures"}) or {}
    seal_keys = _byte_strings(told.get("seal_keys"), KEY_BYTES) or {}
    mask_keys = _byte_strings(told.get("mask_keys"), KEY_BYTES) or {}
    require(
        seal_keys.keys() == mask_keys.keys() and name not in seal_keys and least <= len(seal_keys) <= most,
        f"got the keys of {len(seal_keys)} neighbours, expected those of {least} to {most} others.",
    )
    require(not among or seal_keys.keys() <= set(among), "got the keys of clients who are not neighbours.")
    signatures = told.get("signatures")
    if not isinstance(signatures, dict) or signatures.keys() != seal_keys.keys():
        raise ProtocolError("secure sum: got no signature for each neighbour.")
    for j in sorted(seal_keys):
        require(_is_signature(signatures[j]), f"the signature of {j!r} is none.")
        keys = Keys(seal_keys[j], mask_keys[j], signatures[j])
        require(signed(j, keys), f"the keys of {j!r} are not signed by the key that is pinned for it.")
    return seal_keys, mask_keys


def told_sealed(message: Message, *, among: Mapping[str, bytes], least: int) -> dict[str, bytes]:
    """Leg 2: sealed shares from enough of the neighbours of leg 1."""
    told = _exactly(message, {"sealed"}) or {}
    sealed = _byte_strings(told.get("sealed"), SEALED_BYTES) or {}
    require(
        sealed.keys() <= among.keys() and len(sealed) >= least,
        f"got shares of {len(sealed)} neighbours, expected of at least {least} of those of leg 1.",
    )
    return sealed


def told_survivors(
    message: Message, *, among: Collection[str], least: int, cohort: int, clients: int, complete: bool
) -> set[str]:
    """Leg 3: who of the neighbours of leg 2 survives: at least `least`, and `cohort` in the whole run."""
    told = _exactly(message, {"survivors", "count"}) or {}
    names, count = told.get("survivors"), told.get("count")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ProtocolError("secure sum: got no list of survivors.")
    survivors = set(names)
    require(
        len(survivors) == len(names) and survivors <= set(among) and len(names) >= least,
        f"got {len(names)} surviving neighbours, expected at least {least} of those of leg 2.",
    )
    # In a complete graph the client sees every survivor; on a ring it must believe the count.
    fewest = max(cohort, len(names) + 1)
    most = len(names) + 1 if complete else clients
    require(
        isinstance(count, int) and fewest <= count <= most,
        f"got {count!r} survivors in all, expected {fewest} to {most}.",
    )
    return survivors


def _is_signature(value: object) -> bool:
    """Whether this can be a signature: the right length, or empty where nobody signs."""
    return isinstance(value, bytes) and len(value) in (0, SIGNATURE_BYTES)


def _exactly(message: object, names: set[str]) -> dict[str, object] | None:
    """The message, if it is a mapping with these fields and no others."""
    return message if isinstance(message, dict) and message.keys() == names else None


def _byte_strings(value: object, length: int) -> dict[str, bytes] | None:
    """The value, if it maps names to byte strings of this length."""
    if not isinstance(value, dict):
        return None
    well_formed = all(
        isinstance(name, str) and isinstance(text, bytes) and len(text) == length
        for name, text in value.items()
    )
    return value if well_formed else None
