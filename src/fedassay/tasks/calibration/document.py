"""Document of a calibration: metrics and curves before and after, side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import ClassVar

from fedassay.documents import figures
from fedassay.documents.blocks import (
    Cell,
    Document,
    DocumentBlock,
    KeyNumber,
    Results,
    SentenceBlock,
    TableBlock,
    interval_with_level,
    metric_cell,
    metric_number,
    reasons,
    table,
)
from fedassay.documents.kind import INDEPENDENT_ROWS, ON_HELD_OUT_ROWS, KindDocument, NextStep
from fedassay.documents.reliability import BEFORE_AFTER, change, drawn_parts
from fedassay.protocol.metrics import METRICS, MetricRecord

SHOWN = (
    "log_loss",
    "brier_score",
    "expected_calibration_error",
    "expected_calibration_error_uniform",
    "calibration_intercept",
    "calibration_slope",
    "roc_auc",
)


class CalibrationDocument(KindDocument):
    """Calibration of a binary classifier."""

    use: ClassVar[str] = "Binary classification, calibrated"
    shown_metric: ClassVar[str] = "calibration_slope"

    def blocks(self, document: Document) -> Iterator[DocumentBlock]:
        """Yield the reliability diagram and the table; where neither has a number, the reason."""
        results = document["results"]
        if drawn_parts(results):
            yield change(results)
        made = before_and_after(results)
        yield made if made.rows else SentenceBlock(text=results["reason"])

    def key_numbers(self, results: Results) -> Iterator[KeyNumber]:
        """Yield a metric before and after calibration, such as ``0.68 → 1.05``, with the interval after."""
        name = self.shown_metric
        label = f"{self.metrics[name].title} {ON_HELD_OUT_ROWS}"
        unmeasured = {"value": None, "reason": "it was not measured"}
        before, after = (results[part].get(name) or unmeasured for part in BEFORE_AFTER)
        if after["value"] is None:
            yield metric_number(f"{label} before calibration", before)
            return
        yield KeyNumber(
            label=f"{label} before and after calibration",
            text=f"{figures.value(before)} → {figures.value(after)}",
            detail=f"after: {interval_with_level(after)}",
        )

    def assumptions(self, results: Results) -> Iterator[str]:
        """Yield the assumptions: independent rows, and future rows that are like these."""
        yield INDEPENDENT_ROWS
        yield "Rows that were held out, and rows to come, are like those that the calibrator was fitted to."

    def sentences(self, results: Results) -> Iterator[str]:
        """Yield the reason as a sentence; it begins with the statement if the calibrator is recommended."""
        subject = "The calibrator" if results.get("method") is None else f"The {results['method']} calibrator"
        begins, colon, why = str(results["reason"]).partition(": ")
        said = {"Recommended": "is recommended", "Not recommended": "is not recommended"}.get(begins)
        yield f"{subject} {said}: {why}" if said else f"{begins}{colon}{why}"

    def next_steps(self, results: Results, file: str, name: str) -> Iterator[NextStep]:
        """Yield the advice to apply the calibrator or to leave it aside."""
        if results.get("calibrator") is None:
            return
        if not results["recommended"]:
            yield f"Leave {file} aside: it was not shown to be better than the model's own probabilities.", ""
            return
        yield (
            f"Calibrate the probabilities of new rows with {file}:",
            f"fedassay apply {file} NEW.csv --out calibrated.parquet",
        )

    def recommends(self, results: Results) -> bool | None:
        """Return whether there is a calibrator that is better on held-out rows."""
        return bool(results["recommended"]) and results.get("calibrator") is not None


def before_and_after(results: Results) -> TableBlock:
    """Build the table of held-out metrics before and after, with paired differences, without unknown ones."""
    missing = reasons(
        (METRICS[name].title, metric)
        for part in BEFORE_AFTER
        for name, metric in results[part].items()
        if results["calibrator"] is not None
    )
    notes = (results["reason"], *missing)
    return held_out_table(title(results), results, [METRICS[name] for name in SHOWN], notes=notes)


def held_out_table(
    title: str,
    results: Results,
    shown: Sequence[MetricRecord],
    *,
    notes: Iterable[str],
    cell: Callable[[Results, str], Cell] = lambda metric, _: metric_cell(metric),
) -> TableBlock:
    """Build a table with a line for each metric with a known value and a column for each measured part."""
    level = results["before"]["log_loss"]["level"]
    heads = {"before": "before", "after": "after", "difference": f"change, {level:.0%} interval"}
    parts = [part for part in heads if any(map(_is_measured, results[part].values()))]
    found = [(record.title, [results[part].get(record.name) for part in parts]) for record in shown]
    return table(
        title,
        ("on held-out rows", *(heads[part] for part in parts)),
        (
            (name, *(cell(one, part) if one else "" for one, part in zip(metrics, parts, strict=True)))
            for name, metrics in found
            if any(one is not None and one["value"] is not None for one in metrics)
        ),
        notes=notes,
    )


def _is_measured(metric: Results) -> bool:
    """Return whether the metric has a value that depends on rows."""
    return metric["value"] is not None and "note" not in metric


def title(results: Results) -> str:
    """Return a title with the fitted map, such as ``Calibration by platt (intercept -0.25, slope 0.84)``."""
    if results["method"] is None:
        return "Calibration"
    numbers = ", ".join(
        f"{name} {value:.3g}"
        for name, value in results["parameters"].items()
        if isinstance(value, float | int) and not isinstance(value, bool)
    )
    return f"Calibration by {results['method']}" + (f" ({numbers})" if numbers else "")
