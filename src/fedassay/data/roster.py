"""How many rows each client has, counted batch by batch, for clients that are not known beforehand."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fedassay.data.names import SortedNames
from fedassay.data.numbers import LocalClients

_PENDING = 2**20


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Rows, and rows with a positive label, of each client."""

    names: SortedNames
    rows: NDArray[np.int64]
    positives: NDArray[np.int64]


class Roster:
    """Counts per client in memory proportional to the number of clients, not of rows."""

    def __init__(self, known: Iterable[str] = ()) -> None:
        names = pa.array(list(known), pa.large_string())
        none = np.zeros(len(names), dtype=np.int64)
        self._parts = [_Part(names=names, rows=none, positives=none)]
        self._pending = 0

    def add(self, clients: LocalClients, positive: NDArray[np.bool_]) -> None:
        """Count some more rows; rows without a client are left out."""
        named = clients.codes >= 0
        codes, positive = clients.codes[named], positive[named]
        size = len(clients.names)
        self._parts.append(
            _Part(
                names=clients.names,
                rows=np.bincount(codes, minlength=size),
                positives=np.bincount(codes[positive], minlength=size),
            )
        )
        self._pending += size
        # Merging costs as much as what has been merged before: wait until as much again has come.
        if self._pending > max(_PENDING, len(self._parts[0].names)):
            self._merge()

    def _merge(self) -> None:
        encoded = pa.concat_arrays([part.names for part in self._parts]).dictionary_encode()
        where, size = encoded.indices.to_numpy(), len(encoded.dictionary)

        def summed(counts: list[NDArray[np.int64]]) -> NDArray[np.int64]:
            # Sums of whole numbers below 2^53 are exact in floats.
            return np.bincount(where, weights=np.concatenate(counts), minlength=size).astype(np.int64)

        self._parts = [
            _Part(
                names=encoded.dictionary,
                rows=summed([part.rows for part in self._parts]),
                positives=summed([part.positives for part in self._parts]),
            )
        ]
        self._pending = 0

    def counts(self) -> Counts:
        """All clients so far, sorted by name."""
        self._merge()
        merged = self._parts[0]
        order = pc.array_sort_indices(merged.names)
        names = SortedNames(merged.names.take(order))
        ranks = order.to_numpy()
        return Counts(names=names, rows=merged.rows[ranks], positives=merged.positives[ranks])


@dataclass(frozen=True, kw_only=True)
class _Part:
    names: Any
    rows: NDArray[np.int64]
    positives: NDArray[np.int64]
