"""The few numbers of each task that are shown before any table. Reads only the result's JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from fedassay.documents import figures
from fedassay.documents.sheet import Document, KeyNumber, reasons
from fedassay.reports.contents import document_of, says_more
from fedassay.reports.study import is_study, parts

Results = Mapping[str, Any]


def key_numbers(document: Document) -> tuple[KeyNumber, ...]:
    """Those that are known, of all tasks in reading order, and of a study what it has spent.

    Each says of which rows it is: the slope of a model over all rows is not that on held-out rows.
    """
    found = [number for number in _all(document) if not number.reason]
    if is_study(document):
        found += _budget(document["results"]["budget"])
    return tuple(found)


def unknown(document: Document) -> str:
    """Which key numbers are not known, and why, each reason once; empty if all are."""
    missing = [(one.label, {"value": None, "reason": one.reason}) for one in _all(document) if one.reason]
    return f"Not known: {'. '.join(reasons(missing))}." if missing else ""


def _all(document: Document) -> Iterator[KeyNumber]:
    """A task whose name is not its kind puts it in front: a study may hold two of one kind."""
    for part in parts(document):
        for number in document_of(part.document).key_numbers(part.document["results"]):
            label = f"{part.name}: {number.label}" if says_more(part) else number.label
            yield replace(number, label=label)


def _budget(budget: Results) -> Iterator[KeyNumber]:
    if budget["epsilon"] is None:
        yield KeyNumber(label="privacy budget", text="none", detail="exact totals, no noise")
        return
    left = f"{figures.left(budget['remaining'], budget['epsilon'])} left"
    yield KeyNumber(
        label="privacy budget spent (ε)",
        text=f"{budget['spent']:.3g} of {budget['epsilon']:g}",
        detail=f"at δ = {budget['delta']:g}; {left}",
    )
