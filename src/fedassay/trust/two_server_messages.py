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
from fedassay.trust.two_server_keys import Pair

SIGNATURE_BYTES = 64
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


class Introduced(NamedTuple):
    """Both servers: their names, the public keys that they use in this exchange, and their signatures."""

    names: tuple[str, str]
    keys: Pair
    signatures: Pair


def require(holds: bool, sentence: str) -> None:  # noqa: FBT001
    """Refuse a message."""
    if not holds:
        raise ProtocolError(f"two-server: {sentence}")


def fields(message: object, names: set[str], *, who: str = "the relay") -> dict[str, object]:
    """The message, if it is a mapping with these fields and no others."""
    if not isinstance(message, dict) or message.keys() != names:
        raise ProtocolError(
            f"two-server: got a message of {who} without its fields {', '.join(sorted(names))}."
        )
    return message


# --- what the relay reads -------------------------------------------------------------------------------------


def read_key(reply: object, *, server: str) -> tuple[bytes, bytes]:
    """A server's public key and its signature (empty if it has no identity)."""
    found = fields(reply, {"public", "signature"}, who=server)
    public, signature = found["public"], found["signature"]
    if not (isinstance(public, bytes) and is_usable(public) and _is_signature(signature)):
        raise ProtocolError(f"two-server: got no usable key from {server}.")
    assert isinstance(signature, bytes)
    return public, signature


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


def told_names(message: object, *, recipient: str) -> tuple[str, str]:
    """First leg: who the two servers are, the recipient being one of them."""
    names = _names(fields(message, {"servers"})["servers"])
    require(recipient in names, f"got the servers {names}, expected this one to be among them.")
    return names


def told_servers(message: object) -> Introduced:
    """Both servers' names, keys and signatures; they must differ."""
    told = fields(message, {"servers", "keys", "signatures"})
    names = _names(told["servers"])
    keys, signatures = told["keys"], told["signatures"]
    if not (isinstance(keys, list) and len(keys) == 2 and all(is_usable(key) for key in keys)):
        raise ProtocolError("two-server: got no usable key of each server.")
    require(keys[0] != keys[1], "both servers have the same key: they are one.")
    if not (isinstance(signatures, list) and len(signatures) == 2 and all(map(_is_signature, signatures))):
        raise ProtocolError("two-server: got no signature of each server.")
    return Introduced(names, Pair(*keys), Pair(*signatures))


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


def _names(value: object) -> tuple[str, str]:
    if not (isinstance(value, list) and len(value) == 2 and all(isinstance(name, str) for name in value)):
        raise ProtocolError("two-server: got no names of two servers.")
    require(value[0] != value[1], f"both servers are {value[0]!r}, expected two.")
    return value[0], value[1]


def _is_signature(value: object) -> bool:
    """Whether this can be a signature: the right length, or empty where nobody signs."""
    return isinstance(value, bytes) and len(value) in (0, SIGNATURE_BYTES)
