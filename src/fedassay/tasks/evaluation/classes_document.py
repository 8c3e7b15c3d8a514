"""What a document shows of the evaluation of a classifier with several classes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from fedassay.documents import figures
from fedassay.documents.blocks import (
    Document,
    DocumentBlock,
    KeyNumber,
    Results,
    SentenceBlock,
    TableBlock,
    metric_cell,
    metric_number,
    reasons,
    table,
    why,
    with_errors,
)
from fedassay.documents.kind import ON_ALL_ROWS, KindDocument
from fedassay.documents.reliability import known, reliability
from fedassay.protocol.metrics import CLASS_METRICS, MetricRecord
from fedassay.tasks.evaluation.document import ERRORS, EvaluationDocument

MOST_CLASSES = 40
"""Classes that are shown: the rest is in the JSON."""

_OF_CLASS = {"prevalence": "prevalence", "roc_auc": "ROC AUC", "calibration_error": "calibration error"}


class ClassEvaluationDocument(KindDocument):
    """Evaluation of a classifier with several classes."""

    use: ClassVar[str] = "Classification"
    metrics: ClassVar[Mapping[str, MetricRecord]] = CLASS_METRICS

    def blocks(self, document: Document) -> Iterator[DocumentBlock]:
        """The reliability of the most probable class, all metrics, then the classes; where nothing is known, why."""
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
        yield overall(document)
        yield classes(results)

    def key_numbers(self, results: Results) -> Iterator[KeyNumber]:
        """Accuracy, discrimination and calibration."""
        for record in CLASS_METRICS.values():
            if record.headline and record.name in results:
                yield metric_number(f"{record.title} {ON_ALL_ROWS}", results[record.name])

    def assumptions(self, results: Results) -> Iterator[str]:
        """Those of a binary evaluation."""
        return EvaluationDocument().assumptions(results)

    def sentences(self, results: Results) -> Iterator[str]:
        """The accuracy."""
        if results["accuracy"]["value"] is not None:
            yield f"It is right for {figures.with_interval(results['accuracy'])} of the rows."


def overall(document: Document) -> TableBlock:
    """Every metric with its interval and what the interval is made of."""
    results = document["results"]
    named = _named(results)
    notes = [note for note in results.get("notes", ()) if note not in document["warnings"]]
    return with_errors(
        f"Evaluation of {len(results['classes'])} classes, all rows",
        named,
        notes=(ERRORS, *reasons(named), *excesses(named), *notes),
    )


def _named(results: Results) -> list[tuple[str, Results]]:
    """The titles of the metrics over all rows, and their values."""
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


def classes(results: Results) -> TableBlock:
    """One line per class; of many, those with the largest calibration errors."""
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
    """Whether no class has this metric, for one reason."""
    return len({entry[name].get("reason", "") for entry in entries}) == 1
