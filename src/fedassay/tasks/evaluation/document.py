"""An evaluation as tables and plots. Reads only the result's JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import altair as alt

from fedassay.documents import (
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
from fedassay.documents.kind import FROZEN_MODEL, INDEPENDENT_ROWS, ON_ALL_ROWS, KindDocument
from fedassay.documents.sheet import (
    Cell,
    Document,
    Explorer,
    Figure,
    KeyNumber,
    Notice,
    Piece,
    Sheet,
    in_tables,
    metric_cell,
    metric_number,
    reasons,
    why,
)
from fedassay.metrics import MetricRecord, of_part

Results = Mapping[str, Any]

_PARTS = ("sampling", "privacy", "discretisation")
_MOST = 6
"""Metrics of a table of thresholds, so that it fits 80 characters."""

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
    yield from at_thresholds(results["thresholds"])
    if forest.planted(results):
        for metric in forest.drawn(results):
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
    found = [results[record.name] for record in _of_rows(results) if not record.test]
    return found + [
        row[record.name] for row in results["thresholds"] for record in _at(results["thresholds"])
    ]


def _of_rows(results: Results) -> list[MetricRecord]:
    """The metrics over all rows; a result of another version may have fewer than are known."""
    return [record for record in of_part("rows") if record.name in results]


def _at(thresholds: Sequence[Results]) -> list[MetricRecord]:
    """The metrics at thresholds."""
    return [record for record in of_part("threshold") if all(record.name in row for row in thresholds)]


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
    records = _of_rows(results)
    rows = [
        (Cell(text=record.title), *_numbers(results[record.name]))
        for record in records
        if not record.test and results[record.name]["value"] is not None
    ]
    test = results["hosmer_lemeshow"]
    notes = reasons((record.title, results[record.name]) for record in records)
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


def at_thresholds(thresholds: Sequence[Results]) -> Iterator[Sheet]:
    """The metrics that need a threshold, in tables that are not too wide."""
    for records, title in in_tables(_at(thresholds), most=_MOST, title="At thresholds, all rows"):
        yield Sheet(
            title=title,
            head=("threshold", *(record.short for record in records)),
            rows=tuple(
                (_threshold(row), *(metric_cell(row[record.name]) for record in records))
                for row in thresholds
                if any(row[record.name]["value"] is not None for record in records)
            ),
            notes=(
                *_spelled_out(records),
                *reasons(
                    (f"{record.title} at {row['threshold']:.6g}", row[record.name])
                    for row in thresholds
                    for record in records
                ),
            ),
        )


def _spelled_out(records: Sequence[MetricRecord]) -> tuple[str, ...]:
    """What the short heads of columns stand for."""
    short = [f"{record.short}: {record.title}" for record in records if record.short != record.title]
    return (f"{'; '.join(short)}.",) if short else ()


def _threshold(row: Mapping[str, Any]) -> Cell:
    moved = row["applied"] != row["threshold"]
    return Cell(text=f"{row['threshold']:.6g}", detail=f"applied {row['applied']:.6g}" if moved else "")


class EvaluationDocument(KindDocument):
    """Evaluation of a binary classifier."""

    use: ClassVar[str] = "Binary classification"

    def contents(self, document: Document) -> Iterator[Piece]:
        """See `contents`."""
        return contents(document)

    def key_numbers(self, results: Results) -> Iterator[KeyNumber]:
        """Discrimination and calibration."""
        for record in _of_rows(results):
            if record.headline:
                yield metric_number(f"{record.title} {ON_ALL_ROWS}", results[record.name])

    def assumptions(self, results: Results) -> Iterator[str]:
        """Independent rows, a frozen model, and exchangeable sites where these are compared."""
        yield INDEPENDENT_ROWS
        yield FROZEN_MODEL
        yield "Every row counts the same: a metric speaks of all rows together, so that large clients weigh more."
        if results.get("sites") is not None:
            yield "Between sites: rows are independent within a site, and sites are exchangeable."

    def sentences(self, results: Results) -> Iterator[str]:
        """The AUC, and whether probabilities are too extreme."""
        auc, slope = results["roc_auc"], results["calibration_slope"]
        if auc["value"] is None:
            yield f"How well it ranks rows cannot be said: {auc['reason']}."
            return
        yield f"It ranks rows with an AUC of {figures.with_interval(auc)}."
        if slope.get("interval") is None:
            return
        low, high = slope["interval"]
        extreme = "too extreme" if high < 1 else "not extreme enough" if low > 1 else ""
        if extreme:
            yield (
                f"Its probabilities are {extreme}: over all rows the calibration slope is "
                f"{figures.with_interval(slope)}."
            )

    def missing_sections(self, document: Document, name: str) -> Iterator[tuple[str, str]]:
        """Sites, where these are all that is missing: where no row is known, no reader looks for them."""
        if document["results"].get("sites") is None and is_known(document["results"]):
            yield "Sites", why_no_sites(document, name=name)

    def calibration_metrics(self, results: Results) -> tuple[Results, ...]:
        """The slope, and observed over expected."""
        return results["calibration_slope"], results["observed_expected_ratio"]
