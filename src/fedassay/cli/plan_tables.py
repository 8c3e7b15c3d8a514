"""Numbers and tables of plans, as all of them show them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich import box
from rich.table import Table

from fedassay.documents.figures import counted
from fedassay.metrics import CLASS_METRICS, METRICS

_HELD_OUT = "held_out_"

_SHOWN = {
    "enough data": "[green]enough[/]",
    "not enough": "[red]few[/]",
    "not decidable": "[yellow]unclear[/]",
}


def label(name: str) -> str:
    """The name of a metric in the first column, short enough that a table fits 80 characters.

    Examples
    --------
    >>> label("recall"), label("calibration_slope"), label("held_out_brier_score")
    ('recall', 'cal. slope', 'held-out Brier')
    """
    metric = name.removeprefix(_HELD_OUT)
    record = METRICS.get(metric) or CLASS_METRICS.get(metric)
    if record is None:
        return name
    return record.label if metric == name else f"held-out {record.short}"


def table_of(title: str, *columns: str) -> Table:
    """A table whose first column names; narrow enough for 80 characters with all metric names in full."""
    table = Table(
        title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, padding=(0, 0, 0, 1)
    )
    for position, column in enumerate(columns):
        table.add_column(column, justify="left" if position == 0 else "right", no_wrap=position == 0)
    return table


def size(given: Mapping[str, Any]) -> str:
    """Such as ``1,000 rows at 10 clients``."""
    return f"{counted(given['rows_used'], 'row')} at {counted(given['clients'], 'client')}"


def budget(given: Mapping[str, Any]) -> str:
    """Epsilon and delta, if there are any."""
    return "" if given["epsilon"] is None else f", ε = {given['epsilon']:g}, δ = {given['delta']:g}"


def coloured(verdict: str) -> str:
    """A verdict in one word."""
    return _SHOWN[verdict]


def value(value: float | None) -> str:
    """A metric with three decimals; a number that rounds to zero has no sign."""
    return "–" if value is None else f"{abs(value) if abs(value) < 5e-4 else value:.3f}"


def number(value: float | None) -> str:
    """An error with two digits."""
    return "–" if value is None else f"{value:.2g}" if abs(value) < 0.1 else f"{value:.3f}"
