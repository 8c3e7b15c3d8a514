"""What clients deposit with a server of `two-server`: how it is made, opened, and kept.

For each query and server a client seals its comparison keys; with those for the first query come its shares of a
multiplication triple (see `two_server_check`). What does not open, or is not well formed in every detail, is as if it
had not been sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedassay import wire
from fedassay.crypto.dcf import generate
from fedassay.crypto.dcf_keys import Bytes, Keys, key_bytes, well_formed
from fedassay.crypto.field61 import Elements, require_reduced
from fedassay.crypto.keys import Secret
from fedassay.errors import ProtocolError
from fedassay.protocol import Message, Randomness, Vector
from fedassay.trust.two_server_check import TRIPLE, Counts, deal_triple
from fedassay.trust.two_server_layout import Layout

Chosen = NDArray[np.bool_] | NDArray[np.intp]
Opened = Mapping[str, Message]
"""Client to its content by the place of the query (as text, as messages want it)."""


def make(counts: Vector, layout: Layout, randomness: Randomness, *, place: int) -> tuple[bytes, bytes]:
    """Client side: the texts for both servers. How long they are says nothing but how many keys are in them."""
    values = layout.values(counts, randomness)
    keys = generate(values, bits=layout.bits, randomness=randomness)
    also = [{"triple": triple} for triple in deal_triple(randomness)] if place == 0 else [{}, {}]
    first, second = (
        wire.encode({"keys": of.to_bytes(), **more}) for of, more in zip(keys, also, strict=True)
    )
    return first, second


def content(text: Secret, layout: Layout, *, party: int, place: int) -> Message | None:
    """Server side: the keys (and the triple) in an opened text, or None if anything is wrong with them."""
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
    """What one server holds: a row per client in everything, clients in the order of their names. Secret.

    Attributes
    ----------
    counts : how many keys each client has for each query (C × Q).
    keys : for each query the keys of all clients, one behind the other, as they came.
    triples : C × 3 shares.
    """

    names: tuple[str, ...]
    counts: Counts
    keys: tuple[Bytes, ...]
    triples: Elements

    def __repr__(self) -> str:
        return f"Deposits({len(self.names)} clients)"

    @classmethod
    def of(cls, opened: Opened, layouts: Sequence[Layout]) -> Deposits:
        """Of all clients whose every text was good."""
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
        """What `to_message` was made from."""
        return cls(
            names=tuple(message["names"]),
            counts=message["counts"],
            keys=tuple(message["keys"]),
            triples=message["triples"],
        )

    def to_message(self) -> Message:
        """As plain values, for the state of a server."""
        return {
            "names": list(self.names),
            "counts": self.counts,
            "keys": list(self.keys),
            "triples": self.triples,
        }

    def keys_of(self, place: int, layout: Layout, *, party: int) -> Keys:
        """All keys for one query."""
        return Keys.from_bytes(self.keys[place], party=party, bits=layout.bits)

    def rows(self, place: int, clients: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Which keys for one query belong to the chosen clients."""
        return np.repeat(clients, self.counts[:, place])

    def select(self, clients: NDArray[np.bool_]) -> Deposits:
        """What the chosen clients deposited."""
        return Deposits(
            names=tuple(name for name, kept in zip(self.names, clients, strict=True) if kept),
            counts=self.counts[clients],
            keys=tuple(keys[self.rows(place, clients)] for place, keys in enumerate(self.keys)),
            triples=self.triples[clients],
        )
