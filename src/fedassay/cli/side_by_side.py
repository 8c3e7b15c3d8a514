"""One evaluation under several trust models, a column each. Reads only the results' JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console

from fedassay.documents import figures
from fedassay.documents.blocks import Cell, Document, TableBlock, metric_cell, reasons, table
from fedassay.documents.terminal import print_table
from fedassay.metrics import of_part
from fedassay.trust.card import TRUST_CARDS

_NARROW = 9
"""Characters of a column: seven trust models fit 90."""


def print_side_by_side(documents: Mapping[str, Document], console: Console) -> None:
    """Print the same evaluation under several trust models."""
    print_table(comparison(documents), console)
    for document in documents.values():
        name = document["privacy"]["trust_model"]
        drawn = "; totals drawn from their law" if document["runtime"]["mode"] == "aggregate" else ""
        console.print(f"[bold]{name}[/]: {TRUST_CARDS[name].learnt}{drawn}", highlight=False)


def comparison(documents: Mapping[str, Document]) -> TableBlock:
    """All metrics, a test, and what each run took."""
    every = list(documents.values())
    first = every[0]["results"]["thresholds"][0]["threshold"]
    shown = {record.name: record.title for record in of_part("rows") if not record.test}
    shown |= {record.name: f"{record.short} at {first:g}" for record in of_part("threshold")}
    rows: list[tuple[str | Cell, ...]] = [
        (title, *(metric_cell(d["results"][name]) for d in every)) for name, title in shown.items()
    ]
    tests = [figures.p_value(d["results"]["hosmer_lemeshow"].get("p_value")) for d in every]
    last = [
        ("HL test, p", *tests),
        ("rounds", *(_sent(d, "rounds") for d in every)),
        ("bytes per client", *(_sent(d, "bytes_per_client") for d in every)),
        ("seconds", *(_seconds(d["runtime"]["seconds"]) for d in every)),
    ]
    return table(
        "One model, one federation, every trust model",
        ("metric", *(_head(d["privacy"]) for d in every)),
        (*rows, *last),
        notes=reasons(
            (f"{title} under {document['privacy']['trust_model']}", document["results"][name])
            for document in every
            for name, title in shown.items()
        ),
    )


def _sent(document: Document, what: str) -> str:
    """What was sent; nothing was where totals were drawn from their law."""
    runtime = document["runtime"]
    return "-" if runtime["mode"] == "aggregate" else f"{runtime[what]:,}"


def _head(privacy: Mapping[str, Any]) -> str:
    name = str(privacy["trust_model"])
    if len(name) > _NARROW:
        name = name.replace("-", "- ")  # a line may end here
    return name if privacy["epsilon"] is None else f"{name} ε={privacy['epsilon']:g}"


def _seconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds:.1f}"
