"""Conformity scores of rows, in groups: the input of every summary of scores."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar

import numpy as np

from fedassay.errors import DataError, UsageError
from fedassay.protocol.arrays import Bools, Floats, Ints
from fedassay.protocol.parameters import INTERNAL, Checked, Interval
from fedassay.protocol.vocabulary import LARGEST_ROWS_PER_CLIENT, Batch, Rows, Summary
from fedassay.summaries.grouped_histogram import OTHER, checked_groups, group_of
from fedassay.summaries.measures import column
from fedassay.summaries.quantities import QUANTITIES, checked_quantity, scores_of

S = TypeVar("S")

CONDITIONS = ("", "class", "group")
"""Conditions by which rows can be kept apart: nothing, their true class, or the values of a column."""

EVERYONE = "all"
"""Name of the only group where rows are not kept apart."""

MOST_CLASSES = 1024

NumberOfClasses = Annotated[int, Interval(ge=2, le=MOST_CLASSES)]
"""Number of classes."""

RowsPerClient = Annotated[int, Interval(ge=1, le=LARGEST_ROWS_PER_CLIENT)]
"""Number of rows that a client can have."""


def checked_condition(by: str, groups: Iterable[str]) -> tuple[str, ...]:
    """Return the groups, if they fit the condition: none, or ``"0"`` to ``"K-1"``, or declared names.

    Examples
    --------
    >>> checked_condition("class", ["0", "1"]), checked_condition("", [])
    (('0', '1'), ())
    >>> checked_condition("class", ["cat", "dog"])
    Traceback (most recent call last):
    fedassay.errors.UsageError: groups: got 'cat' as the first class, expected '0' to '1' in this order.
    """
    names = tuple(groups)
    if by not in CONDITIONS:
        raise UsageError(f"groups by: got {by!r}, expected 'class', 'group' or nothing.")
    if by == "group":
        return checked_groups(names)
    if not by and names:
        raise UsageError(f"groups: got {len(names)} names, but nothing to tell rows apart by; expected none.")
    if by == "class" and not 1 <= len(names) <= MOST_CLASSES:
        raise UsageError(f"groups: got {len(names)} classes, expected 1 to {MOST_CLASSES}.")
    for place, name in enumerate(names):
        if name != str(place):
            where = "the first class" if place == 0 else f"class {place}"
            raise UsageError(
                f"groups: got {name!r} as {where}, expected '0' to '{len(names) - 1}' in this order."
            )
    return names


def condition_names(by: str, groups: tuple[str, ...]) -> tuple[str, ...]:
    """Return the groups that results are given for: the declared ones and ``other``, the classes, or ``all``.

    Examples
    --------
    >>> condition_names("", ()), condition_names("class", ("0", "1")), condition_names("group", ("F", "M"))
    (('all',), ('0', '1'), ('F', 'M', 'other'))
    """
    return {"": (EVERYONE,), "class": groups, "group": (*groups, OTHER)}[by]


def condition_columns(by: str, quantity: str) -> tuple[str, ...]:
    """Return the roles of the columns that define the group of a row; the class is where its score has it from.

    Examples
    --------
    >>> condition_columns("class", "aps"), condition_columns("class", "binary"), condition_columns("", "aps")
    (('class',), ('label',), ())
    """
    if by == "class":
        return (QUANTITIES[quantity].truth,)
    return (by,) if by else ()


def places(batch: Batch, by: str, groups: tuple[str, ...], rows: int, *, quantity: str) -> Ints:
    """Return for each row the position of its group in `condition_names`.

    A class that was not asked about counts as the last one: whether a client refuses is seen, and must not depend on
    what its rows are. The sender of the question has to know the number of classes.

    Examples
    --------
    >>> places({"class": np.array([1, 0])}, "class", ("0", "1"), 2, quantity="lac")
    array([1, 0])
    """
    if not by:
        return np.zeros(rows, dtype=np.int64)
    (role,) = condition_columns(by, quantity)
    values = np.asarray(column(batch, role))
    if by == "group":
        return group_of(values, groups)
    if values.dtype.kind not in "iu":
        raise DataError(f"{role}: got a column of type {values.dtype}, expected whole numbers.")
    return np.asarray(np.clip(values, 0, len(groups) - 1), dtype=np.int64)


@dataclass(frozen=True, kw_only=True)
class OfQuantity(Checked, Summary[S]):
    """Summary of one conformity score.

    Parameters
    ----------
    quantity : a name in `QUANTITIES`.
    parameters : those of the quantity, its defaults if there are none.
    """

    quantity: str
    parameters: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "parameters", checked_quantity(self.quantity, self.parameters))

    @property
    def columns(self) -> tuple[str, ...]:  # type: ignore[override]
        """Columns that the score is computed from."""
        return QUANTITIES[self.quantity].columns


@dataclass(frozen=True, kw_only=True)
class Scored(OfQuantity[S]):
    """Summary of one conformity score, for each group of rows by itself.

    Parameters
    ----------
    by : ``class`` (the true class of a row), ``group`` (the declared values of a column, and ``other`` for all rows
        with another value), or nothing: all rows are one group.
    groups : ``"0"`` to ``"K-1"`` for classes, the declared names for groups.
    """

    by: str = ""
    groups: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "groups", checked_condition(self.by, self.groups))

    @property
    def columns(self) -> tuple[str, ...]:  # type: ignore[override]
        """Columns that the score is computed from, and those that distinguish groups."""
        return tuple(dict.fromkeys((*super().columns, *condition_columns(self.by, self.quantity))))

    @property
    def names(self) -> tuple[str, ...]:
        """Groups that results are given for."""
        return condition_names(self.by, self.groups)

    def places(self, batch: Batch, rows: int) -> Ints:
        """Return the position of each row's group in `names`."""
        return places(batch, self.by, self.groups, rows, quantity=self.quantity)

    def collected(self, rows: Rows) -> tuple[Floats, ...]:
        """Return all scores of each group, in memory."""
        scores: list[Floats] = []
        where: list[Ints] = []
        for batch in rows.batches():
            found = scores_of(batch, self.quantity, self.parameters)
            scores.append(found)
            where.append(self.places(batch, len(found)))
        every = np.concatenate(scores) if scores else np.empty(0)
        if not self.by:
            return (every,)
        place = np.concatenate(where) if where else np.empty(0, dtype=np.int64)
        order = np.argsort(place, kind="stable")
        ends = np.searchsorted(place[order], np.arange(1, len(self.names)))
        return tuple(np.split(every[order], ends))


