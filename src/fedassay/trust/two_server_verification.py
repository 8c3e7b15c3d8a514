"""The check of `two-server` as messages between the two servers, each sealed for the other.

The arithmetic and the argument are in `two_server_check`; the order of the steps in `two_server_helper`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedassay import wire
from fedassay.crypto.field61 import Elements, require_reduced
from fedassay.crypto.keys import Secret
from fedassay.crypto.sketch import Half
from fedassay.errors import ProtocolError
from fedassay.protocol import LARGEST_ROWS_PER_CLIENT, Message, Randomness, Request
from fedassay.trust import two_server_check as check
from fedassay.trust.two_server_check import Counts
from fedassay.trust.two_server_deposits import Deposits
from fedassay.trust.two_server_keys import Channel, commitment
from fedassay.trust.two_server_messages import fields, require

log = logging.getLogger("fedassay.two_server")

NONCE_BYTES = 32
COMMITMENT_BYTES = 32


def first(
    deposits: Deposits,
    halves: Sequence[Elements],
    masked: Sequence[Elements],
    channel: Channel,
    randomness: Randomness,
) -> tuple[Message, Message]:
    """The first message: whose texts were good, how many keys each sent, and the masked values of the keys."""
    said = {"names": list(deposits.names), "counts": deposits.counts, "masked": list(masked)}
    return _said(channel, "masked", said, randomness), {
        "step": "masked",
        **_channel_state(channel),
        "deposits": deposits.to_message(),
        "halves": list(halves),
    }


def factors(request: Request, state: Message, randomness: Randomness) -> tuple[Message, Message]:
    """The clients that both servers can read: each one's Q, multiplied by nothing yet, under the client's masks."""
    channel, own = _channel(state), Deposits.from_message(state["deposits"])
    other = _First.read(_heard(channel, "masked", request.message), queries=len(request.plans))
    mine = _common(own.names, own.counts, other.names, other.counts)
    theirs = _common(other.names, other.counts, own.names, own.counts)
    kept = own.select(mine)
    masked = []
    for place in range(len(request.plans)):
        half = Half(party=channel.party, numbers=state["halves"][place][own.rows(place, mine)])
        received = other.masked[place][np.repeat(theirs, other.counts[:, place])]
        claims = check.claim(half, received, kept.counts[:, place], channel.weights(place))
        masked.append(check.masked_factors(claims, kept.triples[place], randomness))
    return _said(channel, "factors", {"factors": masked}, randomness), {
        "step": "factors",
        **_channel_state(channel),
        "deposits": kept.to_message(),
        "factors": masked,
    }


def committed(request: Request, state: Message, randomness: Randomness) -> tuple[Message, Message]:
    """The shares of the products; only a commitment to them leaves."""
    channel, deposits = _channel(state), Deposits.from_message(state["deposits"])
    received = _arrays(
        _heard(channel, "factors", request.message), "factors", [one.shape for one in state["factors"]]
    )
    products = [
        check.product(own, other, triples, party=channel.party)
        for own, other, triples in zip(state["factors"], received, deposits.triples, strict=True)
    ]
    nonce = randomness.bytes(NONCE_BYTES)
    said = {"commitment": _commitment(channel.session, channel.party, nonce, products)}
    return _said(channel, "commitment", said, randomness), {
        "step": "commitment",
        **_channel_state(channel),
        "deposits": state["deposits"],
        "products": products,
        "nonce": nonce,
    }


def opened(request: Request, state: Message, randomness: Randomness) -> tuple[Message, Message]:
    """The shares themselves, once the other server has committed to its own."""
    channel = _channel(state)
    told = fields(_heard(channel, "commitment", request.message), {"commitment"}, who="the other server")
    require(
        isinstance(told["commitment"], bytes) and len(told["commitment"]) == COMMITMENT_BYTES,
        "got no commitment of the other server.",
    )
    said = {"nonce": state["nonce"], "products": state["products"]}
    return _said(channel, "opened", said, randomness), {
        "step": "opened",
        **_channel_state(channel),
        "deposits": state["deposits"],
        "products": state["products"],
        "commitment": told["commitment"],
    }


def verdict(message: Message, state: Message) -> Deposits:
    """What the accepted clients deposited, from both servers' shares of the products.

    Who is rejected goes to the log: that honest clients are rejected is how a server finds out that the other one lies.
    """
    channel = _channel(state)
    heard = _heard(channel, "opened", message)
    nonce = heard.pop("nonce", None)
    products = _arrays(heard, "products", [one.shape for one in state["products"]])
    require(isinstance(nonce, bytes) and len(nonce) == NONCE_BYTES, "got no nonce of the other server.")
    require(
        _commitment(channel.session, 1 - channel.party, nonce, products) == state["commitment"],
        "the other server has opened something else than it committed to.",
    )
    deposits = Deposits.from_message(state["deposits"])
    passed: NDArray[np.bool_] = np.ones(len(deposits.names), np.bool_)
    for own, other in zip(state["products"], products, strict=True):
        passed = passed & check.accepted(own, other)
    if not passed.all():
        rejected = deposits.select(~passed).names
        log.warning(
            "%d of %d clients did not pass the check: %s. They sent false keys, or the other server lies.",
            len(rejected),
            len(passed),
            ", ".join(rejected),
        )
    return deposits.select(passed)


@dataclass(frozen=True, kw_only=True, eq=False)
class _First:
    """The other server's first message."""

    names: tuple[str, ...]
    counts: Counts
    masked: tuple[Elements, ...]

    @classmethod
    def read(cls, heard: Message, *, queries: int) -> _First:
        told = fields(heard, {"names", "counts", "masked"}, who="the other server")
        names, counts, masked = told["names"], told["counts"], told["masked"]
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ProtocolError("two-server: got no list of clients from the other server.")
        require(names == sorted(set(names)), "the other server's clients are not in order.")
        shape = (len(names), queries)
        if not isinstance(counts, np.ndarray) or counts.dtype != np.int64 or counts.shape != shape:
            raise ProtocolError("two-server: got no numbers of keys from the other server.")
        require(
            not counts.size or bool(counts.min() >= 0 and counts.max() <= LARGEST_ROWS_PER_CLIENT),
            "the other server's numbers of keys are out of range.",
        )
        shapes = [(int(total),) for total in counts.sum(axis=0)]
        arrays = _arrays({"masked": masked}, "masked", shapes)
        return cls(names=tuple(names), counts=counts, masked=tuple(arrays))


