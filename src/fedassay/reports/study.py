"""The result of a study, seen as the results of its tasks. Reads only the result's JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fedassay.documents.sheet import Document
from fedassay.errors import UsageError
from fedassay.tasks.card import KINDS

STUDY = "study"


@dataclass(frozen=True, kw_only=True)
class Part:
    """One task of a study under its name, as a document of its own. A single task has no name."""

    name: str
    document: Document


def is_study(document: Document) -> bool:
    """Whether a result is that of a study."""
    return bool(document["task"] == STUDY)


def sub_document(document: Document, name: str) -> Document:
    """A task of a study as the document that the task alone would have.

    Privacy, cohort, runtime and warnings are those of the whole study: epsilon is that of all tasks together. Its
    parameters name the columns of the study too.

    Examples
    --------
    >>> entry = {"task": "evaluate", "parameters": {"level": 0.9}, "results": {"roc_auc": {"value": 0.8}}}
    >>> asked = {"study": "spring", "columns": {"score": "risk"}}
    >>> found = sub_document({"task": "study", "parameters": asked, "results": {"tasks": {"first": entry}}}, "first")
    >>> found["task"], found["parameters"], found["results"]["roc_auc"]["value"]
    ('evaluate', {'score': 'risk', 'level': 0.9}, 0.8)
    """
    tasks = document["results"]["tasks"]
    if name not in tasks:
        raise UsageError(f"task {name!r}: the study has no such task, expected one of {', '.join(tasks)}.")
    entry = tasks[name]
    return {
        **document,
        "task": entry["task"],
        "parameters": {**(document["parameters"].get("columns") or {}), **entry["parameters"]},
        "results": entry["results"],
    }


def parts(document: Document) -> Iterator[Part]:
    """The tasks in the order in which they are read; of one kind, in the order of the study. A single task is one."""
    if not is_study(document):
        yield Part(name="", document=document)
        return
    tasks, order = document["results"]["tasks"], list(KINDS)
    for name in sorted(tasks, key=lambda name: order.index(tasks[name]["task"])):
        yield Part(name=name, document=sub_document(document, name))
