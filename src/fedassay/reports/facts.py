"""Who took part, what ran, and with which versions. Reads only the result's JSON."""

from __future__ import annotations

from collections.abc import Iterator

from fedassay.documents import figures
from fedassay.documents.sheet import Document
from fedassay.reports import cohort
from fedassay.reports.study import is_study


def summary(document: Document) -> str:
    """Clients, rows and trust model in one line."""
    privacy = document["privacy"]
    terms = "" if privacy["epsilon"] is None else f" (ε = {privacy['epsilon']:g}, δ = {privacy['delta']:g})"
    clients = figures.counted(document["cohort"]["clients"], "client")
    return f"{clients} with {cohort.rows(document)}, under {privacy['trust_model']}{terms}."


def run(document: Document) -> tuple[tuple[str, str], ...]:
    """Everything that is known of the run: names, and what they are."""
    return (*_study(document), *_run(document))


def _study(document: Document) -> Iterator[tuple[str, str]]:
    if not is_study(document):
        return
    given = document["parameters"]
    yield "study", str(given["study"])
    if given.get("data"):
        yield (
            "data",
            ", ".join(f"{name} {value}" for name, value in given["data"].items() if value is not None),
        )
    if given.get("columns"):
        yield "columns", ", ".join(f"{role}: {column}" for role, column in given["columns"].items())
    if given.get("split"):
        yield "held out", f"{given['split']['holdout']:.0%} of the units"
    if given.get("seed") is not None:
        yield "seed", str(given["seed"])


def _run(document: Document) -> Iterator[tuple[str, str]]:
    took_part, runtime, privacy = document["cohort"], document["runtime"], document["privacy"]
    yield "clients", f"{took_part['clients']:,}"
    if took_part["dropped"]:
        yield "clients lost on the way", f"{took_part['dropped']:,}"
    yield "rows", cohort.rows(document)
    if took_part["truncated"]:
        yield "rows left out by the bound on a client's rows", f"{took_part['truncated']:,}"
    if "missing" in took_part:
        yield "rows left out as a value is missing", f"{took_part['missing']:,}"
    yield "trust model", privacy["trust_model"]
    for said in dict.fromkeys(one["statement"] for one in took_part.get("openings", ())):
        yield "totals opened", said
    yield "protected", f"one {privacy['unit']} ({privacy['neighbours']})"
    yield "simulated", "yes: one process held all rows" if privacy["simulated"] else "no: a release"
    yield "runtime", f"{runtime['name']} ({runtime['mode']})"
    yield "rounds", f"{runtime['rounds']:,}"
    yield "bytes per client", f"{runtime['bytes_per_client']:,}"
    if runtime["seconds"] is not None:
        yield "seconds", f"{runtime['seconds']:.1f}"
    yield "fedassay", document["fedassay"]
