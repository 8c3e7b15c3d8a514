"""What a report is made of: tables as plain text, and plots. The terminal and the page show the same ones."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import altair as alt

from fedassay.documents import figures

Document = Mapping[str, Any]

T = TypeVar("T")

_DROWNED = re.compile(
    r"not enough evidence: about \S+ [^;]* under privacy noise with standard deviation [^;]+; "
    r"(?P<needed>at least \S+ standard deviations are needed)"
)
"""A reason that is the same for all metrics but for the counts in it."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A value, and what stands smaller beneath or beside it."""

    text: str
    detail: str = ""


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """One table; the first column names, the others are numbers. Notes are sentences below it.

    `inner` are rows about how it was computed, which few people need: a page has them behind a click, others leave them
    to the JSON.
    """

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = field(default=())
    inner: tuple[tuple[Cell, ...], ...] = field(default=())


@dataclass(frozen=True, kw_only=True)
class Notice:
    """Why something is not there, in the place of all tables and plots that would have nothing to show."""

    text: str


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


def in_tables(records: Sequence[T], *, most: int, title: str) -> Iterator[tuple[Sequence[T], str]]:
    """The records of each table, where each has at most so many columns, and the title of the table.

    Examples
    --------
    >>> [*in_tables("abcde", most=3, title="Letters")]
    [('abc', 'Letters'), ('de', 'Letters, continued')]
    """
    for place in range(0, len(records), most):
        yield records[place : place + most], f"{title}, continued" if place else title


Piece = Sheet | Figure | Explorer | Notice
"""Something that a report shows."""


@dataclass(frozen=True, kw_only=True)
class KeyNumber:
    """A number to know before any table: what it is, the number, its interval or what else belongs to it.

    One with a `reason` is not known, and has no text.
    """

    label: str
    text: str
    detail: str = ""
    reason: str = ""


def metric_cell(metric: Mapping[str, Any]) -> Cell:
    """A metric with its interval; a dash if it has no value, the reason of which belongs into the notes."""
    if metric["value"] is None:
        return Cell(text="-")
    return Cell(text=figures.value(metric), detail=figures.interval(metric))


def metric_number(label: str, metric: Mapping[str, Any]) -> KeyNumber:
    """A metric with its interval and level; one without a value with the reason.

    Examples
    --------
    >>> found = metric_number("AUC", {"value": 0.8123, "interval": [0.79, 0.83], "level": 0.95})
    >>> found.text, found.detail
    ('0.812', '0.790 to 0.830 (95%)')
    >>> metric_number("AUC", {"value": None, "reason": "one class only"}).reason
    'one class only'
    """
    if metric["value"] is None:
        return KeyNumber(label=label, text="", reason=str(metric["reason"]))
    return KeyNumber(label=label, text=figures.value(metric), detail=interval_with_level(metric))


def interval_with_level(metric: Mapping[str, Any]) -> str:
    """The interval and its level, such as ``0.790 to 0.830 (95%)``; empty without an interval."""
    return f"{figures.interval(metric)} ({100 * metric['level']:g}%)" if metric.get("interval") else ""


def reasons(named: Iterable[tuple[str, Mapping[str, Any]]]) -> tuple[str, ...]:
    """Why there is no number: each reason once, with the names of all that have it; counts do not make it another.

    Examples
    --------
    >>> none = {"value": None, "reason": "there are no rows"}
    >>> reasons([("AUC", none), ("F1", {"value": 0.5}), ("slope", none)])
    ('AUC, slope: there are no rows',)
    """
    return tuple(f"{_listed(names)}: {reason}" for reason, names in _by_reason(named).items())


def why(metrics: Iterable[Mapping[str, Any]]) -> str:
    """The reasons alone, as a sentence that can end another.

    Examples
    --------
    >>> noise = "under privacy noise with standard deviation 90; at least 4 standard deviations are needed"
    >>> told = (f"not enough evidence: about {count} {noise}" for count in ("3 rows", "2 positive rows"))
    >>> why({"value": None, "reason": reason} for reason in told)
    'not enough evidence: too few rows under so much privacy noise; at least 4 standard deviations are needed'
    """
    return "; ".join(_by_reason(("", metric) for metric in metrics))


def _by_reason(named: Iterable[tuple[str, Mapping[str, Any]]]) -> dict[str, list[str]]:
    """The names of what has no value, by reason; where reasons differ in counts only, by one without them."""
    found: dict[str, dict[str, None]] = {}
    told: dict[str, set[str]] = {}
    for name, metric in named:
        if metric["value"] is None:
            key = alike(metric["reason"])
            found.setdefault(key, {})[name] = None
            told.setdefault(key, set()).add(metric["reason"])
    return {(key if len(told[key]) > 1 else told[key].pop()): list(names) for key, names in found.items()}


def alike(text: str) -> str:
    """A text with the counts taken out of reasons that differ in nothing else, so that two of them can be compared."""
    return _DROWNED.sub(
        lambda found: f"not enough evidence: too few rows under so much privacy noise; {found['needed']}",
        text,
    )


def _listed(names: Sequence[str], *, most: int = 12) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
