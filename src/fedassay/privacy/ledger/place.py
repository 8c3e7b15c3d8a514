"""Place of a ledger: an SQLite file, or a PostgreSQL database that several coordinators share."""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedassay.errors import FedassayError, LedgerUnusable, UsageError
from fedassay.protocol.databases import DatabaseUrl, database_errors, first_line
from fedassay.protocol.files import sync_folder

if TYPE_CHECKING:
    from psycopg import Connection as PostgresConnection

_EXPECTED = "a file such as ledger.sqlite, or postgresql://USER@HOST/DATABASE"
_MISTYPED = re.compile(
    r"\s*postgres[a-z]*\s*([:+;]|//)|\s*[a-z][a-z0-9+.-]*:/|.*:.*@", re.IGNORECASE | re.DOTALL
)
"""Texts that were meant as a URL, perhaps with a password, although they have no ``://``."""
_PATIENCE = 60
"""Seconds to wait for another process that has locked the file, such as a backup."""

_ADVISORY = 0x6665646C656467  # "fedledg": the lock under which all machines use a shared ledger in turn
_PARAMETER = re.compile(r":(\w+)")


@dataclass(frozen=True, kw_only=True)
class Place:
    """The place of a ledger. The URL, which may hold a password, is never shown.

    Examples
    --------
    >>> Place.of("postgresql://me:secret@host/books")
    Place(label='postgresql://host/books', file=None)
    """

    label: str
    file: Path | None
    _url: DatabaseUrl | None = field(default=None, repr=False)

    @classmethod
    def of(cls, place: str | Path, *, folder: Path = Path()) -> Place:
        """Return the place that a path (relative ones start at the folder) or a URL names.

        Raises
        ------
        UsageError
            If it is neither; what is not understood may be a part of a password and is not quoted.
        """
        if isinstance(place, str) and "://" not in place and _MISTYPED.match(place):
            raise UsageError(
                f"ledger: got what looks like a URL without ://, expected {_EXPECTED}; correct it."
            )
        if isinstance(place, Path) or "://" not in place:
            file = (folder / place).absolute()
            return cls(label=str(file), file=file)
        url = DatabaseUrl.of(place, role="ledger")
        if url.only_a_file:
            return cls.of(Path(url.database), folder=folder)
        if url.kind == "sqlite":
            raise UsageError(f"ledger: got an SQLite URL with more than a file, expected {_EXPECTED}.")
        return cls(label=url.label, file=None, _url=url)

    def identity(self) -> tuple[int, int]:
        """Identify the file as it is now: another one after a copy was moved into its place. Constant in PostgreSQL."""
        if self.file is None or not self.file.exists():
            return 0, 0
        found = os.stat(self.file)
        return found.st_dev, found.st_ino

    def connect(self) -> LedgerConnection:
        """Connect; an SQLite file is made, for its owner only, if there is none."""
        if self._url is not None:
            return PostgresLedger(self._url.connect())
        assert self.file is not None
        if not self.file.exists():
            self.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(self.file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            sync_folder(self.file.parent)
        return SqliteLedger(self.file)

    @contextmanager
    def transaction(self) -> Iterator[LedgerConnection]:
        """Open a connection for one transaction, committed unless an error ends it."""
        with self.saying(), closing(self.connect()) as connection:
            connection.begin()
            yield connection
            connection.end(commit=True)

    @contextmanager
    def saying(self) -> Iterator[None]:
        """Turn what a driver or a database says into one sentence.

        Without the cause: tracebacks of drivers show their arguments, among them passwords.
        """
        try:
            yield
        except FedassayError:
            raise
        except Exception as problem:
            if not isinstance(problem, (*database_errors(), OSError)):
                raise
            raise self._unusable(problem) from None

    def _unusable(self, problem: Exception) -> LedgerUnusable:
        reason = first_line(problem)
        if self._url is not None and not self._url.hides(reason):
            reason = "it complains about the URL's parameters, which are not repeated here"
        return LedgerUnusable(
            f"{self.label}: the ledger cannot be used ({reason}); nothing is released until it can."
        )


class SqliteLedger:
    """A connection whose commits are on the disk when they return, at the price of one flush.

    Write-ahead log with synchronous=FULL: a commit appends checksummed frames to the log and flushes it. After a
    kill or a power loss everything up to the last whole commit is replayed and a torn rest is ignored.
    """

    tables_query = "SELECT name FROM sqlite_master WHERE type = 'table'"
    others_matter = True
    """True, as a file with tables of something else is the wrong file."""

    def __init__(self, file: Path) -> None:
        connection = sqlite3.connect(str(file), timeout=_PATIENCE, check_same_thread=False)
        connection.isolation_level = None  # transactions begin when we say so
        (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA fullfsync = ON")  # where a plain flush stops at the drive's cache
        if mode != "wal":
            connection.close()
            raise LedgerUnusable(f"{file}: this file system allows no ledger; use a local disk.")
        self._connection = connection

    def begin(self) -> None:
        """Begin a transaction that no other one overlaps."""
        self._connection.execute("BEGIN IMMEDIATE")

    def end(self, *, commit: bool) -> None:
        """Commit the transaction, or roll it back."""
        self._connection.execute("COMMIT" if commit else "ROLLBACK")

    def execute(self, statement: str, values: Mapping[str, Any] | None = None) -> Iterator[tuple[Any, ...]]:
        """Return the rows of a statement, whose parameters are written ``:name``."""
        return iter(self._connection.execute(statement, values or {}))

    def execute_many(self, statement: str, values: Sequence[Mapping[str, Any]]) -> None:
        """Execute a statement for each of these."""
        self._connection.executemany(statement, values)

    @property
    def broken(self) -> bool:
        """True if the server has ended the connection; here there is none."""
        return False

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


class PostgresLedger:
    """Ledger in a PostgreSQL database, whose transactions take an advisory lock in turn."""

    tables_query = "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
    others_matter = False

    def __init__(self, connection: PostgresConnection) -> None:
        from psycopg import IsolationLevel

        # Not the server's default level: a stricter one would fix what is seen before the lock is ours.
        connection.isolation_level = IsolationLevel.READ_COMMITTED
        self._connection = connection

    def begin(self) -> None:
        """See `SqliteLedger`."""
        self._connection.execute(f"SELECT pg_advisory_xact_lock({_ADVISORY})".encode())
        # A server may be set up to confirm before records are on the disk; a stricter setting of it stays.
        self._connection.execute(
            "SELECT set_config('synchronous_commit', 'on', true) "
            "WHERE current_setting('synchronous_commit') = 'off'"
        )

    def end(self, *, commit: bool) -> None:
        """See `SqliteLedger`."""
        (self._connection.commit if commit else self._connection.rollback)()

    def execute(self, statement: str, values: Mapping[str, Any] | None = None) -> Iterator[tuple[Any, ...]]:
        """See `SqliteLedger`."""
        if values is None:  # then nothing in the statement stands for a parameter
            cursor = self._connection.execute(statement.encode())
        else:
            cursor = self._connection.execute(_PARAMETER.sub(r"%(\1)s", statement).encode(), values)
        return iter(cursor if cursor.description is not None else ())

    def execute_many(self, statement: str, values: Sequence[Mapping[str, Any]]) -> None:
        """See `SqliteLedger`."""
        with self._connection.cursor() as cursor:
            cursor.executemany(_PARAMETER.sub(r"%(\1)s", statement).encode(), values)

    @property
    def broken(self) -> bool:
        """See `SqliteLedger`."""
        return self._connection.closed

    def close(self) -> None:
        """See `SqliteLedger`."""
        self._connection.close()


LedgerConnection = SqliteLedger | PostgresLedger
