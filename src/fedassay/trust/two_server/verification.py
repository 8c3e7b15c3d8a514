"""The check of `two-server` as messages between the two servers, each sealed for the other.

The arithmetic and the argument are in `two_server_check`; the order of the steps in `two_server_helper`. Up to the
factors both servers do the same. Then the second server commits to its shares of the products, the first one opens its
own, and the second one sees who passes before it says anything about it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedassay.crypto.field61 import Elements, add, require_reduced
from fedassay.crypto.keys import Secret
from fedassay.crypto.sketch import Half
from fedassay.errors import ProtocolError
from fedassay.protocol import wire
from fedassay.protocol.texts import SafeLogger
from fedassay.protocol.vocabulary import LARGEST_ROWS_PER_CLIENT, Message, Randomness, Request
from fedassay.trust.question import DOUBT
from fedassay.trust.two_server import check
from fedassay.trust.two_server.check import KeyCounts
from fedassay.trust.two_server.deposits import Deposits
from fedassay.trust.two_server.messages import Channel, commitment, fields, require

log = SafeLogger("fedassay.two_server")

_OTHER = "the other server"

NONCE_BYTES = 32
COMMITMENT_BYTES = 32
SECOND = 1
"""The party that opens last. The coordinator's server, which controls the relay, is the other one."""

MOST_REJECTED = 1
"""Largest number of clients that may fail the check: with more there is no release, and no names are revealed.

Not a share of the clients: the coordinator, which a server that lies may be, can make up as many as it likes.
"""


def first(
    deposits: Deposits,
    halves: Sequence[Elements],
    masked: Sequence[Elements],
    channel: Channel,
    randomness: Randomness,
) -> tuple[Message, Message]:
    """Make the first message: whose texts were good, how many keys each sent, and the masked values of the keys."""
    said = {"names": list(deposits.names), "counts": deposits.counts, "masked": list(masked)}
    return _said(channel, "masked", said, randomness), {
        "step": "masked",
        **_channel_state(channel),
        "deposits": deposits.to_message(),
        "halves": list(halves),
    }


def factors(request: Request, state: Message, randomness: Randomness) -> tuple[Message, Message]:
    """Compute each client's Q over all queries, under its masks, for the clients that both servers can read."""
    channel, own = _channel(state), Deposits.from_message(state["deposits"])
    sealed = fields(request.message, {"sealed"})["sealed"]
    other = _First.read(_heard(channel, "masked", sealed), queries=len(request.plans))
    mine = _common(own.names, own.counts, other.names, other.counts)
    theirs = _common(other.names, other.counts, own.names, own.counts)
    kept = own.select(mine)
    claims = np.zeros(len(kept.names), np.uint64)
    for place in range(len(request.plans)):
        half = Half(party=channel.party, numbers=state["halves"][place][own.rows(place, mine)])
        received = other.masked[place][np.repeat(theirs, other.counts[:, place])]
        claims = add(claims, check.claim(half, received, kept.counts[:, place], channel.weights(place)))
    masked = check.masked_factors(claims, kept.triples, randomness)
    return _said(channel, "factors", {"factors": masked}, randomness), {
        "step": "factors",
        **_channel_state(channel),
        "deposits": kept.to_message(),
        "totals": _still(state["totals"], mine),
        "factors": masked,
    }


def products(request: Request, state: Message, randomness: Randomness) -> tuple[Message, Message]:
    """Send the shares of the products: the second server commits to its own, then the first one opens its own."""
    step = _committed if state["party"] == SECOND else _opened
    return step(request, state, randomness)


def _committed(request: Request, state: Message, randomness: Randomness) -> tuple[Message, Message]:
    channel = _channel(state)
    sealed = fields(request.message, {"sealed"})["sealed"]
    mine = _products(channel, sealed, state)
    nonce = randomness.bytes(NONCE_BYTES)
    said = {"commitment": _commitment(channel.session, nonce, mine)}
    doubt = "it was broken off after this server had committed itself to the check"
    return _said(channel, "commitment", said, randomness), {**_settled(state, mine, doubt), "nonce": nonce}


def _opened(request: Request, state: Message, randomness: Randomness) -> tuple[Message, Message]:
    channel, told = _channel(state), fields(request.message, {"sealed", "commitment"})
    mine = _products(channel, told["sealed"], state)
    committed = fields(_heard(channel, "commitment", told["commitment"]), {"commitment"}, who=_OTHER)[
        "commitment"
    ]
    require(
        isinstance(committed, bytes) and len(committed) == COMMITMENT_BYTES,
        "got no commitment of the other server.",
    )
    doubt = "it was broken off after this server had opened its part of the check"
    after = {**_settled(state, mine, doubt), "commitment": committed}
    return _said(channel, "opened", {"products": mine}, randomness), after


def _settled(state: Message, products: Elements, doubt: str) -> Message:
    """Return what both servers keep until they receive the other's shares of the products."""
    kept = {name: state[name] for name in ("party", "session", "secret", "deposits", "totals")}
    return {**kept, "step": "products", "products": products, DOUBT: doubt}


