"""The tables of a ledger, their versions, and the steps from each version to the next.

The hashes of records cover their content, not the tables: steps may add columns and indexes around it. Kept free of
imports at the top, because SQLAlchemy takes a while and few commands need it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedassay.errors import LedgerUnusable, UsageError

if TYPE_CHECKING:
    from sqlalchemy import Connection

RECORDS, VERSION = "fedassay_ledger_records", "fedassay_ledger_version"

STEPS: tuple[tuple[str, ...], ...] = (
    (
        f"CREATE TABLE {VERSION} (version INTEGER NOT NULL)",
        f"INSERT INTO {VERSION} (version) VALUES (0)",
        f"CREATE TABLE {RECORDS} (sequence INTEGER NOT NULL PRIMARY KEY, kind VARCHAR(16) NOT NULL, id TEXT, "
        "content TEXT NOT NULL, previous CHAR(64) NOT NULL, hash CHAR(64) NOT NULL)",
    ),
    # A request that is sent again must be found among many records, and must not be recorded twice.
    (f"CREATE UNIQUE INDEX {RECORDS}_by_id ON {RECORDS} (kind, id)",),
)
"""What makes version 1 from nothing, version 2 from version 1, and so on; never changed, only added to."""


def upgrade(connection: Connection, *, label: str, to: int = len(STEPS)) -> None:
    """Bring the tables to the newest version, inside the caller's transaction.

    Raises
    ------
    LedgerUnusable
        If a newer fedassay has written it.
    UsageError
        If the file is a database of something else.
    """
    from sqlalchemy import text

    found = version_of(connection, label=label)
    for statement in (one for step in STEPS[found:to] for one in step):
        connection.execute(text(statement))
    if found < to:
        connection.execute(text(f"UPDATE {VERSION} SET version = {to}"))


def version_of(connection: Connection, *, label: str) -> int:
    """The version of the tables, 0 if there are none; raises as `upgrade` does."""
    from sqlalchemy import inspect, text

    names = inspect(connection).get_table_names()
    if VERSION not in names:
        if names and connection.dialect.name == "sqlite":
            raise UsageError(
                f"{label}: got a database of something else, expected a ledger; give another file."
            )
        return 0
    found = int(connection.scalar(text(f"SELECT version FROM {VERSION}")) or 0)
    if found > len(STEPS):
        raise LedgerUnusable(
            f"{label}: the ledger has version {found}, this fedassay knows up to {len(STEPS)}; upgrade fedassay."
        )
    return found
