"""Parts of every report beyond the blocks of its tasks: heading, verdict, key numbers, cohort, run, next steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from fedassay.documents import figures
from fedassay.documents.blocks import Document, DocumentBlock, KeyNumber, Results, VerdictBlock, reasons
from fedassay.documents.kind import KINDS, KindDocument, NextStep, card_of
from fedassay.errors import UsageError
from fedassay.protocol.result import STUDY

NEXT_STEPS = "What to do next"
_HALVES = ("first-fit", "second-fit")


# --- the tasks of a result --------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class TaskSection:
    """Task of a study under its name, as a document of its own. A single task has no name."""

    name: str
    document: Document

    @property
    def card(self) -> Any:
        """Card of its kind."""
        return card_of(self.document)

    @property
    def kind(self) -> KindDocument:
        """Document of its kind."""
        kind: KindDocument = self.card.document.load()()
        return kind

    @property
    def results(self) -> Results:
        """Results of the task."""
        results: Results = self.document["results"]
        return results

    @property
    def blocks(self) -> Iterator[DocumentBlock]:
        """Tables, curves and sentences of the task."""
        return self.kind.blocks(self.document)

    @property
    def is_named(self) -> bool:
        """True if the name differs from that of the kind.

        Examples
        --------
        >>> several = {"task": "evaluate-classes", "results": {}}
        >>> [TaskSection(name=name, document=several).is_named for name in ("evaluate", "old model")]
        [False, True]
        """
        return self.name not in ("", self.card.name, self.card.asked_as)

    @property
    def title(self) -> str:
        """Heading among others; with the name if it differs from that of the kind.

        Examples
        --------
        >>> conformal = {"task": "conformal", "results": {}}
        >>> [TaskSection(name=name, document=conformal).title for name in ("conformal", "wide")]
        ['Prediction sets', 'Prediction sets: wide']
        """
        return f"{self.card.section}: {self.name}" if self.is_named else str(self.card.section)


def is_study(document: Document) -> bool:
    """Return whether a result is that of a study."""
    return bool(document["task"] == STUDY)


def sub_document(document: Document, name: str) -> Document:
    """Return a task of a study as the document that the task alone would have.

    Privacy, cohort, runtime and warnings are those of the whole study: epsilon is that of all tasks together. The
    parameters include the columns of the study.

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
    parameters = {**(document["parameters"].get("columns") or {}), **entry["parameters"]}
    return {**document, "task": entry["task"], "parameters": parameters, "results": entry["results"]}


def sections(document: Document) -> Iterator[TaskSection]:
    """Yield the tasks in reading order; within a kind, in the order of the study. A single task is a section too."""
    if not is_study(document):
        yield TaskSection(name="", document=document)
        return
    tasks, order = document["results"]["tasks"], list(KINDS)
    for name in sorted(tasks, key=lambda name: order.index(tasks[name]["task"])):
        yield TaskSection(name=name, document=sub_document(document, name))


# --- the top ----------------------------------------------------------------------------------------------------------


def heading(document: Document) -> str:
    """Return the heading of a result."""
    if is_study(document):
        return str(document["parameters"].get("title") or document["parameters"]["study"])
    return str(card_of(document).title)


def verdict(document: Document) -> VerdictBlock:
    """Return the verdict of a task or a study; its text is empty if there is none."""
    results = document["results"]
    if is_study(document):
        found = results["verdict"]
        return VerdictBlock(text=str(found["text"]), is_good=found["needs_calibration"] is False)
    (section,) = sections(document)
    return VerdictBlock(text=section.kind.verdict(document), is_good=bool(results.get("recommended")))


def key_numbers(document: Document) -> tuple[KeyNumber, ...]:
    """Return the known key numbers of all tasks in reading order, and the spent budget of a study.

    Each names its rows: the slope of a model over all rows is not that on held-out rows.
    """
    known = [number for number in _all_numbers(document) if not number.reason]
    return (*known, _budget(document["results"]["budget"])) if is_study(document) else tuple(known)


def unknown(document: Document) -> str:
    """Return the unknown key numbers and the reasons, each reason once; empty if all are known."""
    missing = [
        (one.label, {"value": None, "reason": one.reason}) for one in _all_numbers(document) if one.reason
    ]
    return f"Not known: {'. '.join(reasons(missing))}." if missing else ""


def _all_numbers(document: Document) -> Iterator[KeyNumber]:
    """Yield all key numbers, after the task's name if it is not its kind: a study may have two tasks of a kind."""
    for section in sections(document):
        for number in section.kind.key_numbers(section.results):
            yield replace(number, label=f"{section.name}: {number.label}") if section.is_named else number


def _budget(budget: Results) -> KeyNumber:
    if budget["epsilon"] is None:
        return KeyNumber(label="privacy budget", text="none", detail="exact totals, no noise")
    return KeyNumber(
        label="privacy budget spent (ε)",
        text=f"{budget['spent']:.3g} of {budget['epsilon']:g}",
        detail=f"at δ = {budget['delta']:g}; {figures.left(budget['remaining'], budget['epsilon'])} left",
    )


# --- assumptions and next steps ---------------------------------------------------------------------------------------


def assumptions(document: Document) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield each task's heading and the assumptions that a reader must trust; each once, where it first matters."""
    before: set[str] = set()
    for section in sections(document):
        every = dict.fromkeys(section.kind.assumptions(section.results))
        sentences = tuple(text for text in every if text not in before)
        before.update(sentences)
        if sentences:
            yield section.title, sentences


