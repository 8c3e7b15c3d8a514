"""Score histograms of subgroups, at the price of a single histogram.

Names of subgroups are public in a question; in the rows they are fingerprints.

A question lists its groups by name. In the rows a name is replaced by 64 bits of its hash. So a column of any text
takes eight bytes per row, and finding a row's group is a search among at most 64 numbers. Two names with one
fingerprint would share a group; among 65 names that has a chance below 2^-52, and it could never change in how many
groups a row is counted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedassay.errors import DataError, UsageError
from fedassay.protocol.vocabulary import Memory, Protection, Rows, Sensitivity, Summary, Total, Vector
from fedassay.summaries.measures import column
from fedassay.summaries.score_histogram import HistogramFields, LabelledHistogram

# --- names of subgroups -------------------------------------------------------------------------------------

OTHER = "other"
"""Name of the group of every row whose value is not among the declared names."""

MOST_GROUPS = 64
LONGEST_NAME = 100


def checked_groups(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names, if they can be the declared groups of a question.

    Examples
    --------
    >>> checked_groups(["F", "M"])
    ('F', 'M')
    >>> checked_groups(["F", "F"])
    Traceback (most recent call last):
    fedassay.errors.UsageError: groups: got 'F' twice, expected different names.
    """
    groups = tuple(names)
    if not 1 <= len(groups) <= MOST_GROUPS:
        raise UsageError(f"groups: got {len(groups)} names, expected 1 to {MOST_GROUPS}.")
    for position, name in enumerate(groups):
        if not isinstance(name, str) or not 1 <= len(name) <= LONGEST_NAME:
            raise UsageError(f"groups: got {name!r}, expected a name of 1 to {LONGEST_NAME} characters.")
        if not name.isprintable():
            raise UsageError(f"groups: got {name!r}, expected a name of printable characters.")
        if name == OTHER:
            raise UsageError(
                f"groups: got {OTHER!r}, which is the group of all values that are not declared; leave it out."
            )
        if name in groups[:position]:
            raise UsageError(f"groups: got {name!r} twice, expected different names.")
    return groups


def fingerprint(name: str) -> int:
    """Return the 64 bits that stand for a name in the rows.

    Examples
    --------
    >>> fingerprint("F") == fingerprint("F"), fingerprint("F") == fingerprint("f")
    (True, False)
    """
    digest = hashlib.blake2b(name.encode(), digest_size=8, person=b"fedassay-group").digest()
    return int.from_bytes(digest, "little", signed=True)


def fingerprints(names: Iterable[str]) -> NDArray[np.int64]:
    """Return the fingerprint of each name."""
    return np.array([fingerprint(name) for name in names], dtype=np.int64)


def group_of(values: NDArray[Any], groups: tuple[str, ...]) -> NDArray[np.int64]:
    """Return for each fingerprint its position in `groups`, or one past the last if it is none of them.

    Examples
    --------
    >>> group_of(fingerprints(["b", "c", "a"]), ("a", "b")).tolist()
    [1, 2, 0]
    """
    if values.dtype != np.int64:
        raise DataError("groups: got a column that holds no fingerprints, expected 64-bit ones.")
    known = fingerprints(groups)
    order = np.argsort(known)
    places = np.minimum(np.searchsorted(known, values, sorter=order), len(groups) - 1)
    found = order[places]
    return np.asarray(np.where(known[found] == values, found, len(groups)), dtype=np.int64)


# --- one score histogram per subgroup -----------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class GroupedHistogram(HistogramFields, Summary[dict[str, LabelledHistogram]]):
    """`ScoreHistogram` for each of the declared groups, and another for the rows of none of them (``other``).

    Measures the histograms of the groups one after the other, ``other`` last; their sum is the histogram of
    all rows.

    Guarantee: the sensitivity of one histogram. A row has one value of the group column, hence falls into exactly one
    group (`group_of` is a function of the row). There it adds to one node per level; adding or removing it moves those
    nodes only. A row that is replaced leaves the nodes of its old group and enters those of its new group. That is the
    case of two rows in different nodes, which `Sensitivity.of_counts` has counted already.

    The names are public: they travel with the question. The release shows which of them have rows.

    Examples
    --------
    >>> from fedassay.summaries.grouped_histogram import fingerprints
    >>> summary = GroupedHistogram(groups=("F", "M"), transform="uniform", height=2)
    >>> class ThreeRows:
    ...     def batches(self):
    ...         group = fingerprints(["M", "F", "?"])
    ...         yield {"score": np.array([0.1, 0.9, 0.9]), "label": np.array([0, 1, 1]), "group": group}
    >>> read = summary.read(summary.measure(ThreeRows(), {})[0])
    >>> {name: (read[name].positives.tolist(), read[name].negatives.tolist()) for name in ("M", "other")}
    {'M': ([0, 0, 0, 0], [1, 0, 0, 0]), 'other': ([0, 0, 0, 1], [0, 0, 0, 0])}
    """

    name: ClassVar[str] = "grouped-histogram"
    columns: ClassVar[tuple[str, ...]] = ("score", "label", "group")

    groups: tuple[str, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "groups", checked_groups(self.groups))

    @property
    def length(self) -> int:
        """Number of entries: one histogram per group, and one for the others."""
        return (len(self.groups) + 1) * self.histogram.length

    @property
    def partitions(self) -> tuple[NDArray[np.int64], ...]:
        """Levels of the tree, all groups together: a row is in one cell of one group."""
        starts = np.arange(len(self.groups) + 1)[:, None] * self.histogram.length
        return tuple((starts + cells).reshape(-1) for cells in self.histogram.partitions)

    @property
    def leaves(self) -> GroupedHistogram:
        """Summary of the bins alone, of all groups and both classes."""
        return replace(self, widths=(1,), multipliers=())

    def from_leaves(self, counts: Vector) -> Vector:
        """Build the vector from leaf counts as for one histogram, group by group."""
        parts = np.split(counts, len(self.groups) + 1)
        return np.concatenate([self.histogram.from_leaves(part) for part in parts])

    def measure(self, rows: Rows, memory: Memory) -> tuple[Vector, Memory]:
        """Count the rows. Linear in the rows, constant in memory, one pass."""
        histogram = self.histogram
        counts = np.zeros((len(self.groups) + 1, 2 * histogram.grid.leaves), dtype=np.int64)
        for batch in rows.batches():
            values = np.asarray(column(batch, "group"))
            place, scores, labels = (
                group_of(values, self.groups),
                column(batch, "score"),
                column(batch, "label"),
            )
            for group in np.unique(place):
                counts[group] += histogram.counted(scores[place == group], labels[place == group])
        return self.from_leaves(counts.reshape(-1)), memory

    def sensitivity(self, protection: Protection) -> Sensitivity:
        """Return the sensitivity of one histogram."""
        return self.histogram.sensitivity(protection)

    def read(self, total: Total) -> dict[str, LabelledHistogram]:
        """Return the histogram of each group, ``other`` last."""
        histogram = self.histogram
        parts = np.split(total, len(self.groups) + 1)
        return {name: histogram.read(part) for name, part in zip((*self.groups, OTHER), parts, strict=True)}
