"""What the report of each task holds, in the order in which it is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
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
from fedassay.reports.sheet import Document, Piece
from fedassay.reports.study import Part, is_study

_Contents = Callable[[Document], Iterator[Piece]]


@dataclass(frozen=True, kw_only=True)
class _Kind:
    """What the report of a kind of task is called, alone and as a section among others, and what it holds."""

    heading: str
    section: str
    contents: _Contents


_TASKS: Mapping[str, _Kind] = MappingProxyType(
    {
        "evaluate": _Kind(
            heading="Evaluation of a binary classifier", section="Evaluation", contents=evaluation.contents
        ),
        "evaluate-classes": _Kind(
            heading="Evaluation of a classifier with several classes",
            section="Evaluation",
            contents=multiclass.contents,
        ),
        "calibrate": _Kind(
            heading="Calibration of a binary classifier", section="Calibration", contents=calibration.contents
        ),
        "calibrate-classes": _Kind(
            heading="Calibration of a classifier with several classes",
            section="Calibration",
            contents=multiclass_calibration.contents,
        ),
        "conformal": _Kind(
            heading="Conformal prediction", section="Prediction sets", contents=conformal.contents
        ),
        "ecdf": _Kind(
            heading="Distribution function", section="Distribution", contents=distribution.contents
        ),
        "quantiles": _Kind(heading="Quantiles", section="Quantiles", contents=distribution.quantiles_only),
        "infer": _Kind(heading="Regression", section="Coefficients", contents=inference.contents),
        "hosmer-lemeshow": _Kind(
            heading="Hosmer-Lemeshow test of a binary classifier",
            section="Hosmer-Lemeshow test",
            contents=goodness.contents,
        ),
    }
)


def heading(document: Document) -> str:
    """What the result is about."""
    if is_study(document):
        parameters = document["parameters"]
        return str(parameters.get("title") or parameters["study"])
    return _TASKS[kind(document)].heading


def section(part: Part) -> str:
    """The heading of a task among others; with its name where that says more.

    Examples
    --------
    >>> conformal = {"task": "conformal", "results": {}}
    >>> section(Part(name="conformal", document=conformal)), section(Part(name="wide", document=conformal))
    ('Prediction sets', 'Prediction sets: wide')
    """
    title = _TASKS[kind(part.document)].section
    return f"{title}: {part.name}" if says_more(part) else title


def says_more(part: Part) -> bool:
    """Whether the name of a task says more than its kind.

    Examples
    --------
    >>> several = {"task": "evaluate-classes", "results": {}}
    >>> says_more(Part(name="evaluate", document=several)), says_more(Part(name="old model", document=several))
    (False, True)
    """
    found = kind(part.document)
    return part.name not in ("", found, found.removesuffix("-classes"))


def contents(document: Document) -> Iterator[Piece]:
    """Tables and plots of a single task."""
    return _TASKS[kind(document)].contents(document)


def verdict(document: Document) -> str:
    """What to know before anything else, if the task or the study has come to a verdict."""
    if is_study(document):
        return str(document["results"]["verdict"]["text"])
    return multiclass_calibration.verdict(document) if kind(document) == "calibrate-classes" else ""


def is_good(document: Document) -> bool:
    """Whether the verdict asks for nothing: the calibrator is recommended, or the model of a study needs none."""
    if is_study(document):
        return document["results"]["verdict"]["needs_calibration"] is False
    return bool(document["results"]["recommended"])


def kind(document: Document) -> str:
    """The task; an evaluation or a calibration that has classes is one of its own."""
    task: str = document["task"]
    several = task in ("evaluate", "calibrate") and "classes" in document["results"]
    return f"{task}-classes" if several else task