@dataclass(frozen=True, kw_only=True)
class Thresholded(Scored[S]):
    """Summary of scores that are compared with thresholds.

    Parameters
    ----------
    thresholds : one per group, +∞ where everything is covered.
    """

    thresholds: tuple[float, ...] = field(metadata=INTERNAL)  # may be infinite, which parameters may not

    def __post_init__(self) -> None:
        super().__post_init__()
        thresholds = tuple(float(number) for number in self.thresholds)
        if len(thresholds) != len(self.names) or any(math.isnan(number) for number in thresholds):
            raise UsageError(
                f"thresholds: got {list(thresholds)}, expected a number for each of the {len(self.names)} groups."
            )
        object.__setattr__(self, "thresholds", thresholds)

    def covered(self, rows: Rows) -> Iterator[tuple[Batch, Ints, Bools]]:
        """Yield rows, their groups, and whether they score at most the threshold of their group."""
        limits = np.array(self.thresholds)
        for batch in rows.batches():
            scores = scores_of(batch, self.quantity, self.parameters)
            place = self.places(batch, len(scores))
            yield batch, place, scores <= limits[place]


def whole(value: Any, *, what: str, least: int, most: int) -> int:
    """Return the number itself, if it is a whole number within its bounds."""
    if type(value) is not int or not least <= value <= most:
        raise UsageError(f"{what}: got {value!r}, expected a whole number from {least:,} to {most:,}.")
    return value
