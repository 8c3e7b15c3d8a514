"""What a study has spent, by task and by release. Reads only the result's JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fedassay.documents import figures, plots
from fedassay.documents.sheet import Cell, Document, Figure, Sheet
from fedassay.reports import budget_plots

_PARTS = {
    "all": "all rows",
    "fit": "fit rows",
    "first-fit": "first half of the fit rows",
    "second-fit": "second half of the fit rows",
    "held-out": "held-out rows",
}

_ALONE = (
    "ε alone is what the releases of a task cost without the others. Where δ is above 0, all together cost less than "
    "these add up to."
)


def spent(document: Document) -> str:
    """How much of how much, in a sentence."""
    budget = document["results"]["budget"]
    if budget["epsilon"] is None:
        return (
            f"There was no budget to spend: under {document['privacy']['trust_model']} totals are exact, and no "
            "differential privacy is promised."
        )
    left = f"{figures.left(budget['remaining'], budget['epsilon'])} is left"
    return (
        f"ε = {budget['spent']:.3g} of {budget['epsilon']:g} was spent, at δ = {budget['delta']:g}; {left}. "
        "Tasks on different rows do not add up: what counts is the most that any one row has met."
    )


def contents(document: Document) -> Iterator[Sheet | Figure]:
    """What each task has spent, and all together; without noise there is nothing to draw."""
    results = document["results"]
    if budget_plots.has_noise(results):
        yield Figure(
            draw=lambda: plots.framed(budget_plots.budget(results)),
            alternative=budget_plots.budget_alternative(results),
        )
    yield by_task(document)


def by_task(document: Document) -> Sheet:
    """The share of each task, its cost alone, the rows that it asked, and how many releases that took."""
    results = document["results"]
    noise = budget_plots.has_noise(results)
    return Sheet(
        title="By task",
        head=("task", "share", *(["ε alone"] if noise else []), "rows", "releases"),
        rows=tuple(_task(name, results) for name in results["tasks"]),
        notes=(_ALONE,) if noise else (),
    )


def _task(name: str, results: Mapping[str, Any]) -> tuple[Cell, ...]:
    mine = [charge for charge in results["budget"]["charges"] if charge["task"] == name]
    asked = dict.fromkeys(_PARTS.get(charge["part"], charge["part"]) for charge in mine)
    alone = [f"{budget_plots.spent_by_task(results)[name]:.3g}"] if budget_plots.has_noise(results) else []
    share = f"{results['tasks'][name]['share']:.3g}"
    texts = (name, share, *alone, ", ".join(asked) or "-", f"{len(mine):,}")
    return tuple(Cell(text=text) for text in texts)


def charges(document: Document) -> Sheet:
    """Every release as the ledger has it."""
    return Sheet(
        title="Releases",
        head=("task", "measured", "rows", "noise", "scale", "sensitivity (L1, L2)", "ε alone"),
        rows=tuple(_charge(charge) for charge in document["results"]["budget"]["charges"]),
    )


def _charge(charge: Mapping[str, Any]) -> tuple[Cell, ...]:
    norms = [f"{charge[name]:.4g}" for name in ("l1", "l2") if charge[name] is not None]
    texts = (
        charge["task"],
        charge["summary"],
        _PARTS.get(charge["part"], charge["part"]),
        "none" if charge["law"] in (None, "none") else charge["law"],
        "-" if charge["scale"] is None else f"{charge['scale']:.4g}",
        ", ".join(norms) or "-",
        "-" if charge["epsilon"] is None else f"{charge['epsilon']:.3g}",
    )
    return tuple(Cell(text=text) for text in texts)
