"""An evaluation as tables and plots. Reads only the result's JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import altair as alt

from fedassay.reports import comparisons, curves, figures, forest, plots, reliability_plots, score_plots
from fedassay.reports.sheet import Cell, Document, Explorer, Figure, Piece, Sheet, metric_cell, reasons

Results = Mapping[str, Any]

_PARTS = ("sampling", "privacy", "discretisation")
_HEADS = {"recall": "recall (sens.)"}
"""So that the table of thresholds fits 80 characters."""


def contents(document: Document) -> Iterator[Piece]:
    """Curves, what each threshold would mean, metrics, then groups, sites and a second model if there are any."""
    results = document["results"]
    yield from _curves(results)
    if "operating_points" in results:
        yield Explorer(points=results["operating_points"])
    yield overall(results)
    yield at_thresholds(results["thresholds"])
    if forest.planted(results):
        for metric in forest.METRICS:
            yield Figure(
                draw=partial(forest.forest_of, results, metric),
                alternative=forest.alternative(results, [metric]),
            )
    yield from comparisons.sheets(results)


def _curves(results: Results) -> Iterator[Figure]:
    """Single plots, so that each page arranges them as it has room."""
    drawn = [
        (curves.roc, curves.roc_alternative, "roc"),
        (curves.precision_recall, curves.precision_recall_alternative, "precision-recall"),
        (reliability_plots.reliability, reliability_plots.reliability_alternative, ""),
        (curves.net_benefit, curves.net_benefit_alternative, "threshold"),
    ]
    if "score_distribution" in results:
        # On a logit axis the explorer would not know where its threshold is.
        axis = "threshold" if results["score_distribution"].get("spacing") == "uniform" else ""
        drawn.append((score_plots.score_distribution, score_plots.score_distribution_alternative, axis))
    for draw, alternative, marks in drawn:
        yield Figure(draw=partial(_framed, draw, results), alternative=alternative(results), marks=marks)


def _framed(draw: Callable[[Results], alt.LayerChart], results: Results) -> alt.LayerChart:
    return plots.framed(draw(results))


def why_no_sites(document: Document) -> str:
    """Why there is no plot with a line for each site."""
    results = document["results"]
    if results.get("sites_reason"):
        return f"There is no line for each site: {results['sites_reason']}."
    return (
        "Nothing was asked about single sites or how much they differ. An evaluation that compares sites (per_site) "
        f"says it, as far as {document['privacy']['trust_model']} lets it be known."
    )


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
