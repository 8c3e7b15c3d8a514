"""Budget that a study has spent: in a sentence, by task as a table and a plot, and by release."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Self

import altair as alt

from fedassay.documents import budget, figures, plots
from fedassay.documents.blocks import CurveBlock, Document, Results, TableBlock, table
from fedassay.documents.display import Display, DisplayedEntry, ResultSource, document_of, number
from fedassay.documents.palette import BLUE, INK, MUTED
from fedassay.documents.report import is_study
from fedassay.errors import UsageError

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
_TOGETHER = "together"
_WIDTH, _STEP = 300, 26


def has_noise(results: Results) -> bool:
    """Return whether the study had a budget."""
    return results["budget"]["epsilon"] is not None


def spent(document: Document) -> str:
    """Describe the spent part of the budget in a sentence."""
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


def budget_blocks(results: Results) -> Iterator[TableBlock | CurveBlock]:
    """Yield the cost of each task and of all together; without noise there is no plot."""
    if has_noise(results):
        yield curve(results)
    yield by_task(results)


def by_task(results: Results) -> TableBlock:
    """Return the share of each task, its cost alone, the rows that it used, and its number of releases."""
    noise, alone, rows = has_noise(results), spent_by_task(results), []
    for name, entry in results["tasks"].items():
        charges = [charge for charge in results["budget"]["charges"] if charge["task"] == name]
        parts = dict.fromkeys(_part(charge) for charge in charges)
        cost = [f"{alone[name]:.3g}"] if noise else []
        rows.append((name, f"{entry['share']:.3g}", *cost, ", ".join(parts) or "-", f"{len(charges):,}"))
    head = ("task", "share", *(["ε alone"] if noise else []), "rows", "releases")
    return table("By task", head, rows, notes=(_ALONE if noise else "",))


def charges(results: Results) -> TableBlock:
    """Return every release as recorded in the ledger."""
    return table(
        "Releases",
        ("task", "measured", "rows", "noise", "scale", "sensitivity (L1, L2)", "ε alone"),
        (
            (
                charge["task"],
                charge["summary"],
                _part(charge),
                "none" if charge["law"] in (None, "none") else charge["law"],
                "-" if charge["scale"] is None else f"{charge['scale']:.4g}",
                ", ".join(f"{charge[name]:.4g}" for name in ("l1", "l2") if charge[name] is not None) or "-",
                "-" if charge["epsilon"] is None else f"{charge['epsilon']:.3g}",
            )
            for charge in results["budget"]["charges"]
        ),
    )


def _part(charge: Results) -> str:
    return _PARTS.get(charge["part"], str(charge["part"]))


def spent_by_task(results: Results) -> dict[str, float]:
    """Return the epsilon of each task alone, in the order of the study; 0 for a task without releases.

    Examples
    --------
    >>> spent_by_task({"tasks": {"a": {}, "b": {}}, "budget": {"by_task": {"b": 1.0}}})
    {'a': 0.0, 'b': 1.0}
    """
    alone = results["budget"]["by_task"] or {}
    return {name: alone.get(name) or 0.0 for name in results["tasks"]}


def curve(results: Results) -> CurveBlock:
    """Plot a bar for each task, a bar for all together, and the budget as a dashed line."""
    budget, alone = results["budget"], spent_by_task(results)
    text = ", ".join(f"{name} {epsilon:.3g}" for name, epsilon in alone.items())
    return CurveBlock(
        draw=lambda: _bars(budget, {**alone, _TOGETHER: budget["spent"]}),
        alternative=f"Budget spent by task, each alone: {text}; together epsilon {budget['spent']:.3g} of "
        f"{budget['epsilon']:g} at delta {budget['delta']:g}, {max(0.0, budget['remaining']):.3g} left.",
    )


def _bars(budget: Results, epsilons: dict[str, float]) -> alt.LayerChart:
    bars = [
        {
            "name": name,
            "epsilon": epsilon,
            "kind": "all" if name == _TOGETHER else "one",
            "text": f"{epsilon:.3g}",
        }
        for name, epsilon in epsilons.items()
    ]
    y = plots.named(list(epsilons))
    scale = alt.Scale(domain=[0, 1.18 * max(budget["epsilon"], *epsilons.values())], nice=False)
    x = alt.X("epsilon:Q", title="epsilon", scale=scale, axis=alt.Axis(tickCount=5))
    colours = alt.Scale(domain=["one", "all"], range=[BLUE, MUTED])
    base = alt.Chart(alt.Data(values=bars))
    drawn = base.mark_bar(height={"band": 0.7})
    drawn = drawn.encode(x=x, y=y, color=alt.Color("kind:N", scale=colours, legend=None))
    words = base.mark_text(align="left", dx=4, color=INK).encode(x=x, y=y, text="text:N")
    chart = alt.layer(drawn, plots.level_rule(budget["epsilon"], axis="x"), words)
    title = plots.titled("Budget spent", f"dashed: the budget {budget['epsilon']:g}; δ = {budget['delta']:g}")
    return chart.properties(width=_WIDTH, height=_STEP * len(epsilons), title=title)


# --- the display --------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, repr=False)
class BudgetDisplay(Display):
    """Epsilon spent by each task of a study and by all together, and the budget.

    Attributes: `epsilon` and `delta` of the budget, `spent` and `remaining` (epsilons at that delta), `by_task`.
    """

    wanted = DisplayedEntry("budget", "budget", ("study",))
    make = budget.curve
    main = ("spent", "epsilon", "delta")

    epsilon = number("budget", "epsilon", "Of the whole budget.")
    delta = number("budget", "delta", "Of the whole budget.")
    spent = number("budget", "spent", "By all tasks together.")
    remaining = number("budget", "remaining", "What is left of epsilon.")

    @classmethod
    def from_result(cls, result: ResultSource, task: str | None = None) -> Self:
        """Return the display of a study under noise; `task` must be None, as the budget is that of all tasks."""
        document = document_of(result)
        if task is not None:
            raise UsageError(f"task: got {task!r}, but a budget is that of a whole study; leave `task` out.")
        if not is_study(document):
            raise UsageError(
                f"budget: got a result of {document['task']}, expected that of a study (`fedassay run`); a single task "
                "spends its whole budget, see the 'privacy' of the result."
            )
        if not budget.has_noise(document["results"]):
            raise UsageError("budget: no noise was added in this study, so there is none; see its 'privacy'.")
        return cls(results=document["results"])

    @property
    def by_task(self) -> Mapping[str, float]:
        """Epsilon of each task alone; under a delta these add up to more than was spent."""
        return budget.spent_by_task(self.results)
