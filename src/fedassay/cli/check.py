"""`fedassay check`: what is wrong with this file, before anything else."""

from __future__ import annotations

import json as json_module
import sys
from typing import Annotated

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fedassay.cli import options, output
from fedassay.cli.command import Option, phrased, takes
from fedassay.data.check import CheckReport
from fedassay.data.check import check as check_data
from fedassay.data.federation import EACH_ROW_A_SITE
from fedassay.data.gaps import CompleteRows
from fedassay.data.schema import CLASS, FEATURES, LOGITS
from fedassay.errors import UsageError

_STYLES = {"error": "[bold red]error[/]", "warning": "[yellow]warning[/]", "note": "[dim]note[/]"}


@takes(options.data)
def check(
    data: options.Source,
    score: Annotated[str | None, Option(help="Column with the model's probabilities.")] = None,
    label: Annotated[
        str | None,
        Option(help="Column with the true labels; with --logits, with the true classes 0, 1, .."),
    ] = None,
    logits: Annotated[
        str | None,
        Option(help="Column with a list of logits, or what the names of numbered columns begin with."),
    ] = None,
    value: Annotated[str | None, Option(help="Column with numbers of any size.")] = None,
    conformity: Annotated[str | None, Option(help="Column with your own conformity scores.")] = None,
    target: Annotated[str | None, Option(help="Column with the true values of a regression.")] = None,
    features: Annotated[
        str | None,
        Option(
            help="Columns with the features of a regression, separated by commas; or one column of lists, or what "
            "the names of numbered columns begin with."
        ),
    ] = None,
    offset: Annotated[str | None, Option(help="Column that is added to the linear predictor.")] = None,
    prediction: Annotated[str | None, Option(help="Column with the predicted values.")] = None,
    scale: Annotated[str | None, Option(help="Column with the size of the error to expect.")] = None,
    lower: Annotated[str | None, Option(help="Column with the predicted lower ends.")] = None,
    upper: Annotated[str | None, Option(help="Column with the predicted upper ends.")] = None,
    client: options.ClientColumn = None,
    missing: options.MissingRows = "refuse",
    json: options.JsonFile = None,
    quiet: options.Quiet = False,
) -> None:
    """Check a data file: everything that is wrong with it, and what it looks like."""
    given = {
        "score": score,
        "label" if logits is None else CLASS: label,
        LOGITS: logits,
        "value": value,
        "conformity": conformity,
        "target": target,
        FEATURES: features,
        "offset": offset,
        "prediction": prediction,
        "scale": scale,
        "lower": lower,
        "upper": upper,
    }
    columns = {role: name for role, name in given.items() if name is not None}
    rows = CompleteRows(data=data, columns=columns) if missing == "report" else data
    report = check_data(rows, client=client, columns=columns)
    text = json_module.dumps(report.to_dict(), indent=2, allow_nan=False) + "\n"
    output.write(text, json)
    if not quiet:
        console = Console(stderr=json == "-")
        _render(report, console)
        if client is None and 1 < report.profile.get("clients", 0) == report.profile["rows"]:
            console.print(EACH_ROW_A_SITE, highlight=False, soft_wrap=True)
    if not report.ok:
        sys.exit(UsageError.exit_code)


def _render(report: CheckReport, console: Console) -> None:
    if report.profile:
        table = Table(title="What is there", title_justify="left", title_style="bold", show_header=False)
        table.add_column()
        table.add_column(justify="right")
        for name, value in report.profile.items():
            shown = (
                (f"{value:,.0f}" if value >= 1000 else f"{value:.4g}")
                if isinstance(value, float)
                else f"{value:,}"
                if isinstance(value, int)
                else str(value)
            )
            table.add_row(name.replace("_", " "), escape(shown))
        console.print(table)
    for finding in report.findings:
        console.print(
            f"{_STYLES[finding.severity]} {escape(phrased(finding.sentence()))}",
            highlight=False,
            soft_wrap=True,
        )
    if report.ok:
        console.print("[green]Nothing stands in the way of using this file.[/]")
