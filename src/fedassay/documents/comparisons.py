"""Tables about groups, sites and a second model. Read only the result's JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fedassay.documents import figures
from fedassay.documents.sheet import Cell, Sheet, in_tables, metric_cell, reasons
from fedassay.metrics import METRICS, compared

Results = Mapping[str, Any]

MOST = 5
"""Metrics that a table of groups or sites has room for."""

OTHER = "other"


def sheets(results: Results) -> Iterator[Sheet]:
    """The tables that these results have, in the order in which they are read."""
    if "difference" in results:
        yield _difference(results)
    if "groups" in results:
        yield from _entries("By group", "group", groups_with_rows(results))
    if results.get("sites") is not None:
        yield from _entries("By site", "site", results["sites"])
    if "heterogeneity" in results:
        yield _heterogeneity(results)


def groups_with_rows(results: Results) -> list[Mapping[str, Any]]:
    """The groups, without ``other`` if it is known to be empty."""
    return [entry for entry in results["groups"] if entry["group"] != OTHER or entry["rows"] != 0]


def _difference(results: Results) -> Sheet:
    level = results["roc_auc"]["level"]
    rows = [
        (
            Cell(text=METRICS[name].title),
            metric_cell(results[name]),
            metric_cell(results["versus"][name]),
            metric_cell(difference),
        )
        for name, difference in results["difference"].items()
    ]
    return Sheet(
        title="Against the second model",
        head=("metric", "first model", "second model", f"difference, {level:.0%} interval"),
        rows=tuple(rows),
        notes=reasons((METRICS[name].title, one) for name, one in results["difference"].items()),
    )


def _entries(title: str, what: str, entries: list[Mapping[str, Any]]) -> Iterator[Sheet]:
    shown = [METRICS[name] for name in compared() if entries and name in entries[0]]
    for records, part in in_tables(shown, most=MOST, title=title):
        yield Sheet(
            title=part,
            head=(what, "rows", *(record.title for record in records)),
            rows=tuple(
                (
                    Cell(text=entry[what]),
                    Cell(text=f"{entry['rows']:,.0f}"),
                    *(metric_cell(entry[record.name]) for record in records),
                )
                for entry in entries
            ),
            notes=reasons((entry[what], entry[record.name]) for entry in entries for record in records),
        )


def _heterogeneity(results: Results) -> Sheet:
    entries = results["heterogeneity"]
    level = next(iter(entries.values()))["level"]
    notes = reasons((METRICS[name].title, entry) for name, entry in entries.items())
    left_out = max(entry["left_out"] for entry in entries.values())
    if left_out:
        notes = (
            *notes,
            f"up to {left_out} sites had too few rows of a class or no estimate, and are left out",
        )
    if results.get("sites_reason"):
        notes = (*notes, results["sites_reason"])
    return Sheet(
        title="Between sites",
        head=(
            "metric",
            "sites",
            f"mean, {level:.0%} interval",
            f"a new site, {level:.0%} interval",
            "tau²",
            "I²",
            "Q, p",
        ),
        rows=tuple(_pooled_row(name, entry) for name, entry in entries.items()),
        notes=notes,
    )


def _pooled_row(name: str, entry: Mapping[str, Any]) -> tuple[Cell, ...]:
    first = (Cell(text=METRICS[name].title), Cell(text=str(entry["sites"])))
    if entry["value"] is None:
        return (*first, *(Cell(text="-"),) * 5)
    scale = "" if entry["scale"] == "identity" else f"{entry['scale']} scale"
    return (
        *first,
        metric_cell(entry),
        Cell(text=figures.interval({"interval": entry["prediction_interval"]})),
        Cell(text=f"{entry['tau2']:.3g}", detail=scale),
        Cell(text=f"{entry['i2']:.0%}"),
        Cell(text=f"{entry['q']:.1f}", detail=f"p {figures.p_value(entry['p_value'])}"),
    )
