"""Memory of a member of a committee: private halves of its prekeys, its answers, and the sets that it has opened.

One answer for each session: all of this is in one SQLite file, and changes in one transaction. The file must not be in
backups. Two files next to it show if it was put back, and then all its keys are void, since the original may have
answered with them: no one can set when a file's inode last changed, so that a copy of the first has another time than
the database recorded; and the second counts the answers, so that a database with fewer of them is an older one.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from fedassay.crypto.keys import KeyPair, Secret
from fedassay.crypto.prekeys import DAY, DAYS_APART, DAYS_VALID, PURPOSE, Prekey
from fedassay.errors import PolicyRefusal, ProtocolError
from fedassay.protocol.files import write_atomically
from fedassay.protocol.vocabulary import PartyKeys, Randomness

MOST_KEPT = 1000
"""Largest number of one-time keys for one coordinator, above the number of exchanges at once."""

DAYS_REPRINTED = 7
"""Days for which the same card is given again; then there is a new one."""

_UNSIGNED = bytes(64)


class MemberStore:
    """A member's private halves, its answers, and the sets of clients whose exact totals it has helped to open.

    Parameters
    ----------
    path : path of the SQLite file; None keeps everything in memory, for simulations.
    clock : gives the time in seconds since 1970.
    """

    def __init__(self, path: Path | None, *, clock: Callable[[], float] = time.time) -> None:
        self.path = path
        self._clock = clock

    @cached_property
    def _memory(self) -> sqlite3.Connection:
        """The database of a simulation, made when it is needed first."""
        database = sqlite3.connect(":memory:", isolation_level=None)
        database.executescript(_SCHEMA)
        return database

    # --- prekeys ------------------------------------------------------------------------------------------

    def issue(
        self, count: int, *, coordinator: str, credentials: PartyKeys | None, randomness: Randomness
    ) -> list[Prekey]:
        """Make one-time prekeys for a coordinator (its public key as text; empty in a simulation)."""
        with self._transaction() as database:
            made = [
                self._made(database, coordinator, credentials, randomness, for_any=False)
                for _ in range(count)
            ]
            # A coordinator that asks again and again fills no disk: its own oldest keys go.
            database.execute(
                "DELETE FROM keys WHERE NOT lasting AND coordinator = ?1 AND rowid NOT IN "
                "(SELECT rowid FROM keys WHERE NOT lasting AND coordinator = ?1 ORDER BY rowid DESC LIMIT ?2)",
                (coordinator, MOST_KEPT),
            )
            return made

    def card(self, credentials: PartyKeys, randomness: Randomness) -> Prekey:
        """Make the prekey of a roster card, a last resort that any coordinator may name until it expires.

        A card of the last days is given again.
        """
        with self._transaction() as database:
            latest = self._clock() + (DAYS_VALID - DAYS_REPRINTED) * DAY
            kept = database.execute(
                "SELECT statement FROM keys WHERE lasting AND expires > ? ORDER BY expires DESC", (latest,)
            ).fetchone()
            if kept is not None:
                return Prekey.unpacked(kept[0])
            return self._made(database, "", credentials, randomness, for_any=True)

    def _made(
        self,
        database: sqlite3.Connection,
        coordinator: str,
        credentials: PartyKeys | None,
        randomness: Randomness,
        *,
        for_any: bool,
    ) -> Prekey:
        pair, now = KeyPair.draw(randomness), int(self._clock())
        prekey = Prekey(
            public=pair.public,
            issued=now,
            expires=now + DAYS_VALID * DAY,
            for_any=for_any,
            signature=_UNSIGNED,
        )
        if credentials is not None:
            prekey = replace(prekey, signature=credentials.sign(PURPOSE, prekey.words(coordinator)))
        row = (pair.public, pair.private.data, for_any, prekey.expires, prekey.packed(), coordinator)
        database.execute("INSERT INTO keys VALUES (?, ?, ?, ?, ?, ?)", row)
        return prekey

    def require_fresh(self, prekeys: Sequence[tuple[str, Prekey]], *, coordinator: str, until: int) -> None:
        """Refuse prekeys that expire before `until`, or are much older than the newest of the same member.

        Called once their signatures have been checked; newer ones are remembered.
        """
        if until < self._clock():
            raise ProtocolError("secure sum: the deadline of this exchange is over.")
        with self._transaction() as database:
            rows = database.execute("SELECT member, issued FROM newest WHERE coordinator = ?", (coordinator,))
            newest: dict[str, int] = dict(rows)
            for member, prekey in prekeys:
                if prekey.expires < until or prekey.issued > self._clock() + DAY:
                    raise ProtocolError(
                        f"secure sum: the prekey of {member} is not valid until the deadline."
                    )
                if prekey.issued < newest.get(member, 0) - DAYS_APART * DAY:
                    raise ProtocolError(
                        f"secure sum: the prekey of {member} is much older than another that is known of it."
                    )
            database.executemany(
                "INSERT OR REPLACE INTO newest VALUES (?, ?, ?)",
                [
                    (name, coordinator, one.issued)
                    for name, one in prekeys
                    if one.issued > newest.get(name, 0)
                ],
            )

    # --- answers ------------------------------------------------------------------------------------------

    def pair(self, public: bytes) -> KeyPair | None:
        """Return the key pair of a prekey of this member, if it is still there."""
        with self._opened() as database:
            found = database.execute(
                "SELECT private FROM keys WHERE public = ? AND expires >= ?", (public, self._clock())
            ).fetchone()
        return None if found is None else KeyPair.of(Secret(found[0]))

    def answered(self, session: bytes, digest: bytes) -> bytes | None:
        """Return the answer that was given in a session, if one was; a `ProtocolError` if it was on another set."""
        with self._opened() as database:
            return _known(database, session, digest)

    def answer(
        self,
        reply: bytes,
        *,
        session: bytes,
        digest: bytes,
        public: bytes,
        opened: tuple[str, frozenset[str]] | None,
        rule: Callable[[Sequence[frozenset[str]]], None],
    ) -> bytes:
        """Record the one answer of a session and delete the private half it came from; what may leave is returned.

        Guarantee: of all processes and calls, one reply for each session ever leaves, and only if `rule` allows the
        set. When this returns, the answer and the set are on the disk and a one-time key is gone.

        Parameters
        ----------
        digest : digest of the set of clients' messages that the answer is about.
        opened : the data set and the clients whose exact total it helps to open; None if the total is noisy.
        rule : called with all sets that were recorded for this data set before; raises to refuse.
        """
        with self._transaction() as database:
            known = _known(database, session, digest)
            if known is not None:
                return known
            there = database.execute(
                "SELECT lasting FROM keys WHERE public = ? AND expires >= ?", (public, self._clock())
            ).fetchone()
            if there is None:
                raise ProtocolError("secure sum: the prekey was used or has expired.")
            if opened is not None:
                dataset, clients = opened
                rule(_sets(database, dataset))
                row = (dataset, json.dumps(sorted(clients)))
                database.execute("INSERT OR IGNORE INTO sets VALUES (?, ?)", row)
            kept = self._clock() + 2 * DAYS_VALID * DAY
            database.execute("INSERT INTO answers VALUES (?, ?, ?, ?)", (session, digest, reply, kept))
            database.execute("UPDATE place SET answered = answered + 1")
            if not there[0]:
                database.execute("DELETE FROM keys WHERE public = ?", (public,))
        self._forget_deleted()
        return reply

    def sets(self, dataset: str) -> Sequence[frozenset[str]]:
        """Return the different sets of clients over which exact totals of this data set were opened."""
        with self._opened() as database:
            return _sets(database, dataset)

    # --- the file -----------------------------------------------------------------------------------------

    def copied(self) -> MemberStore:
        """Copy the store into memory, for rehearsals: nothing that happens to it is kept."""
        copy = MemberStore(None, clock=self._clock)
        if self.path is None or self.path.exists():
            with self._opened() as database:
                database.backup(copy._memory)
        return copy

    def dump(self) -> bytes:
        """Return everything, as bytes: for simulations whose parties move between processes."""
        assert self.path is None
        return self._memory.serialize()

    def restore(self, data: bytes) -> None:
        """Restore what was dumped."""
        assert self.path is None
        self._memory.deserialize(data)

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        if self.path is None:
            yield self._memory
            return
        try:
            new = not self.path.exists()
            if new:
                self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                self.path.touch(mode=0o600)
            with closing(sqlite3.connect(self.path, isolation_level=None, timeout=60)) as database:
                database.execute("PRAGMA journal_mode = WAL")
                database.execute("PRAGMA synchronous = FULL")
                database.execute("PRAGMA secure_delete = ON")
                database.executescript(_SCHEMA)
                self._void_if_restored(database)
                yield database
        except (sqlite3.Error, OSError, ValueError) as error:
            raise PolicyRefusal(
                f"{self.path}: the prekeys cannot be used ({error}); free the file."
            ) from error

    def _void_if_restored(self, database: sqlite3.Connection) -> None:
        """Delete all keys of a file that was put back: what it was put in the place of has answered with them."""
        assert self.path is not None
        marker, counted = self._beside("place"), self._beside("count")
        if not marker.exists():
            marker.touch(mode=0o600)
        found = marker.stat()
        here = f"{self.path.stat().st_ino} {found.st_ino} {found.st_ctime_ns}"
        answered = int(counted.read_text()) if counted.exists() else 0
        known = database.execute("SELECT facts, answered FROM place").fetchone()
        if known is not None and known[0] == here and known[1] >= answered:
            if known[1] > answered:  # it was stopped between the two, or has answered just now
                write_atomically(counted, str(known[1]))
            return
        with _immediate(database):
            if known is not None:
                database.execute("DELETE FROM keys")
                answered = max(answered, known[1])
            database.execute("DELETE FROM place")
            database.execute("INSERT INTO place VALUES (?, ?)", (here, answered))

    def _beside(self, what: str) -> Path:
        assert self.path is not None
        return self.path.with_name(f"{self.path.name}-{what}")

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._opened() as database, _immediate(database):
            now = self._clock()
            database.execute("DELETE FROM keys WHERE expires < ?", (now,))
            database.execute("DELETE FROM answers WHERE until < ?", (now,))
            yield database

    def _forget_deleted(self) -> None:
        """Write what was deleted over, in the file and not only in its log; opening it anew notes the answer."""
        if self.path is not None:
            with self._opened() as database:
                database.execute("PRAGMA wal_checkpoint(TRUNCATE)")


@contextmanager
def _immediate(database: sqlite3.Connection) -> Iterator[None]:
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        database.execute("ROLLBACK")
        raise
    database.execute("COMMIT")


def _known(database: sqlite3.Connection, session: bytes, digest: bytes) -> bytes | None:
    known = database.execute("SELECT digest, reply FROM answers WHERE session = ?", (session,)).fetchone()
    if known is None:
        return None
    if known[0] != digest:
        raise ProtocolError("secure sum: this session was answered for another set of clients.")
    return bytes(known[1])


def _sets(database: sqlite3.Connection, dataset: str) -> tuple[frozenset[str], ...]:
    rows = database.execute("SELECT clients FROM sets WHERE dataset = ? ORDER BY rowid", (dataset,))
    return tuple(frozenset(json.loads(names)) for (names,) in rows)


_SCHEMA = """
CREATE TABLE IF NOT EXISTS keys (
  public BLOB PRIMARY KEY, private BLOB NOT NULL, lasting INTEGER NOT NULL, expires INTEGER NOT NULL, statement BLOB,
  coordinator TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS answers (
  session BLOB PRIMARY KEY, digest BLOB NOT NULL, reply BLOB NOT NULL, until INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS sets (dataset TEXT NOT NULL, clients TEXT NOT NULL, UNIQUE (dataset, clients));
CREATE TABLE IF NOT EXISTS newest (
  member TEXT NOT NULL, coordinator TEXT NOT NULL, issued INTEGER NOT NULL, PRIMARY KEY (member, coordinator)
);
CREATE TABLE IF NOT EXISTS place (facts TEXT NOT NULL, answered INTEGER NOT NULL);
"""
