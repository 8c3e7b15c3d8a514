"""What to do after a study: sentences, and the commands that do it. Reads only the result's JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fedassay.reports import conformal_words
from fedassay.reports.key_numbers import unknown
from fedassay.reports.sheet import Document
from fedassay.reports.study import Part, parts

TITLE = "What to do next"

Step = tuple[str, str]
"""A sentence, and a command or nothing. Commands name files of the study's folder, and never where that is."""


def steps(document: Document) -> tuple[Step, ...]:
    """What a study suggests, in the order in which one would do it."""
    return (*_calibrate(document), *_predict_sets(document), *_more_rows(document), *_verify())


def artefact_name(name: str, kind: str) -> str:
    """The file that a task leaves behind for later use.

    Examples
    --------
    >>> artefact_name("calibrate", "calibrate-classes"), artefact_name("strict", "conformal")
    ('calibrator.json', 'strict.json')
    """
    fitted = kind.removesuffix("-classes")
    return "calibrator.json" if name == fitted == "calibrate" else f"{name}.json"


def _of_kind(document: Document, kind: str) -> Iterator[tuple[Part, Mapping[str, Any]]]:
    for part in parts(document):
        if part.document["task"].removesuffix("-classes") == kind:
            yield part, part.document["results"]


def _calibrate(document: Document) -> Iterator[Step]:
    needed = document["results"]["verdict"]["needs_calibration"]
    if needed is False:
        yield "Use the model's probabilities as they are: no calibrator is needed.", ""
    for part, results in _of_kind(document, "calibrate"):
        if results.get("calibrator") is None:
            continue
        file = artefact_name(part.name, part.document["task"])
        if not results["recommended"]:
            yield f"Leave {file} aside: it was not shown to be better than the model's own probabilities.", ""
            continue
        yield (
            f"Calibrate the probabilities of new rows with {file}:",
            f"fedassay apply {file} NEW.csv --out calibrated.parquet",
        )


def _predict_sets(document: Document) -> Iterator[Step]:
    for part, results in _of_kind(document, "conformal"):
        if conformal_words.holds_everything(results) or not _has_threshold(results):
            continue
        file = artefact_name(part.name, "conformal")
        what = "intervals" if conformal_words.are_intervals(results) else "sets"
        own = ""
        if results["score"].get("calibrated"):
            own = "; give it the model's own scores, the calibrator is in it"
        yield (
            f"Predict {what} for new rows that cover {results['level']:g}, with {file}{own}:",
            f"fedassay apply {file} NEW.csv --out {part.name}.parquet",
        )


def _has_threshold(results: Mapping[str, Any]) -> bool:
    return bool(results.get("groups") or results.get("sites")) or results.get("threshold") is not None


def _more_rows(document: Document) -> Iterator[Step]:
    """Where something could not be told."""
    undecided = document["results"]["verdict"]["needs_calibration"] is None and any(
        _of_kind(document, "calibrate")
    )
    useless = any(conformal_words.holds_everything(results) for _, results in _of_kind(document, "conformal"))
    if undecided or useless or unknown(document):
        said = document["parameters"].get("expected")
        first = "" if said else ", once study.toml has what you expect of the data under [expected]"
        yield (
            f"Not everything could be told. How many rows or clients, or which ε, would be enough{first}:",
            "fedassay plan study study.toml",
        )


def _verify() -> Iterator[Step]:
    yield (
        "Check that no file of the study's folder was changed, and that the releases cost what is said:",
        "fedassay verify FOLDER",
    )
    yield (
        "Give certificate.json, with the files beside it, to whoever asks what was measured and what protects it.",
        "",
    )
