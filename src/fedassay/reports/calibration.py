"""A calibration as a table and a plot: before and after, beside each other. Reads only the result's JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import altair as alt

from fedassay.reports import figures, plots, reliability_plots
from fedassay.reports.sheet import Cell, Document, Figure, Notice, Sheet, metric_cell, reasons

SHOWN = (
    "log_loss",
    "brier_score",
    "expected_calibration_error",
    "expected_calibration_error_uniform",
    "calibration_intercept",
    "calibration_slope",
    "roc_auc",
)


def contents(document: Document) -> Iterator[Sheet | Figure | Notice]:
    """The reliability diagrams and the table; where neither has a number, why."""
    results = document["results"]
    if reliability_plots.drawn_parts(results):
        yield Figure(draw=partial(overview, document), alternative=alternative(document))
    made = sheet(document)
    yield made if made.rows else Notice(text=results["reason"])


def sheet(document: Document) -> Sheet:
    """Metrics on held-out rows before and after, and the paired differences; what nothing is known of is left out."""
    results = document["results"]
    level = results["before"]["log_loss"]["level"]
    heads = {"before": "before", "after": "after", "difference": f"change, {level:.0%} interval"}
    parts = [part for part in heads if any(_is_known(metric) for metric in results[part].values())]
    rows = tuple(
        (Cell(text=figures.TITLES[name]), *(_cell(results[part].get(name)) for part in parts))
        for name in SHOWN
        if any(_is_known(results[part].get(name)) for part in parts)
    )
    missing = reasons(
        (figures.TITLES[name], metric)
        for part in ("before", "after")
        for name, metric in results[part].items()
        if results["calibrator"] is not None
    )
    return Sheet(
        title=title(document),
        head=("on held-out rows", *(heads[part] for part in parts)),
        rows=rows,
        notes=(results["reason"], *missing),
    )


def title(document: Document) -> str:
    """What was fitted, such as ``Calibration by platt (intercept -0.25, slope 0.84)``."""
    results = document["results"]
    if results["method"] is None:
        return "Calibration"
    numbers = (
        f"{name} {value:.3g}"
        for name, value in results["parameters"].items()
        if isinstance(value, float | int) and not isinstance(value, bool)
    )
    described = ", ".join(numbers)
    return f"Calibration by {results['method']}" + (f" ({described})" if described else "")


def _is_known(metric: Mapping[str, Any] | None) -> bool:
    return metric is not None and metric["value"] is not None


def _cell(metric: Mapping[str, Any] | None) -> Cell:
    return Cell(text="") if metric is None else metric_cell(metric)


def overview(document: Document) -> alt.LayerChart:
    """The reliability diagram before and after."""
    return plots.framed(reliability_plots.change(document["results"]))


def alternative(document: Document) -> str:
    """The plot in words."""
    return reliability_plots.change_alternative(document["results"])
