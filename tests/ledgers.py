"""Ledgers for tests: charges with known costs, places of every kind, and processes that spend."""

from __future__ import annotations

import multiprocessing
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import postgres
from fedassay.privacy.accounting import LAPLACE
from fedassay.privacy.ledger.charges import Charge
from fedassay.privacy.ledger.database import DatabaseLedger
from fedassay.privacy.ledger.place import LedgerConnection, Place
from fedassay.protocol.vocabulary import Budget

FORK = multiprocessing.get_context("fork")
"""Children then have everything imported already; a test that forks has one thread."""

SQLITE, POSTGRESQL = "sqlite", "postgresql"
KINDS = (SQLITE, POSTGRESQL)


def charge(name: str | bytes = "1", **changes: Any) -> Charge:
    """A release that costs epsilon = 0.25."""
    values: dict[str, Any] = {
        "dataset": "rows",
        "study": "study",
        "law": LAPLACE,
        "scale": 4.0,
        "l1": 1.0,
        "l2": 1.0,
        "trust_model": "server-dp",
    }
    return Charge(id=name, **{**values, **changes})


def exact(name: str = "exact", **changes: Any) -> Charge:
    """A release without noise."""
    unbounded = float("inf")
    return charge(
        name, law="none", scale=0.0, l1=unbounded, l2=unbounded, trust_model="secure-sum", **changes
    )


def place(kind: str, folder: Path) -> str:
    """A place where no ledger is yet."""
    if kind == SQLITE:
        return str(folder / "ledger.sqlite")
    schema = f"books_{uuid.uuid4().hex}"
    postgres.execute(f"CREATE SCHEMA {schema}")
    return f"{postgres.server()}?options=-csearch_path%3D{schema}"


def opened(where: str, folder: Path, budget: Budget | None, **options: Any) -> DatabaseLedger:
    """The ledger at this place, with its anchor in the folder."""
    return DatabaseLedger(where, budget, anchor=folder / "ledger.head", **options)


def recorded(state: Path) -> tuple[Charge, ...]:
    """The charges in the ledger of a site's or coordinator's folder; none if there is no ledger."""
    path = state / "ledger.sqlite"
    return DatabaseLedger(path, None).charges if path.exists() else ()


def sql(where: str, *statements: str) -> list[Any]:
    """What an administrator can do behind a ledger's back; the rows of the last statement."""
    with ledger_connection(where) as connection:
        results = [list(connection.execute(statement)) for statement in statements]
    return results[-1]


@contextmanager
def ledger_connection(where: str) -> Iterator[LedgerConnection]:
    """A connection to a ledger's database, in a transaction that is committed."""
    with closing(Place.of(where).connect()) as connection:
        connection.begin()
        yield connection
        connection.end(commit=True)
