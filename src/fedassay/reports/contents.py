"""What the report of each task holds, in the order in which it is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

from fedassay.reports import (
    calibration,
    conformal,
    distribution,
    evaluation,
    goodness,
    inference,
    multiclass,
    multiclass_calibration,
)
from fedassay.reports.sheet import Document, Figure, Sheet

_Contents = Callable[[Document], Iterator[Sheet | Figure]]

_TASKS: Mapping[str, tuple[str, _Contents]] = MappingProxyType(
    {
        "evaluate": ("Evaluation of a binary classifier", evaluation.contents),
        "evaluate-classes": ("Evaluation of a classifier with several classes", multiclass.contents),
        "calibrate": ("Calibration of a binary classifier", calibration.contents),
        "calibrate-classes": (
            "Calibration of a classifier with several classes",
            multiclass_calibration.contents,
        ),
        "conformal": ("Conformal prediction", conformal.contents),
        "ecdf": ("Distribution function", distribution.contents),
        "quantiles": ("Quantiles", distribution.quantiles_only),
        "infer": ("Regression", inference.contents),
        "hosmer-lemeshow": ("Hosmer-Lemeshow test of a binary classifier", goodness.contents),
    }
)


def heading(document: Document) -> str:
    """What the result is about."""
    return _TASKS[_kind(document)][0]


def contents(document: Document) -> Iterator[Sheet | Figure]:
    """Tables and plots."""
    return _TASKS[_kind(document)][1](document)


def verdict(document: Document) -> str:
    """What to know before anything else, if the task has come to a verdict."""
    return multiclass_calibration.verdict(document) if _kind(document) == "calibrate-classes" else ""


def _kind(document: Document) -> str:
    """The task; an evaluation or a calibration that has classes is one of its own."""
    task: str = document["task"]
    several = task in ("evaluate", "calibrate") and "classes" in document["results"]
    return f"{task}-classes" if several else task
