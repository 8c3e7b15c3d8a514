"""`fedassay apply`: calibrated probabilities, prediction intervals or prediction sets for new rows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from fedassay.artefacts.apply import COLUMN, apply_calibrator
from fedassay.artefacts.calibrator import Calibrator
from fedassay.artefacts.conformal import ConformalPredictor
from fedassay.artefacts.conformal_apply import OPTIONS, apply_conformal
from fedassay.artefacts.conformal_file import KIND
from fedassay.artefacts.stored import read_artefact
from fedassay.cli import options
from fedassay.errors import UsageError

Columns = Mapping[str, str | None]


def _column(words: str) -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(metavar="COLUMN", help=words)
    return option


def conformal_columns(
    prediction: Annotated[str | None, _column("Intervals: the model's predictions.")] = None,
    scale: Annotated[str | None, _column("Intervals: how far the model expects to be off.")] = None,
    lower: Annotated[str | None, _column("Intervals (CQR): the lower end that the model predicts.")] = None,
    upper: Annotated[str | None, _column("Intervals (CQR): the upper end that the model predicts.")] = None,
    logits: Annotated[
        str | None, _column("Sets: the logits; lists, or what the names of numbered columns begin with.")
    ] = None,
    by: Annotated[str | None, _column("Thresholds by group: the group of a row.")] = None,
    client: Annotated[str | None, _column("Thresholds by client (local): the client of a row.")] = None,
) -> Columns:
    """The columns that a conformal predictor may need, by role."""
    return {
        "prediction": prediction,
        "scale": scale,
        "lower": lower,
        "upper": upper,
        "logits": logits,
        "group": by,
        "client": client,
    }


@options.takes(options.data, conformal_columns)
def apply(
    artefact: Annotated[
        Path,
        typer.Argument(metavar="ARTEFACT", help="What `fedassay calibrate` or `fedassay conformal` wrote."),
    ],
    data: options.Source,
    out: Annotated[
        Path, typer.Option(metavar="FILE", help="Write the rows and the new columns: .parquet or .csv.")
    ],
    score: Annotated[
        str | None, _column("Calibrator: the model's scores. Default of every column: as in the calibration.")
    ] = None,
    column: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help=f"Name of the new column ({COLUMN}), or NAME_lower and NAME_upper, or NAME and NAME_size.",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
    quiet: options.Quiet = False,
    *,
    conformal_columns: Columns,
) -> None:
    """Apply a calibrator or a conformal predictor to rows; everything stays on this machine."""
    content = read_artefact(artefact)
    if isinstance(content, dict) and {"task", "results"} <= content.keys():
        raise UsageError(f"{artefact}: this is a result (--json); apply needs the file written by --out.")
    if isinstance(content, dict) and content.get("artefact") == KIND:
        predictor = ConformalPredictor.load(artefact)
        if score is not None:
            raise UsageError(
                "--score: the artefact is a conformal predictor, which has no use for it; leave it out."
            )
        applied = apply_conformal(
            predictor, data, out, columns=conformal_columns, column=column, overwrite=force
        )
        rows, columns, warnings = applied.rows, f"columns {' and '.join(applied.columns)}", applied.warnings
    else:
        calibrator = Calibrator.load(artefact)
        for role in (role for role, name in conformal_columns.items() if name is not None):
            raise UsageError(
                f"{OPTIONS[role]}: the artefact is a calibrator, which has no use for it; leave it out."
            )
        name = COLUMN if column is None else column
        rows = apply_calibrator(calibrator, data, out, score=score, column=name, overwrite=force)
        columns = f"column {name}"
        warnings = (str(calibrator.reason),) if calibrator.recommended is False else ()
    console = Console(quiet=quiet)
    for warning in warnings:
        console.print(f"[yellow]Warning:[/] {escape(warning)}", highlight=False, soft_wrap=True)
    console.print(escape(f"Written: {out} ({rows:,} rows, {columns})"), highlight=False)
