"""The plan of a regression in the terminal: what each way will know of a coefficient, and what it takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fedassay.cli.plan_tables import budget, number, size, table_of
from fedassay.documents.figures import counted

WISHES: Mapping[str, str] = {
    "effect": "seeing an effect of {:g} with 80 % power",
    "precision": "intervals of ±{:g}",
    "begun": "noise that does not hide everything",
}
"""What the targets ask for, in words."""


def render(plan: Mapping[str, Any], console: Console) -> None:
    """What was assumed, one line for each way, why one is impossible, and which one to take."""
    given, parameters, methods = plan["assumptions"], plan["parameters"], plan["methods"]

    def say(text: str) -> None:
        console.print(escape(text), soft_wrap=True, highlight=False)

    share = "" if given["prevalence"] is None else f", {given['prevalence']:.3g} of them positive"
    say(
        f"{size(given)}{share}, {counted(given['features'], 'feature')}, {parameters['model']} model; "
        f"{given['trust_model']}{budget(given)}. For a standardised feature that is uncorrelated with the others; "
        "clients are taken to be alike."
    )
    console.print(_methods(plan))
    for name, one in methods.items():
        if "reason" in one and name != plan["recommended"]:  # whose reason is the verdict
            say(f"{name}: {one['reason']}")
    if given["epsilon"] is not None:
        say(f"Recommended: {plan['recommended']}, which counts its noise.")
    else:
        say(f"Recommended: {plan['recommended']}, unless rows stream in: then round-plug-in.")


def _methods(plan: Mapping[str, Any]) -> Table:
    table = table_of(
        f"A coefficient: {plan['parameters']['level']:.0%} interval, effect seen with 80 % power, cost to a client",
        *("method", "±", "effect", "sampling", "privacy", "rows", "rounds", "answers", "kB"),
    )
    for name, one in plan["methods"].items():
        if "reason" in one:
            table.add_row(name, *["–"] * 8)
            continue
        table.add_row(
            name,
            *(number(value) for value in (one["half_width"], one["effect"], *one["error"].values())),
            f"{one['rows']:,.0f}",
            "–" if one["rounds"] is None else f"{one['rounds']:,}",
            f"{one['answers']:,.0f}",
            f"{one['bytes'] / 1e3:,.0f}",
        )
    return table
