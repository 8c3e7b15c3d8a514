"""Every task that can be asked for by name, and how it is made from plain values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedassay.cards import Loaded
from fedassay.parameters import made, values_of
from fedassay.protocol import Task
from fedassay.tasks.card import KINDS

DEFAULT = "evaluate"
"""The task that is run where none is named."""

TASKS: Mapping[str, type[Any]] = Loaded(lambda: {name: card.task for name, card in KINDS.items()})
"""Name to task. A task is a frozen dataclass whose fields are plain values; all of them have defaults."""

PARAMETERS: Mapping[str, type[Any]] = Loaded(lambda: {name: card.declared for name, card in KINDS.items()})
"""Name to the class that declares the parameters of a task: for faces, which do not run it."""


def task_of(name: str, given: Mapping[str, Any]) -> Task[dict[str, Any]]:
    """A task from its name and parameters as JSON has them (lists become tuples).

    Examples
    --------
    >>> task_of("evaluate", {"thresholds": [0.2]}).thresholds
    (0.2,)
    >>> task_of("calibrate", {"thresholds": [0.2]})  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    fedassay.errors.ParameterError: thresholds: unknown parameter of calibrate; expected method, bins, ...
    """
    task: Task[dict[str, Any]] = made(KINDS.named(name).task.load(), given, of=name)
    return task


def with_defaults(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """All parameters of a task as JSON values: those that are given, what follows from them, and defaults."""
    values = values_of(task_of(name, given))
    return {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}


def rows_of(kind: str, results: Mapping[str, Any]) -> float | None:
    """Number of rows that results are about; of a study that of the first task, in the order of reports, that tells.

    Examples
    --------
    >>> rows_of("evaluate", {"histogram": {"rows": 400.0}}), rows_of("conformal", {"rows": None})
    (400.0, None)
    """
    if "tasks" in results:
        tasks = sorted(results["tasks"].values(), key=lambda entry: KINDS[entry["task"]].order)
        known = (rows_of(entry["task"], entry["results"]) for entry in tasks)
        return next((rows for rows in known if rows is not None), None)
    return KINDS[kind].study_rules.rows(results)
