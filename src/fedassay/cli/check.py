"""`fedassay check`: find what is wrong with a file, before anything else."""

from __future__ import annotations

import sys

from rich.console import Console

from fedassay.cli import options, output
from fedassay.cli.command import ColumnsOf, phrased, takes
from fedassay.data.check import CheckReport
from fedassay.data.check import check as check_data
from fedassay.data.federation import EACH_ROW_A_SITE
from fedassay.data.schema import CLASS, FEATURES, LOGITS
from fedassay.data.sources import CompleteRows
from fedassay.errors import UsageError
from fedassay.protocol.texts import printable

_STYLES = {"error": "[bold red]error[/]", "warning": "[yellow]warning[/]", "note": "[dim]note[/]"}


_COLUMNS = {
    "score": "Column with the model's probabilities.",
    "label": "Column with the true labels; with --logits, with the true classes 0, 1, ..",
    LOGITS: "Column with a list of logits, or what the names of numbered columns begin with.",
    "value": "Column with numbers of any size.",
    "conformity": "Column with your own conformity scores.",
    "target": "Column with the true values of a regression.",
    FEATURES: "Columns with the features of a regression, separated by commas; or one column of lists, or what the "
    "names of numbered columns begin with.",
    "offset": "Column that is added to the linear predictor.",
    "prediction": "Column with the predicted values.",
    "scale": "Column with the size of the error to expect.",
    "lower": "Column with the predicted lower ends.",
    "upper": "Column with the predicted upper ends.",
}


@takes(options.data, ColumnsOf("columns", _COLUMNS))
def check(
    data: options.Source,
    *,
    columns: dict[str, str],
    client: options.ClientColumn = None,
    missing: options.MissingRows = "refuse",
    json: options.JsonFile = None,
    quiet: options.Quiet = False,
) -> None:
    """Check a data file: everything that is wrong with it, and what it looks like."""
    label = CLASS if LOGITS in columns else "label"
    columns = {label if role == "label" else role: name for role, name in columns.items()}
    rows = CompleteRows(data=data, columns=columns) if missing == "report" else data
    report = check_data(rows, client=client, columns=columns)
    output.write_json(report.to_dict(), json)
    if not quiet:
        console = output.console_beside(json)
        _render(report, console)
        if client is None and 1 < report.profile.get("clients", 0) == report.profile["rows"]:
            output.say(console, EACH_ROW_A_SITE)
    if not report.ok:
        sys.exit(UsageError.exit_code)


def _render(report: CheckReport, console: Console) -> None:
    if report.profile:
        table = output.titled("What is there", "", "")
        table.show_header = False
        table.columns[1].justify = "right"
        for name, value in report.profile.items():
            shown = (
                (f"{value:,.0f}" if value >= 1000 else f"{value:.4g}")
                if isinstance(value, float)
                else f"{value:,}"
                if isinstance(value, int)
                else str(value)
            )
            table.add_row(name.replace("_", " "), printable(shown))
        console.print(table)
    for finding in report.findings:
        text = f"{_STYLES[finding.severity]} {printable(phrased(finding.sentence()))}"
        output.say(console, text, markup=True)
    if report.ok:
        console.print("[green]Nothing stands in the way of using this file.[/]")
