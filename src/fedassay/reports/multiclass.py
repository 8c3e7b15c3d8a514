"""An evaluation of a multiclass model as tables and a plot. Reads only the result's JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from fedassay.reports import evaluation, figures, plots, reliability_plots
from fedassay.reports.sheet import Cell, Document, Figure, Notice, Sheet, metric_cell, reasons, why

TITLES = {
    "accuracy": "accuracy",
    "roc_auc": "AUC (mean of classes)",
    "log_loss": "log loss",
    "brier_score": "Brier score (0 to 2)",
    "expected_calibration_error": "expected calibration error (ECE, top label)",
    "classwise_calibration_error": "classwise calibration error",
}

MOST_CLASSES = 40
"""Classes that are shown: the rest is in the JSON."""

_PARTS = ("sampling", "privacy", "discretisation")
_OF_CLASS = {"prevalence": "prevalence", "roc_auc": "ROC AUC", "calibration_error": "calibration error"}


def contents(document: Document) -> Iterator[Sheet | Figure | Notice]:
    """The reliability of the most probable class, all metrics, then the classes; where nothing is known, why."""
    results = document["results"]
    metrics = [results[name] for name in TITLES]
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
            (Cell(text=title), *_numbers(results[name]))
            for name, title in TITLES.items()
            if results[name]["value"] is not None
        ),
        notes=(
            evaluation.ERRORS,
            *reasons((title, results[name]) for name, title in TITLES.items()),
            *excesses((title, results[name]) for name, title in TITLES.items()),
            *said,
        ),
    )


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
