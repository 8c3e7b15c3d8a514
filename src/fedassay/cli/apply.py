"""`fedassay apply`: calibrated probabilities for new rows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from fedassay.artefacts.apply import COLUMN, apply_calibrator
from fedassay.artefacts.calibrator import Calibrator
from fedassay.cli import options


@options.takes(options.data)
def apply(
    artefact: Annotated[Path, typer.Argument(metavar="ARTEFACT", help="What `fedassay calibrate` wrote.")],
    data: options.Source,
    out: Annotated[Path, typer.Option(metavar="FILE.parquet", help="Write the rows with one column more.")],
    score: Annotated[
        str | None, typer.Option(help="Column with the model's scores. Default: as when it was fitted.")
    ] = None,
    column: Annotated[str, typer.Option(help="Name of the new column.")] = COLUMN,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
    quiet: options.Quiet = False,
) -> None:
    """Apply a calibrator to rows; everything stays on this machine."""
    calibrator = Calibrator.load(artefact)
    rows = apply_calibrator(calibrator, data, out, score=score, column=column, overwrite=force)
    console = Console(quiet=quiet)
    if calibrator.recommended is False:
        console.print(f"[yellow]Warning:[/] {calibrator.reason}", highlight=False)
    console.print(f"Written: {out} ({rows:,} rows, column {column})", highlight=False)
