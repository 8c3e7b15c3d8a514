"""A column that is not there: what to say, and which one the user may have meant."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from fedassay.data.findings import Finding, error, listed
from fedassay.data.numbered import beginnings, numbered_columns

MOST_COLUMNS_LISTED = 20


def absent(name: str, role: str, existing: Sequence[str], *, wide: bool, where: str) -> Finding:
    """The error about a column that is not there, or there more than once, and what may have been meant.

    `wide` is for a role that may also be named by what numbered columns begin with.

    Examples
    --------
    >>> print(absent("Age", "feature", ["age", "sex"], wide=False, where="rows.csv").sentence())
    rows.csv, column 'Age' (feature): got no such column, expected one of 'age', 'sex'; did you mean 'age'?
    """
    what = f"{where}, column {name!r} ({role})"
    if name in existing:
        return error(
            what=what,
            got=f"{list(existing).count(name)} columns of this name",
            expected="one",
            fix="rename or remove the others",
        )
    folded = {column.casefold(): column for column in _nameable(existing, wide=wide)}
    close = difflib.get_close_matches(name.casefold(), list(folded), n=1, cutoff=0.5)
    fix = f"did you mean {folded[close[0]]!r}?" if close else "check the name"
    return error(
        what=what,
        got="no such column" if existing else "a table without columns",
        expected=f"one of {listed(list(existing), most=MOST_COLUMNS_LISTED)}" if existing else "columns",
        fix=fix,
    )


def _nameable(existing: Sequence[str], *, wide: bool) -> tuple[str, ...]:
    """What can be named for a role: columns, or for a wide role what the names of numbered ones begin with."""
    if not wide:
        return tuple(existing)
    stems = beginnings(existing)
    numbered = {column for stem in stems for column in numbered_columns(stem, existing)}
    return (*stems, *(column for column in existing if column not in numbered))
