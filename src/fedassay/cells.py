"""Which task runs under which trust model: asked of the code itself, never written down by hand.

A cell is made by starting the task and planning its first queries under the trust model, exactly as a run
would before it reads a row.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedassay.errors import UnsupportedQuery, UsageError
from fedassay.protocol import Budget, Collect, Protection, Query, Select, Setting, Sum, Task, TrustModel
from fedassay.run import rehearse
from fedassay.summaries.score_histogram import ScoreHistogram
from fedassay.tasks.catalogue import TASKS, task_of
from fedassay.trust import TRUST_MODELS

QUERIES: Mapping[str, type[Query[Any]]] = {"Sum": Sum, "Collect": Collect, "Select": Select}


def task_cell(task: Task[Any], trust: TrustModel) -> str | None:
    """None if the task's first step can be planned under the trust model, else the reason why not."""
    try:
        rehearse(task, _setting(trust))
    except (UnsupportedQuery, UsageError) as refusal:
        return str(refusal)
    return None


def query_cell(kind: type[Query[Any]], trust: TrustModel) -> str | None:
    """None if the trust model answers this kind of query, else the reason why not."""
    try:
        trust.plan(kind(of=ScoreHistogram(transform="uniform", height=10)), _setting(trust))
    except UnsupportedQuery as refusal:
        return str(refusal)
    return None


def cells_page() -> str:
    """The tables of cells as a page of the documentation."""
    models = [kind() for kind in TRUST_MODELS.values()]
    lines = [
        "# What runs under which trust model",
        "",
        "Generated from the code (`make docs`); a test fails when it is out of date.",
        "",
        "## Tasks",
        "",
        *_table("task", {name: [task_cell(task, m) for m in models] for name, task in _tasks().items()}),
        "## Queries",
        "",
        "What a new task can ask for.",
        "",
        *_table("query", {name: [query_cell(kind, m) for m in models] for name, kind in QUERIES.items()}),
    ]
    return "\n".join(lines)


def _tasks() -> dict[str, Task[Any]]:
    """Every task, as it is run when nothing else is said, and the options of an evaluation."""
    return {
        **{name: task_of(name, {}) for name in TASKS},
        "evaluate --by": task_of("evaluate", {"groups": ["a", "b"]}),
        "evaluate --versus": task_of("evaluate", {"versus": True}),
        "evaluate --per-site": task_of("evaluate", {"per_site": True}),
    }


def _setting(trust: TrustModel) -> Setting:
    budget = Budget(epsilon=1.0) if trust.private else None
    return Setting(trust=trust, protection=Protection(), budget=budget, clients=100)


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
