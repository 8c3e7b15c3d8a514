"""Where a ledger is: an SQLite file, or a PostgreSQL database that several coordinators share."""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedassay.errors import FedassayError, LedgerUnusable, UsageError
from fedassay.protocol.files import sync_folder

if TYPE_CHECKING:
    from sqlalchemy import URL, Connection, Engine

_EXPECTED = "a file such as ledger.sqlite, or postgresql://USER@HOST/DATABASE"
_ENCODE = "write special characters of the password as %XX (@ is %40, / is %2F)"
_HOST = re.compile(r"[A-Za-z0-9._:-]+")
_MISTYPED = re.compile(
    r"\s*postgres[a-z]*\s*([:+;]|//)|\s*[a-z][a-z0-9+.-]*:/|.*:.*@", re.IGNORECASE | re.DOTALL
)
"""What was meant as a URL, perhaps with a password, although it has no ``://``."""
_WORD = re.compile(r"[^\s=,;:'\"]+")
_PATIENCE = 60
"""Seconds to wait for whoever has locked the file besides us, such as a backup."""

_ADVISORY = 0x6665646C656467  # "fedledg": the lock under which all machines use a shared ledger in turn


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
    _url: URL | None = field(default=None, repr=False)

    @classmethod
    def of(cls, place: str | Path, *, folder: Path = Path()) -> Place:
        """From a path (relative ones start at the folder) or a URL.

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
        from sqlalchemy import make_url  # takes a while, and few need it
        from sqlalchemy.exc import ArgumentError

        try:
            url = make_url(place)
        except (ArgumentError, ValueError):
            raise UsageError(f"ledger: got no database URL, expected {_EXPECTED}; {_ENCODE}.") from None
        kind, _, driver = url.drivername.partition("+")
        if kind == "sqlite" and driver in ("", "pysqlite") and url.database and not (url.host or url.query):
            return cls.of(Path(url.database), folder=folder)
        if kind not in ("postgresql", "postgres") or driver not in ("", "psycopg"):
            raise UsageError(f"ledger: got another kind of database, expected {_EXPECTED}; use one of these.")
        if (url.host and not _HOST.fullmatch(url.host)) or "@" in (url.database or ""):
            raise UsageError(f"ledger: got a URL with an odd host, expected {_EXPECTED}; {_ENCODE}.")
        host = (url.host or "") if url.port is None else f"{url.host}:{url.port}"
        label = f"postgresql://{host}/{url.database or ''}"
        return cls(label=label, file=None, _url=url.set(drivername="postgresql+psycopg"))

    def identity(self) -> tuple[int, int]:
        """Which file it is now: another one after a copy was moved into its place. Always the same in PostgreSQL."""
        if self.file is None or not self.file.exists():
            return 0, 0
        found = os.stat(self.file)
        return found.st_dev, found.st_ino

    def connect(self) -> Connection:
        """A connection; an SQLite file is made, for its owner only, if there is none."""
        if self.file is not None and not self.file.exists():
            self.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(self.file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            sync_folder(self.file.parent)
        try:
            engine = self._engine()
        except ImportError:
            raise UsageError(
                f"{self.label}: got a PostgreSQL URL without the package psycopg, expected it to be "
                "installed; run: pip install 'fedassay[postgres]'."
            ) from None
        return engine.connect()

    def _engine(self) -> Engine:
        from sqlalchemy import create_engine, event
        from sqlalchemy.pool import NullPool

        # Transactions always end before a connection is closed: there is nothing to reset, or to complain about.
        plainly: dict[str, Any] = {
            "poolclass": NullPool,
            "pool_reset_on_return": None,
            "hide_parameters": True,
        }
        if self._url is None:
            engine = create_engine("sqlite://", creator=self._sqlite, **plainly)
        else:
            patience = {} if "connect_timeout" in self._url.query else {"connect_timeout": 10}
            # Not the server's default level: a stricter one would fix what is seen before the lock is ours.
            engine = create_engine(
                self._url, connect_args=patience, isolation_level="READ COMMITTED", **plainly
            )
        event.listen(engine, "begin", _begin)
        return engine

    def _sqlite(self) -> sqlite3.Connection:
        """A connection whose commits are on the disk when they return, at the price of one flush.

        Write-ahead log with synchronous=FULL: a commit appends checksummed frames to the log and flushes it. After a
        kill or a power loss everything up to the last whole commit is replayed and a torn rest is ignored.
        """
        connection = sqlite3.connect(str(self.file), timeout=_PATIENCE, check_same_thread=False)
        connection.isolation_level = None  # transactions begin when we say so, see `_begin`
        (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA fullfsync = ON")  # where a plain flush stops at the drive's cache
        if mode != "wal":
            connection.close()
            raise LedgerUnusable(f"{self.label}: this file system allows no ledger; use a local disk.")
        return connection

    @contextmanager
    def saying(self) -> Iterator[None]:
        """Turn what a driver or a database says into one sentence.

        Without the cause: tracebacks of drivers show their arguments, among them passwords.
        """
        from sqlalchemy.exc import DBAPIError, SQLAlchemyError

        try:
            yield
        except FedassayError:
            raise
        except (SQLAlchemyError, sqlite3.Error, OSError) as problem:
            said = problem.orig if isinstance(problem, DBAPIError) and problem.orig is not None else problem
            reason = (str(said).strip().splitlines() or [type(said).__name__])[0]
            if self._url is not None and _repeats(reason, self._url):
                reason = "it complains about the URL's parameters, which are not repeated here"
            reason = reason[:160]
            raise LedgerUnusable(
                f"{self.label}: the ledger cannot be used ({reason}); nothing is released until it can."
            ) from None


def _repeats(text: str, url: URL) -> bool:
    """Whether a text has a word of what stands in the URL besides host, port, database and user."""
    values = [url.password or ""]
    for name, value in url.query.items():
        values += [name, *([value] if isinstance(value, str) else value)]
    words = {word for value in values for word in (value, *_WORD.findall(value))}
    return any(word in text for word in words if len(word) > 1)


def _begin(connection: Connection) -> None:
    """Begin a transaction that no other one overlaps, on whatever machine."""
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        return
    connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_ADVISORY})")
    # A server may be set up to confirm before records are on the disk; a stricter setting of it stays.
    connection.exec_driver_sql(
        "SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'"
    )
