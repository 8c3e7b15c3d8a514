"""Names of subgroups: public in a question, a fingerprint in the rows.

A question lists its groups by name. In the rows a name is replaced by 64 bits of its hash, so that a column of
any text takes eight bytes per row and finding a row's group is a search among at most 64 numbers. Two names
with one fingerprint would share a group; among 65 names that has a chance below 2^-52, and it could never
change in how many groups a row is counted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from fedassay.errors import UsageError

OTHER = "other"
"""The group of every row whose value is not among the declared names."""

MOST_GROUPS = 64
LONGEST_NAME = 100


def checked_groups(names: Iterable[str]) -> tuple[str, ...]:
    """The names, if they can be the declared groups of a question.

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
    """The 64 bits that stand for a name in the rows.

    Examples
    --------
    >>> fingerprint("F") == fingerprint("F"), fingerprint("F") == fingerprint("f")
    (True, False)
    """
    digest = hashlib.blake2b(name.encode(), digest_size=8, person=b"fedassay-group").digest()
    return int.from_bytes(digest, "little", signed=True)


def fingerprints(names: Iterable[str]) -> NDArray[np.int64]:
    """The fingerprint of each name."""
    return np.array([fingerprint(name) for name in names], dtype=np.int64)


def group_of(values: NDArray[np.int64], groups: tuple[str, ...]) -> NDArray[np.int64]:
    """For each fingerprint its position in `groups`, or one past the last if it is none of them.

    Examples
    --------
    >>> group_of(fingerprints(["b", "c", "a"]), ("a", "b")).tolist()
    [1, 2, 0]
    """
    known = fingerprints(groups)
    order = np.argsort(known)
    places = np.minimum(np.searchsorted(known, values, sorter=order), len(groups) - 1)
    found = order[places]
    return np.asarray(np.where(known[found] == values, found, len(groups)), dtype=np.int64)
