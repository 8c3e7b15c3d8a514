"""An evaluation as tables and plots. Reads only the result's JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from fedassay.reports import comparisons, figures, forest, plots
from fedassay.reports.sheet import Cell, Document, Figure, Sheet, metric_cell, reasons

_PARTS = ("sampling", "privacy", "discretisation")
_HEADS = {"recall": "recall (sens.)"}
"""So that the table of thresholds fits 80 characters."""


def contents(document: Document) -> Iterator[Sheet | Figure]:
    """Curves, metrics, metrics at thresholds, then groups, sites and a second model if there are any."""
    results = document["results"]
    yield Figure(draw=partial(plots.overview, document), alternative=_alternative(results))
    yield overall(results)
    yield at_thresholds(results["thresholds"])
    chart = forest.forest(results)
    if chart is not None:
        yield Figure(draw=lambda: chart, alternative="Forest plot")
    yield from comparisons.sheets(results)


def overall(results: Mapping[str, Any]) -> Sheet:
    """Every metric with its interval and what the interval is made of."""
    rows = [(Cell(text=figures.TITLES[name]), *_numbers(results[name])) for name in figures.OVERALL]
    test = results["hosmer_lemeshow"]
    named = [(figures.TITLES[name], results[name]) for name in (*figures.OVERALL, "hosmer_lemeshow")]
    notes = reasons(named)
    if test["value"] is not None:
        notes = (f"Hosmer-Lemeshow: {figures.chi_squared(test)}.", *notes)
    return Sheet(
        title="Evaluation",
        head=(
            "metric",
            "value",
            f"{results['roc_auc']['level']:.0%} interval",
            "sampling",
            "privacy",
            "binning",
        ),
        rows=tuple(rows),
        notes=notes,
    )


def _numbers(metric: Mapping[str, Any]) -> tuple[Cell, ...]:
    if metric["value"] is None:
        return (Cell(text="-"), *(Cell(text=""),) * (1 + len(_PARTS)))
    parts = (Cell(text=figures.error(metric["error"][part])) for part in _PARTS)
    return Cell(text=figures.value(metric)), Cell(text=figures.interval(metric)), *parts


def at_thresholds(thresholds: list[Mapping[str, Any]]) -> Sheet:
    """The metrics that need a threshold."""
    return Sheet(
        title="At thresholds",
        head=("threshold", *(_HEADS.get(name, figures.TITLES[name]) for name in figures.AT_THRESHOLD)),
        rows=tuple(
            (_threshold(row), *(metric_cell(row[name]) for name in figures.AT_THRESHOLD))
            for row in thresholds
        ),
        notes=reasons(
            (f"{figures.TITLES[name]} at {row['threshold']:.6g}", row[name])
            for row in thresholds
            for name in figures.AT_THRESHOLD
        ),
    )


def _threshold(row: Mapping[str, Any]) -> Cell:
    moved = row["applied"] != row["threshold"]
    return Cell(text=f"{row['threshold']:.6g}", detail=f"applied {row['applied']:.6g}" if moved else "")


def _alternative(results: Mapping[str, Any]) -> str:
    auc, ece = results["roc_auc"], results["expected_calibration_error"]
    return f"ROC curve, AUC {figures.value(auc)}; reliability diagram, ECE {figures.value(ece)}"
