"""What a site remembers besides its charges: whose exact totals were opened, and what it has refused.

A budget bounds what noisy releases reveal. Exact totals have none; what protects there is that a total is over many
sites, and that no two totals differ by few. So a site keeps the sets of clients over which totals with its rows were
opened.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class RefusedRequest:
    """One line of a site's log of refusals. `time` is UTC, ISO 8601; `code` is what left the site, `reason` did not."""

    time: str
    exchange: str
    study: str
    asker: str | None
    code: str
    reason: str


class SiteRecords(ABC):
    """Durable: what a method has recorded when it returns survives whatever the storage survives."""

    @abstractmethod
    def cohorts(self, dataset: str) -> Sequence[frozenset[str]]:
        """The different sets of clients, this one included, over which exact totals of this data set were opened."""

    @abstractmethod
    def opened(self, dataset: str, exchange: str, cohort: frozenset[str]) -> None:
        """Record that a total over this set is being opened; the same exchange counts once."""

    @abstractmethod
    def refused(self, refusal: RefusedRequest) -> None:
        """Add to the log of refusals."""

    @abstractmethod
    def refusals(self) -> Sequence[RefusedRequest]:
        """The log, oldest first."""


class MemoryRecords(SiteRecords):
    """Records that last as long as this process: for simulations."""

    def __init__(self) -> None:
        self._cohorts: dict[str, dict[frozenset[str], None]] = {}
        self._refusals: list[RefusedRequest] = []

    def cohorts(self, dataset: str) -> Sequence[frozenset[str]]:
        """See `SiteRecords`."""
        return tuple(self._cohorts.get(dataset, {}))

    def opened(self, dataset: str, exchange: str, cohort: frozenset[str]) -> None:
        """See `SiteRecords`."""
        self._cohorts.setdefault(dataset, {})[cohort] = None

    def refused(self, refusal: RefusedRequest) -> None:
        """See `SiteRecords`."""
        self._refusals.append(refusal)

    def refusals(self) -> Sequence[RefusedRequest]:
        """See `SiteRecords`."""
        return tuple(self._refusals)
