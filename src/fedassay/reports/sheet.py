"""What a report is made of: tables as plain text, and plots. The terminal and the page show the same ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import altair as alt

from fedassay.reports import figures

Document = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A value, and what stands smaller beneath or beside it."""

    text: str
    detail: str = ""


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """One table; the first column names, the others are numbers. Notes are sentences below it."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = field(default=())


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One plot, drawn where it can be seen, and the same in words.

    `marks` says what the threshold explorer of a page marks in it: a point of the ``roc`` or the
    ``precision-recall`` curve, or the ``threshold`` on an axis from 0 to 1; nothing if empty.
    """

    draw: Callable[[], alt.TopLevelMixin]
    alternative: str
    marks: str = ""


@dataclass(frozen=True, kw_only=True)
class Explorer:
    """What each threshold would mean, to be looked through on a page: the result's ``operating_points``."""

    points: Mapping[str, Any]


Piece = Sheet | Figure | Explorer
"""Something that a report shows."""


@dataclass(frozen=True, kw_only=True)
class KeyNumber:
    """A number to know before any table: what it is, the number, its interval or what else belongs to it."""

    label: str
    text: str
    detail: str = ""


def metric_cell(metric: Mapping[str, Any]) -> Cell:
    """A metric with its interval; a dash if it has no value, the reason of which belongs into the notes."""
    if metric["value"] is None:
        return Cell(text="-")
    return Cell(text=figures.value(metric), detail=figures.interval(metric))


def reasons(named: Iterable[tuple[str, Mapping[str, Any]]]) -> tuple[str, ...]:
    """Why there is no number: each reason once, with the names of all that have it.

    Examples
    --------
    >>> none = {"value": None, "reason": "there are no rows"}
    >>> reasons([("AUC", none), ("F1", {"value": 0.5}), ("slope", none)])
    ('AUC, slope: there are no rows',)
    """
    found: dict[str, dict[str, None]] = {}
    for name, metric in named:
        if metric["value"] is None:
            found.setdefault(metric["reason"], {})[name] = None
    return tuple(f"{_listed(list(names))}: {reason}" for reason, names in found.items())


def _listed(names: Sequence[str], *, most: int = 12) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
