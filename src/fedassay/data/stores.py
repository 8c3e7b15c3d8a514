"""Stores of the rows of a federation between passes: in memory if they fit, otherwise where they are.

Both give the same rows in the same order, which a test checks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from mmap import mmap
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fedassay.data.findings import raise_first
from fedassay.data.lists import Width
from fedassay.data.names import SortedNames
from fedassay.data.numbers import LocalClients
from fedassay.data.scan import Chunk, Scan
from fedassay.data.schema import CLIENT, Columns
from fedassay.data.tables import ArrayRows, StreamedRows, Table, batch_length, kept
from fedassay.protocol.vocabulary import Batch, Rows

_ORDER_BYTES = 8
_WORTH_A_MAP = 2**20
_WORTH_KEEPING = 2**14
"""Least bytes of a client's rows to keep: fewer are copied faster than looked up, and clients may be millions."""
_MOST_KEPT = 2**28
"""Bytes of all rows up to which a second copy of them, client by client, may be kept."""


class ClientRows(Protocol):
    """The rows of all clients. A client is a position in the federation's names."""

    def rows_of(self, client: int) -> Rows:
        """Return the rows of one client, in the order of the data."""

    def pooled(self) -> Rows:
        """Return all rows, in the order of the data."""

    def pooled_by_client(self) -> Rows:
        """Return all rows, with a column of client positions."""


@dataclass(frozen=True, kw_only=True)
class SiteTable:
    """A table, and its client if it belongs to one."""

    table: Table
    client: str | None = None

    def chunks(self, scan: Scan) -> Iterator[Chunk]:
        """Yield the chunks of a scan of this table, each row with its client."""
        for chunk in scan.chunks():
            if self.client is None:
                yield chunk
            else:
                names = pa.array([self.client], pa.large_string())
                codes = np.zeros(chunk.length, dtype=np.int32)
                yield replace(chunk, clients=LocalClients(codes=codes, names=names))

    def checked_chunks(self, columns: Columns, width: Width | None) -> Iterator[Chunk]:
        """Read the table again; raises if it has gone bad since it was checked."""
        scan = Scan(self.table, columns, width)
        raise_first(scan.absent)
        for chunk in self.chunks(scan):
            if chunk.bad:
                raise_first(scan.findings())
            yield chunk


class Gathered:
    """Collection of canonical columns while they fit into `limit` bytes; it drops them when they do not.

    Once complete, each column is taken out once: joining one needs room for that column only.
    """

    def __init__(self, columns: Columns, limit: int) -> None:
        self._left = limit
        self._columns: dict[str, list[NDArray[Any]]] = {
            role.name: [role.convert(pa.nulls(0))[0]] for role in columns.roles
        }
        self._clients: list[LocalClients] = []
        self.complete = True

    def add(self, chunk: Chunk) -> None:
        """Keep the chunk if all of them so far fit."""
        self._left -= sum(column.nbytes for column in chunk.columns.values())
        if chunk.clients is not None:
            self._left -= (
                chunk.clients.codes.nbytes + chunk.clients.names.nbytes + _ORDER_BYTES * chunk.length
            )
        if self._left < 0:
            self._columns, self._clients, self.complete = {}, [], False
        if not self.complete:
            return
        for name, parts in self._columns.items():
            column = chunk.columns[name]
            parts.append(
                column if column.ndim == 1 else _apart(column)
            )  # views would keep the reader's memory
        if chunk.clients is not None:
            self._clients.append(chunk.clients)

    def take_columns(self) -> dict[str, NDArray[Any]]:
        """Return the columns of all chunks, one after the other."""
        return {name: _joined(self._columns.pop(name)) for name in list(self._columns)}

    def take_codes(self, names: SortedNames) -> NDArray[np.int32]:
        """Return the client of each row, as its position in `names`."""
        found, self._clients = self._clients, []
        local = pa.concat_arrays([pa.array([], pa.large_string()), *(clients.names for clients in found)])
        # One look-up for the names of all chunks: each call builds a table of all clients.
        positions = names.positions(local).astype(np.int32, copy=False)
        ends = np.cumsum([len(clients.names) for clients in found])
        parts = [positions[end - len(c.names) : end][c.codes] for end, c in zip(ends, found, strict=True)]
        return _joined([np.empty(0, np.int32), *parts])


