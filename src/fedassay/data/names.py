"""The names of up to hundreds of millions of clients, without a Python object for each."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fedassay.data.numbers import LocalClients


class Names(Sequence[str]):
    """Different names in a fixed order, made when asked for. `index` is fast in every subclass."""

    def __getitem__(self, position: Any) -> Any:
        """Return one name, or a list of names."""
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
    """Names of clients where each row is its own client, called by its number.

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
        """Return the position of a name; `ValueError` if there is no such name."""
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
        """Return one name, or a list of names."""
        if isinstance(position, slice):
            start, stop, step = position.indices(len(self))
            if step == 1:
                return self.array.slice(start, max(0, stop - start)).to_pylist()
        return super().__getitem__(position)

    def index(self, name: Any, start: int = 0, stop: int | None = None) -> int:
        """Return the position of a name; `ValueError` if there is no such name."""
        position = bisect_left(self, name) if isinstance(name, str) else len(self)
        if position in range(len(self))[start:stop] and self._name(position) == name:
            return position
        raise ValueError(f"{name!r} is not a client")

    def positions(self, names: Any) -> Any:
        """Return the positions of an Arrow array of names, all of which must be here."""
        return pc.index_in(names, value_set=self.array).to_numpy(zero_copy_only=False)


# --- number of rows of each client --------------------------------------------------------------------------

_PENDING = 2**20
_NEUTRAL: dict[np.ufunc, float] = {np.minimum: np.inf, np.maximum: -np.inf}


class PerClient:
    """Numbers of each client, reduced while rows stream past, in memory proportional to the number of clients.

    Parameters
    ----------
    reductions : by name, how the numbers of a client become one: `np.add`, `np.minimum` or `np.maximum`.
    known : clients that are there even without rows.
    """

    def __init__(self, reductions: Mapping[str, np.ufunc], known: Iterable[str] = ()) -> None:
        self._reductions, self._pending = reductions, 0
        nothing = dict.fromkeys(reductions, np.empty(0))
        names = pa.array(list(known), pa.large_string())
        self._parts = [self._reduced(names, np.empty(0, dtype=np.int64), nothing)]

    def add(self, clients: LocalClients, **numbers: NDArray[Any]) -> None:
        """Take account of some more rows; those without a client are left out."""
        named = clients.codes >= 0
        of_named = {name: values[named] for name, values in numbers.items()}
        self._parts.append(self._reduced(clients.names, clients.codes[named], of_named))
        self._pending += len(clients.names)
        # Merging costs as much as what has been merged before: wait until as much again has come.
        if self._pending > max(_PENDING, len(self._parts[0][0])):
            self.merged()

    def _reduced(
        self, names: Any, codes: NDArray[Any], numbers: Mapping[str, NDArray[Any]]
    ) -> tuple[Any, dict[str, NDArray[np.float64]]]:
        found: dict[str, NDArray[np.float64]] = {}
        for name, reduce in self._reductions.items():
            if reduce is np.add:  # of whole numbers below 2^53, which is exact in floats
                counted = np.bincount(codes, weights=numbers[name], minlength=len(names))
                found[name] = counted.astype(np.float64, copy=False)
            else:
                found[name] = np.full(len(names), _NEUTRAL[reduce])
                reduce.at(found[name], codes, numbers[name])
        return names, found

    def merged(self) -> tuple[Any, dict[str, NDArray[np.float64]]]:
        """Return the names of all clients so far, in an Arrow array, and the numbers of each."""
        encoded = pa.concat_arrays([names for names, _ in self._parts]).dictionary_encode()
        numbers = {
            name: np.concatenate([found[name] for _, found in self._parts]) for name in self._reductions
        }
        self._parts = [self._reduced(encoded.dictionary, encoded.indices.to_numpy(), numbers)]
        self._pending = 0
        return self._parts[0]


@dataclass(frozen=True, kw_only=True)
class ClientCounts:
    """Rows, and rows with a positive label, of each client."""

    names: SortedNames
    rows: NDArray[np.int64]
    positives: NDArray[np.int64]


class Roster:
    """Clients and their numbers of rows."""

    def __init__(self, known: Iterable[str] = ()) -> None:
        self._counts = PerClient({"rows": np.add, "positives": np.add}, known)

    def add(self, clients: LocalClients, positive: NDArray[np.bool_]) -> None:
        """Count some more rows; rows without a client are left out."""
        self._counts.add(clients, rows=np.ones(len(positive)), positives=positive)

    def counts(self) -> ClientCounts:
        """Return all clients so far, sorted by name."""
        names, counts = self._counts.merged()
        order = pc.array_sort_indices(names)
        rows, positives = (counts[name][order.to_numpy()].astype(np.int64) for name in counts)
        return ClientCounts(names=SortedNames(names.take(order)), rows=rows, positives=positives)
