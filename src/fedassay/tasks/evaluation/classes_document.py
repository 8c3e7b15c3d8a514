"""An evaluation of a multiclass model as tables and a plot. Reads only the result's JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from fedassay.documents import figures, plots, reliability_plots
from fedassay.documents.kind import ON_ALL_ROWS, KindDocument, Results
from fedassay.documents.sheet import (
    Cell,
    Document,
    Figure,
    KeyNumber,
    Notice,
    Piece,
    Sheet,
    metric_cell,
    metric_number,
    reasons,
    why,
)
from fedassay.metrics import CLASS_METRICS, MetricRecord
from fedassay.tasks.evaluation import document as evaluation

MOST_CLASSES = 40
"""Classes that are shown: the rest is in the JSON."""

_PARTS = ("sampling", "privacy", "discretisation")
_OF_CLASS = {"prevalence": "prevalence", "roc_auc": "ROC AUC", "calibration_error": "calibration error"}


def contents(document: Document) -> Iterator[Sheet | Figure | Notice]:
    """The reliability of the most probable class, all metrics, then the classes; where nothing is known, why."""
    results = document["results"]
    metrics = [metric for _, metric in _named(results)]
    drawn = reliability_plots.known(results["reliability_curve"])
    if not drawn and all(metric["value"] is None for metric in metrics):
        yield Notice(text=f"Nothing is known of the model: {why(metrics)}.")
        return
    if drawn:
        error = figures.value(results["expected_calibration_error"])
        yield Figure(
            draw=lambda: plots.framed(reliability_plots.reliability(document["results"], name="Top label")),
            alternative=f"Reliability diagram of the most probable class, ECE {error}",
        )
    yield overall(document)
    yield classes(results)


def overall(document: Document) -> Sheet:
    """Every metric with its interval and what the interval is made of."""
    results = document["results"]
    said = [note for note in results.get("notes", ()) if note not in document["warnings"]]
    return Sheet(
        title=f"Evaluation of {len(results['classes'])} classes, all rows",
        head=(
            "metric",
            "value",
            f"{results['accuracy']['level']:.0%} interval",
            "sampling",
            "privacy",
            "binning",
        ),
        rows=tuple(
            (Cell(text=title), *_numbers(metric))
            for title, metric in _named(results)
            if metric["value"] is not None
        ),
        notes=(
            evaluation.ERRORS,
            *reasons(_named(results)),
            *excesses(_named(results)),
            *said,
        ),
    )


def _named(results: Results) -> list[tuple[str, Results]]:
    """The titles of the metrics over all rows, and what was found."""
    return [
        (record.title, results[record.name]) for record in CLASS_METRICS.values() if record.name in results
    ]


def doubtful(metric: Mapping[str, Any]) -> bool:
    """Whether sampling and noise alone could make up most of a calibration error."""
    return metric["value"] is not None and metric.get("excess", 0.0) > metric["value"] / 2


def excesses(named: Iterable[tuple[str, Mapping[str, Any]]]) -> tuple[str, ...]:
    """A sentence for each calibration error that is `doubtful`.

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


def _numbers(metric: Mapping[str, Any]) -> tuple[Cell, ...]:
    parts = (Cell(text=figures.error(metric["error"][part])) for part in _PARTS)
    return Cell(text=figures.value(metric)), Cell(text=figures.interval(metric)), *parts


def classes(results: Mapping[str, Any]) -> Sheet:
    """One line per class; of many, those with the largest calibration errors."""
    entries: list[Mapping[str, Any]] = list(results["classes"])
    notes: tuple[str, ...] = ()
    if len(entries) > MOST_CLASSES:
        entries.sort(key=_error_of)
        notes = (
            f"The {MOST_CLASSES} largest calibration errors of {len(entries)} classes; all are in the JSON.",
        )
        entries = entries[:MOST_CLASSES]
    named = [
        (title if _all_alike(entries, name) else f"{title} of class {entry['class']}", entry[name])
        for name, title in _OF_CLASS.items()
        for entry in entries
    ]
    return Sheet(
        title="Classes, all rows",
        head=("class", "rows", *_OF_CLASS.values()),
        rows=tuple(
            (
                Cell(text=str(entry["class"])),
                Cell(text=f"{entry['rows']:,.0f}"),
                *(metric_cell(entry[name]) for name in _OF_CLASS),
            )
            for entry in entries
        ),
        notes=(*notes, *reasons(named)),
    )


def _error_of(entry: Mapping[str, Any]) -> float:
    value = entry["calibration_error"]["value"]
    return 0.0 if value is None else -float(value)


def _all_alike(entries: Sequence[Mapping[str, Any]], name: str) -> bool:
    """Whether no class has this metric, for one reason."""
    return len({entry[name].get("reason", "") for entry in entries}) == 1


class ClassEvaluationDocument(KindDocument):
    """Evaluation of a classifier with several classes."""

    use: ClassVar[str] = "Classification"
    metrics: ClassVar[Mapping[str, MetricRecord]] = CLASS_METRICS

    def contents(self, document: Document) -> Iterator[Piece]:
        """See `contents`."""
        return contents(document)

    def key_numbers(self, results: Results) -> Iterator[KeyNumber]:
        """Accuracy, discrimination and calibration."""
        for record in CLASS_METRICS.values():
            if record.headline and record.name in results:
                yield metric_number(f"{record.title} {ON_ALL_ROWS}", results[record.name])

    def assumptions(self, results: Results) -> Iterator[str]:
        """Those of a binary evaluation."""
        return evaluation.EvaluationDocument().assumptions(results)

    def sentences(self, results: Results) -> Iterator[str]:
        """The accuracy."""
        if results["accuracy"]["value"] is not None:
            yield f"It is right for {figures.with_interval(results['accuracy'])} of the rows."