def _common(
    names: Sequence[str], counts: Counts, other_names: Sequence[str], other_counts: Counts
) -> NDArray[np.bool_]:
    """Which clients the other server has too, with as many keys for each query."""
    others = {name: tuple(row) for name, row in zip(other_names, other_counts.tolist(), strict=True)}
    same = [others.get(name) == tuple(row) for name, row in zip(names, counts.tolist(), strict=True)]
    return np.array(same, dtype=np.bool_)


def _channel(state: Message) -> Channel:
    return Channel(party=state["party"], session=state["session"], secret=Secret(state["secret"]))


def _channel_state(channel: Channel) -> Message:
    return {"party": channel.party, "session": channel.session, "secret": channel.secret.data}


def _said(channel: Channel, step: str, said: Message, randomness: Randomness) -> Message:
    return {"sealed": channel.seal(step, wire.encode(said), randomness)}


def _heard(channel: Channel, step: str, message: Message) -> Message:
    """What the other server said at this step. That it follows the protocol is assumed, but not its arithmetic."""
    sealed = fields(message, {"sealed"})["sealed"]
    text = channel.open(step, sealed) if isinstance(sealed, bytes) else None
    if text is None:
        raise ProtocolError(f"two-server: got something that the other server did not say ({step}).")
    return wire.decode(text.data)


def _arrays(heard: Message, name: str, shapes: Sequence[tuple[int, ...]]) -> list[Elements]:
    arrays = fields(heard, {name}, who="the other server")[name]
    if not isinstance(arrays, list) or len(arrays) != len(shapes):
        raise ProtocolError(f"two-server: got no {name} for each query from the other server.")
    return [
        require_reduced(array, shape=shape, what=f"{name} of the other server")
        for array, shape in zip(arrays, shapes, strict=True)
    ]


def _commitment(session: bytes, party: int, nonce: bytes, products: Sequence[Elements]) -> bytes:
    return commitment(session, party, nonce, [one.astype("<u8").tobytes() for one in products])
