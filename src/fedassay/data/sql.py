"""The rows of a database query: SQLite and PostgreSQL, read-only.

A query is executed once, in one snapshot, and its rows are copied into a file without a name (in memory while
they are few); every pass reads the copy. Asking again would not do: between two queries other people change
rows, and without a complete ORDER BY a database may return the same rows in another order.
"""

from __future__ import annotations

import re
import sqlite3
import tempfile
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pyarrow as pa

from fedassay.data.tables import Table, to_arrow
from fedassay.errors import DataError, FedassayError, UsageError

if TYPE_CHECKING:
    from sqlalchemy import URL, Connection, Engine

_SQLITE, _POSTGRESQL = "sqlite", "postgresql"
_DRIVERS = {_SQLITE: ("", "pysqlite"), _POSTGRESQL: ("", "psycopg")}
_EXPECTED = "sqlite:///FILE or postgresql://USER@HOST/DATABASE"
_ENCODE = "write special characters of the password as %XX (@ is %40, / is %2F)"
_ONE_SELECT = "write one SELECT that only reads"
_ROWS_AT_ONCE, _VALUES_AT_ONCE = 2**15, 2**20
_IN_MEMORY = 2**26
_CONNECT_SECONDS = 10
_HOST = re.compile(r"[A-Za-z0-9._:-]+")
_READS = frozenset(
    {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
)


def is_url(text: str) -> bool:
    """Whether a database is meant rather than a file.

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
        """What errors call it: the kind, the host and the name, nothing that could be secret."""
        url = self._parsed
        host = (url.host or "") if url.port is None else f"{url.host}:{url.port}"
        return f"{url.get_backend_name()}://{host}/{url.database or ''}"

    @property
    def name(self) -> str:
        """The name of the database."""
        return Path(self._parsed.database or "").name

    @property
    def file(self) -> Path | None:
        """The SQLite file, absolute."""
        is_file = self._parsed.get_backend_name() == _SQLITE
        return (self.folder / str(self._parsed.database)).absolute() if is_file else None

    @cached_property
    def _parsed(self) -> URL:
        from sqlalchemy import make_url  # takes a while, and few need it
        from sqlalchemy.exc import ArgumentError

        # What is not understood may be a part of the password: such errors quote nothing.
        try:
            url = make_url(self.url)
        except (ArgumentError, ValueError):
            raise UsageError(f"data: got no database URL, expected {_EXPECTED}; {_ENCODE}.") from None
        if url.drivername == "postgres":
            url = url.set(drivername=_POSTGRESQL)
        kind, _, driver = url.drivername.partition("+")
        if driver not in _DRIVERS.get(kind, ()):
            raise UsageError(
                f"data: got a URL of another kind of database, expected {_EXPECTED}; export the rows of "
                "other databases to a .parquet file."
            )
        more = url.host or url.username or url.query
        if kind == _SQLITE and (more or url.database in (None, "", ":memory:")):
            raise UsageError(
                "data: got an SQLite URL without a file or with more than a file, expected sqlite:///FILE "
                "(three slashes, four before an absolute path); correct it."
            )
        if kind == _POSTGRESQL and (_odd(url.host) or "@" in (url.database or "")):
            raise UsageError(f"data: got a database URL with an odd host, expected {_EXPECTED}; {_ENCODE}.")
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
        with self._connected() as connection, self._saying(_ONE_SELECT):
            # A cursor at the server, and % and : in the query are just characters.
            options = {"stream_results": True, "no_parameters": True}
            result = connection.exec_driver_sql(self.query, execution_options=options)
            if not result.returns_rows or result.cursor is None:
                raise DataError(f"{self.label}: got a statement without rows, expected rows; {_ONE_SELECT}.")
            names = tuple(str(column[0]) for column in result.cursor.description)
            at_once = max(1, min(_ROWS_AT_ONCE, _VALUES_AT_ONCE // len(names)))
            for rows in result.yield_per(at_once).partitions(at_once):
                copy.add([to_arrow(_simple(column)) for column in zip(*rows, strict=True)])
        return SqlTable(label=self.label, names=names, copy=copy)

    @contextmanager
    def _connected(self) -> Iterator[Connection]:
        try:
            engine = self._engine()
        except ImportError:
            raise UsageError(
                f"{self.label}: got a PostgreSQL URL without the package psycopg, expected it to be "
                "installed; run: pip install 'fedassay[postgres]'."
            ) from None
        with self._saying("check the URL, the password and the network"):
            connection = engine.connect()
        with connection:
            yield connection

    def _engine(self) -> Engine:
        from sqlalchemy import create_engine
        from sqlalchemy.pool import NullPool

        url, file = self._parsed, self.file
        if file is not None:
            if not file.is_file():
                raise UsageError(
                    f"data: got {str(file)!r}, which does not exist, expected a database file; check the path."
                )
            return create_engine("sqlite://", creator=lambda: _read_only(file), poolclass=NullPool)
        patience = {} if "connect_timeout" in url.query else {"connect_timeout": _CONNECT_SECONDS}
        return create_engine(
            url.set(drivername="postgresql+psycopg"),
            connect_args=patience,
            execution_options={"postgresql_readonly": True},
            poolclass=NullPool,
        )

    @contextmanager
    def _saying(self, fix: str) -> Iterator[None]:
        """Turn what a driver or a database says into one sentence.

        Without the cause: tracebacks of drivers show their arguments, the statement and sometimes rows.
        """
        from sqlalchemy.exc import DBAPIError

        try:
            yield
        except (FedassayError, MemoryError):
            raise
        except Exception as problem:
            said = problem.orig if isinstance(problem, DBAPIError) and problem.orig is not None else problem
            reason = (str(said).strip().splitlines() or [type(said).__name__])[0][:160]
            raise DataError(
                f"{self.label}: got an error from the database ({reason}), expected rows; {fix}."
            ) from None


def _odd(host: str | None) -> bool:
    return bool(host) and _HOST.fullmatch(host or "") is None


def _read_only(file: Path) -> sqlite3.Connection:
    """An SQLite connection that reads this file and does nothing else, such as writing a copy of it."""

    def permit(action: int, subject: str | None, *_: object) -> int:
        # The setting is what SQLAlchemy looks at when it connects.
        looks = action == sqlite3.SQLITE_PRAGMA and subject == "read_uncommitted"
        return sqlite3.SQLITE_OK if looks or action in _READS else sqlite3.SQLITE_DENY

    connection = sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)
    connection.set_authorizer(permit)
    return connection


def _simple(values: Sequence[Any]) -> list[Any]:
    """Values of types that only databases have as what they spell."""
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
        """The batches, from the first, for any number of readers at a time."""
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
