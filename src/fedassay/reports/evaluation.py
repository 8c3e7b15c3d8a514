"""An evaluation as tables and plots. Reads only the result's JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import altair as alt

from fedassay.reports import (
    comparisons,
    curves,
    explorer,
    figures,
    forest,
    goodness,
    plots,
    reliability_plots,
    score_plots,
)
from fedassay.reports.sheet import (
    Cell,
    Document,
    Explorer,
    Figure,
    Notice,
    Piece,
    Sheet,
    metric_cell,
    reasons,
    why,
)

Results = Mapping[str, Any]

_PARTS = ("sampling", "privacy", "discretisation")
_HEADS = {"recall": "recall (sens.)"}
"""So that the table of thresholds fits 80 characters."""

ERRORS = (
    "Sampling and privacy are standard errors: of which rows were drawn, and of privacy noise. Binning is a bound of "
    "what rounding of the scores can change. The interval allows for all three."
)
"""What the columns of a table of metrics mean."""

_DRAWN: Mapping[str, tuple[str, str]] = {
    "roc_curve": ("ROC curve", "fpr"),
    "precision_recall_curve": ("precision-recall curve", "recall"),
    "reliability_curve": ("reliability diagram", "observed"),
    "net_benefit_curve": ("net benefit", "thresholds"),
    "score_distribution": ("score distributions", "edges"),
}
"""What is drawn: its name, and the list without which there is nothing to see."""


def contents(document: Document) -> Iterator[Piece]:
    """Curves, what each threshold would mean, metrics, then groups, sites and a second model if there are any.

    Where nothing at all is known, one sentence says why.
    """
    results = document["results"]
    if not is_known(results):
        yield Notice(text=f"Nothing is known of the model: {why(_metrics(results))}.")
        return
    yield from _curves(results)
    if explorer.is_known(results.get("operating_points")):
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


def is_known(results: Results) -> bool:
    """Whether there is any number or curve to show."""
    seen = any(_has_points(results, entry) for entry in _DRAWN)
    return seen or any(metric["value"] is not None for metric in _metrics(results))


def _metrics(results: Results) -> list[Results]:
    overall = [results[name] for name in figures.OVERALL]
    return overall + [row[name] for row in results["thresholds"] for name in figures.AT_THRESHOLD]


def _has_points(results: Results, entry: str) -> bool:
    points = results.get(entry, {}).get(_DRAWN[entry][1]) or ()
    return any(point is not None for point in points)


def _curves(results: Results) -> Iterator[Figure | Notice]:
    """Single plots, so that each page arranges them as it has room; those without a point are told in one place."""
    drawn = {
        "roc_curve": (curves.roc, curves.roc_alternative, "roc"),
        "precision_recall_curve": (
            curves.precision_recall,
            curves.precision_recall_alternative,
            "precision-recall",
        ),
        "reliability_curve": (reliability_plots.reliability, reliability_plots.reliability_alternative, ""),
        "net_benefit_curve": (curves.net_benefit, curves.net_benefit_alternative, "threshold"),
    }
    if "score_distribution" in results:
        # On a logit axis the explorer would not know where its threshold is.
        axis = "threshold" if results["score_distribution"].get("spacing") == "uniform" else ""
        drawn["score_distribution"] = (
            score_plots.score_distribution,
            score_plots.score_distribution_alternative,
            axis,
        )
    for entry, (draw, alternative, marks) in drawn.items():
        if _has_points(results, entry):
            yield Figure(draw=partial(_framed, draw, results), alternative=alternative(results), marks=marks)
    missing = [
        (_DRAWN[entry][0], {"value": None, "reason": reliability_plots.why_not(results[entry])})
        for entry in drawn
        if not _has_points(results, entry)
    ]
    if missing:
        yield Notice(text=f"Not drawn: {'. '.join(reasons(missing))}.")


def _framed(draw: Callable[[Results], alt.LayerChart], results: Results) -> alt.LayerChart:
    return plots.framed(draw(results))


def why_no_sites(document: Document, *, name: str = "") -> str:
    """Why there is no plot with a line for each site; `name` is that of the task within a study."""
    results = document["results"]
    if results.get("sites_reason"):
        return f"There is no line for each site: {results['sites_reason']}."
    how = f"write per_site = true under [tasks.{name}] in the study" if name else "ask for it with --per-site"
    return (
        f"Nothing was asked about single sites or how much they differ: {how}, and the report says it as far as "
        f"{document['privacy']['trust_model']} lets it be known."
    )


def overall(results: Mapping[str, Any]) -> Sheet:
    """Every metric with its interval and what the interval is made of."""
    rows = [
        (Cell(text=figures.TITLES[name]), *_numbers(results[name]))
        for name in figures.OVERALL
        if results[name]["value"] is not None
    ]
    test = results["hosmer_lemeshow"]
    named = [(figures.TITLES[name], results[name]) for name in (*figures.OVERALL, "hosmer_lemeshow")]
    notes = reasons(named)
    if test["value"] is not None:
        notes = (f"Hosmer-Lemeshow: {figures.chi_squared(test)}.{goodness.thin_buckets(results)}", *notes)
    return Sheet(
        title="Evaluation, all rows",
        head=(
            "metric",
            "value",
            f"{results['roc_auc']['level']:.0%} interval",
            "sampling",
            "privacy",
            "binning",
        ),
        rows=tuple(rows),
        notes=(*((ERRORS,) if rows else ()), *notes),
    )


def _numbers(metric: Mapping[str, Any]) -> tuple[Cell, ...]:
    parts = (Cell(text=figures.error(metric["error"][part])) for part in _PARTS)
    return Cell(text=figures.value(metric)), Cell(text=figures.interval(metric)), *parts


def at_thresholds(thresholds: list[Mapping[str, Any]]) -> Sheet:
    """The metrics that need a threshold."""
    return Sheet(
        title="At thresholds, all rows",
        head=("threshold", *(_HEADS.get(name, figures.TITLES[name]) for name in figures.AT_THRESHOLD)),
        rows=tuple(
            (_threshold(row), *(metric_cell(row[name]) for name in figures.AT_THRESHOLD))
            for row in thresholds
            if any(row[name]["value"] is not None for name in figures.AT_THRESHOLD)
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
