"""A durable, hash-chained list of records in a database: the base of ledgers and of the records of a site.

The tables of a ledger, their versions, and the steps from each version to the next.

The hashes of records cover their content, not the tables: steps may add columns and indexes around it.
"""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedassay.errors import FedassayError, LedgerUnusable, UsageError
from fedassay.privacy.ledger.chain import Anchor, Head, HeldAnchor, Record, follow, intact, record_after
from fedassay.privacy.ledger.place import LedgerConnection, Place
from fedassay.protocol.databases import database_errors

# --- the tables of a ledger ---------------------------------------------------------------------------------

RECORDS, VERSION = "fedassay_ledger_records", "fedassay_ledger_version"
REFUSALS = "fedassay_ledger_refusals"

STEPS: tuple[tuple[str, ...], ...] = (
    (
        f"CREATE TABLE {VERSION} (version INTEGER NOT NULL)",
        f"INSERT INTO {VERSION} (version) VALUES (0)",
        f"CREATE TABLE {RECORDS} (sequence INTEGER NOT NULL PRIMARY KEY, kind VARCHAR(16) NOT NULL, id TEXT, "
        "content TEXT NOT NULL, previous CHAR(64) NOT NULL, hash CHAR(64) NOT NULL)",
    ),
    # A request that is sent again must be found among many records, and must not be recorded twice.
    (f"CREATE UNIQUE INDEX {RECORDS}_by_id ON {RECORDS} (kind, id)",),
    # Refusals are no part of the chain.
    (f"CREATE TABLE {REFUSALS} (number BIGINT NOT NULL PRIMARY KEY, content TEXT NOT NULL)",),
)
"""Statements that lead from nothing to version 1, from there to version 2, and so on; only added to, never changed."""


def upgrade(connection: LedgerConnection, *, label: str, to: int = len(STEPS)) -> None:
    """Bring the tables to the newest version, inside the caller's transaction.

    Raises
    ------
    LedgerUnusable
        If a newer fedassay has written it.
    UsageError
        If the file is a database of something else.
    """
    version = version_of(connection, label=label)
    for statement in (statement for step in STEPS[version:to] for statement in step):
        connection.execute(statement)
    if version < to:
        connection.execute(f"UPDATE {VERSION} SET version = {to}")


def version_of(connection: LedgerConnection, *, label: str) -> int:
    """Return the version of the tables, 0 if there are none; raises as `upgrade` does."""
    names = [name for (name,) in connection.execute(connection.tables_query)]
    if VERSION not in names:
        if names and connection.others_matter:
            raise UsageError(
                f"{label}: got a database of something else, expected a ledger; give another file."
            )
        return 0
    ((version,),) = list(connection.execute(f"SELECT version FROM {VERSION}")) or [(0,)]
    if version > len(STEPS):
        raise LedgerUnusable(
            f"{label}: the ledger has version {version}, this fedassay knows up to {len(STEPS)}; upgrade fedassay."
        )
    return int(version)


# --- a durable ----------------------------------------------------------------------------------------------

_COLUMNS = "sequence, kind, id, content, previous, hash"
_AT_ONCE = 500
_HASH = 32


