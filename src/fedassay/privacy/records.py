"""What a site remembers besides its charges: what it has refused.

The sets of clients whose exact totals it has helped to open are where its answers are (`member_store`).
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
    def refused(self, refusal: RefusedRequest) -> None:
        """Add to the log of refusals."""

    @abstractmethod
    def refusals(self) -> Sequence[RefusedRequest]:
        """The log, oldest first."""


class MemoryRecords(SiteRecords):
    """Records that last as long as this process: for simulations."""

    def __init__(self) -> None:
        self._refusals: list[RefusedRequest] = []

    def refused(self, refusal: RefusedRequest) -> None:
        """See `SiteRecords`."""
        self._refusals.append(refusal)

    def refusals(self) -> Sequence[RefusedRequest]:
        """See `SiteRecords`."""
        return tuple(self._refusals)
