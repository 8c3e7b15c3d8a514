"""The rows of a database query: SQLite and PostgreSQL, read-only.

A query is executed once, in one snapshot, and its rows are copied into a file without a name (in memory while
they are few); every pass reads the copy. Asking again would not do: between two queries other people change
rows, and without a complete ORDER BY a database may return the same rows in another order.
"""

from __future__ import annotations

import sqlite3
import tempfile
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa

from fedassay.data.tables import Table, to_arrow
from fedassay.errors import DataError, FedassayError, UsageError
from fedassay.protocol.databases import SQLITE, DatabaseUrl, first_line

_ONE_SELECT = "write one SELECT that only reads"
_ROWS_AT_ONCE, _VALUES_AT_ONCE = 2**15, 2**20
_IN_MEMORY = 2**26
_MOST_SECONDS = 600
"""Time limit of a query; a PostgreSQL URL may set another ``statement_timeout`` in its options."""
_READS = frozenset(
    {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
)


def is_url(text: str) -> bool:
    """Return whether a text names a database rather than a file.

    Examples
    --------
    >>> is_url("postgresql://host/database"), is_url("scores.csv"), is_url("C:/scores.csv")
    (True, False, False)
    """
    return "://" in text


@dataclass(frozen=True, kw_only=True)
class Database:
    """A query of a database, to be used wherever a file could be.

    Guarantees: each opening executes the query once and sees one snapshot. The database itself refuses
    writes: an SQLite file is opened read-only and everything but reading is forbidden; PostgreSQL gets a
    read-only transaction and a cursor, which takes a single SELECT. The URL, which may hold a password, is
    never shown, and neither is the query.

    Parameters
    ----------
    url : ``sqlite:///FILE`` (four slashes for an absolute path) or ``postgresql://USER:PASSWORD@HOST/DATABASE``.
        What libpq finds elsewhere (PGPASSWORD, a password file, a service file) need not stand in it.
    query : one SELECT. The split into fit and held-out rows goes by position, so a query that is asked again
        later should end in a complete ORDER BY.
    folder : where the relative path of an SQLite file starts.

    Examples
    --------
    >>> Database(url="postgresql://me:secret@host/study", query="select p, y from scores")
    Database(postgresql://host/study)
    """

    url: str
    query: str
    folder: Path = Path()

    def __post_init__(self) -> None:
        self._parsed  # noqa: B018 - refuses what cannot be opened
        if not isinstance(self.query, str) or not self.query.strip():
            raise UsageError(f"query: got an empty text, expected a query of the database; {_ONE_SELECT}.")

    def __repr__(self) -> str:
        return f"Database({self.label})"

    @property
    def label(self) -> str:
        """Name of the database in errors: the kind, the host and the name, nothing that could be secret."""
        return self._parsed.label

    @property
    def name(self) -> str:
        """The name of the database."""
        return Path(self._parsed.database).name

    @property
    def file(self) -> Path | None:
        """The SQLite file, absolute."""
        url = self._parsed
        return (self.folder / url.database).absolute() if url.kind == SQLITE else None

    @cached_property
    def _parsed(self) -> DatabaseUrl:
        url = DatabaseUrl.of(
            self.url, role="data", otherwise="export the rows of other databases to a .parquet file"
        )
        if url.kind == SQLITE and not url.only_a_file:
            raise UsageError(
                "data: got an SQLite URL without a file or with more than a file, expected sqlite:///FILE "
                "(three slashes, four before an absolute path); correct it."
            )
        return url

    def open(self) -> SqlTable:
        """Execute the query and copy its rows.

        Raises
        ------
        UsageError
            If there is no such SQLite file, or no driver for PostgreSQL is installed.
        DataError
            If the database cannot be reached, refuses the query or breaks off.
        """
        copy = _Copy()
        with self._cursor() as cursor, self._saying(_ONE_SELECT):
            cursor.execute(self.query)
            if cursor.description is None:
                raise DataError(f"{self.label}: got a statement without rows, expected rows; {_ONE_SELECT}.")
            names = tuple(str(column[0]) for column in cursor.description)
            at_once = max(1, min(_ROWS_AT_ONCE, _VALUES_AT_ONCE // len(names)))
            while rows := cursor.fetchmany(at_once):
                copy.add([to_arrow(_simple(column)) for column in zip(*rows, strict=True)])
        return SqlTable(label=self.label, names=names, copy=copy)

    @contextmanager
    def _cursor(self) -> Iterator[Any]:
        """Yield a cursor that reads only, for a limited time; at PostgreSQL a server cursor for one SELECT."""
        file = self.file
        if file is not None and not file.is_file():
            raise UsageError(
                f"data: got {str(file)!r}, which does not exist, expected a database file; check the path."
            )
        with self._saying("check the URL, the password and the network"):
            connection: Any = self._parsed.connect() if file is None else _read_only(file)
        with closing(connection):
            if file is not None:
                yield connection.cursor()
                return
            with self._saying("check the URL, the password and the network"):
                connection.read_only = True
                connection.execute(
                    f"SELECT set_config('statement_timeout', '{_MOST_SECONDS}s', true) "
                    "WHERE current_setting('statement_timeout') = '0'"
                )
            with connection.cursor(name="rows") as cursor:
                yield cursor

    @contextmanager
    def _saying(self, fix: str) -> Iterator[None]:
        """Turn what a driver or a database says into one sentence.

        Without the cause: tracebacks of drivers show their arguments, the statement and sometimes rows.
        """
        try:
            yield
        except (FedassayError, MemoryError):
            raise
        except Exception as problem:
            reason = first_line(problem)
            raise DataError(
                f"{self.label}: got an error from the database ({reason}), expected rows; {fix}."
            ) from None


def _read_only(file: Path) -> sqlite3.Connection:
    """Open an SQLite connection that reads this file, for some time, and does nothing else, such as copying it."""

    def permit(action: int, *_: object) -> int:
        return sqlite3.SQLITE_OK if action in _READS else sqlite3.SQLITE_DENY

    connection = sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)
    connection.set_authorizer(permit)
    end = time.monotonic() + _MOST_SECONDS
    connection.set_progress_handler(lambda: time.monotonic() > end, 100_000)
    return connection


def _simple(values: Sequence[Any]) -> list[Any]:
    """Convert values of types that only databases have to what they spell."""
    return [str(value) if isinstance(value, UUID) else value for value in values]


class _Copy:
    """Batches of rows in a file that has no name and is gone with the process.

    Each batch carries its own types, because a column of SQLite has none: one may hold numbers and the next
    text.
    """

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115 - closed at its end
        self._ends = [0]
        self._lock = threading.Lock()
        weakref.finalize(self, self._file.close)

    def add(self, columns: Sequence[Any]) -> None:
        """Append one batch; its columns are known by position, because names may repeat."""
        batch = pa.RecordBatch.from_arrays(columns, names=[str(i) for i in range(len(columns))])
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        self._file.write(sink.getvalue())
        self._ends.append(self._file.tell())

    def batches(self) -> Iterator[Any]:
        """Yield the batches, from the first, for any number of readers at a time."""
        for start, end in zip(self._ends, self._ends[1:], strict=False):
            with self._lock:
                self._file.seek(start)
                content = self._file.read(end - start)
            yield pa.ipc.open_stream(content).read_next_batch()


@dataclass(frozen=True, kw_only=True)
class SqlTable(Table):
    """The rows that a query returned."""

    copy: _Copy = field(repr=False)

    def batches(self, columns: Sequence[str]) -> Iterator[Any]:
        """See `Table.batches`."""
        positions = [self.names.index(name) for name in columns]
        for batch in self.copy.batches():
            arrays = [batch.column(position) for position in positions]
            yield pa.RecordBatch.from_arrays(arrays, names=list(columns))
