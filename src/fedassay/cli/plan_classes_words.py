"""The plan of a calibration of logits in the terminal: what noise leaves of each method, and what will be seen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fedassay.cli.plan_tables import budget, number, size, table_of, value
from fedassay.documents.figures import counted

WISHES: Mapping[str, str] = {
    "temperature": "a temperature that is right to {:.0%}",
    "improvement": "seeing an improvement of the log loss of {:g}",
}
"""What the targets ask for, in words."""

_COLOURS = {"usable": "green", "noisy": "yellow", "few rows": "yellow", "drowned": "red", "refused": "red"}
_SHOWN = {"log_loss": "log loss", "brier_score": "Brier score", "accuracy": "accuracy*"}
_UNITS = {"log s": "in log s", "parameter, in clips": "clips", "count, in rows": "rows"}


def render(plan: Mapping[str, Any], console: Console) -> None:
    """The methods, what ``auto`` does, what held-out rows can show, and what sampling gains."""
    given, auto, held_out = plan["assumptions"], plan["auto"], plan["held_out"]

    def say(text: str) -> None:
        console.print(escape(text), soft_wrap=True, highlight=False)

    say(
        f"{size(given)}, {given['classes']} classes, accuracy {given['accuracy']:g}, best temperature "
        f"{given['temperature']:g} (assumed); {given['trust_model']}{budget(given)}. Clients are taken to be alike."
    )
    console.print(_methods(plan["methods"]))
    for one in plan["methods"]:
        if "reason" in one:
            say(f"{_name(one)}: {one['reason']}.")
    by = "" if auto["solver"] == "counts" else f" ({auto['solver']})"
    say(f"auto is {auto['method']}{by}: {auto['reason']}.")
    say(_temperature(plan["temperature"], private=given["epsilon"] is not None))
    if held_out["log_loss"]["value"] is not None:
        console.print(_held_out(held_out))
        noise = "; under noise it must exclude a fall of 1 %" if held_out["noise"]["law"] != "none" else ""
        say(f"* of maps that can change the most probable class{noise}.")
    say(f"To expect: {held_out['reason']}")
    if plan["sampling"]:
        console.print(_sampling(plan["sampling"]))
        say("Sampling saves noise in a round, but the mean is over fewer clients: compare the last column.")


def _methods(methods: list[Mapping[str, Any]]) -> Table:
    table = table_of(
        "The methods: the noise that enters, and what one client sends and gets",
        *("method", "rounds", "noise (sd)", "answers", "bytes", "it is"),
    )
    for one in methods:
        noise, most = one["noise"], "≤ " if one["at_most"] else ""
        entering = f"{_short(noise['standard_deviation'])} {_UNITS[noise['of']]}" if noise["of"] else "–"
        costs = ("–", "–") if one["answers"] is None else (f"{one['answers']:.3g}", _bytes(one["bytes"]))
        word = one["usable"]
        table.add_row(
            _name(one),
            "–" if one["rounds"] is None else str(one["rounds"]),
            entering,
            *(f"{most}{cost}" for cost in costs),
            f"[{_COLOURS[word]}]{word}[/]",
        )
    return table


def _short(deviation: float) -> str:
    return f"{deviation:,.0f}" if deviation >= 10 else f"{deviation:.2g}"


def _bytes(count: int) -> str:
    if count < 10_000:
        return f"{count:,}"
    return f"{count / 1e3:,.0f} kB" if count < 1e6 else f"{count / 1e6:,.1f} MB"


def _name(one: Mapping[str, Any]) -> str:
    return one["method"] if one["solver"] == "counts" else f"{one['method']} ({one['solver']})"


def _temperature(found: Mapping[str, Any], *, private: bool) -> str:
    error = found["error"]
    if not private:
        return f"The temperature of all rows will be right to {found['total']:.2g} in log s: sampling."
    return (
        f"The temperature from {counted(found['releases'], 'release')} will be right to {found['total']:.2g} in log s: "
        f"noise {number(error['privacy'])}, sampling {number(error['sampling'])}, bounds and caution "
        f"{number(error['bias'])}."
    )


def _held_out(held_out: Mapping[str, Any]) -> Table:
    table = table_of(
        f"What {counted(round(held_out['rows']), 'held-out row')} can show",
        *("change of", "to expect", "±", "sampling", "privacy"),
    )
    for name, words in _SHOWN.items():
        one = held_out[name]
        error = one.get("error", {})
        table.add_row(
            words,
            value(one["value"]),
            number(one["half_width"]),
            *(number(error.get(part)) for part in ("sampling", "privacy")),
        )
    return table


def _sampling(lines: list[Mapping[str, Any]]) -> Table:
    table = table_of(
        "Federated averaging with and without sampling",
        *("participation", "rounds", "noise of a round / sensitivity", "sd in the mean, clips"),
    )
    for one in lines:
        table.add_row(
            f"{one['participation']:g}",
            str(one["rounds"]),
            f"{one['noise_multiplier']:.3g}",
            _short(one["standard_deviation"]),
        )
    return table
