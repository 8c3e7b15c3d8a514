"""What a study has spent, by task, and in words. Reads only a study's ``results``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import altair as alt

from fedassay.documents import plots
from fedassay.documents.palette import BLUE, INK, MUTED

Results = Mapping[str, Any]

TOGETHER = "together"
_WIDTH, _STEP = 300, 26


def has_noise(results: Results) -> bool:
    """Whether there was anything to spend."""
    return results["budget"]["epsilon"] is not None


def spent_by_task(results: Results) -> dict[str, float]:
    """The epsilon of each task alone, in the order of the study; 0 for one that released nothing.

    Examples
    --------
    >>> spent_by_task({"tasks": {"a": {}, "b": {}}, "budget": {"by_task": {"b": 1.0}}})
    {'a': 0.0, 'b': 1.0}
    """
    alone = results["budget"]["by_task"] or {}
    return {name: alone.get(name) or 0.0 for name in results["tasks"]}


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
