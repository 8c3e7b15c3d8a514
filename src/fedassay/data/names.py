"""The names of up to hundreds of millions of clients, without a Python object for each."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, overload

import pyarrow.compute as pc


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
