"""Rows told apart by their class or by a declared group, so that each part gets its own answer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedassay.errors import DataError, UsageError
from fedassay.protocol import Batch
from fedassay.summaries.columns import column
from fedassay.summaries.group_names import OTHER, checked_groups, group_of

CONDITIONS = ("", "class", "group")
MOST_CLASSES = 1 << 12


def checked_condition(by: str, groups: Sequence[str]) -> tuple[str, ...]:
    """The names of the parts, if rows can be told apart so.

    By ``class``, the names are 0, 1, .. up to the number of classes; by ``group``, they are the declared groups.

    Examples
    --------
    >>> checked_condition("class", ["0", "1", "2"]), checked_condition("", [])
    (('0', '1', '2'), ())
    """
    if by not in CONDITIONS:
        raise UsageError(f"condition: got {by!r}, expected class, group or nothing.")
    if by == "group":
        return checked_groups(groups)
    names = tuple(groups)
    if by == "" and names:
        raise UsageError("groups: got names without a condition, expected none.")
    if by == "class" and (
        names != tuple(str(place) for place in range(len(names))) or not 2 <= len(names) <= MOST_CLASSES
    ):
        raise UsageError(
            f"classes: got {len(names)} names, expected 0, 1, .. for 2 to {MOST_CLASSES} classes."
        )
    return names


def condition_columns(by: str) -> tuple[str, ...]:
    """The roles of the columns that say which part a row is in."""
    return () if by == "" else (by,)


def part_names(by: str, groups: Sequence[str]) -> tuple[str, ...]:
    """All parts: rows of no declared group are ``other``; one part without a name if rows are not told apart."""
    if by == "group":
        return (*groups, OTHER)
    return tuple(groups) if by else ("",)


def parts_of(batch: Batch, by: str, groups: Sequence[str]) -> NDArray[np.int64] | None:
    """The part of each row, as a place in `part_names`; None if there is one only."""
    if by == "":
        return None
    values = np.asarray(column(batch, by))
    if by == "group":
        return group_of(values, tuple(groups))
    if values.size and not (values.min() >= 0 and values.max() < len(groups)):
        raise DataError(
            f"class: got a class outside 0 to {len(groups) - 1}, expected one that was asked about."
        )
    return values.astype(np.int64)
