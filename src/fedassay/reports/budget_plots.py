"""What a study has spent, by task, and in words. Reads only a study's ``results``."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import altair as alt

from fedassay.reports import plots
from fedassay.reports.palette import BLUE, INK, MUTED

Results = Mapping[str, Any]

_ATOMS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"all": ("first-fit", "second-fit", "held-out"), "fit": ("first-fit", "second-fit")}
)
"""Parts that consist of others: what is asked of different rows does not add up."""

TOGETHER = "together"
_WIDTH, _STEP = 300, 26


def has_noise(results: Results) -> bool:
    """Whether there was anything to spend."""
    return results["budget"]["epsilon"] is not None


def spent_by_task(results: Results) -> dict[str, float]:
    """The epsilon of each task alone: that of its charges on one part of the rows, added up, where most was spent.

    Adding up is an upper bound (basic composition); that of all tasks together is composed more tightly, so it may be
    less than their sum. A task whose charges are unknown or without noise has spent nothing.

    Examples
    --------
    >>> charges = [{"task": "a", "part": "fit", "epsilon": 1.0}, {"task": "a", "part": "held-out", "epsilon": 0.5}]
    >>> spent_by_task({"tasks": {"a": {}, "b": {}}, "budget": {"charges": charges}})
    {'a': 1.0, 'b': 0.0}
    """
    spent: dict[str, dict[str, float]] = {name: {} for name in results["tasks"]}
    for charge in results["budget"]["charges"]:
        of_task = spent.setdefault(charge["task"], {})
        for atom in _ATOMS.get(charge["part"], (charge["part"],)):
            of_task[atom] = of_task.get(atom, 0.0) + (charge["epsilon"] or 0.0)
    return {name: max(parts.values(), default=0.0) for name, parts in spent.items()}


def budget(results: Results) -> alt.LayerChart:
    """A bar for each task, one for all of them together, and the budget as a dashed line."""
    title, whole = "Budget spent", results["budget"]
    if not has_noise(results):
        return plots.empty(title, "no noise was added, so there is no budget")
    spent = {**spent_by_task(results), TOGETHER: whole["spent"]}
    order = list(spent)
    bars = [
        {
            "name": name,
            "epsilon": epsilon,
            "kind": "all" if name == TOGETHER else "one",
            "text": f"{epsilon:.3g}",
        }
        for name, epsilon in spent.items()
    ]
    top = 1.18 * max(whole["epsilon"], *spent.values())
    base = alt.Chart(alt.Data(values=bars))
    y = plots.named(order)
    x = alt.X(
        "epsilon:Q", title="epsilon", scale=alt.Scale(domain=[0, top], nice=False), axis=alt.Axis(tickCount=5)
    )
    kinds = alt.Scale(domain=["one", "all"], range=[BLUE, MUTED])
    drawn = base.mark_bar(height={"band": 0.7}).encode(
        x=x, y=y, color=alt.Color("kind:N", scale=kinds, legend=None)
    )
    words = base.mark_text(align="left", dx=4, color=INK).encode(x=x, y=y, text="text:N")
    chart = alt.layer(drawn, plots.level_rule(whole["epsilon"], axis="x"), words)
    below = f"dashed: the budget {whole['epsilon']:g}; δ = {whole['delta']:g}"
    return chart.properties(width=_WIDTH, height=_STEP * len(order), title=plots.titled(title, below))


def budget_alternative(results: Results) -> str:
    """The plot in words."""
    whole = results["budget"]
    if not has_noise(results):
        return "No budget: no noise was added."
    said = ", ".join(f"{name} {epsilon:.3g}" for name, epsilon in spent_by_task(results).items())
    return (
        f"Budget spent by task, each alone: {said}; together epsilon {whole['spent']:.3g} of {whole['epsilon']:g} at "
        f"delta {whole['delta']:g}, {max(0.0, whole['remaining']):.3g} left."
    )