class Book:
    """Records that are appended and never changed.

    Guarantees. A transaction sees everything recorded before and nothing comes in between, whatever threads, processes
    (also forked ones) or machines use the same place. What it appended is on the disk when it ends, all of it or
    nothing. Before anything is read or written, every record that is new since the last time is checked against the
    chain, and the whole chain when the place is opened or its file was replaced; the last record that was seen, and the
    anchored one, must still be there, unchanged. What is looked up is believed only if it is one of the records that
    were checked, unchanged since; of these the hashes are kept in memory, 32 bytes each.

    Assumptions: the disk keeps what it reports as flushed; SQLite files are on a local disk; a party that can change
    the database *and* the anchor can go back to an older state of both.

    Parameters
    ----------
    anchor : place of the head (`anchor.py`). None is for reading only: nothing then shows that the end is missing.
    learn : called once with each record, in order, when it is known to be recorded.
    """

    def __init__(self, place: Place, anchor: Path | None, learn: Callable[[Record], None]) -> None:
        self.place = place
        self.anchor = None if anchor is None else Anchor(anchor)
        self.head = Head()
        self._hashes = bytearray()
        """Hashes of all records that were checked, one after the other."""
        self._learn = learn
        self._mutex = threading.Lock()
        self._connection: LedgerConnection | None = None
        self._prepared = False
        self._file, self._verified = (-1, -1), (-1, -1)
        _books.add(self)

    def __del__(self) -> None:
        self._disconnect()

    @contextmanager
    def transaction(self, *, adopt: bool = False) -> Iterator[Transaction]:
        """Hold the book exclusively for a moment; what was appended is recorded unless an error ends it.

        `adopt` makes the anchor for records that were there before it.
        """
        if self.anchor is None:
            raise UsageError("ledger: got no anchor, expected the file in which its head is kept; name one.")
        with self._mutex, self.place.saying(), self.anchor.locked() as held:
            self._prepare(held)
            with self._begun() as connection:
                self._catch_up(connection)
                self._compare(connection, held, adopt=adopt)
                work = Transaction(connection=connection, book=self)
                yield work
            for record in work.appended:
                self._take(record)
            if held.read() != self.head:
                held.write(self.head)

    def read(self) -> None:
        """Learn what is new, without an anchor if there is none."""
        if self.anchor is not None:
            with self.transaction():
                return
        missing = UsageError(f"ledger: got {self.place.label!r}, expected a ledger; check where it is.")
        if self.place.file is not None and not self.place.file.exists():
            raise missing
        with self._mutex, self.place.saying(), self._begun() as connection:
            if not version_of(connection, label=self.place.label):
                raise missing
            self._catch_up(connection)

    def stored(self) -> Iterator[Record]:
        """Yield all records, from the first, as they are now; checked again."""
        with self._mutex, self.place.saying(), self._begun() as connection:
            yield from follow(Head(), _rows(connection, "sequence > 0"), label=self.place.label)

    def _prepare(self, held: HeldAnchor) -> None:
        """Make or upgrade the tables in a transaction of its own: a charge that is refused must not undo it."""
        if self._connection is not None and self._file != self.place.identity():
            self._disconnect()  # another file was moved into its place
        if self._prepared:
            return
        anchored = held.read()
        if anchored is not None and anchored.sequence and self.place.file and not self.place.file.exists():
            raise _lost(self.place.label, anchored)
        with self._begun() as connection:
            upgrade(connection, label=self.place.label)
        self._prepared = True

    @contextmanager
    def _begun(self) -> Iterator[LedgerConnection]:
        """Begin a transaction of the database; a connection that has broken since the last time is replaced."""
        kept = self._connection is not None
        connection = self._connected()
        try:
            connection.begin()
        except database_errors():
            broken = connection.broken
            self._disconnect()
            if not (kept and broken):
                raise
            connection = self._connected()
            connection.begin()
        try:
            yield connection
        except BaseException as problem:
            if isinstance(problem, database_errors()):
                self._disconnect()
            else:
                with suppress(*database_errors()):
                    connection.end(commit=False)
            raise
        try:
            connection.end(commit=True)
        except database_errors():
            self._disconnect()
            raise

    def _connected(self) -> LedgerConnection:
        if self._connection is None:
            self._connection = self.place.connect()
            self._file = self.place.identity()
        return self._connection

    def _disconnect(self) -> None:
        connection, self._connection, self._prepared = self._connection, None, False
        if connection is not None:
            connection.close()

    def _catch_up(self, connection: LedgerConnection) -> None:
        """Check and learn what others have recorded since the last time; everything, if the file is another one."""
        label, known = self.place.label, self.head
        for outside in _rows(connection, "sequence < 1"):
            raise LedgerUnusable(
                f"{label}: record {outside.sequence} is not ours, a chain begins with 1; nothing is "
                "released until the newest good copy of the ledger is restored."
            )
        if self._verified != self._file:
            known = Head()
        elif self._found(connection, known) != known:
            raise _lost(label, known)
        for record in follow(
            known, _rows(connection, "sequence > :known", known=known.sequence), label=label
        ):
            if record.sequence == self.head.sequence and record.head != self.head:
                raise _lost(label, self.head)
            if record.sequence > self.head.sequence:
                self._take(record)
            known = record.head
        if known.sequence < self.head.sequence:
            raise _lost(label, self.head)
        self._verified = self._file

    def _compare(self, connection: LedgerConnection, held: HeldAnchor, *, adopt: bool) -> None:
        """Refuse a book that lacks the anchored record; anchor one that is new."""
        anchored = held.read()
        if anchored is None:
            if self.head.sequence and not adopt:
                raise LedgerUnusable(
                    f"{self.place.label}: it has {self.head.sequence} records but its head is not kept in {held.path}; "
                    "restore that file, or make it with `fedassay ledger anchor` if these are all records."
                )
            held.write(self.head)
        elif self._found(connection, anchored) != anchored:
            raise _lost(self.place.label, anchored)

    def _found(self, connection: LedgerConnection, head: Head) -> Head:
        """Return the head of the intact record at the sequence number of this head; an empty head if there is none."""
        if not head.sequence:
            return Head()
        rows = list(_rows(connection, "sequence = :sequence", sequence=head.sequence))
        return rows[0].head if rows and intact(rows[0]) else Head()

    def checked(self, record: Record) -> bool:
        """Return whether this is one of the records of the chain, as it was when it was checked."""
        if not (isinstance(record.sequence, int) and 1 <= record.sequence <= self.head.sequence):
            return False
        end = record.sequence * _HASH
        return intact(record) and self._hashes[end - _HASH : end].hex() == record.hash

    def _take(self, record: Record) -> None:
        try:
            self._learn(record)
        except (FedassayError, LookupError, TypeError, ValueError, ArithmeticError):
            raise LedgerUnusable(
                f"{self.place.label}: record {record.sequence} cannot be read by this fedassay, expected one of its "
                "own or of an older one; upgrade fedassay, or restore the newest good copy of the ledger."
            ) from None
        self._hashes += bytes.fromhex(record.hash)
        self.head = record.head


