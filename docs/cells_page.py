"""The tables of cells: which task and which query runs under which trust model, made by asking the code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedassay.api.cells import QUERIES, condition, default_task, query_cell, task_cell
from fedassay.protocol.vocabulary import Task, TrustModel
from fedassay.tasks.card import KINDS, TASKS, task_of
from fedassay.trust import TRUST_MODELS


def cells_page() -> str:
    """The tables of cells as a page of the documentation."""
    models = [kind() for kind in TRUST_MODELS.values()]
    lines = [
        "# What runs under which trust model",
        "",
        "Generated from the code (`make docs`); a test fails when it is out of date.",
        "",
        *_conditions(models),
        "## Tasks",
        "",
        "A public number of rows per client (`--rows-per-client`), and for `conformal` the range of scores, are taken",
        "as given where a task needs them. `evaluate-classes` is `evaluate --logits`, and `calibrate-classes`",
        "is `calibrate --logits`.",
        "",
        *_table("task", {name: [task_cell(task, m) for m in models] for name, task in _tasks().items()}),
        "## Queries",
        "",
        "What a new task can ask for.",
        "",
        *_table("query", {name: [query_cell(kind, m) for m in models] for name, kind in QUERIES.items()}),
    ]
    return "\n".join(lines)


def _conditions(models: list[TrustModel]) -> list[str]:
    found = {trust.name: condition(trust) for trust in models}
    lines = [f"`{name}` everywhere: {reason}" for name, reason in found.items() if reason is not None]
    return [line for text in lines for line in (text, "")]


def _tasks() -> dict[str, Task[Any]]:
    """Every task, as it is run when nothing else is said, and the options that ask for something else."""
    return {
        **{name: default_task(name) for name in TASKS},
        **{
            f"{name} {variant}": task_of(name, {**card.example, **given})
            for name, card in KINDS.items()
            for variant, given in card.variants.items()
        },
    }


def _table(title: str, rows: Mapping[str, list[str | None]]) -> list[str]:
    lines = [
        f"| {title} | " + " | ".join(TRUST_MODELS) + " |",
        "|" + "---|" * (1 + len(TRUST_MODELS)),
    ]
    reasons: list[str] = []
    for name, cells in rows.items():
        marks = []
        for reason in cells:
            if reason is not None and reason not in reasons:
                reasons.append(reason)
            marks.append("yes" if reason is None else f"no ({reasons.index(reason) + 1})")
        lines.append(f"| {name} | " + " | ".join(marks) + " |")
    lines += ["", *(f"{i + 1}. {reason}" for i, reason in enumerate(reasons)), ""]
    return lines
