"""The plan of prediction sets in the terminal: ranks, what they cover, other ways beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fedassay.cli.plan_tables import budget, number, size, table_of
from fedassay.documents.figures import counted

_BESIDE = {
    "pooled": "all rows in one place",
    "alone": "one client alone",
    "confident": "with confidence {confidence:g}",
    "marginal": "on average only",
    "without noise": "qq without privacy",
}


def render(plan: Mapping[str, Any], console: Console) -> None:
    """The ranks and what they cover, other ways beside it, and what noise costs."""
    given, parameters = plan["assumptions"], plan["parameters"]

    def say(text: str) -> None:
        console.print(escape(text), soft_wrap=True, highlight=False)

    say(
        f"{size(given)}, {given['rows_each']:,} each; {given['trust_model']}{budget(given)}. Clients are taken to "
        "have equally many rows."
    )
    console.print(_coverage(plan))
    guarantee = plan["guarantee"]
    if guarantee is not None and not plan["infinite"]:
        say(guarantee["text"])
    if _differs(plan):
        say("What to expect is for scores that are spread evenly over their range.")
    details = plan["details"]
    if details.get("margin") is not None:
        say(f"Noise costs a margin of {details['margin']:,.1f} ranks of {given['rows_used']:,.0f}.")
    if "candidates" in details:
        below, above = details["slopes"]
        say(
            f"Each client chooses one of {details['candidates']:,} points, with losses of {below} per rank below the "
            f"target and {above} above."
        )
    if plan["expected"] is not None:
        widths = plan["widths"]
        judged = (
            f"{name} {number(widths[name])} (target {wish:g})" for name, wish in plan["targets"].items()
        )
        say(f"{', '.join(judged).capitalize()}.")
    least = plan["rows_needed"][parameters["guarantee"]]
    say(f"Without privacy, {counted(least, 'row')} in all are the fewest for this guarantee.")


def _differs(plan: Mapping[str, Any]) -> bool:
    """Whether what to expect is something else than what is guaranteed."""
    law, expected = plan["coverage_law"], plan["expected"]
    return expected is not None and (law is None or abs(expected["mean"] - law["mean"]) > 5e-5)


def _coverage(plan: Mapping[str, Any]) -> Table:
    """One line for the plan, one for what to expect of it, one for each other way."""
    parameters = plan["parameters"]
    level, confidence = parameters["level"], parameters["confidence"]
    table = table_of(
        f"What sets for a coverage of {level:g} will cover",
        *("", "ranks", "mean", "sd", f"reached with {confidence:g}", f"P(at least {level:g})"),
    )
    law, guarantee = plan["coverage_law"], plan["guarantee"] or {}
    name = plan["method"] or parameters["method"]
    if law is not None:
        sign = "" if law["exact"] else "≥ "
        reached = level - plan["widths"]["shortfall"] if plan["widths"]["shortfall"] is not None else None
        texts = [f"{sign}{law['mean']:.4f}", number(law["standard_deviation"])]
        texts += [_at_least(sign, reached), _at_least(sign, guarantee["probability"])]
        table.add_row(f"{name} (planned)", _pair(plan["pair"]), *texts)
    elif guarantee.get("coverage") is not None:
        table.add_row(f"{name} (planned)", "", f"≥ {guarantee['coverage']:.4f}", "", "", "")
    else:
        table.add_row(f"{name} (planned)", *[""] * 5)
    if _differs(plan):
        expected = plan["expected"]
        table.add_row(
            "  to expect", "", f"{expected['mean']:.4f}", number(expected["standard_deviation"]), "", ""
        )
    for name, one in plan["beside"].items():
        words = _BESIDE[name].format(confidence=confidence)
        if one["mean"] is None:
            table.add_row(words, *["–"] * 5)
            continue
        numbers = (f"{one['mean']:.4f}", number(one["standard_deviation"]))
        table.add_row(
            words, _pair(one["pair"]), *numbers, f"{one['reached']:.4f}", f"{one['probability']:.3f}"
        )
    return table


def _at_least(sign: str, value: float | None) -> str:
    return "–" if value is None else f"{sign}{value:.3f}"


def _pair(pair: Sequence[int] | None) -> str:
    return "" if not pair else ", ".join(f"{rank:,}" for rank in pair)
