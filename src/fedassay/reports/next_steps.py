"""What to do after a study: sentences, and the commands that do it. Reads only the result's JSON."""

from __future__ import annotations

from collections.abc import Iterator

from fedassay.documents.kind import Step
from fedassay.documents.sheet import Document
from fedassay.reports.contents import card_of, document_of
from fedassay.reports.key_numbers import unknown
from fedassay.reports.study import parts

TITLE = "What to do next"


def steps(document: Document) -> tuple[Step, ...]:
    """What a study suggests, in the order in which one would do it."""
    return (*_use_as_is(document), *_apply(document), *_more_rows(document), *_verify())


def _use_as_is(document: Document) -> Iterator[Step]:
    if document["results"]["verdict"]["needs_calibration"] is False:
        yield "Use the model's probabilities as they are: no calibrator is needed.", ""


def _apply(document: Document) -> Iterator[Step]:
    for part in parts(document):
        file = card_of(part.document).file_of(part.name)
        yield from document_of(part.document).next_steps(part.document["results"], file, part.name)


def _more_rows(document: Document) -> Iterator[Step]:
    """Where something could not be told."""
    found = [(document_of(part.document), part.document["results"]) for part in parts(document)]
    undecided = document["results"]["verdict"]["needs_calibration"] is None and any(
        kind.recommends(results) is not None for kind, results in found
    )
    vacuous = any(kind.is_vacuous(results) for kind, results in found)
    if undecided or vacuous or unknown(document):
        said = document["parameters"].get("expected")
        first = "" if said else ", once study.toml has what you expect of the data under [expected]"
        yield (
            f"Not everything could be told. How many rows or clients, or which ε, would be enough{first}:",
            "fedassay plan study study.toml",
        )


def _verify() -> Iterator[Step]:
    yield (
        "Check that no file of the study's folder was changed, who signed, and that the releases cost what is said; "
        "PUBLIC_KEY is that of the signer, known by other means:",
        "fedassay verify FOLDER --key PUBLIC_KEY",
    )
    yield (
        "Give certificate.json, with the files beside it, to whoever asks what was measured and what protects it.",
        "",
    )
