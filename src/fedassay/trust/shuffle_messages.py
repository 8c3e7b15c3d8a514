"""Reading the messages of `shuffle`.

`read_envelopes` comes from a client, and is None for anything that is not of the expected form (the client then counts
as one that did not answer); the other `read_` functions come from a server, without which there is no release, and
raise `ProtocolError`. Nobody trusts the relay: each `told_` function returns the checked content of a request or raises
`ProtocolError`, and the party stays silent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedassay.crypto.keys import is_usable
from fedassay.errors import ProtocolError
from fedassay.protocol import Message
from fedassay.trust.introductions import INTRODUCTION, Introduced, Introductions, is_signature

Bag = NDArray[np.uint8]
"""Letters, or texts, of one length: a row each."""

WORDS = Introductions("shuffle")


class Envelopes(NamedTuple):
    """What one client sends: a key for this exchange, an envelope for each query, and its signature."""

    public: bytes
    sealed: tuple[bytes, ...]
    signature: bytes


def read_envelopes(reply: object, *, lengths: Sequence[int]) -> Envelopes | None:
    """A client's reply, well formed from outside: envelopes of exactly these lengths."""
    if not isinstance(reply, dict) or reply.keys() != set(Envelopes._fields):
        return None
    public, sealed, signature = (reply[field] for field in Envelopes._fields)
    if not (is_usable(public) and is_signature(signature) and isinstance(sealed, list)):
        return None
    if [len(one) if isinstance(one, bytes) else -1 for one in sealed] != list(lengths):
        return None
    return Envelopes(public, tuple(sealed), signature)


def read_letters(reply: object, *, lengths: Sequence[int], server: str) -> list[Bag]:
    """What the shuffler has taken out of the envelopes: a bag for each query, all with as many letters."""
    bags = _bags(WORDS.fields(reply, {"letters"}, who=server)["letters"], lengths, who=server)
    WORDS.require(len({len(bag) for bag in bags}) == 1, f"got bags of different sizes from {server}.")
    return bags


def read_texts(reply: object, *, lengths: Sequence[int], server: str) -> list[Bag]:
    """What the analyst has read in the letters: the texts for each query."""
    return _bags(WORDS.fields(reply, {"texts"}, who=server)["texts"], lengths, who=server)


def read_refusal(reply: object) -> int | None:
    """From how many clients the shuffler has got envelopes, if it says that they are too few."""
    if isinstance(reply, dict) and reply.keys() == {"too_few"} and type(reply["too_few"]) is int:
        return int(reply["too_few"])
    return None


# --- what clients and servers are told --------------------------------------------------------------------------


def told_envelopes(
    message: object, *, lengths: Sequence[int]
) -> tuple[Introduced, list[tuple[str, Envelopes]], bool]:
    """The shuffler: envelopes of clients, by name, and whether they are the last."""
    introduced, told = _introduced(message, {"envelopes", "last"})
    envelopes, last = told["envelopes"], told["last"]
    if not isinstance(envelopes, list) or not isinstance(last, bool):
        raise ProtocolError("shuffle: got no list of envelopes.")
    read = []
    for one in envelopes:
        found = dict(WORDS.fields(one, {"client", *Envelopes._fields}))
        client = found.pop("client")
        of_client = read_envelopes(found, lengths=lengths)
        if not isinstance(client, str) or of_client is None:
            raise ProtocolError("shuffle: got envelopes of nobody, or of other lengths than they have.")
        read.append((client, of_client))
    return introduced, read, last


def told_letters(message: object, *, lengths: Sequence[int]) -> tuple[Introduced, list[Bag], bool]:
    """The analyst: letters for each query, and whether they are the last."""
    introduced, told = _introduced(message, {"letters", "last"})
    bags, last = _bags(told["letters"], lengths, who="the relay"), told["last"]
    if not isinstance(last, bool):
        raise ProtocolError("shuffle: got letters, but not whether they are the last.")
    return introduced, bags, last


def _introduced(message: object, also: set[str]) -> tuple[Introduced, dict[str, Any]]:
    told = WORDS.fields(message, {*INTRODUCTION, *also})
    return WORDS.told_servers({name: told[name] for name in INTRODUCTION}), told


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
    """Pieces of this length as a bag, in this order."""
    return np.frombuffer(b"".join(pieces), dtype=np.uint8).reshape(len(pieces), length)


def from_bag(bag: Bag) -> list[bytes]:
    """The pieces of a bag."""
    return [row.tobytes() for row in bag]


def as_message(client: str, envelopes: Envelopes) -> Message:
    """What the relay hands on."""
    return {"client": client, **envelopes._asdict()}