def next_steps(document: Document) -> Iterator[NextStep]:
    """Yield the next steps that a study suggests, in the order of their execution."""
    needs = document["results"]["verdict"]["needs_calibration"]
    if needs is False:
        yield "Use the model's probabilities as they are: no calibrator is needed.", ""
    tasks = list(sections(document))
    for task in tasks:
        yield from task.kind.next_steps(task.results, task.card.file_of(task.name), task.name)
    undecided = needs is None and any(task.kind.recommends(task.results) is not None for task in tasks)
    if undecided or any(task.kind.is_vacuous(task.results) for task in tasks) or unknown(document):
        expected = document["parameters"].get("expected")
        first = "" if expected else ", once study.toml has what you expect of the data under [expected]"
        yield (
            f"Not everything could be told. How many rows or clients, or which ε, would be enough{first}:",
            "fedassay plan study study.toml",
        )
    yield (
        "Check that no file of the study's folder was changed, who signed, and that the releases cost what is said; "
        "PUBLIC_KEY is that of the signer, known by other means:",
        "fedassay verify FOLDER --key PUBLIC_KEY",
    )
    yield (
        "Give certificate.json, and its folder to readers who ask what was measured and what protects it.",
        "",
    )


# --- cohort and run ---------------------------------------------------------------------------------------------------


def rows(document: Document) -> str:
    """Format rows as ``266 rows``, or ``186 rows to fit on and 80 held out`` if no task has counted all together.

    Under noise numbers are approximate.
    """
    number = document["cohort"]["rows"]
    if number is None:
        return "an unknown number of rows"
    about = "" if document["privacy"]["epsilon"] is None else "about "
    apart = _apart(document)
    if apart is None:
        return f"{about}{figures.counted(number, 'row')}"
    fitted, held_out = (max(0.0, count) for count in apart)
    return f"{about}{figures.counted(fitted, 'row')} to fit on and {about}{held_out:,.0f} held out"


def _apart(document: Document) -> tuple[float, float] | None:
    """Return fit rows and held-out rows, if the result has both and no task used all rows."""
    fitted: dict[str, float] = {}
    held_out: float | None = None
    for section in sections(document):
        fit, rest = _counted(section.results)
        if fit is None or rest is None:
            return None
        fitted[_part_of(document, section.name)], held_out = fit, rest
    if held_out is None:
        return None
    if set(_HALVES) <= set(fitted):
        return sum(fitted[half] for half in _HALVES), held_out
    return (fitted["fit"], held_out) if "fit" in fitted else None


def _counted(results: Mapping[str, Any]) -> tuple[float | None, float | None]:
    """Return fit rows and held-out rows of a conformal threshold, or of a calibration of several classes."""
    if "calibrator" in results:
        return (results.get("fit") or {}).get("rows"), results.get("rows")
    return results.get("rows"), (results.get("held_out") or {}).get("rows")


def _part_of(document: Document, name: str) -> str:
    """Return the part of the fit rows of a task: all, or a half if two tasks need separate rows."""
    charges = document["results"]["budget"]["charges"] if is_study(document) else ()
    asked = (one["part"] for one in charges if one["task"] == name)
    return next((part for part in asked if part in _HALVES), "fit")


def summary(document: Document) -> str:
    """Return clients, rows and trust model in a line."""
    privacy = document["privacy"]
    terms = "" if privacy["epsilon"] is None else f" (ε = {privacy['epsilon']:g}, δ = {privacy['delta']:g})"
    clients = figures.counted(document["cohort"]["clients"], "client")
    return f"{clients} with {rows(document)}, under {privacy['trust_model']}{terms}."


def openings(document: Document) -> tuple[str, ...]:
    """Return sentences on how totals were opened, each once."""
    return tuple(dict.fromkeys(one["statement"] for one in document["cohort"].get("openings", ())))


def facts(document: Document) -> Iterator[tuple[str, str]]:
    """Yield all known facts of the run: names and values."""
    if is_study(document):
        given = document["parameters"]
        yield "study", str(given["study"])
        if given.get("data"):
            data = (f"{name} {value}" for name, value in given["data"].items() if value is not None)
            yield "data", ", ".join(data)
        if given.get("columns"):
            yield "columns", ", ".join(f"{role}: {column}" for role, column in given["columns"].items())
        if given.get("split"):
            yield "held out", f"{given['split']['holdout']:.0%} of the units"
        if given.get("seed") is not None:
            yield "seed", str(given["seed"])
    cohort, runtime, privacy = document["cohort"], document["runtime"], document["privacy"]
    yield "clients", f"{cohort['clients']:,}"
    if cohort["dropped"]:
        yield "clients lost on the way", f"{cohort['dropped']:,}"
    yield "rows", rows(document)
    if cohort["truncated"]:
        yield "rows left out by the bound on a client's rows", f"{cohort['truncated']:,}"
    if "missing" in cohort:
        yield "rows left out as a value is missing", f"{cohort['missing']:,}"
    yield "trust model", privacy["trust_model"]
    yield from (("totals opened", statement) for statement in openings(document))
    yield "protected", f"one {privacy['unit']} ({privacy['neighbours']})"
    yield "simulated", "yes: one process held all rows" if privacy["simulated"] else "no: a release"
    yield "runtime", f"{runtime['name']} ({runtime['mode']})"
    yield "rounds", f"{runtime['rounds']:,}"
    yield "bytes per client", f"{runtime['bytes_per_client']:,}"
    if runtime["seconds"] is not None:
        yield "seconds", f"{runtime['seconds']:.1f}"
    yield "fedassay", document["fedassay"]
