"""A plan in the terminal: one table, the verdict, and what would be better or enough."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fedassay.reports.figures import counted

_SHOWN = {
    "enough data": "[green]enough[/]",
    "not enough": "[red]few[/]",
    "not decidable": "[yellow]unclear[/]",
}
_SHORT = {
    "expected_calibration_error": "ECE",
    "calibration_intercept": "cal. intercept",
    "calibration_slope": "cal. slope",
}
"""So that the table fits 80 characters."""


def render(plan: Mapping[str, Any], console: Console) -> None:
    """Print a plan, from its JSON alone."""
    if plan["plan"] == "ecdf":
        _distribution(plan, console)
    elif plan["plan"] == "conformal":
        conformal_words.render(plan, console)
    else:
        _classifier(plan, console)
    for one in plan["inverse"]:
        _inverse(one, console)
    if "published" in plan:
        console.print(_published(plan["published"]))
    for warning in plan["warnings"]:
        console.print(f"[yellow]Note:[/] {escape(warning)}", soft_wrap=True, highlight=False)
    console.print(f"[bold]{escape(plan['verdict'])}[/]", soft_wrap=True, highlight=False)


def _classifier(plan: Mapping[str, Any], console: Console) -> None:
    """An evaluation or a calibration."""
    _assumptions(plan["assumptions"], console)
    if plan["plan"] == "evaluate":
        console.print(_metrics(plan))
    else:
        console.print(_methods(plan["methods"]))
        console.print(_held_out(plan["held_out"]))
    _resolution(plan, console)


def _distribution(plan: Mapping[str, Any], console: Console) -> None:
    """Each mechanism beside the others, then quantiles."""
    given, parameters = plan["assumptions"], plan["parameters"]
    console.print(
        f"{_size(given)}, {counted(parameters['points'], 'point')}; {given['trust_model']}{_budget(given)}. Values are "
        "taken to be spread evenly over the range.",
        soft_wrap=True,
        highlight=False,
    )
    console.print(_mechanisms(plan))
    console.print(_quantiles(plan["mechanisms"][plan["used"]]))
    if plan["recommended"] != plan["used"]:
        console.print(f"Recommended: {plan['recommended']} instead of {plan['used']}.", highlight=False)
    elif plan["used"] != "none":
        console.print(f"Recommended: {plan['recommended']}, which has the least noise.", highlight=False)
    for name, one in plan["mechanisms"].items():
        if "reason" in one:
            console.print(f"{name}: {escape(one['reason'])}", soft_wrap=True, highlight=False)


def _mechanisms(plan: Mapping[str, Any]) -> Table:
    level = plan["parameters"]["level"]
    table = _table(
        f"What to expect of the curve ({level:.0%} band, shares of rows)",
        *("mechanism", "noise at a point", "noise in band ±", "band ±", "data"),
    )
    for name, one in plan["mechanisms"].items():
        used = name == plan["used"]
        verdict = (
            "\n".join(f"{_coloured(v)} ({what})" for what, v in plan["verdicts"].items()) if used else ""
        )
        numbers = (_number(one.get(key)) for key in ("standard_deviation", "noise", "band"))
        table.add_row(f"{name} (used)" if used else name, *numbers, verdict)
    return table


def _quantiles(predicted: Mapping[str, Any]) -> Table:
    table = _table("Standard errors of quantiles, as shares of the range", "quantile", "sampling", "privacy")
    for one in predicted.get("quantiles", ()):
        table.add_row(f"{one['quantile']:g}", _number(one["sampling"]), _number(one["privacy"]))
    return table


def _budget(given: Mapping[str, Any]) -> str:
    return "" if given["epsilon"] is None else f", ε = {given['epsilon']:g}, δ = {given['delta']:g}"


def _assumptions(given: Mapping[str, Any], console: Console) -> None:
    console.print(
        f"{_size(given)}, {given['prevalence']:.3g} of them "
        f"positive, AUC {given['auc']:g}; {given['trust_model']}{_budget(given)}. Scores are taken to be calibrated.",
        soft_wrap=True,
        highlight=False,
    )


def _size(given: Mapping[str, Any]) -> str:
    return f"{counted(given['rows_used'], 'row')} at {counted(given['clients'], 'client')}"


def _table(title: str, *columns: str) -> Table:
    # Narrow enough for 80 characters with all metric names in full.
    table = Table(
        title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, padding=(0, 0, 0, 1)
    )
    for position, column in enumerate(columns):
        table.add_column(column, justify="left" if position == 0 else "right", no_wrap=position == 0)
    return table


def _metrics(plan: Mapping[str, Any]) -> Table:
    title = f"What to expect (± for {plan['parameters']['level']:.0%} intervals)"
    table = _table(title, "metric", "value", "±", "sampling", "privacy", "binning", "target", "data")
    for name, one in plan["metrics"].items():
        error = one.get("error", {})
        table.add_row(
            _SHORT.get(name, name),
            _value(one["value"]),
            _number(one["half_width"]),
            *(_number(error.get(part)) for part in ("sampling", "privacy", "discretisation")),
            _number(one["target"]),
            _coloured(one["verdict"]),
        )
    return table


def _methods(methods: Mapping[str, Any]) -> Table:
    table = _table(
        "What to expect of the map: calibration error, Brier excess",
        *(
            "method",
            "ECE",
            "data",
            "excess",
            "sampling",
            "privacy",
            "binning",
            "data",
        ),
    )
    for name, one in methods.items():
        error = one.get("error", {})
        table.add_row(
            name if one.get("buckets") is None else f"{name} ({one['buckets']})",
            _number(one["expected_calibration_error"]),
            _coloured(one["verdicts"]["expected_calibration_error"]),
            _number(one["brier_excess"]),
            *(_number(error.get(part)) for part in ("sampling", "privacy", "discretisation")),
            _coloured(one["verdicts"]["brier_excess"]),
        )
    return table


def _held_out(metrics: Mapping[str, Any]) -> Table:
    table = _table("What held-out rows can show", "metric", "value", "±", "sampling", "privacy", "binning")
    for name, one in metrics.items():
        error = one.get("error", {})
        parts = (_number(error.get(part)) for part in ("sampling", "privacy", "discretisation"))
        table.add_row(_SHORT.get(name, name), _value(one["value"]), _number(one["half_width"]), *parts)
    return table


def _resolution(plan: Mapping[str, Any], console: Console) -> None:
    used, better = plan["used"], plan["recommended"]
    buckets = "too few rows for buckets" if better["buckets"] is None else f"{better['buckets']} buckets"
    instead = "" if better["height"] == used["height"] else f" instead of {used['height']}"
    widths, multipliers = (", ".join(map(str, better[name])) for name in ("widths", "multipliers"))
    console.print(
        f"Recommended: height {better['height']}{instead} ({better['bins']:,} bins), levels of width {widths} "
        f"(multiplied by {multipliers}), {buckets} for calibration.",
        soft_wrap=True,
        highlight=False,
    )


def _inverse(one: Mapping[str, Any], console: Console) -> None:
    epsilon, rows = one["epsilon"], one["rows"]
    by_epsilon = epsilon["reason"] if epsilon["value"] is None else f"ε ≥ {epsilon['value']:g}"
    by_rows = (
        rows["reason"]
        if rows["value"] is None
        else f"at least {counted(rows['value'], 'row')} ({counted(rows['clients'], 'client')})"
    )
    console.print(
        f"For {escape(one['metric'])} within {one['target']:g}: {escape(by_epsilon)}; or {escape(by_rows)}.",
        soft_wrap=True,
        highlight=False,
    )


def _published(lines: Mapping[str, Any]) -> Table:
    table = _table(
        "Beside the published rates (orders of magnitude, without constants)",
        *("quantity", "model", "rate", "ours", "of", "buckets to balance"),
    )
    for name, one in lines.items():
        buckets = one["balancing_buckets"]
        table.add_row(
            name,
            one["model"],
            _number(one["rate"]),
            _number(one["predicted"]),
            one["metric"],
            "any" if buckets is None else f"{buckets:,.0f}",
        )
    return table


def _coloured(verdict: str) -> str:
    return _SHOWN[verdict]


def _value(value: float | None) -> str:
    return "–" if value is None else f"{abs(value) if abs(value) < 5e-4 else value:.3f}"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2g}" if abs(value) < 0.1 else f"{value:.3f}"
