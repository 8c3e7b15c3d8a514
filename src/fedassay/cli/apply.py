"""`fedassay apply`: calibrated probabilities, prediction intervals or prediction sets for new rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console

from fedassay.artefacts.apply import COLUMN, apply_calibrator, apply_class_calibrator, new_columns
from fedassay.artefacts.conformal import ConformalPredictor
from fedassay.artefacts.conformal_apply import OPTIONS, apply_conformal
from fedassay.artefacts.stored import errors_of, read_artefact
from fedassay.artefacts.stored_calibrator import Calibrator, ClassCalibrator, calibrator_from_json
from fedassay.artefacts.thresholds import KIND
from fedassay.cli import options, output
from fedassay.cli.command import Argument, ColumnsOf, Option, takes
from fedassay.errors import UsageError
from fedassay.kernel.agenda import STUDY
from fedassay.protocol.texts import printable
from fedassay.tasks.card import KINDS

_Columns = dict[str, str | None]

_Written = tuple[int, tuple[str, ...], tuple[str, ...]]
"""Number of rows, the new columns, and warnings."""

MOST_NAMED = 3
"""Largest number of new columns that are all named; of more, the first and the last are named."""


_OTHER_COLUMNS = {
    "prediction": "Intervals: the model's predictions.",
    "scale": "Intervals: how far the model expects to be off.",
    "lower": "Intervals (CQR): the lower end that the model predicts.",
    "upper": "Intervals (CQR): the upper end that the model predicts.",
    "logits": "Sets, classes: the logits; lists, or what the names of numbered columns begin with.",
    "by": "Thresholds by group: the group of a row.",
    "client": "Thresholds by client (local): the client of a row.",
}
"""The columns that artefacts other than a calibrator of scores may need."""


@takes(options.data, ColumnsOf("other_columns", _OTHER_COLUMNS, metavar="COLUMN"))
def apply(
    artefact: Annotated[
        Path, Argument(metavar="ARTEFACT", help="What `fedassay calibrate` or `fedassay conformal` wrote.")
    ],
    data: options.Source,
    out: Annotated[
        Path, Option(metavar="FILE", help="Write the rows and the new columns: .parquet or .csv.")
    ],
    score: Annotated[
        str | None,
        Option(
            metavar="COLUMN",
            help="Calibrator, sets of 0 and 1: the model's scores. Default of every column: as in the calibration.",
        ),
    ] = None,
    column: Annotated[
        str | None,
        Option(
            metavar="NAME",
            help=f"Name of the new column ({COLUMN}), or NAME_lower and NAME_upper, or NAME and NAME_size; of a "
            "calibrator of logits NAME (.csv: NAME_0 and so on) and NAME_class.",
        ),
    ] = None,
    force: Annotated[bool, Option("--force", help="Replace the file if it exists.")] = False,
    quiet: options.Quiet = False,
    *,
    other_columns: dict[str, str],
) -> None:
    """Apply a calibrator or a conformal predictor to rows; everything stays on this machine."""
    content = read_artefact(artefact)
    if (
        isinstance(content, dict)
        and {"task", "results"} <= content.keys()
        and isinstance(content["results"], dict)
    ):
        raise UsageError(f"{artefact}: this is a result{_instead(artefact, content)}.")
    given: _Columns = dict.fromkeys(("score", *_OTHER_COLUMNS)) | {"score": score, **other_columns}
    given["group"] = given.pop("by")
    written: _Written
    if isinstance(content, dict) and content.get("artefact") == KIND:
        found = apply_conformal(
            ConformalPredictor.load(artefact), data, out, columns=given, column=column, overwrite=force
        )
        written = found.rows, found.columns, found.warnings
    else:
        with errors_of(artefact):
            calibrator = calibrator_from_json(content)
        written = _calibrate(calibrator, data, out, given, column=column, force=force)
    _say(out, *written, console=Console(quiet=quiet))


def _instead(result: Path, content: Mapping[str, Any]) -> str:
    """Return advice on what to apply in place of a result: of a study, the artefacts next to it."""
    tasks = content["results"].get("tasks") if content["task"] == STUDY else None
    if not isinstance(tasks, dict):
        return " (--json); apply needs the file written by --out"
    made = [
        result.parent / KINDS[task["task"]].file_of(name)
        for name, task in tasks.items()
        if isinstance(task, dict) and task.get("task") in KINDS
    ]
    there = [str(path) for path in made if path.is_file()]
    if not there:
        return " of a study; apply needs a calibrator or prediction sets, and there are none in its folder"
    return f" of a study; apply what was made of it: {' or '.join(there)}"


def _calibrate(
    calibrator: Calibrator | ClassCalibrator,
    data: options.Source,
    out: Path,
    given: _Columns,
    *,
    column: str | None,
    force: bool,
) -> _Written:
    if isinstance(calibrator, ClassCalibrator):
        _refuse(given, (role for role in given if role != "logits"), "a calibrator of logits")
        rows = apply_class_calibrator(
            calibrator, data, out, logits=given["logits"], column=column, overwrite=force
        )
        return rows, new_columns(calibrator, out, column), calibrator.warnings
    _refuse(given, (role for role in given if role != "score"), "a calibrator of scores")
    name = COLUMN if column is None else column
    rows = apply_calibrator(calibrator, data, out, score=given["score"], column=name, overwrite=force)
    return rows, (name,), calibrator.warnings


def _refuse(given: _Columns, roles: Iterable[str], what: str) -> None:
    for role in roles:
        if given[role] is not None:
            raise UsageError(
                f"{OPTIONS[role]}: the artefact is {what}, which has no use for it; leave it out."
            )


def _say(
    out: Path, rows: int, columns: tuple[str, ...], warnings: tuple[str, ...], *, console: Console
) -> None:
    """Print the warnings, and what has been written."""
    output.say(console, *(f"[yellow]Warning:[/] {printable(warning)}" for warning in warnings), markup=True)
    first = columns[:-1] if len(columns) <= MOST_NAMED else (f"{columns[0]} to {columns[-2]}",)
    new = f"column{'s' * (len(columns) > 1)} {' and '.join((*first, columns[-1]))}"
    output.say(console, f"Written: {out} ({rows:,} rows, {new})")
