"""The plan of a study in the terminal: one table of tasks, one of trust models, what would be enough, the verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fedassay.cli.plan_tables import budget, coloured, label, number, size, table_of, value
from fedassay.documents.figures import counted


def render(plan: Mapping[str, Any], console: Console) -> None:
    """Print a plan, from its JSON alone."""

    def say(text: str) -> None:
        console.print(escape(text), soft_wrap=True, highlight=False)

    say(_assumptions(plan["assumptions"]))
    noisy = plan["assumptions"]["epsilon"] is not None
    for name, task in plan["tasks"].items():
        console.print(_task(name, task, noisy=noisy))
    for line in _explained(plan):
        say(line)
    if noisy and len(plan["tasks"]) > 1:
        say(_shares(plan))
    for one in plan["inverse"]:
        say(_inverse(one))
    console.print(_trust_models(plan["trust_models"]))
    if not noisy:
        shown = next(one for one in plan["trust_models"] if one["epsilon"] is not None)
        say(f"Trust models that add noise are shown with{budget(shown)[1:]}: the study names no budget.")
    for one in plan["trust_models"]:
        if one["possible"] and one["instead"] is not None:
            say(f"{one['trust_model']}: with {one['instead']} in [privacy].")
        elif not one["possible"]:
            say(f"{one['trust_model']}: not possible. {one['reason']}")
    if plan["assumptions"]["attendance"] is not None:
        say(plan["assumptions"]["attendance"])
    for warning in plan["warnings"]:
        console.print(f"[yellow]Note:[/] {escape(warning)}", soft_wrap=True, highlight=False)
    console.print(f"[bold]{escape(plan['verdict'])}[/]", soft_wrap=True, highlight=False)


def _assumptions(given: Mapping[str, Any]) -> str:
    known = [
        f"{given['prevalence']:.3g} of them positive" if "prevalence" in given else "",
        f"AUC {given['auc']:g}" if "auc" in given else "",
        f"{given['classes']} classes, accuracy {given['accuracy']:g}" if "classes" in given else "",
    ]
    expected = "".join(f", {text}" for text in known if text)
    return (
        f"{size(given)}{expected}, {given['holdout']:.0%} held out; {given['trust_model']}{budget(given)}. "
        "± is half an interval, or an error; no row was read."
    )


def _task(name: str, task: Mapping[str, Any], *, noisy: bool) -> Table:
    spends = f", {task['share']:.3g} of the budget" if noisy else ""
    table = table_of(
        f"{name}: {counted(task['rows'], 'row')}{spends}",
        *("metric", "value", "±", "sampling", "privacy", "target", "data"),
    )
    for metric, one in task["metrics"].items():
        star = "*" if metric in task["decisive"] else ""
        table.add_row(
            f"{label(metric)}{star}",
            value(one["value"]),
            number(one["width"]),
            *(number(one["error"][part]) for part in ("sampling", "privacy")),
            number(one["target"]),
            "" if one["verdict"] is None else coloured(one["verdict"]),
        )
    return table


_WORDS = {
    "brier_excess": "by how much the Brier score of calibrated probabilities will exceed the best possible",
    "improvement": "the smallest gain in log loss that the held-out rows will show",
    "spread": "how much the coverage of the sets varies from one such study to the next (standard deviation)",
    "excess": "by how much the sets cover more than the level on average, and so are larger than need be",
    "shortfall": "how far below the level the coverage can be by bad luck",
}
"""What a table calls so, in one line each."""


def _explained(plan: Mapping[str, Any]) -> list[str]:
    """What the tables do not say themselves, and only of what stands in them."""
    tasks = plan["tasks"].values()
    metrics = {metric: one for task in tasks for metric, one in task["metrics"].items()}
    lines = []
    if any(task["decisive"] for task in tasks):
        shared = plan["assumptions"]["epsilon"] is not None and len(tasks) > 1
        lines.append(
            f"*: what the verdict{' and the recommended shares depend' if shared else ' depends'} on."
        )
    if any(one["target"] is not None for one in metrics.values()):
        lines.append(
            "target: what is usually near enough; --target TASK.METRIC=WIDTH asks for something else."
        )
    lines += [f"{metric}: {words}." for metric, words in _WORDS.items() if metric in metrics]
    return lines + _fewer_rows(plan)


def _fewer_rows(plan: Mapping[str, Any]) -> list[str]:
    """Why tasks see fewer rows than there are."""
    given = plan["assumptions"]
    bound = given["rows_per_client"]
    used = given["rows"] if bound is None else min(given["rows"], bound * given["clients"])
    fewer = {name: task["rows"] for name, task in plan["tasks"].items() if task["rows"] < 0.999 * used}
    if not fewer:
        return []
    text = f"rows of {', '.join(fewer)}: {given['holdout']:.0%} of all are held out to judge what is fitted"
    if min(fewer.values()) < 0.75 * used * (1 - given["holdout"]):
        text += "; of the others, the calibration gets one half and what builds on it the other"
    return [f"{text}."]


def _shares(plan: Mapping[str, Any]) -> str:
    listed = ", ".join(f"{name} {one['recommended_share']:g}" for name, one in plan["tasks"].items())
    why = "which makes the worst of what has a star as small as it can be beside its target"
    if any(one["share"] != one["recommended_share"] for one in plan["tasks"].values()):
        return f"Recommended shares instead of those given: {listed}, {why}."
    return f"Recommended shares: {listed}, {why}."


def _inverse(one: Mapping[str, Any]) -> str:
    epsilon, rows, clients = (one[name] for name in ("epsilon", "rows", "clients"))
    ways = [
        epsilon["reason"] if epsilon["value"] is None else f"ε ≥ {epsilon['value']:g}",
        rows["reason"]
        if rows["value"] is None
        else f"{counted(rows['value'], 'row')} at {counted(rows['clients'], 'client')}",
        clients["reason"]
        if clients["value"] is None
        else f"{counted(clients['value'], 'client')} of the size expected",
    ]
    return f"For {one['metric']} within {one['target']:g}: {'; or '.join(ways)}."


def _trust_models(rows: Sequence[Mapping[str, Any]]) -> Table:
    table = table_of(
        f"Trust models (* chosen): who learns what, what is needed, ± of {rows[0]['metric']}",
        *("", "server learns", "readers learn", "clients", "servers", "rounds", "±"),
    )
    for column in table.columns[1:3]:
        column.justify = "left"
    for one in rows:
        needs = one["needs"]
        table.add_row(
            f"{one['trust_model']}{'*' if one['chosen'] else ''}",
            one["server_learns"],
            one["readers_learn"],
            *(str(needs[what]) for what in ("clients", "servers", "rounds")),
            number(one["width"]) if one["possible"] else "–",
        )
    return table
