"""What a site remembers besides its charges, in the same database and the same chain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fedassay.errors import LedgerUnusable
from fedassay.privacy.book import Book
from fedassay.privacy.chain import REFUSED, Record
from fedassay.privacy.database_ledger import anchor_of
from fedassay.privacy.ledger_place import Place
from fedassay.privacy.records import RefusedRequest, SiteRecords


class DatabaseRecords(SiteRecords):
    """Refusals, durable and hash-chained with the charges of the same place.

    Parameters
    ----------
    place, anchor : as for `DatabaseLedger`; give both the same.
    """

    def __init__(self, place: str | Path, *, anchor: Path | None = None) -> None:
        found = Place.of(place)
        self._book = Book(found, anchor_of(found, anchor), _check)

    def __repr__(self) -> str:
        return f"DatabaseRecords({self._book.place.label})"

    def refused(self, refusal: RefusedRequest) -> None:
        """See `SiteRecords`."""
        with self._book.transaction() as work:
            work.append(REFUSED, [(None, asdict(refusal))])

    def refusals(self) -> Sequence[RefusedRequest]:
        """See `SiteRecords`."""
        self._book.read()
        return tuple(refusal_of(one.body) for one in self._book.stored() if one.kind == REFUSED)


def _check(record: Record) -> None:
    """Raise for a refusal that cannot be read."""
    if record.kind == REFUSED:
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
