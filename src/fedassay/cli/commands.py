"""All commands, in the order of the help."""

from __future__ import annotations

from typing import Annotated

import typer

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
