"""Plans in the terminal: the assumptions, a table of each task, what would be enough, trust models, the verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from fedassay.cli import output
from fedassay.documents.figures import counted
from fedassay.protocol.metrics import CLASS_METRICS, METRICS
from fedassay.protocol.texts import printable

_HELD_OUT = "held_out_"

_COLOURS = {
    "enough data": "[green]enough[/]",
    "not enough": "[red]few[/]",
    "not decidable": "[yellow]unclear[/]",
}


_Tasks = Mapping[str, Mapping[str, Any]]


def render(plan: Mapping[str, Any], console: Console) -> None:
    """Print a plan, from its JSON alone."""
    alone = plan["plan"] != "study"
    tasks = {plan["plan"]: plan} if alone else plan["tasks"]
    output.say(console, _assumptions(plan, alone=alone))
    noisy = plan["assumptions"]["epsilon"] is not None
    for name, task in tasks.items():
        console.print(_task(name, task, noisy=noisy, alone=alone))
    output.say(console, *_explained(plan, tasks, alone=alone))
    if alone:
        for table in plan["tables"].values():
            console.print(_details(table))
            first = next(iter(table["columns"]))
            reasons = (row for row in table["rows"] if "reason" in row)
            output.say(console, *(f"{row[first]}: {row['reason'].rstrip('.')}." for row in reasons))
        output.say(console, *plan["remarks"])
    elif noisy and len(tasks) > 1:
        output.say(console, _shares(tasks))
    output.say(console, *map(_inverse, plan["inverse"]))
    if not alone:
        console.print(_trust_models(plan["trust_models"]))
        output.say(console, *_conditions(plan["trust_models"], noisy=noisy))
    if plan["assumptions"]["attendance"] is not None:
        output.say(console, plan["assumptions"]["attendance"])
    notes = (f"[yellow]Note:[/] {printable(warning)}" for warning in plan["warnings"])
    output.say(console, *notes, f"[bold]{printable(plan['verdict'])}[/]", markup=True)


def _assumptions(plan: Mapping[str, Any], *, alone: bool) -> str:
    given = plan["assumptions"]
    known = [
        f"{given['prevalence']:.3g} of them positive" if "prevalence" in given else "",
        f"AUC {given['auc']:g}" if "auc" in given else "",
        f"{given['classes']} classes, accuracy {given['accuracy']:g}" if "classes" in given else "",
        f"best temperature {given['temperature']:g} (assumed)" if "classes" in given else "",
        counted(given["features"], "feature") if "features" in given else "",
        f"{given['holdout']:.0%} held out" if not alone or plan["rows"] < 0.999 * given["rows_used"] else "",
    ]
    expected = "".join(f", {text}" for text in known if text)
    size = f"{counted(given['rows_used'], 'row')} at {counted(given['clients'], 'client')}"
    said = plan["assumption"] if alone else "± is half an interval, or an error; no row was read."
    return f"{size}{expected}; {given['trust_model']}{_budget(given)}. {said}".rstrip()


def _task(name: str, task: Mapping[str, Any], *, noisy: bool, alone: bool) -> Table:
    spends = f", {task['share']:.3g} of the budget" if noisy and not alone else ""
    parts = ["sampling", "privacy"]
    if alone and any("discretisation" in one["error"] for one in task["metrics"].values()):
        parts.append("discretisation")
    table = _table(
        f"{name}: {counted(task['rows'], 'row')}{spends}",
        *("metric", "value", "±", *("binning" if part == "discretisation" else part for part in parts)),
        *("target", "data"),
    )
    table.show_edge = len(parts) < 3  # 80 characters are enough then
    for metric, one in task["metrics"].items():
        star = "*" if metric in task["decisive"] and not alone else ""
        table.add_row(
            f"{label(metric)}{star}",
            _value(one["value"]),
            _number(one["width"]),
            *(_number(one["error"].get(part)) for part in parts),
            _number(one["target"]),
            "" if one["verdict"] is None else _COLOURS[one["verdict"]],
        )
    return table


def _details(made: Mapping[str, Any]) -> Table:
    table = _table(made["title"], *made["columns"].values())
    for row in made["rows"]:
        table.add_row(*(_cell(row.get(name), made["digits"].get(name)) for name in made["columns"]))
    return table


def _cell(value: Any, digits: str | None) -> str:
    if isinstance(value, str):
        return printable(value)
    if value is None or digits is not None:
        return "–" if value is None else format(value, digits or "")
    return f"{value:,}" if isinstance(value, int) else _number(value)


def label(name: str) -> str:
    """Return the name of a metric in the first column, short enough that a table fits 80 characters.

    Examples
    --------
    >>> label("recall"), label("calibration_slope"), label("held_out_brier_score")
    ('recall', 'cal. slope', 'held-out Brier')
    """
    metric = name.removeprefix(_HELD_OUT)
    record = METRICS.get(metric) or CLASS_METRICS.get(metric)
    if record is None:
        return name
    return record.label if metric == name else f"held-out {record.short}"


def _table(title: str, *columns: str) -> Table:
    """Make a table whose first column names; narrow enough for 80 characters with all metric names in full."""
    table = Table(
        title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, padding=(0, 0, 0, 1)
    )
    for position, column in enumerate(columns):
        table.add_column(column, justify="left" if position == 0 else "right", no_wrap=position == 0)
    return table


def _budget(given: Mapping[str, Any]) -> str:
    return "" if given["epsilon"] is None else f", ε = {given['epsilon']:g}, δ = {given['delta']:g}"


def _value(value: float | None) -> str:
    """Return a metric with three decimals; a number that rounds to zero has no sign."""
    return "–" if value is None else f"{abs(value) if abs(value) < 5e-4 else value:.3f}"


def _number(value: float | None) -> str:
    """Return an error with two digits, a large number without decimals."""
    if value is None:
        return "–"
    return f"{value:.2g}" if abs(value) < 0.1 else f"{value:.3f}" if abs(value) < 100 else f"{value:,.0f}"


def _explained(plan: Mapping[str, Any], tasks: _Tasks, *, alone: bool) -> list[str]:
    """Return explanations of the tables' content that the tables do not give themselves."""
    metrics = {metric: one for task in tasks.values() for metric, one in task["metrics"].items()}
    lines = []
    if not alone and any(task["decisive"] for task in tasks.values()):
        shared = plan["assumptions"]["epsilon"] is not None and len(tasks) > 1
        lines.append(
            f"*: what the verdict{' and the recommended shares depend' if shared else ' depends'} on."
        )
    if any(one["target"] is not None for one in metrics.values()):
        asked = "NAME=WIDTH" if alone else "TASK.METRIC=WIDTH"
        lines.append(f"target: what is usually near enough; --target {asked} asks for something else.")
    lines += [f"{metric}: {one['meaning']}." for metric, one in metrics.items() if "meaning" in one]
    return lines + _fewer_rows(plan["assumptions"], tasks)


