"""A plan in the terminal: one table, the verdict, and what would be better or enough."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fedassay.cli import plan_classes_words, plan_coverage_words, plan_inference_words
from fedassay.cli.plan_tables import budget, coloured, label, number, size, table_of, value
from fedassay.documents.figures import counted


def render(plan: Mapping[str, Any], console: Console) -> None:
    """Print a plan, from its JSON alone."""
    if plan["plan"] == "ecdf":
        _distribution(plan, console)
    elif plan["plan"] == "conformal":
        plan_coverage_words.render(plan, console)
    elif plan["plan"] == "calibrate-classes":
        plan_classes_words.render(plan, console)
    elif plan["plan"] == "infer":
        plan_inference_words.render(plan, console)
    else:
        _classifier(plan, console)
    for one in plan["inverse"]:
        _inverse(one, console)
    if "published" in plan:
        console.print(_published(plan["published"]))
    if plan["assumptions"]["attendance"] is not None:
        console.print(escape(plan["assumptions"]["attendance"]), soft_wrap=True, highlight=False)
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
        f"{size(given)}, {counted(parameters['points'], 'point')}; {given['trust_model']}{budget(given)}. Values are "
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
    table = table_of(
        f"What to expect of the curve ({level:.0%} band, shares of rows)",
        *("mechanism", "noise at a point", "noise in band ±", "band ±", "data"),
    )
    for name, one in plan["mechanisms"].items():
        used = name == plan["used"]
        verdict = "\n".join(f"{coloured(v)} ({what})" for what, v in plan["verdicts"].items()) if used else ""
        numbers = (number(one.get(key)) for key in ("standard_deviation", "noise", "band"))
        table.add_row(f"{name} (used)" if used else name, *numbers, verdict)
    return table


def _quantiles(predicted: Mapping[str, Any]) -> Table:
    table = table_of(
        "Standard errors of quantiles, as shares of the range", "quantile", "sampling", "privacy"
    )
    for one in predicted.get("quantiles", ()):
        table.add_row(f"{one['quantile']:g}", number(one["sampling"]), number(one["privacy"]))
    return table


def _assumptions(given: Mapping[str, Any], console: Console) -> None:
    console.print(
        f"{size(given)}, {given['prevalence']:.3g} of them "
        f"positive, AUC {given['auc']:g}; {given['trust_model']}{budget(given)}. Scores are taken to be calibrated.",
        soft_wrap=True,
        highlight=False,
    )


def _metrics(plan: Mapping[str, Any]) -> Table:
    title = f"What to expect (± for {plan['parameters']['level']:.0%} intervals)"
    table = table_of(title, "metric", "value", "±", "sampling", "privacy", "binning", "target", "data")
    for name, one in plan["metrics"].items():
        error = one.get("error", {})
        table.add_row(
            label(name),
            value(one["value"]),
            number(one["half_width"]),
            *(number(error.get(part)) for part in ("sampling", "privacy", "discretisation")),
            number(one["target"]),
            coloured(one["verdict"]),
        )
    return table


def _methods(methods: Mapping[str, Any]) -> Table:
    table = table_of(
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
            number(one["expected_calibration_error"]),
            coloured(one["verdicts"]["expected_calibration_error"]),
            number(one["brier_excess"]),
            *(number(error.get(part)) for part in ("sampling", "privacy", "discretisation")),
            coloured(one["verdicts"]["brier_excess"]),
        )
    return table


def _held_out(metrics: Mapping[str, Any]) -> Table:
    table = table_of("What held-out rows can show", "metric", "value", "±", "sampling", "privacy", "binning")
    for name, one in metrics.items():
        error = one.get("error", {})
        parts = (number(error.get(part)) for part in ("sampling", "privacy", "discretisation"))
        table.add_row(label(name), value(one["value"]), number(one["half_width"]), *parts)
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
    sites = one.get("clients")
    if sites is not None and sites["value"] is not None:
        by_rows += f"; or {counted(sites['value'], 'whole client')} of the planned size"
    each = one.get("rows_per_client")
    if each is not None:
        more = each["reason"] if each["value"] is None else f"{counted(each['value'], 'row')} at each client"
        by_rows += f"; or {more}"
    wishes = {**plan_classes_words.WISHES, **plan_inference_words.WISHES}
    wish = wishes.get(one["metric"], f"{one['metric']} within {{:g}}").format(one["target"])
    if one["metric"] == "finite":
        wish = "sets that do not hold everything"
    console.print(
        f"For {escape(wish)}: {escape(by_epsilon)}; or {escape(by_rows)}.",
        soft_wrap=True,
        highlight=False,
    )


def _published(lines: Mapping[str, Any]) -> Table:
    table = table_of(
        "Beside the published rates (orders of magnitude, without constants)",
        *("quantity", "model", "rate", "ours", "of", "buckets to balance"),
    )
    for name, one in lines.items():
        buckets = one["balancing_buckets"]
        table.add_row(
            name,
            one["model"],
            number(one["rate"]),
            number(one["predicted"]),
            one["metric"],
            "any" if buckets is None else f"{buckets:,.0f}",
        )
    return table
