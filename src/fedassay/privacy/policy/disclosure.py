"""Disclosure profiles: small counts are hidden and others rounded, where nothing better protects them.

For counts that are seen as they are: a client's own, where messages are not masked (`plain`), and published
exact totals. Guarantee: what is shown is a function of the protected counts of the finest cells, so that the parts of
*one* summary cannot be subtracted from each other; a cell that shows 0 held 0 to `least` - 1 rows. This is statistical
disclosure control by rule, not differential privacy: other exact answers about the same rows can undo it.

Under noise a profile would do harm: hiding a count moves it by up to `least` - 1 when one row changes, further than
noise of the same scale covers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from fedassay.errors import UnsupportedQuery, UsageError
from fedassay.protocol.vocabulary import Collect, Memory, Query, Rows, Sum, Summary, Total, Vector


@dataclass(frozen=True, kw_only=True)
class Disclosure:
    """A profile: counts below `least` become 0, all others are rounded to the nearest multiple of `multiple`.

    Examples
    --------
    >>> PROFILES["redact-7-round-5"].protect(np.array([0, 1, 7, 8, 12, 13]))
    array([ 0,  0,  0, 10, 10, 15])
    """

    name: str
    least: int
    multiple: int = 1

    def __post_init__(self) -> None:
        if self.least < 1 or self.multiple < 1:
            raise UsageError(f"disclosure profile {self.name}: expected whole numbers of at least 1.")

    def protect(self, counts: Vector) -> Vector:
        """Return the counts as they may be seen."""
        rounded = (counts + self.multiple // 2) // self.multiple * self.multiple
        return np.where(counts < self.least, 0, rounded).astype(np.int64)

    def measure(self, summary: Summary[Any], rows: Rows, memory: Memory) -> tuple[Vector, Memory]:
        """Return a client's protected counts: those of the finest cells, and all others made from these."""
        finest = summary.leaves
        if finest is None:
            raise UnsupportedQuery(not_counts(summary, self))
        counts, memory = finest.measure(rows, memory)
        return summary.from_leaves(self.protect(counts)), memory

    def publish(self, query: Query[Any], total: Total) -> Vector:
        """Return an exact total of this query as it may be published."""
        self.require_published(query)
        summary = query.of
        return summary.from_leaves(self.protect(total.astype(np.int64)[summary.partitions[0]]))

    def require_published(self, query: Query[Any]) -> None:
        """Refuse, before any client is asked, a query whose exact total could not be protected."""
        if not is_countable(query) or not query.of.partitions:
            raise UnsupportedQuery(not_counts(query.of, self))

    @property
    def words(self) -> str:
        """Description of the treatment of counts, for readers of a result."""
        rounding = f", others were rounded to multiples of {self.multiple}" if self.multiple > 1 else ""
        return f"counts of 1 to {self.least - 1} rows were replaced by 0{rounding}"


PROFILES: Mapping[str, Disclosure] = MappingProxyType(
    {
        profile.name: profile
        for profile in (
            Disclosure(name="minimum-5", least=5),
            Disclosure(name="minimum-11", least=11),
            Disclosure(name="redact-7-round-5", least=8, multiple=5),
        )
    }
)


def profile_named(name: object) -> Disclosure:
    """Return the profile of this name.

    Examples
    --------
    >>> profile_named("minimum-3")
    Traceback (most recent call last):
    fedassay.errors.UsageError: disclosure: got 'minimum-3', expected one of minimum-5, minimum-11, redact-7-round-5.
    """
    if not isinstance(name, str) or name not in PROFILES:
        raise UsageError(f"disclosure: got {name!r}, expected one of {', '.join(PROFILES)}.")
    return PROFILES[name]


def is_countable(query: Query[Any]) -> bool:
    """Return whether the query asks for counts of rows, each row in one of the finest cells."""
    return isinstance(query, Sum | Collect) and query.of.leaves is not None


def not_counts(summary: Summary[Any], profile: Disclosure) -> str:
    """Explain why a profile cannot be applied."""
    return (
        f"{summary.name}: it is not made of counts of rows, so that the disclosure profile {profile.name} cannot "
        "protect it; ask for something that is, or under a trust model that adds noise."
    )