def _fewer_rows(given: Mapping[str, Any], tasks: _Tasks) -> list[str]:
    """Explain why tasks see fewer rows than there are."""
    used = given["rows_used"]
    fewer = {name: task["rows"] for name, task in tasks.items() if task["rows"] < 0.999 * used}
    if not fewer:
        return []
    text = f"rows of {', '.join(fewer)}: {given['holdout']:.0%} of all are held out to judge what is fitted"
    if min(fewer.values()) < 0.75 * used * (1 - given["holdout"]):
        text += "; of the others, the calibration gets one half and what builds on it the other"
    return [f"{text}."]


def _shares(tasks: _Tasks) -> str:
    listed = ", ".join(f"{name} {one['recommended_share']:g}" for name, one in tasks.items())
    why = "which makes the worst of what has a star as small as it can be relative to its target"
    if any(one["share"] != one["recommended_share"] for one in tasks.values()):
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
    return f"For {one['wish']}: {'; or '.join(ways)}."


def _trust_models(rows: Sequence[Mapping[str, Any]]) -> Table:
    table = _table(
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
            _number(one["width"]) if one["possible"] else "–",
        )
    return table


def _conditions(rows: Sequence[Mapping[str, Any]], *, noisy: bool) -> list[str]:
    """Return the changes that trust models need, and the reasons why others are not possible."""
    found = []
    if not noisy:
        shown = next(one for one in rows if one["epsilon"] is not None)
        found.append(
            f"Trust models that add noise are shown with{_budget(shown)[1:]}: the study names no budget."
        )
    for one in rows:
        if one["possible"] and one["instead"] is not None:
            found.append(f"{one['trust_model']}: with {one['instead']} in [privacy].")
        elif not one["possible"]:
            found.append(f"{one['trust_model']}: not possible. {one['reason']}")
    return found