class DepositVerdict(NamedTuple):
    """Deposits that count, their totals as far as known, and the number of clients that did not pass.

    `opening` is for the other server, if it has none yet. With more than `MOST_REJECTED` nothing of it must leave.
    """

    kept: Deposits
    totals: list[Elements | None]
    rejected: int
    opening: Message

    @property
    def refused(self) -> bool:
        """True if too many clients did not pass, so that there is no release."""
        return self.rejected > MOST_REJECTED

    @property
    def doubt(self) -> Message:
        """Entry to be remembered of it, in addition to the deposits."""
        return {DOUBT: f"{self.rejected} clients did not pass the check"} if self.rejected else {}


def verdict(sealed: object, state: Message, randomness: Randomness) -> DepositVerdict:
    """Return the deposits of the accepted clients, from both servers' shares of the products.

    The rejected clients go to the log, and nowhere else if there are many: that honest clients are rejected is how a
    server finds out that the other one lies.
    """
    channel, own = _channel(state), state["products"]
    heard, opening = _heard(channel, "opened", sealed), {}
    if channel.party == SECOND:
        opening = _said(channel, "opened", {"nonce": state["nonce"], "products": own}, randomness)
    else:
        nonce = heard.pop("nonce", None)
        require(isinstance(nonce, bytes) and len(nonce) == NONCE_BYTES, "got no nonce of the other server.")
    other = _array(heard, "products", own.shape)
    if channel.party != SECOND:
        require(
            _commitment(channel.session, nonce, other) == state["commitment"],
            "the other server has opened something else than it committed to.",
        )
    deposits, passed = Deposits.from_message(state["deposits"]), check.accepted(own, other)
    rejected = deposits.select(~passed).names
    found = DepositVerdict(
        kept=deposits.select(passed),
        totals=_still(state["totals"], passed),
        rejected=len(rejected),
        opening=opening,
    )
    if rejected:
        log.warning(
            "%d of %d clients did not pass the check: %s. They sent false keys, or the other server lies.%s",
            len(rejected),
            len(passed),
            ", ".join(rejected),
            " This ends the exchange; the other server is not told who they are." if found.refused else "",
        )
    return found


@dataclass(frozen=True, kw_only=True, eq=False)
class _First:
    """The other server's first message."""

    names: tuple[str, ...]
    counts: KeyCounts
    masked: tuple[Elements, ...]

    @classmethod
    def read(cls, heard: Message, *, queries: int) -> _First:
        told = fields(heard, {"names", "counts", "masked"}, who=_OTHER)
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
        if not isinstance(masked, list) or len(masked) != len(shapes):
            raise ProtocolError("two-server: got no masked values for each query from the other server.")
        arrays = [
            require_reduced(array, shape=shape, what="masked values of the other server")
            for array, shape in zip(masked, shapes, strict=True)
        ]
        return cls(names=tuple(names), counts=counts, masked=tuple(arrays))


def _common(
    names: Sequence[str], counts: KeyCounts, other_names: Sequence[str], other_counts: KeyCounts
) -> NDArray[np.bool_]:
    """Return which clients the other server has too, with as many keys for each query."""
    others = {name: tuple(row) for name, row in zip(other_names, other_counts.tolist(), strict=True)}
    same = [others.get(name) == tuple(row) for name, row in zip(names, counts.tolist(), strict=True)]
    return np.array(same, dtype=np.bool_)


def _still(totals: list[Elements | None], kept: NDArray[np.bool_]) -> list[Elements | None]:
    """Return the totals over all clients so far, as far as they are those of the clients that are kept."""
    return totals if kept.all() else [None for _ in totals]


def _channel(state: Message) -> Channel:
    return Channel(party=state["party"], session=state["session"], secret=Secret(state["secret"]))


def _channel_state(channel: Channel) -> Message:
    return {"party": channel.party, "session": channel.session, "secret": channel.secret.data}


def _said(channel: Channel, step: str, said: Message, randomness: Randomness) -> Message:
    return {"sealed": channel.seal(step, wire.encode(said), randomness)}


def _heard(channel: Channel, step: str, sealed: object) -> Message:
    """Open the other server's message at this step. That it follows the protocol is assumed, not its arithmetic."""
    text = channel.open(step, sealed) if isinstance(sealed, bytes) else None
    if text is None:
        raise ProtocolError(f"two-server: got something that the other server did not say ({step}).")
    return wire.decode(text.data)


def _products(channel: Channel, sealed: object, state: Message) -> Elements:
    """Compute this server's share of each client's product, from the other's factors."""
    own, triples = state["factors"], Deposits.from_message(state["deposits"]).triples
    received = _array(_heard(channel, "factors", sealed), "factors", own.shape)
    return check.product(own, received, triples, party=channel.party)


def _array(heard: Message, name: str, shape: tuple[int, ...]) -> Elements:
    found = fields(heard, {name}, who=_OTHER)[name]
    return require_reduced(found, shape=shape, what=f"{name} of the other server")


def _commitment(session: bytes, nonce: bytes, products: Elements) -> bytes:
    return commitment(session, nonce, products.astype("<u8").tobytes())
