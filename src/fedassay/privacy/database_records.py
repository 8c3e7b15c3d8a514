"""What a site remembers besides its charges, in the same database and the same chain."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fedassay.errors import LedgerUnusable
from fedassay.privacy.book import Book
from fedassay.privacy.chain import OPENED, REFUSED, Record, canonical
from fedassay.privacy.database_ledger import anchor_of
from fedassay.privacy.ledger_place import Place
from fedassay.privacy.records import RefusedRequest, SiteRecords


class DatabaseRecords(SiteRecords):
    """Cohorts and refusals, durable and hash-chained with the charges of the same place.

    Parameters
    ----------
    place, anchor : as for `DatabaseLedger`; give both the same.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     records = DatabaseRecords(Path(folder) / "ledger.sqlite")
    ...     records.opened("d", "exchange", frozenset({"a", "b"}))
    ...     [sorted(cohort) for cohort in records.cohorts("d")]
    [['a', 'b']]
    """

    def __init__(self, place: str | Path, *, anchor: Path | None = None) -> None:
        found = Place.of(place)
        self._cohorts = _Cohorts()
        self._book = Book(found, anchor_of(found, anchor), self._cohorts.learn)

    def __repr__(self) -> str:
        return f"DatabaseRecords({self._book.place.label})"

    def cohorts(self, dataset: str) -> Sequence[frozenset[str]]:
        """See `SiteRecords`."""
        self._book.read()
        return self._cohorts.of(dataset)

    def opened(self, dataset: str, exchange: str, cohort: frozenset[str]) -> None:
        """See `SiteRecords`. An exchange that is opened again over other clients is another record."""
        body = {"dataset": dataset, "exchange": exchange, "cohort": sorted(cohort)}
        # Not the names themselves: hundreds of them are more than an index holds.
        name = hashlib.sha256(canonical(body).encode()).hexdigest()
        with self._book.transaction() as work:
            if not work.find(OPENED, [name]):
                work.append(OPENED, [(name, body)])

    def refused(self, refusal: RefusedRequest) -> None:
        """See `SiteRecords`."""
        with self._book.transaction() as work:
            work.append(REFUSED, [(None, asdict(refusal))])

    def refusals(self) -> Sequence[RefusedRequest]:
        """See `SiteRecords`."""
        self._book.read()
        return tuple(refusal_of(one.body) for one in self._book.stored() if one.kind == REFUSED)


class _Cohorts:
    """The different sets of clients of each data set, in the order of their first records."""

    def __init__(self) -> None:
        self._found: dict[str, dict[frozenset[str], None]] = {}

    def of(self, dataset: str) -> tuple[frozenset[str], ...]:
        return tuple(self._found.get(dataset, {}))

    def learn(self, record: Record) -> None:
        if record.kind == OPENED:
            dataset, cohort = record.body["dataset"], record.body["cohort"]
            if not (isinstance(cohort, list) and all(isinstance(name, str) for name in (dataset, *cohort))):
                raise TypeError("cohort: expected names.")
            self._found.setdefault(dataset, {})[frozenset(cohort)] = None
        elif record.kind == REFUSED:
            refusal_of(record.body)


def refusal_of(body: Mapping[str, Any]) -> RefusedRequest:
    """The refused request that was recorded."""
    if not all(isinstance(value, str | None) for value in body.values()):
        raise LedgerUnusable("ledger: got a refusal whose fields are no texts, expected texts.")
    try:
        return RefusedRequest(**body)
    except TypeError:
        raise LedgerUnusable(
            "ledger: got a refusal that this fedassay cannot read, expected one of its own or older; upgrade fedassay."
        ) from None
