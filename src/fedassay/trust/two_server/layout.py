"""Comparison keys that a client makes of its rows under `two-server`: their number, and their domain.

Both servers see how many keys a client sends, so that number must be public. With a bound R on the rows of a client,
each client sends exactly R keys: a client with fewer rows fills up with *dummies*. Without a bound a client sends a
key per row, which is allowed only where sizes are public by definition: one row is replaced by another, and all rows
are asked about.

A row in leaf i is a key with the value i. A dummy has the value L, the first beyond the leaves 0 .. L − 1: it counts at
no point that is ever asked for, and at the last point of the domain like every other key, as the check requires.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedassay.crypto.dcf_keys import key_bytes
from fedassay.errors import DataError, UnsupportedQuery, UsageError
from fedassay.protocol.vocabulary import (
    Neighbours,
    Part,
    Protection,
    Query,
    Randomness,
    Setting,
    Unit,
    Vector,
)

LARGEST_LEAVES = 1 << 20
"""Largest number of leaves: the check visits every leaf for every row; without it, a client could cheat."""

LARGEST_DEPOSIT = 1 << 25
"""Bytes of keys that one client may send to one server for one query: half of what fits into a request."""

LARGEST_DEPOSITS = 1 << 27
"""Bytes of sealed keys that a server may hold for one exchange: its state, of which they are a part, is one message."""

TEXT_OVERHEAD = 96
"""Bound on the bytes of a sealed text in addition to its keys: 62 for its form and the triple, 28 for the seal."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Form of the keys for one query. Public, and the same for all clients.

    Parameters
    ----------
    leaves : L; the finest cells of the summary, each row being in one of them.
    rows : number of keys that each client sends; None if it is the number of its rows.

    Examples
    --------
    >>> layout = Layout(leaves=4, rows=3)
    >>> layout.bits, layout.dummy, layout.checked.tolist()
    (3, 4, [0, 1, 2, 3, 7])
    """

    leaves: int
    rows: int | None

    @classmethod
    def of(cls, query: Query[Any], setting: Setting) -> Layout:
        """Return the layout for a query, or raise the reason why there is none."""
        leaves = query.of.leaves
        if leaves is None:
            raise UnsupportedQuery(
                f"{query.of.name}: two-server encodes each row by the cell that it falls into, and this summary does "
                "not say which cells; use server-dp or distributed-dp (for hosmer-lemeshow, `method='free'` does)."
            )
        if not 1 <= leaves.length <= LARGEST_LEAVES:
            raise UnsupportedQuery(
                f"{query.of.name}: got {leaves.length:,} cells, expected at most {LARGEST_LEAVES:,}; two-server "
                "checks every row at every cell, give fewer points."
            )
        layout = cls(leaves=leaves.length, rows=setting.protection.rows_per_client)
        if layout.rows is None and not _sizes_are_public(query, setting.protection):
            raise UsageError(
                "two-server: both servers see how many rows a client sends, expected a number that is public; give "
                "`rows_per_client` (clients with fewer rows fill up with dummies), or `neighbours='replace-one'`, "
                "which takes the sizes of clients as known."
            )
        if layout.client_bytes > LARGEST_DEPOSIT:
            raise UnsupportedQuery(
                f"{query.of.name}: {layout.most_rows:,} rows of a client are {layout.client_bytes:,} bytes of keys, "
                f"expected at most {LARGEST_DEPOSIT:,}; give a smaller `rows_per_client` or fewer points."
            )
        return layout

    @property
    def bits(self) -> int:
        """Bits of the smallest domain that holds the leaves and the dummy."""
        return self.leaves.bit_length()

    @property
    def dummy(self) -> int:
        """The value of a key that counts at no leaf."""
        return self.leaves

    @property
    def points(self) -> NDArray[np.uint64]:
        """Points that totals are computed at: up to each leaf."""
        return np.arange(self.leaves, dtype=np.uint64)

    @property
    def checked(self) -> NDArray[np.uint64]:
        """Points at which a client must count exactly once: those, and the last one of the domain."""
        return np.append(self.points, np.uint64(2**self.bits - 1))

    @property
    def most_rows(self) -> int:
        """Largest number of keys that a client can send."""
        return LARGEST_DEPOSIT // key_bytes(self.bits) if self.rows is None else self.rows

    @property
    def client_bytes(self) -> int:
        """Largest number of bytes of keys that a client can send to one server."""
        return self.most_rows * key_bytes(self.bits)

    @property
    def text_bytes(self) -> int:
        """Bytes that no sealed text of an honest client reaches: a sender of more is not honest."""
        return self.client_bytes + TEXT_OVERHEAD

    def values(self, counts: Vector, randomness: Randomness) -> NDArray[np.int64]:
        """Return the values of a client's keys, in random order: its rows, and dummies up to the public number."""
        total = int(counts.sum()) if counts.size else 0
        if counts.dtype != np.int64 or counts.shape != (self.leaves,) or counts.min() < 0:
            raise DataError(f"two-server: expected how many rows are in each of {self.leaves} cells.")
        if total > self.most_rows:
            raise DataError(
                f"two-server: got {total:,} rows, expected at most {self.most_rows:,}; give `rows_per_client`."
            )
        dummies = 0 if self.rows is None else self.rows - total
        cells = np.append(np.arange(self.leaves), self.dummy)
        values = np.repeat(cells, np.append(counts, dummies))
        # Not needed for secrecy; but then nothing at all depends on the order of keys.
        return values[np.argsort(randomness.words(len(values)))]


def _sizes_are_public(query: Query[Any], protection: Protection) -> bool:
    """Return whether neighbouring data sets have equally many rows at each client, in the part asked about."""
    replaces = protection.unit is Unit.EXAMPLE and protection.neighbours is Neighbours.REPLACE_ONE
    return replaces and query.part is Part.ALL
