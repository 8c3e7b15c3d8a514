"""Log of the requests that a site has refused: the newest ones, and the number of all.

Refusals are kept apart from the chain of charges: a party that may ask can be refused without end, and what is in the
chain stays there for ever.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from fedassay.errors import LedgerUnusable
from fedassay.privacy.ledger.book import REFUSALS, upgrade
from fedassay.privacy.ledger.place import Place
from fedassay.protocol.texts import visible

MOST_KEPT = 1_000
"""Refused requests of which all is kept; older ones are only counted."""
LONGEST_FIELD = 500
"""Characters that are kept of each field."""


@dataclass(frozen=True, kw_only=True)
class RefusedRequest:
    """Line of a site's log of refusals. `time` is UTC, ISO 8601; `code` is what left the site, `reason` did not.

    Fields are cut to `LONGEST_FIELD` characters that can be printed, because strangers wrote some of them.
    """

    time: str
    exchange: str
    study: str
    asker: str | None
    code: str
    reason: str

    def __post_init__(self) -> None:
        for name in _FIELDS:
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, visible(value[: 2 * LONGEST_FIELD])[:LONGEST_FIELD])


_FIELDS = tuple(field.name for field in fields(RefusedRequest))


class SiteRecords:
    """Refusals that are kept as long as this process: for simulations."""

    def __init__(self) -> None:
        self._refusals: list[RefusedRequest] = []

    def refused(self, refusal: RefusedRequest) -> None:
        """Add to the log of refusals."""
        self._refusals = [*self._refusals, refusal][-MOST_KEPT:]

    def refusals(self) -> Sequence[RefusedRequest]:
        """Return the newest refusals, at most `MOST_KEPT`, oldest first."""
        return tuple(self._refusals)


class DatabaseRecords(SiteRecords):
    """Refusals in the database of a ledger, durable when `refused` returns, but not in its chain.

    Parameters
    ----------
    place : as for `DatabaseLedger`.
    """

    def __init__(self, place: str | Path | Place) -> None:
        self._place = place if isinstance(place, Place) else Place.of(place)

    def __repr__(self) -> str:
        return f"DatabaseRecords({self._place.label})"

    def refused(self, refusal: RefusedRequest) -> None:
        """See `SiteRecords`."""
        with self._place.transaction() as connection:
            upgrade(connection, label=self._place.label)
            # In two steps, because parameters of PostgreSQL have the type of the place where they stand.
            ((last,),) = connection.execute(f"SELECT COALESCE(MAX(number), 0) FROM {REFUSALS}")
            connection.execute(
                f"INSERT INTO {REFUSALS} (number, content) VALUES (:number, :content)",
                {"number": last + 1, "content": json.dumps(asdict(refusal))},
            )
            connection.execute(
                f"DELETE FROM {REFUSALS} WHERE number <= :oldest", {"oldest": last + 1 - MOST_KEPT}
            )

    def refusals(self) -> Sequence[RefusedRequest]:
        """See `SiteRecords`."""
        return tuple(self.numbered().values())

    def numbered(self) -> dict[int, RefusedRequest]:
        """Return the refusals by their number since the first one."""
        if self._place.file is not None and not self._place.file.exists():
            return {}
        with self._place.transaction() as connection:
            upgrade(connection, label=self._place.label)
            rows = list(connection.execute(f"SELECT number, content FROM {REFUSALS} ORDER BY number"))
        try:
            return {number: RefusedRequest(**json.loads(content)) for number, content in rows}
        except (TypeError, ValueError):
            raise LedgerUnusable(
                f"{self._place.label}: got a refusal that this fedassay cannot read, expected one of its own; "
                "upgrade fedassay."
            ) from None