def _apart(column: NDArray[Any]) -> NDArray[Any]:
    """Copy a column into pages of its own, which the system gets back as soon as the copy is released.

    Allocators keep the memory that is freed, and arrays of rows and classes are large: joining the parts would
    hold them twice. Small ones are not worth it, and there can be only so many maps.
    """
    if column.nbytes < _WORTH_A_MAP:
        return column.copy()
    copy = np.frombuffer(mmap(-1, column.nbytes), column.dtype, column.size).reshape(column.shape)
    copy[...] = column
    return copy


def _joined(parts: list[NDArray[Any]]) -> NDArray[Any]:
    """Join all parts in one array; each is released as soon as it is copied, so that memory holds one copy."""
    joined = np.empty((sum(map(len, parts)), *parts[-1].shape[1:]), parts[0].dtype)
    stop = len(joined)
    while parts:
        part = parts.pop()
        joined[stop - len(part) : stop] = part.reshape(len(part), *joined.shape[1:])
        stop -= len(part)
    return _frozen(joined)


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    array.flags.writeable = False
    return array


@dataclass(frozen=True, kw_only=True)
class RowStore:
    """Store in memory; each row is a client."""

    columns: dict[str, NDArray[Any]] = field(repr=False)

    def rows_of(self, client: int) -> Rows:
        """See `ClientRows`."""
        return ArrayRows(columns={name: column[client : client + 1] for name, column in self.columns.items()})

    def pooled(self) -> Rows:
        """See `ClientRows`."""
        return ArrayRows(columns=self.columns)

    def pooled_by_client(self) -> Rows:
        """See `ClientRows`."""
        return StreamedRows(read=lambda: _number(self.pooled().batches()))


def _number(batches: Iterator[Batch]) -> Iterator[Batch]:
    start = 0
    for batch in batches:
        stop = start + batch_length(batch)
        yield {**batch, CLIENT: np.arange(start, stop)}
        start = stop


@dataclass(frozen=True, kw_only=True)
class MemoryStore:
    """Store in memory; `order` lists the rows client by client, `starts` where each client begins in it.

    A fit asks each client thousands of times: rows that stand together are views, and others are copied together
    once, if there are not too many (`kept`).
    """

    columns: dict[str, NDArray[Any]] = field(repr=False)
    codes: NDArray[np.int32] = field(repr=False)
    order: NDArray[np.int64] = field(repr=False)
    starts: NDArray[np.int64] = field(repr=False)
    kept: dict[int, dict[str, NDArray[Any]]] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(
        cls, columns: dict[str, NDArray[Any]], codes: NDArray[np.int32], counts: NDArray[np.int64]
    ) -> MemoryStore:
        """Group the rows by client, keeping their order within each."""
        starts = np.concatenate([[0], np.cumsum(counts)])
        # NumPy has a radix sort for 16 bits, several times faster than its stable sort of wider numbers.
        narrow = codes.astype(np.uint16) if len(counts) <= 2**16 else codes
        return cls(columns=columns, codes=codes, order=np.argsort(narrow, kind="stable"), starts=starts)

    def rows_of(self, client: int) -> Rows:
        """See `ClientRows`."""
        return StreamedRows(read=lambda: ArrayRows(columns=self._together(client)).batches())

    def _together(self, client: int) -> dict[str, NDArray[Any]]:
        """Return the columns of one client, read-only."""
        found = self.kept.get(client)
        if found is not None:
            return found
        chosen = self.order[self.starts[client] : self.starts[client + 1]]
        if len(chosen) and chosen[-1] - chosen[0] == len(chosen) - 1:  # ascending, so without a gap
            mine = slice(chosen[0], chosen[-1] + 1)
            return {name: column[mine] for name, column in self.columns.items()}
        taken = {name: _frozen(column.take(chosen, axis=0)) for name, column in self.columns.items()}
        size = sum(column.nbytes for column in taken.values())
        all_of_them = sum(column.nbytes for column in self.columns.values())
        if size >= _WORTH_KEEPING and all_of_them <= _MOST_KEPT:
            self.kept[client] = taken
        return taken

    def pooled(self) -> Rows:
        """See `ClientRows`."""
        return ArrayRows(columns=self.columns)

    def pooled_by_client(self) -> Rows:
        """See `ClientRows`."""
        return ArrayRows(columns={**self.columns, CLIENT: self.codes})


