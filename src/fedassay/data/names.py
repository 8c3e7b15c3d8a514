"""The names of up to hundreds of millions of clients, without a Python object for each."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fedassay.data.numbers import LocalClients


class Names(Sequence[str]):
    """Different names in a fixed order, made when asked for. `index` is fast in every subclass."""

    @overload
    def __getitem__(self, position: int) -> str: ...
    @overload
    def __getitem__(self, position: slice) -> Sequence[str]: ...
    def __getitem__(self, position: int | slice) -> str | Sequence[str]:
        """One name, or a list of names."""
        if isinstance(position, slice):
            return [self._name(i) for i in range(len(self))[position]]
        return self._name(range(len(self))[position])

    def _name(self, position: int) -> str:
        raise NotImplementedError

    def __contains__(self, name: object) -> bool:
        try:
            self.index(name)
        except ValueError:
            return False
        return True


class RowNames(Names):
    """Each row is its own client, called by its number.

    Examples
    --------
    >>> names = RowNames(10**9)
    >>> names[17], names.index("17"), "017" in names
    ('17', 17, False)
    """

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def _name(self, position: int) -> str:
        return str(position)

    def index(self, name: Any, start: int = 0, stop: int | None = None) -> int:
        """The position of a name; `ValueError` if there is no such name."""
        if isinstance(name, str) and name.isascii() and name.isdigit() and len(name) < 20:
            position = int(name)
            if str(position) == name and position in range(self._count)[start:stop]:
                return position
        raise ValueError(f"{name!r} is not a client")


class SortedNames(Names):
    """Names in the order of their code points, held as one Arrow array.

    Examples
    --------
    >>> import pyarrow as pa
    >>> names = SortedNames(pa.array(["a", "b", "c"], pa.large_string()))
    >>> list(names), names.index("c"), "d" in names
    (['a', 'b', 'c'], 2, False)
    """

    def __init__(self, array: Any) -> None:
        self.array = array

    def __len__(self) -> int:
        return len(self.array)

    def _name(self, position: int) -> str:
        name: str = self.array[position].as_py()
        return name

    def __getitem__(self, position: Any) -> Any:
        """One name, or a list of names."""
        if isinstance(position, slice):
            start, stop, step = position.indices(len(self))
            if step == 1:
                return self.array.slice(start, max(0, stop - start)).to_pylist()
        return super().__getitem__(position)

    def index(self, name: Any, start: int = 0, stop: int | None = None) -> int:
        """The position of a name; `ValueError` if there is no such name."""
        position = bisect_left(self, name) if isinstance(name, str) else len(self)
        if position in range(len(self))[start:stop] and self._name(position) == name:
            return position
        raise ValueError(f"{name!r} is not a client")

    def positions(self, names: Any) -> Any:
        """The positions of an Arrow array of names, all of which must be here."""
        return pc.index_in(names, value_set=self.array).to_numpy(zero_copy_only=False)


# --- how many rows each client has --------------------------------------------------------------------------

_PENDING = 2**20


@dataclass(frozen=True, kw_only=True)
class ClientCounts:
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

    def counts(self) -> ClientCounts:
        """All clients so far, sorted by name."""
        self._merge()
        merged = self._parts[0]
        order = pc.array_sort_indices(merged.names)
        names = SortedNames(merged.names.take(order))
        ranks = order.to_numpy()
        return ClientCounts(names=names, rows=merged.rows[ranks], positives=merged.positives[ranks])


@dataclass(frozen=True, kw_only=True)
class _Part:
    names: Any
    rows: NDArray[np.int64]
    positives: NDArray[np.int64]
