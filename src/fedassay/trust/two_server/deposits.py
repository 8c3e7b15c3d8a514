"""Deposits of clients with a server of `two-server`, and the share of a total that it answers with.

Answer of a server of `two-server`: its share of a total, plus noise of its own, modulo p = 2^61 − 1.

A share of the number of rows in the leaves up to i is the sum of the keys' shares at the point i; the rest is linear.

Deposits of clients with a server of `two-server`: how they are made, opened, and kept.

For each query and server a client seals its comparison keys; with those for the first query come its shares of a
multiplication triple (see `two_server_check`). What does not open, or is not well formed in every detail, is as if it
had not been sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedassay.crypto.dcf import generate, totals
from fedassay.crypto.dcf_keys import Bytes, Keys, key_bytes, well_formed
from fedassay.crypto.field61 import PRIME, Elements, add, multiply, negate, require_reduced
from fedassay.crypto.keys import Secret
from fedassay.errors import ProtocolError
from fedassay.privacy import accounting
from fedassay.protocol import wire
from fedassay.protocol.vocabulary import Message, Plan, Randomness, Summary, Vector
from fedassay.trust.local_reports import spread
from fedassay.trust.two_server.check import TRIPLE, KeyCounts, deal_triple
from fedassay.trust.two_server.layout import Layout

LIMIT = PRIME // 2
"""Bound below which numbers, of either sign, are read back from their remainder modulo p."""

_LIMB = 21


def to_field(numbers: Vector) -> Elements:
    """Return whole numbers modulo p.

    Examples
    --------
    >>> to_field(np.array([-1, 5])).tolist() == [PRIME - 1, 5]
    True
    """
    return np.mod(numbers, PRIME).astype(np.uint64)


def from_field(elements: Elements) -> Vector:
    """Return the whole numbers between −p/2 and p/2 with these remainders.

    Examples
    --------
    >>> from_field(to_field(np.array([-7, 0, 2**59]))).tolist() == [-7, 0, 2**59]
    True
    """
    numbers = elements.astype(np.int64)
    return np.where(numbers > LIMIT, numbers - PRIME, numbers)


def shared_total(summary: Summary[Any], leaves: Elements) -> Elements:
    """Compute a share of the total of a summary, from shares of its leaves.

    `from_leaves` is linear, but works on 64-bit integers: shares, which can be any number below 2^61, are cut into
    limbs of 21 bits. Exact if the coefficients of no entry add up to 2^42: of 2^20 leaves, each may count 2^22 times.
    """
    total = np.zeros(summary.length, np.uint64)
    for limb in range(3):
        part = (leaves >> np.uint64(_LIMB * limb)) & np.uint64(2**_LIMB - 1)
        counted = summary.from_leaves(part.astype(np.int64))
        if counted.dtype != np.int64 or counted.shape != total.shape:
            raise ProtocolError(
                f"{summary.name}: what it makes of its leaves is not {summary.length} whole numbers."
            )
        power = np.full(total.shape, 2 ** (_LIMB * limb), np.uint64)
        total = add(total, multiply(to_field(counted), power))
    return total


def noisy_share(
    keys: Keys, plan: Plan, layout: Layout, randomness: Randomness, *, up_to: Elements | None = None
) -> Elements:
    """Compute this server's share of a whole total, with one full draw of the plan's noise.

    `up_to` are its shares of how many rows are in the leaves up to each, if they have been computed already.
    """
    summary = plan.query.of
    if up_to is None:
        up_to = totals(keys, layout.points)
    leaves = add(up_to, negate(np.concatenate([np.zeros(1, np.uint64), up_to[:-1]])))
    noise = spread(summary, accounting.draw(plan.noise, summary.draws, randomness))
    return add(shared_total(summary, leaves), to_field(noise))


def noisy_points(
    keys: Keys, plan: Plan, places: Vector, drawn: Message, randomness: Randomness
) -> tuple[Elements, Message]:
    """Compute this server's shares of some entries of a cumulative summary, with noise; and all noise drawn so far.

    `drawn` has the numbers of the draws (`of`, increasing) and what they came out as (`draws`). Each is drawn when it
    is first needed and never again: an entry that is asked for again has the same noise. As draws are independent, it
    does not matter for their law that some come later.
    """
    needed = [plan.query.of.draws_of(int(place)) for place in places]
    known, draws = _with_more(drawn, needed, plan, randomness)
    noise = np.array([draws[np.searchsorted(known, one)].sum() for one in needed], dtype=np.int64)
    shares = add(totals(keys, places.astype(np.uint64)), to_field(noise))
    return shares, {"of": known, "draws": draws}


def _with_more(
    drawn: Message, needed: Sequence[tuple[int, ...]], plan: Plan, randomness: Randomness
) -> tuple[Vector, Vector]:
    """Return the draws so far and those that are needed in addition, in order of their numbers."""
    known, draws = drawn["of"], drawn["draws"]
    fresh = np.setdiff1d(np.array(sorted({one for some in needed for one in some}), dtype=np.int64), known)
    numbers = np.concatenate([known, fresh])
    values = np.concatenate([draws, accounting.draw(plan.noise, len(fresh), randomness)])
    order = np.argsort(numbers)
    return numbers[order], values[order]


# --- what clients deposit with a server of `two-server` -----------------------------------------------------

Chosen = NDArray[np.bool_] | NDArray[np.intp]
_Opened = Mapping[str, Message]
"""Content of each client by the place of the query (as text, as messages require it)."""


def make(counts: Vector, layout: Layout, randomness: Randomness, *, place: int) -> tuple[bytes, bytes]:
    """Make the texts for both servers (client side). Their lengths reveal only how many keys are in them."""
    values = layout.values(counts, randomness)
    keys = generate(values, bits=layout.bits, randomness=randomness)
    also = [{"triple": triple} for triple in deal_triple(randomness)] if place == 0 else [{}, {}]
    first, second = (
        wire.encode({"keys": of.to_bytes(), **more}) for of, more in zip(keys, also, strict=True)
    )
    return first, second


def content(text: Secret, layout: Layout, *, party: int, place: int) -> Message | None:
    """Read the keys (and the triple) in an opened text (server side); None if anything is wrong with them."""
    if len(text.data) > layout.text_bytes:  # before it is read: parsed, it can take 70 times as much memory
        return None
    try:
        found = wire.decode(text.data)
        if found.keys() != ({"keys", "triple"} if place == 0 else {"keys"}):
            return None
        good = well_formed(found["keys"], party=party, bits=layout.bits)
        if place == 0:
            require_reduced(found["triple"], shape=(TRIPLE,), what="triple of a client")
    except ProtocolError:
        return None
    enough = len(good) == layout.rows if layout.rows is not None else len(good) <= layout.most_rows
    return found if enough and good.all() else None


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Deposits:
    """Deposits that one server holds: a row per client in everything, clients in the order of their names. Secret.

    Attributes
    ----------
    counts : number of keys of each client for each query (C × Q).
    keys : for each query the keys of all clients, one behind the other, as they came.
    triples : C × 3 shares.
    """

    names: tuple[str, ...]
    counts: KeyCounts
    keys: tuple[Bytes, ...]
    triples: Elements

    def __repr__(self) -> str:
        return f"Deposits({len(self.names)} clients)"

    @classmethod
    def of(cls, opened: _Opened, layouts: Sequence[Layout]) -> Deposits:
        """Collect the deposits of all clients whose every text was good."""
        places = [str(place) for place in range(len(layouts))]
        names = tuple(sorted(name for name, found in opened.items() if found.keys() == set(places)))
        counts = [[len(opened[name][place]["keys"]) for place in places] for name in names]
        keys = []
        for place, layout in zip(places, layouts, strict=True):
            no_keys = np.empty((0, key_bytes(layout.bits)), np.uint8)
            keys.append(np.concatenate([no_keys, *(opened[name][place]["keys"] for name in names)]))
        triples = [opened[name]["0"]["triple"] for name in names]
        return cls(
            names=names,
            counts=np.array(counts, dtype=np.int64).reshape(len(names), len(layouts)),
            keys=tuple(keys),
            triples=np.array(triples, dtype=np.uint64).reshape(len(names), TRIPLE),
        )

    @classmethod
    def from_message(cls, message: Message) -> Deposits:
        """Restore the deposits from which `to_message` was made."""
        return cls(
            names=tuple(message["names"]),
            counts=message["counts"],
            keys=tuple(message["keys"]),
            triples=message["triples"],
        )

    def to_message(self) -> Message:
        """Return the deposits as plain values, for the state of a server."""
        return {
            "names": list(self.names),
            "counts": self.counts,
            "keys": list(self.keys),
            "triples": self.triples,
        }

    def keys_of(self, place: int, layout: Layout, *, party: int) -> Keys:
        """Return all keys for one query."""
        return Keys.from_bytes(self.keys[place], party=party, bits=layout.bits)

    def rows(self, place: int, clients: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return which keys for one query belong to the chosen clients."""
        return np.repeat(clients, self.counts[:, place])

    def select(self, clients: NDArray[np.bool_]) -> Deposits:
        """Return the deposits of the chosen clients."""
        return Deposits(
            names=tuple(name for name, kept in zip(self.names, clients, strict=True) if kept),
            counts=self.counts[clients],
            keys=tuple(keys[self.rows(place, clients)] for place, keys in enumerate(self.keys)),
            triples=self.triples[clients],
        )
