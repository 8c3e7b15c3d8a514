"""Which task runs under which trust model: asked of the code itself, never written down by hand.

A cell is made by starting the task and planning its first queries under the trust model, exactly as a run
would before it reads a row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from fedassay.errors import UnsupportedQuery, UsageError
from fedassay.kernel.run import rehearse
from fedassay.protocol.vocabulary import (
    Budget,
    Collect,
    Points,
    Protection,
    Query,
    Select,
    Setting,
    Sum,
    Task,
    TrustModel,
)
from fedassay.summaries.distribution.path import ValuePath
from fedassay.summaries.local_quantiles import QuantileLosses
from fedassay.summaries.score_histogram import ScoreHistogram
from fedassay.tasks.card import KINDS, TASKS, task_of
from fedassay.trust import TRUST_MODELS

QUERIES: Mapping[str, type[Query[Any]]] = {"Sum": Sum, "Points": Points, "Collect": Collect, "Select": Select}

_HISTOGRAM = ScoreHistogram(transform="uniform", height=10)
_BOUNDED = Protection(rows_per_client=100)
"""Some trust models need a public number of rows."""

_LOSSES = QuantileLosses(quantity="value", rows=100, lower=0, upper=1, points=10, target=90)


def task_cell(task: Task[Any], trust: TrustModel) -> str | None:
    """None if the task's first step can be planned under the trust model, else the reason why not.

    Whoever asks can state a public number of rows per client, so that it is taken as given where it is needed.
    """
    refused = _refusal(partial(rehearse, task), trust, _protection(trust))
    return refused if refused is None else _refusal(partial(rehearse, task), trust, _BOUNDED)


def query_cell(kind: type[Query[Any]], trust: TrustModel) -> str | None:
    """None if the trust model answers this kind of query, else the reason why not."""
    if kind is Select:
        return _refusal(partial(trust.plan, Select(of=_LOSSES)), trust, _BOUNDED)
    path = ValuePath(lower=0, upper=1, points=1024)
    query: Query[Any] = Points(of=path, at=(0,)) if kind is Points else kind(of=_HISTOGRAM)
    return _refusal(partial(trust.plan, query), trust, _protection(trust))


def condition(trust: TrustModel) -> str | None:
    """What a trust model asks for before it answers anything, None if nothing."""
    return _refusal(partial(trust.plan, Sum(of=_HISTOGRAM)), trust, Protection())


def _protection(trust: TrustModel) -> Protection:
    return Protection() if condition(trust) is None else _BOUNDED


def _refusal(plan: Callable[[Setting], object], trust: TrustModel, protection: Protection) -> str | None:
    budget = Budget(epsilon=1.0) if trust.private else None
    try:
        plan(Setting(trust=trust, protection=protection, budget=budget, clients=100_000))
    except (UnsupportedQuery, UsageError) as refusal:
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


def default_task(name: str) -> Task[Any]:
    """The task as it is run when nothing is said but what has to be public."""
    return task_of(name, KINDS[name].example)


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
