"""Reading the messages of `two-server`.

Replies to the relay: `read_deposit` comes from a client, and is None for anything that is not of the expected form (the
client then counts as one that did not answer); the other `read_` functions come from a server, without which there is
no release, and raise `ProtocolError`. Neither client nor server trusts the relay: each `told_` function returns the
checked content of a request or raises `ProtocolError`, and the party stays silent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedassay.crypto.field61 import Elements, require_reduced
from fedassay.crypto.keys import KEY_BYTES, is_usable
from fedassay.errors import FederationError, ProtocolError
from fedassay.protocol import Message, Vector
from fedassay.trust.introductions import Introductions

MOST_PLACES = 1 << 16
"""So many entries may be asked for at once."""


class Piece(NamedTuple):
    """What one client has sealed for one server and one query."""

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
read_key, told_names, told_servers = WORDS.read_key, WORDS.told_names, WORDS.told_servers


# --- what the relay reads -------------------------------------------------------------------------------------


def read_deposit(reply: object, *, longest: Sequence[int]) -> Sealed | None:
    """A client's reply, well formed from outside; only the servers can look into it.

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
    """What one server has sealed for the other."""
    sealed = fields(reply, {"sealed"}, who=server)["sealed"]
    if not isinstance(sealed, bytes):
        raise ProtocolError(f"two-server: got nothing from {server} to hand on.")
    return sealed


def read_verdict(reply: object, *, server: str) -> tuple[Message, bytes]:
    """The second server's answer, and what it has sealed for the first: whom it accepted."""
    _check_answered(reply, server=server)
    found = dict(fields(reply, {"sealed", "shares", "clients"}, who=server))
    return found, read_sealed({"sealed": found.pop("sealed")}, server=server)


def read_shares(reply: object, *, lengths: list[int], server: str) -> tuple[list[Elements], int]:
    """A server's answer: its noisy share for each query, and how many clients it accepted."""
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
    """Who did not pass stays with the server: who asks may be who gave it reason to refuse."""
    if isinstance(reply, dict) and reply.keys() == {"refused"}:
        raise FederationError(
            f"two-server: {server} ends the exchange, as too many clients do not pass the check; ask whoever runs it: "
            "its log names them."
        )


# --- what clients and servers are told --------------------------------------------------------------------------


def told_pieces(message: object, *, plans: int) -> tuple[list[Piece], bool]:
    """Deposits of clients, and whether they are the last."""
    told = fields(message, {"pieces", "last"})
    pieces, last = told["pieces"], told["last"]
    if not isinstance(pieces, list) or not isinstance(last, bool):
        raise ProtocolError("two-server: got no list of deposits.")
    read = []
    for piece in pieces:
        found = fields(piece, set(Piece._fields))
        client, place, public, sealed = (found[field] for field in Piece._fields)
        if not (isinstance(client, str) and type(place) is int and 0 <= place < plans):
            raise ProtocolError("two-server: got a deposit of nobody, or for no query.")
        if not (isinstance(public, bytes) and len(public) == KEY_BYTES and isinstance(sealed, bytes)):
            raise ProtocolError("two-server: got a deposit that is not sealed.")
        read.append(Piece(client, place, public, sealed))
    return read, last


def told_places(places: object, *, lengths: list[int | None]) -> list[Vector | None]:
    """Which entries are asked for: an array for each query of points, None for a whole total."""
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