@dataclass(frozen=True)
class Transaction:
    """Operations on a book during a transaction, which holds it exclusively."""

    connection: LedgerConnection
    book: Book
    appended: list[Record]

    def __init__(self, *, connection: LedgerConnection, book: Book) -> None:
        object.__setattr__(self, "connection", connection)
        object.__setattr__(self, "book", book)
        object.__setattr__(self, "appended", [])

    def find(self, kind: str, ids: Sequence[str]) -> list[Record]:
        """Return the records of this kind with these ids; raise if the database has one that was never checked."""
        found: list[Record] = []
        for start in range(0, len(ids), _AT_ONCE):
            some = {f"id{i}": one for i, one in enumerate(ids[start : start + _AT_ONCE])}
            names = ", ".join(f":{name}" for name in some)
            found += _rows(self.connection, f"kind = :kind AND id IN ({names})", kind=kind, **some)
        for record in found:
            if not self.book.checked(record):
                raise LedgerUnusable(
                    f"{self.book.place.label}: record {record.sequence} was changed, or added by others; nothing "
                    "is released until the newest good copy of the ledger is restored."
                )
        return found

    def append(self, kind: str, entries: Iterable[tuple[str | None, Mapping[str, Any]]]) -> None:
        """Add records: an id, by which they are found, and what they say."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        head = self.appended[-1].head if self.appended else self.book.head
        fresh: list[Record] = []
        for id_, body in entries:
            fresh.append(record_after(head, kind=kind, id=id_, body=body, time=now))
            head = fresh[-1].head
        self.restore(fresh)

    def restore(self, records: Sequence[Record]) -> None:
        """Add records as they are; they must follow the last one."""
        if records:
            values = ", ".join(f":{name}" for name in _COLUMNS.split(", "))
            insert = f"INSERT INTO {RECORDS} ({_COLUMNS}) VALUES ({values})"
            self.connection.execute_many(insert, [asdict(record) for record in records])
            self.appended.extend(records)


def copy_book(place: Place, anchor: Path, to: Path) -> None:
    """Copy all records, checked, into a new SQLite file; nothing if there are none. The original stays as it is."""
    if place.file is not None and not place.file.exists():
        return
    records: list[Record] = []
    Book(place, anchor, records.append).read()
    with Book(Place.of(to), to.with_suffix(".head"), lambda record: None).transaction() as work:
        work.restore(records)


def _rows(connection: LedgerConnection, condition: str, **values: Any) -> Iterator[Record]:
    query = f"SELECT {_COLUMNS} FROM {RECORDS} WHERE {condition} ORDER BY sequence"
    for row in connection.execute(query, values):
        yield Record(**dict(zip(_COLUMNS.split(", "), row, strict=True)))


def _lost(label: str, head: Head) -> LedgerUnusable:
    return LedgerUnusable(
        f"{label}: record {head.sequence} and perhaps others are missing or were changed since they were last seen "
        "here; restore the newest copy of the ledger, an older one would let a budget be spent twice."
    )


_books: weakref.WeakSet[Book] = weakref.WeakSet()
_waiting: list[Book] = []


def _before_fork() -> None:
    """Hold all books while this process is copied: both copies would believe to hold the locks of one of them."""
    _waiting[:] = list(_books)
    for book in _waiting:
        book._mutex.acquire()
        book._disconnect()


def _after_fork() -> None:
    for book in _waiting:
        book._mutex.release()
    _waiting.clear()


def _at_exit() -> None:
    for book in list(_books):
        book._disconnect()


atexit.register(_at_exit)
os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)
