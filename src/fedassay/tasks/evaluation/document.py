"""Documents of the evaluations of classifiers with two classes and with several."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from fedassay.documents import comparisons, curves, explorer, figures, goodness
from fedassay.documents.blocks import (
    Cell,
    CurveBlock,
    Document,
    DocumentBlock,
    ExplorerBlock,
    KeyNumber,
    Results,
    SentenceBlock,
    TableBlock,
    in_tables,
    metric_cell,
    metric_number,
    reasons,
    table,
    why,
    with_errors,
)
from fedassay.documents.curves import score_distribution
from fedassay.documents.kind import FROZEN_MODEL, INDEPENDENT_ROWS, ON_ALL_ROWS, KindDocument
from fedassay.documents.reliability import known, reliability, why_not
from fedassay.protocol.metrics import CLASS_METRICS, MetricRecord, of_part

_MOST = 6
"""Metrics of a table of thresholds, so that it fits 80 characters."""

ERRORS = (
    "Sampling and privacy are standard errors: of which rows were drawn, and of privacy noise. Binning is a bound of "
    "what rounding of the scores can change. The interval allows for all three."
)
"""Explanation of the columns of a table of metrics."""

_DRAWN: Mapping[str, tuple[str, str, Callable[[Results], CurveBlock]]] = {
    "roc_curve": ("ROC curve", "fpr", curves.roc),
    "precision_recall_curve": ("precision-recall curve", "recall", curves.precision_recall),
    "reliability_curve": ("reliability diagram", "observed", reliability),
    "net_benefit_curve": ("net benefit", "thresholds", curves.net_benefit),
    "score_distribution": ("score distributions", "edges", score_distribution),
}
"""Curves that are drawn: name, list without which there is nothing to draw, and drawing function."""


class EvaluationDocument(KindDocument):
    """Evaluation of a binary classifier."""

    use: ClassVar[str] = "Binary classification"

    def blocks(self, document: Document) -> Iterator[DocumentBlock]:
        """Yield curves, the explorer of thresholds, metrics, then groups, sites and a second model if there are any.

        Where nothing at all is known, a sentence gives the reason.
        """
        results = document["results"]
        if not is_known(results):
            yield SentenceBlock(text=f"Nothing is known of the model: {why(_metrics(results))}.")
            return
        yield from _curves(results)
        if explorer.is_known(results.get("operating_points")):
            yield ExplorerBlock(points=results["operating_points"])
        yield overall(results)
        yield from at_thresholds(results["thresholds"])
        for metric in comparisons.forest_metrics(results) if comparisons.is_compared(results) else ():
            yield comparisons.forest_of(results, metric)
        yield from comparisons.tables(results)

    def key_numbers(self, results: Results) -> Iterator[KeyNumber]:
        """Yield the metrics of discrimination and calibration."""
        for record in _of_rows(results):
            if record.headline:
                yield metric_number(f"{record.title} {ON_ALL_ROWS}", results[record.name])

    def assumptions(self, results: Results) -> Iterator[str]:
        """Yield the assumptions: independent rows, a frozen model, and exchangeable sites if compared."""
        yield INDEPENDENT_ROWS
        yield FROZEN_MODEL
        yield "Every row counts the same: a metric speaks of all rows together, so that large clients weigh more."
        if results.get("sites") is not None:
            yield "Between sites: rows are independent within a site, and sites are exchangeable."

    def sentences(self, results: Results) -> Iterator[str]:
        """Yield the AUC, and a sentence if the probabilities are too extreme or not extreme enough."""
        auc, slope = results["roc_auc"], results["calibration_slope"]
        if auc["value"] is None:
            yield f"How well it ranks rows cannot be said: {auc['reason']}."
            return
        yield f"It ranks rows with an AUC of {figures.with_interval(auc)}."
        low, high = slope.get("interval") or (1, 1)
        extreme = "too extreme" if high < 1 else "not extreme enough" if low > 1 else ""
        if extreme:
            yield (
                f"Its probabilities are {extreme}: over all rows the calibration slope is "
                f"{figures.with_interval(slope)}."
            )

    def listed_metrics(self, results: Results) -> Iterator[tuple[str, float | None, Any]]:
        """Yield the metrics at each threshold; a threshold that is given twice appears once."""
        rows: dict[float, Results] = {}
        for row in results.get("thresholds") or ():
            rows.setdefault(row["threshold"], row)
        for threshold, row in rows.items():
            yield from ((name, threshold, metric) for name, metric in row.items())

    def plain_numbers(self, results: Results) -> Mapping[str, Any]:
        """Return the p-value of the Hosmer-Lemeshow test."""
        return goodness.p_value(results)

    def missing_sections(self, document: Document, name: str) -> Iterator[tuple[str, str]]:
        """Yield the section on sites if it alone is missing: if no row is known, no reader looks for it."""
        if document["results"].get("sites") is None and is_known(document["results"]):
            yield "Sites", _why_no_sites(document, name)

    def calibration_metrics(self, results: Results) -> tuple[Results, ...]:
        """Return the slope, and observed over expected."""
        return results["calibration_slope"], results["observed_expected_ratio"]


def is_known(results: Results) -> bool:
    """Return whether there is any number or curve to show."""
    drawn = any(_has_points(results, entry) for entry in _DRAWN)
    return drawn or any(metric["value"] is not None for metric in _metrics(results))


def _metrics(results: Results) -> list[Results]:
    rows = results["thresholds"]
    over_all = [results[record.name] for record in _of_rows(results) if not record.test]
    return over_all + [row[record.name] for row in rows for record in _at(rows)]


def _of_rows(results: Results) -> list[MetricRecord]:
    """Return the metrics over all rows; a result of another version may have fewer than are known."""
    return [record for record in of_part("rows") if record.name in results]


def _at(thresholds: Sequence[Results]) -> list[MetricRecord]:
    """Return the metrics at thresholds."""
    return [record for record in of_part("threshold") if all(record.name in row for row in thresholds)]


def _has_points(results: Results, entry: str) -> bool:
    points = results.get(entry, {}).get(_DRAWN[entry][1]) or ()
    return any(point is not None for point in points)


def _curves(results: Results) -> Iterator[DocumentBlock]:
    """Yield single plots, which each page arranges; one sentence lists those without a point."""
    missing = []
    for entry, (name, _, curve) in _DRAWN.items():
        if _has_points(results, entry):
            yield curve(results)
        elif entry in results:
            missing.append((name, {"value": None, "reason": why_not(results[entry])}))
    if missing:
        yield SentenceBlock(text=f"Not drawn: {'. '.join(reasons(missing))}.")


def _why_no_sites(document: Document, name: str) -> str:
    """Explain why no plot has a line for each site; `name` is that of the task within a study."""
    results = document["results"]
    if results.get("sites_reason"):
        return f"There is no line for each site: {results['sites_reason']}."
    how = f"write per_site = true under [tasks.{name}] in the study" if name else "ask for it with --per-site"
    return (
        f"Nothing was asked about single sites or how much they differ: {how}, and the report says it as far as "
        f"{document['privacy']['trust_model']} lets it be known."
    )


def overall(results: Results) -> TableBlock:
    """Build a table of every metric with its interval and the parts of the interval."""
    records, test = _of_rows(results), results["hosmer_lemeshow"]
    numbers = [(record.title, results[record.name]) for record in records if not record.test]
    known = any(metric["value"] is not None for _, metric in numbers)
    tested = (
        ""
        if test["value"] is None
        else f"Hosmer-Lemeshow: {figures.chi_squared(test)}.{goodness.thin_buckets(results)}"
    )
    missing = reasons((record.title, results[record.name]) for record in records)
    return with_errors("Evaluation, all rows", numbers, notes=(ERRORS if known else "", tested, *missing))


def at_thresholds(thresholds: Sequence[Results]) -> Iterator[TableBlock]:
    """Yield tables of the metrics that need a threshold, none of them too wide."""
    for records, title in in_tables(_at(thresholds), most=_MOST, title="At thresholds, all rows"):
        known = [row for row in thresholds if any(row[one.name]["value"] is not None for one in records)]
        short = [f"{record.short}: {record.title}" for record in records if record.short != record.title]
        missing = reasons(
            (f"{record.title} at {row['threshold']:.6g}", row[record.name])
            for row in thresholds
            for record in records
        )
        yield table(
            title,
            ("threshold", *(record.short for record in records)),
            ((_threshold(row), *(metric_cell(row[record.name]) for record in records)) for row in known),
            notes=(f"{'; '.join(short)}." if short else "", *missing),
        )


def _threshold(row: Results) -> Cell:
    moved = row["applied"] != row["threshold"]
    return Cell(f"{row['threshold']:.6g}", f"applied {row['applied']:.6g}" if moved else "")


# --- several classes ----------------------------------------------------------------------------------------

MOST_CLASSES = 40
"""Number of classes that are shown: the rest is in the JSON."""

_OF_CLASS = {"prevalence": "prevalence", "roc_auc": "ROC AUC", "calibration_error": "calibration error"}


class ClassEvaluationDocument(KindDocument):
    """Evaluation of a classifier with several classes."""

    use: ClassVar[str] = "Classification"
    metrics: ClassVar[Mapping[str, MetricRecord]] = CLASS_METRICS

    def blocks(self, document: Document) -> Iterator[DocumentBlock]:
        """Yield the reliability of the most probable class, metrics and classes, or why nothing is known."""
        results = document["results"]
        metrics = [metric for _, metric in _named(results)]
        drawn = known(results["reliability_curve"])
        if not drawn and all(metric["value"] is None for metric in metrics):
            yield SentenceBlock(text=f"Nothing is known of the model: {why(metrics)}.")
            return
        if drawn:
            error = figures.value(results["expected_calibration_error"])
            yield replace(
                reliability(results, name="Top label"),
                alternative=f"Reliability diagram of the most probable class, ECE {error}",
            )
        yield overall_of_classes(document)
        yield classes(results)

    def key_numbers(self, results: Results) -> Iterator[KeyNumber]:
        """Yield the metrics of accuracy, discrimination and calibration."""
        for record in CLASS_METRICS.values():
            if record.headline and record.name in results:
                yield metric_number(f"{record.title} {ON_ALL_ROWS}", results[record.name])

    def assumptions(self, results: Results) -> Iterator[str]:
        """Yield the assumptions of a binary evaluation."""
        return EvaluationDocument().assumptions(results)

    def sentences(self, results: Results) -> Iterator[str]:
        """Yield a sentence with the accuracy."""
        if results["accuracy"]["value"] is not None:
            yield f"It is right for {figures.with_interval(results['accuracy'])} of the rows."


def overall_of_classes(document: Document) -> TableBlock:
    """Build a table of every metric with its interval and the parts of the interval."""
    results = document["results"]
    named = _named(results)
    notes = [note for note in results.get("notes", ()) if note not in document["warnings"]]
    return with_errors(
        f"Evaluation of {len(results['classes'])} classes, all rows",
        named,
        notes=(ERRORS, *reasons(named), *excesses(named), *notes),
    )


def _named(results: Results) -> list[tuple[str, Results]]:
    """Return the titles of the metrics over all rows, and their values."""
    return [
        (record.title, results[record.name]) for record in CLASS_METRICS.values() if record.name in results
    ]


def doubtful(metric: Mapping[str, Any]) -> bool:
    """Return whether sampling and noise alone could make up most of a calibration error."""
    return metric["value"] is not None and metric.get("excess", 0.0) > metric["value"] / 2


def excesses(named: Iterable[tuple[str, Mapping[str, Any]]]) -> tuple[str, ...]:
    """Return a sentence for each calibration error that is `doubtful`.

    Examples
    --------
    >>> excesses([("ECE", {"value": 0.02, "excess": 0.015}), ("Brier score", {"value": 0.1})])
    ('ECE: up to 0.015 of it is what sampling and noise alone would show.',)
    """
    return tuple(
        f"{title}: up to {figures.error(metric['excess'])} of it is what sampling and noise alone would show."
        for title, metric in named
        if doubtful(metric)
    )


def classes(results: Results) -> TableBlock:
    """Build a table with a line per class; of many classes, those with the largest calibration errors."""
    entries: list[Results] = list(results["classes"])
    some = ""
    if len(entries) > MOST_CLASSES:
        some = (
            f"The {MOST_CLASSES} largest calibration errors of {len(entries)} classes; all are in the JSON."
        )
        entries = sorted(entries, key=lambda one: -(one["calibration_error"]["value"] or 0.0))[:MOST_CLASSES]
    named = (
        (title if _all_alike(entries, name) else f"{title} of class {entry['class']}", entry[name])
        for name, title in _OF_CLASS.items()
        for entry in entries
    )
    return table(
        "Classes, all rows",
        ("class", "rows", *_OF_CLASS.values()),
        (
            (str(entry["class"]), f"{entry['rows']:,.0f}", *(metric_cell(entry[name]) for name in _OF_CLASS))
            for entry in entries
        ),
        notes=(some, *reasons(named)),
    )


def _all_alike(entries: Sequence[Results], name: str) -> bool:
    """Return whether all classes lack this metric for the same reason, or all have it."""
    return len({entry[name].get("reason", "") for entry in entries}) == 1