@dataclass(frozen=True, kw_only=True)
class StreamStore:
    """Store of rows too large for memory: every pass reads the tables, and one client costs a pass over its file."""

    sites: tuple[SiteTable, ...]
    columns: Columns
    width: Width | None
    names: Sequence[str]
    counts: NDArray[np.int64] = field(repr=False)

    def rows_of(self, client: int) -> Rows:
        """See `ClientRows`."""
        if isinstance(self.names, SortedNames):
            return StreamedRows(read=lambda: self._client(self.names[client], int(self.counts[client])))
        return StreamedRows(read=lambda: self._row(client))

    def pooled(self) -> Rows:
        """See `ClientRows`."""
        return StreamedRows(read=lambda: (chunk.columns for chunk in self._chunks()))

    def pooled_by_client(self) -> Rows:
        """See `ClientRows`."""
        if isinstance(self.names, SortedNames):
            return StreamedRows(read=self._coded)
        return StreamedRows(read=lambda: _number(self.pooled().batches()))

    def _chunks(self) -> Iterator[Chunk]:
        for site in self.sites:
            yield from site.checked_chunks(self.columns, self.width)

    def _coded(self) -> Iterator[Batch]:
        assert isinstance(self.names, SortedNames)
        for chunk in self._chunks():
            assert chunk.clients is not None
            yield {**chunk.columns, CLIENT: self.names.positions(chunk.clients.names)[chunk.clients.codes]}

    def _client(self, name: str, count: int) -> Iterator[Batch]:
        for site in self.sites:
            if count and site.client in (None, name):
                for chunk in site.checked_chunks(self.columns, self.width):
                    assert chunk.clients is not None
                    mine = chunk.clients.codes == pc.index(chunk.clients.names, name).as_py()
                    if mine.any():
                        yield kept(chunk.columns, mine)
                        count -= int(np.count_nonzero(mine))
                    if count == 0:
                        return  # the rest of the file belongs to others

    def _row(self, row: int) -> Iterator[Batch]:
        for chunk in self._chunks():
            if row < chunk.length:
                yield {name: column[row : row + 1] for name, column in chunk.columns.items()}
                return
            row -= chunk.length


# --- what a site holds --------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Holdings:
    """Number of rows and their fingerprint (empty if none was taken)."""

    rows: int
    fingerprint: str = ""


def take_stock(rows: Rows, *, key: bytes) -> Holdings:
    """Count the rows and take their fingerprint, in one pass and constant memory.

    The fingerprint is a keyed hash (BLAKE2b) of the validated values, row by row, columns in the order of their names.
    It does not depend on the format of a file. It does depend on the order of rows, because which of them are held out
    does (`selection.py`). `key` is a secret of the site: without it, a reader of the fingerprint cannot test whether it
    belongs to certain rows.

    Examples
    --------
    >>> class Two:
    ...     def __init__(self, *values):
    ...         self.values = np.array(values)
    ...     def batches(self):
    ...         yield {"value": self.values}
    >>> one, other = (take_stock(Two(*values), key=bytes(32)) for values in ((1.0, 2.0), (2.0, 1.0)))
    >>> one == other, one.rows, one == take_stock(Two(1.0, 2.0), key=bytes(32))
    (False, 2, True)
    """
    count, columns = 0, b""
    values = hashlib.blake2b(key=key, digest_size=32, person=b"fedassay rows")
    for batch in rows.batches():
        some = _as_bytes(batch)
        count += len(some)
        columns = columns or "\0".join(sorted(batch)).encode()
        values.update(some.tobytes())
    told = count.to_bytes(8, "big") + values.digest() + columns
    whole = hashlib.blake2b(told, key=key, digest_size=32, person=b"fedassay stock")
    return Holdings(rows=count, fingerprint=whole.hexdigest())


def _as_bytes(batch: Batch) -> NDArray[np.uint8]:
    """Return one row of bytes per row: whole numbers as 8 bytes, others as IEEE doubles, little-endian."""
    parts = []
    for name in sorted(batch):
        column = np.asarray(batch[name])
        kind = "<i8" if column.dtype.kind in "iub" else "<f8"
        plain = np.ascontiguousarray(column.astype(kind).reshape(len(column), -1))
        parts.append(plain.view(np.uint8).reshape(len(column), -1))
    return np.concatenate(parts, axis=1)
