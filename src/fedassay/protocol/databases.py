"""Databases by their URL: SQLite through the standard library, PostgreSQL through psycopg, and nothing between.

A URL may hold a password: it is never shown, and what is not understood of it is not quoted.
"""

from __future__ import annotations

import re
import sqlite3
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote

from fedassay.errors import UsageError

if TYPE_CHECKING:
    from psycopg import Connection

SQLITE, POSTGRESQL = "sqlite", "postgresql"
HOW_TO_ENCODE = "write special characters of the password as %XX (@ is %40, / is %2F)"

_DRIVERS = {
    "sqlite": SQLITE,
    "sqlite+pysqlite": SQLITE,
    "postgres": POSTGRESQL,
    "postgresql": POSTGRESQL,
    "postgresql+psycopg": POSTGRESQL,
}
_URL = re.compile(
    r"(?P<kind>[A-Za-z0-9+._-]+)://"
    r"(?:(?P<user>[^:/@?]*)(?::(?P<password>[^@/]*))?@)?"
    r"(?:\[(?P<six>[0-9A-Fa-f:.%]+)\]|(?P<host>[A-Za-z0-9._-]*))(?::(?P<port>[0-9]*))?"
    r"(?:/(?P<database>[^?]*))?(?:\?(?P<more>.*))?",
    re.DOTALL,
)
_CONNECT_SECONDS = 10
_WORD = re.compile(r"[^\s=,;:'\"]+")


@dataclass(frozen=True, kw_only=True)
class DatabaseUrl:
    """A database, and what is needed to reach it.

    Examples
    --------
    >>> DatabaseUrl.of("postgresql://me:secret@host:5433/books?sslmode=require", role="data")
    DatabaseUrl(kind='postgresql', host='host', port='5433', database='books')
    """

    kind: str
    host: str
    port: str
    database: str
    user: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    more: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, text: str, *, role: str, otherwise: str = "use one of these") -> DatabaseUrl:
        """Read a URL; errors say for which role, and what to do with another database.

        Raises
        ------
        UsageError
            If it is not one of SQLite or PostgreSQL.
        """
        expected = "sqlite:///FILE or postgresql://USER@HOST/DATABASE"
        found = _URL.fullmatch(text)
        if found is None or "@" in (found["database"] or ""):
            raise UsageError(f"{role}: got no database URL, expected {expected}; {HOW_TO_ENCODE}.")
        kind = _DRIVERS.get(found["kind"].lower())
        if kind is None:
            raise UsageError(
                f"{role}: got a URL of another kind of database, expected {expected}; {otherwise}."
            )
        return cls(
            kind=kind,
            host=found["six"] or found["host"] or "",
            port=found["port"] or "",
            database=found["database"] or "",
            user=unquote(found["user"] or ""),
            password=unquote(found["password"] or ""),
            more=dict(parse_qsl(found["more"] or "", keep_blank_values=True)),
        )

    @property
    def only_a_file(self) -> bool:
        """Whether it names an SQLite file and nothing else."""
        more = self.host or self.port or self.user or self.more
        return self.kind == SQLITE and not more and self.database not in ("", ":memory:")

    @property
    def label(self) -> str:
        """What may be shown: the kind, the host and the name."""
        return f"{self.kind}://{self.host}{f':{self.port}' if self.port else ''}/{self.database}"

    def hides(self, text: str) -> bool:
        """Whether a text has no word of what stands in the URL besides host, port, database and user."""
        values = [self.password, *self.more, *self.more.values()]
        words = {word for value in values for word in (value, *_WORD.findall(value))}
        return not any(word in text for word in words if len(word) > 1)

    def connect(self) -> Connection:
        """Connect to PostgreSQL; what the URL does not say, libpq finds where it always does.

        Raises
        ------
        UsageError
            If psycopg is not installed.
        """
        try:
            import psycopg
            from psycopg.conninfo import make_conninfo
        except ImportError:
            raise UsageError(
                f"{self.label}: got a PostgreSQL URL without the package psycopg, expected it to be "
                "installed; run: pip install 'fedassay[postgres]'."
            ) from None
        named = {"host": self.host, "port": self.port, "dbname": self.database}
        named |= {"user": self.user, "password": self.password}
        given = {name: value for name, value in named.items() if value}
        parameters = {"connect_timeout": str(_CONNECT_SECONDS), **given, **self.more}
        return psycopg.connect(make_conninfo(**parameters))


def database_errors() -> tuple[type[Exception], ...]:
    """The errors of the drivers that are in use."""
    psycopg = sys.modules.get("psycopg")
    return (sqlite3.Error,) if psycopg is None else (sqlite3.Error, psycopg.Error)


def first_line(problem: Exception) -> str:
    """What a driver said, in one line that is not too long."""
    return (str(problem).strip().splitlines() or [type(problem).__name__])[0][:160]
