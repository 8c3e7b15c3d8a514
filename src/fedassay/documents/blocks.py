"""Blocks of a document: numbers, tables, curves, sentences, verdicts. Writers turn the same blocks into any format."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import altair as alt

from fedassay.documents import figures, plots

Document = Mapping[str, Any]
"""The JSON of a result."""

Results = Mapping[str, Any]
"""The ``results`` of a single task."""

T = TypeVar("T")

_DROWNED = re.compile(
    r"not enough evidence: about \S+ [^;]* under privacy noise with standard deviation [^;]+; "
    r"(?P<needed>at least \S+ standard deviations are needed)"
)
"""Pattern of a reason that differs between metrics in its counts only."""


# --- blocks -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cell:
    """Value with a detail in smaller type below or next to it."""

    text: str
    detail: str = ""


TableRow = tuple[Cell, ...]


@dataclass(frozen=True, kw_only=True)
class TableBlock:
    """Table; the first column holds names, the others numbers. Notes are sentences below it.

    `inner` holds rows about the computation, which few readers need: a page folds them away, the other writers leave
    them to the JSON.
    """

    title: str
    head: tuple[str, ...]
    rows: tuple[TableRow, ...]
    notes: tuple[str, ...] = ()
    inner: tuple[TableRow, ...] = ()


@dataclass(frozen=True, kw_only=True)
class CurveBlock:
    """Plot with its text alternative; writers draw it if their format shows plots.

    `marks` is the mark of a page's threshold explorer in the plot: a point of the ``roc`` or the
    ``precision-recall`` curve, or the ``threshold`` on an axis from 0 to 1; nothing if empty.
    """

    draw: Callable[[], alt.TopLevelMixin]
    alternative: str
    marks: str = ""


@dataclass(frozen=True, kw_only=True)
class SentenceBlock:
    """Reason why something is missing, in the place of all tables and curves that would be empty."""

    text: str


@dataclass(frozen=True, kw_only=True)
class ExplorerBlock:
    """Meaning of each threshold, for the explorer of a page: the result's ``operating_points``."""

    points: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class KeyNumber:
    """Number before all tables: its name, its text, its interval or other detail.

    An unknown number has a `reason` and no text.
    """

    label: str
    text: str
    detail: str = ""
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class VerdictBlock:
    """Verdict of a task or a study; `is_good` if it requires no action. Without a verdict the text is empty."""

    text: str
    is_good: bool = False


DocumentBlock = TableBlock | CurveBlock | SentenceBlock | ExplorerBlock


# --- make blocks ------------------------------------------------------------------------------------------------------


def table(
    title: str,
    head: Sequence[str],
    rows: Iterable[Iterable[str | Cell]],
    *,
    notes: Iterable[str] = (),
    inner: Iterable[Iterable[str | Cell]] = (),
) -> TableBlock:
    """Make a table of texts and cells; empty notes are left out.

    Examples
    --------
    >>> table("Sums", ("", "value"), [("rows", "12")], notes=("", "All rows.")).notes
    ('All rows.',)
    """
    kept = tuple(note for note in notes if note)
    return TableBlock(title=title, head=tuple(head), rows=_cells(rows), notes=kept, inner=_cells(inner))


def _cells(rows: Iterable[Iterable[str | Cell]]) -> tuple[TableRow, ...]:
    return tuple(tuple(Cell(one) if isinstance(one, str) else one for one in row) for row in rows)


def missing(title: str, reason: str, alternative: str) -> CurveBlock:
    """Make an empty plot with the reason why its content is missing."""
    return CurveBlock(draw=lambda: plots.empty(title, reason), alternative=alternative)


def in_tables(records: Sequence[T], *, most: int, title: str) -> Iterator[tuple[Sequence[T], str]]:
    """Divide columns among tables of at most `most`, each with its title.

    Examples
    --------
    >>> [*in_tables("abcde", most=3, title="Letters")]
    [('abc', 'Letters'), ('de', 'Letters, continued')]
    """
    for place in range(0, len(records), most):
        yield records[place : place + most], f"{title}, continued" if place else title


def metric_cell(metric: Mapping[str, Any]) -> Cell:
    """Return a metric with its interval; a dash if it has no value (the reason belongs into the notes)."""
    return Cell("-") if metric["value"] is None else Cell(figures.value(metric), figures.interval(metric))


def metric_number(label: str, metric: Mapping[str, Any]) -> KeyNumber:
    """Return a metric with its interval and level, or with the reason if it has no value.

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
    """Return the interval and its level, such as ``0.790 to 0.830 (95%)``; empty without an interval."""
    return f"{figures.interval(metric)} ({100 * metric['level']:g}%)" if metric.get("interval") else ""


def with_errors(title: str, metrics: Sequence[tuple[str, Results]], *, notes: Iterable[str]) -> TableBlock:
    """Make a table of the metrics that have a value: each with its interval and the parts of its error."""
    level = metrics[0][1]["level"]
    parts = ("sampling", "privacy", "discretisation")
    rows = (
        (
            name,
            figures.value(metric),
            figures.interval(metric),
            *(figures.error(metric["error"][part]) for part in parts),
        )
        for name, metric in metrics
        if metric["value"] is not None
    )
    head = ("metric", "value", f"{level:.0%} interval", "sampling", "privacy", "binning")
    return table(title, head, rows, notes=notes)


# --- reasons ----------------------------------------------------------------------------------------------------------


def reasons(named: Iterable[tuple[str, Mapping[str, Any]]]) -> tuple[str, ...]:
    """Return each reason of missing numbers once, with the names of these numbers; different counts are ignored.

    Examples
    --------
    >>> none = {"value": None, "reason": "there are no rows"}
    >>> reasons([("AUC", none), ("F1", {"value": 0.5}), ("slope", none)])
    ('AUC, slope: there are no rows',)
    """
    return tuple(f"{_listed(names)}: {reason}" for reason, names in _by_reason(named).items())


def why(metrics: Iterable[Mapping[str, Any]]) -> str:
    """Return the reasons alone, as a sentence that can end another.

    Examples
    --------
    >>> noise = "under privacy noise with standard deviation 90; at least 4 standard deviations are needed"
    >>> told = (f"not enough evidence: about {count} {noise}" for count in ("3 rows", "2 positive rows"))
    >>> why({"value": None, "reason": reason} for reason in told)
    'not enough evidence: too few rows under so much privacy noise; at least 4 standard deviations are needed'
    """
    return "; ".join(_by_reason(("", metric) for metric in metrics))


def _by_reason(named: Iterable[tuple[str, Mapping[str, Any]]]) -> dict[str, list[str]]:
    """Return the names of metrics without a value, by reason; without counts if reasons differ in them only."""
    names: dict[str, dict[str, None]] = {}
    exact: dict[str, set[str]] = {}
    for name, metric in named:
        if metric["value"] is None:
            key = alike(metric["reason"])
            names.setdefault(key, {})[name] = None
            exact.setdefault(key, set()).add(metric["reason"])
    return {(key if len(exact[key]) > 1 else exact[key].pop()): list(names[key]) for key in names}


def alike(text: str) -> str:
    """Remove the counts from reasons that differ only in them, so that two reasons can be compared."""
    return _DROWNED.sub(
        lambda found: f"not enough evidence: too few rows under so much privacy noise; {found['needed']}",
        text,
    )


def _listed(names: Sequence[str], *, most: int = 12) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
