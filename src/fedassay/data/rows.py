"""Rows that can be read more than once, in memory or as a stream, and rows made from other rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedassay.data.schema import CLIENT
from fedassay.data.tables import batch_rows
from fedassay.protocol import Batch, Rows


@dataclass(frozen=True, kw_only=True)
class ArrayRows:
    """Columns of equal length in memory, handed out in slices (views, not copies)."""

    columns: Mapping[str, NDArray[Any]] = field(repr=False)

    def batches(self) -> Iterator[Batch]:
        """See `protocol.Rows`."""
        length = batch_length(self.columns)
        step = batch_rows(
            max((int(np.prod(column.shape[1:])) for column in self.columns.values()), default=1)
        )
        for start in range(0, length, step):
            yield {name: column[start : start + step] for name, column in self.columns.items()}


@dataclass(frozen=True, kw_only=True)
class StreamedRows:
    """Rows that are read anew each time. `read` starts a pass."""

    read: Callable[[], Iterator[Batch]] = field(repr=False)

    def batches(self) -> Iterator[Batch]:
        """See `protocol.Rows`."""
        return self.read()


@dataclass(frozen=True, kw_only=True)
class DerivedRows:
    """Other rows, passed through `change`, which sees each pass from its first batch to its last."""

    rows: Rows = field(repr=False)
    change: Callable[[Iterator[Batch]], Iterator[Batch]] = field(repr=False)

    def batches(self) -> Iterator[Batch]:
        """See `protocol.Rows`."""
        return self.change(self.rows.batches())


@dataclass(frozen=True, kw_only=True)
class PooledRows:
    """The rows of all clients together.

    `batches` gives the columns alone. `by_client` adds, in a column ``client``, the position in `clients` of
    the client that each row belongs to, for whoever has to treat clients apart.
    """

    clients: Sequence[str] = field(repr=False)
    rows: Rows = field(repr=False)
    by_client: Rows = field(repr=False)

    def batches(self) -> Iterator[Batch]:
        """See `protocol.Rows`."""
        return self.rows.batches()

    def changed(self, change: Callable[[Iterator[Batch]], Iterator[Batch]]) -> PooledRows:
        """These rows passed through `change`, which sees the column ``client``."""
        by_client = DerivedRows(rows=self.by_client, change=change)
        rows = DerivedRows(rows=by_client, change=_without_clients)
        return PooledRows(clients=self.clients, rows=rows, by_client=by_client)


def _without_clients(batches: Iterator[Batch]) -> Iterator[Batch]:
    for batch in batches:
        yield {name: column for name, column in batch.items() if name != CLIENT}


def batch_length(batch: Batch) -> int:
    """The number of rows in a batch."""
    return len(next(iter(batch.values()))) if batch else 0


def kept(batch: Batch, keep: NDArray[np.bool_]) -> Batch:
    """The rows of the batch where `keep` is true."""
    return {name: column[keep] for name, column in batch.items()}


def count_rows(rows: Rows) -> int:
    """How many rows there are, by reading them."""
    return sum(batch_length(batch) for batch in rows.batches())
