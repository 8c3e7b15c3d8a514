"""Table of tasks and trust models: computed by the code itself, never written by hand.

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
from fedassay.tasks.card import KINDS, task_of

QUERIES: Mapping[str, type[Query[Any]]] = {"Sum": Sum, "Points": Points, "Collect": Collect, "Select": Select}

_HISTOGRAM = ScoreHistogram(transform="uniform", height=10)
_BOUNDED = Protection(rows_per_client=100)
"""Protection with a public number of rows, which some trust models need."""

_LOSSES = QuantileLosses(quantity="value", rows=100, lower=0, upper=1, points=10, target=90)


def task_cell(task: Task[Any], trust: TrustModel) -> str | None:
    """Return None if the task's first step can be planned under the trust model, else the reason why not.

    Users can state a public number of rows per client; it is taken as given if it is needed.
    """
    refused = _refusal(partial(rehearse, task), trust, _protection(trust))
    return refused if refused is None else _refusal(partial(rehearse, task), trust, _BOUNDED)


def query_cell(kind: type[Query[Any]], trust: TrustModel) -> str | None:
    """Return None if the trust model answers this kind of query, else the reason why not."""
    if kind is Select:
        return _refusal(partial(trust.plan, Select(of=_LOSSES)), trust, _BOUNDED)
    path = ValuePath(lower=0, upper=1, points=1024)
    query: Query[Any] = Points(of=path, at=(0,)) if kind is Points else kind(of=_HISTOGRAM)
    return _refusal(partial(trust.plan, query), trust, _protection(trust))


def condition(trust: TrustModel) -> str | None:
    """Return the condition under which a trust model answers any query; None if there is none."""
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


def default_task(name: str) -> Task[Any]:
    """Return the task with its default parameters, and examples of those that must be public."""
    return task_of(name, KINDS[name].example)
