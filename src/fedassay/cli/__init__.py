"""The command line. `main` turns every error raised on purpose into one sentence and an exit code."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import click
import typer
from rich.console import Console

from fedassay.cli.apply import apply
from fedassay.cli.audit import audit
from fedassay.cli.calibrate import calibrate
from fedassay.cli.check import check
from fedassay.cli.conformal import conformal
from fedassay.cli.demo import demo
from fedassay.cli.ecdf import ecdf, quantiles
from fedassay.cli.evaluate import evaluate
from fedassay.cli.file_drop import aggregate, contribute
from fedassay.cli.flower import flower_app
from fedassay.cli.hosmer_lemeshow import hosmer_lemeshow
from fedassay.cli.infer import infer
from fedassay.cli.init import init
from fedassay.cli.keys import keys
from fedassay.cli.ledger import ledger_app
from fedassay.cli.plan import plan_app
from fedassay.cli.plan_study import study as plan_study
from fedassay.cli.run import run
from fedassay.cli.verify import verify
from fedassay.errors import FedassayError
from fedassay.version import VERSION

app = typer.Typer(
    name="fedassay",
    help="Trust a model on data you cannot see.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.command()(init)
app.command()(run)
app.command()(evaluate)
app.command()(calibrate)
app.command()(conformal)
app.command()(apply)
app.command()(ecdf)
app.command()(quantiles)
app.command("hosmer-lemeshow")(hosmer_lemeshow)
app.command()(infer)
app.command()(check)
app.command()(audit)
app.command()(verify)
app.command()(demo)
app.command()(keys)
app.command()(contribute)
app.command()(aggregate)
plan_app.command("study")(plan_study)
app.add_typer(plan_app, name="plan")
app.add_typer(flower_app, name="flower")
app.add_typer(ledger_app, name="ledger")


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fedassay {VERSION}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Trust a model on data you cannot see."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and exit.

    0 success, 2 bad usage or input, 3 refused, 4 the federation failed, 5 an audit, or `verify`, has found something.
    """
    sys.exit(run_command(arguments))


def run_command(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit code instead of an exit."""
    console = Console(stderr=True)
    try:
        code = app(args=list(arguments) if arguments is not None else None, standalone_mode=False)
        return int(code or 0)
    except FedassayError as error:
        console.print(f"[bold red]Error:[/] {_escaped(error)}", soft_wrap=True, highlight=False)
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return 2
    except (click.Abort, KeyboardInterrupt):
        console.print("Stopped.")
        return 130


def _escaped(error: Exception) -> str:
    return str(error).replace("[", r"\[")
