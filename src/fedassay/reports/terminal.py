"""A result as tables in a terminal. Reads only the result's JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table

from fedassay.reports import calibration, comparisons, figures

Document = Mapping[str, Any]


def render(document: Document, console: Console) -> None:
    """Print a result."""
    for warning in document["warnings"]:
        console.print(f"[yellow]Warning:[/] {escape(warning)}", highlight=False)
    for table in _tables(document):
        console.print(table)
    console.print(_run(document), highlight=False)
    console.print(Panel(escape(document["privacy"]["statement"]), title="Privacy", title_align="left"))


def _tables(document: Document) -> Iterator[Table]:
    results = document["results"]
    if document["task"] == "calibrate":
        yield _sheet(calibration.sheet(document))
        return
    yield _overall(results)
    yield _thresholds(results["thresholds"])
    yield from (_sheet(sheet) for sheet in comparisons.sheets(results))


def _overall(results: Mapping[str, Any]) -> Table:
    level = results["roc_auc"]["level"]
    table = Table(title="Evaluation", title_justify="left", title_style="bold")
    table.add_column("metric")
    table.add_column("value", justify="right")
    table.add_column(f"{level:.0%} interval", justify="right")
    table.add_column("of which sampling, privacy, binning", justify="right", style="dim")
    for name in figures.OVERALL:
        table.add_row(figures.TITLES[name], *_cells(results[name]))
    test = results["hosmer_lemeshow"]
    if test["value"] is None:
        table.add_row(figures.TITLES["hosmer_lemeshow"], "-", "", escape(test["reason"]))
    else:
        p = figures.p_value(test["p_value"])
        equals = "" if p.startswith("<") else "= "
        note = f"p {equals}{p}, {test['degrees_of_freedom']} degrees of freedom"
        table.add_row(figures.TITLES["hosmer_lemeshow"], f"{test['value']:.1f}", "", note)
    return table


def _cells(metric: Mapping[str, Any]) -> tuple[str, str, str]:
    if metric["value"] is None:
        return "-", "", escape(metric["reason"])
    error = metric["error"]
    parts = ", ".join(f"{error[part]:.1e}" for part in ("sampling", "privacy", "discretisation"))
    return figures.value(metric), figures.interval(metric), parts


def _thresholds(thresholds: list[Mapping[str, Any]]) -> Table:
    table = Table(title="At thresholds", title_justify="left", title_style="bold")
    table.add_column("threshold", justify="right")
    for name in figures.AT_THRESHOLD:
        table.add_column(figures.TITLES[name], justify="right")
    for row in thresholds:
        applied = "" if row["applied"] == row["threshold"] else f" (applied {row['applied']:.6g})"
        cells = [_stacked(row[name]) for name in figures.AT_THRESHOLD]
        table.add_row(f"{row['threshold']:.6g}{applied}", *cells)
    return table


def _sheet(sheet: comparisons.Sheet) -> Table:
    table = Table(title=sheet.title, title_justify="left", title_style="bold")
    for place, name in enumerate(sheet.head):
        table.add_column(escape(name), justify="right" if place else "left")
    for row in sheet.rows:
        cells = [
            escape(cell.text) + (f"\n[dim]{escape(cell.detail)}[/]" if cell.detail else "") for cell in row
        ]
        table.add_row(*cells)
    if sheet.notes:
        table.caption, table.caption_justify = escape("\n".join(sheet.notes)), "left"
    return table


def _stacked(metric: Mapping[str, Any]) -> str:
    if metric["value"] is None:
        return escape(metric["reason"])
    # The ends one below the other: columns stay narrow, so that nothing is cut at 80 characters.
    ends = figures.interval(metric).replace(" to ", " to\n")
    return f"{figures.value(metric)}\n[dim]{ends}[/]"


def _run(document: Document) -> str:
    cohort, runtime = document["cohort"], document["runtime"]
    dropped = f", {cohort['dropped']} lost on the way" if cohort["dropped"] else ""
    truncated = f", {cohort['truncated']:,} rows left out by the bound" if cohort["truncated"] else ""
    about = "" if document["privacy"]["epsilon"] is None else "about "
    rows = "an unknown number of" if cohort["rows"] is None else f"{about}{cohort['rows']:,.0f}"
    plural = "round" if runtime["rounds"] == 1 else "rounds"
    return (
        f"{cohort['clients']:,} clients{dropped}, {rows} rows{truncated}; "
        f"{runtime['name']} ({runtime['mode']}), {runtime['rounds']} {plural}, "
        f"{runtime['bytes_per_client']:,} bytes per client, {runtime['seconds']:.1f} s"
    )


def side_by_side(documents: Mapping[str, Document], console: Console) -> None:
    """Print the same evaluation under several trust models, a column each."""
    table = Table(
        title="One model, one federation, every trust model",
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,  # without lines between columns, five models fit 80 characters
        pad_edge=False,
        padding=(0, 0, 0, 1),
    )
    table.add_column("metric")
    for title in documents:
        table.add_column(title, justify="right")
    for name in figures.OVERALL:
        table.add_row(figures.TITLES[name], *(_stacked(d["results"][name]) for d in documents.values()))
    first = next(iter(documents.values()))["results"]["thresholds"][0]["threshold"]
    for name in ("accuracy", "precision", "recall", "specificity"):
        title = f"{figures.TITLES[name]} at {first:g}"
        table.add_row(title, *(_stacked(d["results"][name]) for d in documents.values()))
    table.add_row(
        "Hosmer-Lemeshow p",
        *(figures.p_value(d["results"]["hosmer_lemeshow"].get("p_value")) for d in documents.values()),
    )
    table.add_section()
    table.add_row("rounds", *(str(d["runtime"]["rounds"]) for d in documents.values()))
    table.add_row("bytes per client", *(f"{d['runtime']['bytes_per_client']:,}" for d in documents.values()))
    table.add_row("seconds", *(f"{d['runtime']['seconds']:.1f}" for d in documents.values()))
    console.print(table)
    for document in documents.values():
        console.print(f"[bold]{document['privacy']['trust_model']}[/]: {_learns(document)}", highlight=False)


_LEARNS = {
    "plain": "the server learns every site's histogram",
    "secure-sum": "the server learns the exact total only",
    "distributed-dp": "server and readers learn a noisy total only",
    "local-dp": "server and readers learn noisy messages only",
    "server-dp": "the server learns every site's histogram, readers a noisy total",
}


def _learns(document: Document) -> str:
    return _LEARNS.get(document["privacy"]["trust_model"], "see the statement")
