"""Every task that can be asked for by name, and how it is made from plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from types import MappingProxyType
from typing import Any

from fedassay.errors import UsageError
from fedassay.protocol import Task
from fedassay.tasks.calibration import Calibrate
from fedassay.tasks.calibration.multiclass.calibrate import CalibrateMulticlass
from fedassay.tasks.conformal import Conformal
from fedassay.tasks.distribution.ecdf import Ecdf
from fedassay.tasks.distribution.hosmer_lemeshow import HosmerLemeshow
from fedassay.tasks.distribution.search import SearchQuantiles
from fedassay.tasks.evaluation import Evaluate
from fedassay.tasks.evaluation.multiclass import EvaluateMulticlass
from fedassay.tasks.inference.infer import Infer

TASKS: Mapping[str, type[Any]] = MappingProxyType(
    {
        "evaluate": Evaluate,
        "evaluate-classes": EvaluateMulticlass,
        "calibrate": Calibrate,
        "calibrate-classes": CalibrateMulticlass,
        "ecdf": Ecdf,
        "hosmer-lemeshow": HosmerLemeshow,
        "quantiles": SearchQuantiles,
        "conformal": Conformal,
        "infer": Infer,
    }
)
"""Name to task. A task is a frozen dataclass whose fields are plain values; all of them have defaults."""


def task_of(name: str, given: Mapping[str, Any]) -> Task[dict[str, Any]]:
    """A task from its name and parameters as JSON has them (lists become tuples).

    Examples
    --------
    >>> task_of("evaluate", {"thresholds": [0.2]}).thresholds
    (0.2,)
    >>> task_of("calibrate", {"thresholds": [0.2]})  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    fedassay.errors.UsageError: calibrate: it has no thresholds; expected bins, ...
    """
    kind = _kind(name)
    known = {field.name for field in fields(kind)}
    for unknown in sorted(set(given) - known):
        raise UsageError(f"{name}: it has no {unknown}; expected {', '.join(sorted(known))}.")
    values = {key: tuple(value) if isinstance(value, list) else value for key, value in given.items()}
    try:
        task: Task[dict[str, Any]] = kind(**values)
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        raise UsageError(f"{name}: a parameter is of the wrong kind ({error}).") from error
    return task


def with_defaults(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """All parameters of a task as JSON values: those that are given, and the defaults of the others."""
    task_of(name, given)
    defaults = {field.name: field.default for field in fields(_kind(name)) if field.default is not MISSING}
    both = {**defaults, **given}
    return {key: list(value) if isinstance(value, tuple) else value for key, value in both.items()}


def _kind(name: str) -> type[Any]:
    if name not in TASKS:
        raise UsageError(f"task: got {name!r}, expected one of {', '.join(TASKS)}.")
    return TASKS[name]
