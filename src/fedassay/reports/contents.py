"""What the report of each task holds: asked of the document that the card of its kind names."""

from __future__ import annotations

from collections.abc import Iterator

from fedassay.documents.kind import KindDocument
from fedassay.documents.sheet import Document, Piece
from fedassay.reports.study import Part, is_study
from fedassay.tasks.card import KINDS, KindCard


def card_of(document: Document) -> KindCard:
    """The card of a single task; an evaluation or a calibration that has classes is of a kind of its own."""
    asked: str = document["task"]
    several = "classes" in document["results"]
    kinds = [card for card in KINDS.values() if card.asked_as == asked]
    return next((card for card in kinds if several and "logits" in card.columns), None) or KINDS.named(asked)


def document_of(document: Document) -> KindDocument:
    """What the card of a single task names."""
    return card_of(document).document.load()()


def heading(document: Document) -> str:
    """What the result is about."""
    if is_study(document):
        parameters = document["parameters"]
        return str(parameters.get("title") or parameters["study"])
    return card_of(document).title


def section(part: Part) -> str:
    """The heading of a task among others; with its name where that says more.

    Examples
    --------
    >>> conformal = {"task": "conformal", "results": {}}
    >>> section(Part(name="conformal", document=conformal)), section(Part(name="wide", document=conformal))
    ('Prediction sets', 'Prediction sets: wide')
    """
    title = card_of(part.document).section
    return f"{title}: {part.name}" if says_more(part) else title


def says_more(part: Part) -> bool:
    """Whether the name of a task says more than its kind.

    Examples
    --------
    >>> several = {"task": "evaluate-classes", "results": {}}
    >>> says_more(Part(name="evaluate", document=several)), says_more(Part(name="old model", document=several))
    (False, True)
    """
    card = card_of(part.document)
    return part.name not in ("", card.name, card.asked_as)


def contents(document: Document) -> Iterator[Piece]:
    """Tables and plots of a single task."""
    return document_of(document).contents(document)


def verdict(document: Document) -> str:
    """What to know before anything else, if the task or the study has come to a verdict."""
    if is_study(document):
        return str(document["results"]["verdict"]["text"])
    return document_of(document).verdict(document)


def is_good(document: Document) -> bool:
    """Whether the verdict asks for nothing: the calibrator is recommended, or the model of a study needs none."""
    if is_study(document):
        return document["results"]["verdict"]["needs_calibration"] is False
    return bool(document["results"]["recommended"])
