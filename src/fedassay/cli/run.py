"""`fedassay run`: a whole study from one file, and all that it leaves behind."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from fedassay.api.study import conduct, finished, finished_on, shares_of
from fedassay.cli import STOPPED, options, output
from fedassay.cli import run_between_sites as between
from fedassay.cli.run_promising import require_promising
from fedassay.crypto.identity import Identity
from fedassay.errors import UsageError
from fedassay.reports.terminal import render
from fedassay.result import Result
from fedassay.runtimes.file_drop import folders
from fedassay.study.afford import opened_books
from fedassay.study.file import StudyFile
from fedassay.study.folder import JOURNAL, Signed, Written, prepare, write_folder
from fedassay.study.parameters import described
from fedassay.study.runtimes import FileDrop, FlowerDeployment


def run(
    study: Annotated[Path, typer.Argument(metavar="STUDY.toml", help="The study.")],
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the results. Default: the name of the study, beside its file."),
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option(
            help="Private key that signs the certificate. Default: one that is made for this study."
        ),
    ] = None,
    fresh: Annotated[
        bool,
        typer.Option("--fresh", help="Begin anew: forget an earlier run, and spend again."),
    ] = False,
    close: Annotated[
        bool,
        typer.Option(
            "--close", help="By files: go on without the sites that have not answered the open pass."
        ),
    ] = False,
    mlflow: Annotated[
        str | None, typer.Option(metavar="URI", help="Log the study to this MLflow tracking server too.")
    ] = None,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Run what the planner expects to measure nothing well enough.")
    ] = False,
    json: options.JsonFile = None,
    quiet: options.Quiet = False,
) -> None:
    """Run a study: evaluate, calibrate, conformalise and judge under one budget, then write report and certificate.

    A study that broke off, or waits for sites, goes on when the command is called again.
    """
    output.check_writable(json)
    file = StudyFile.read(study)
    _check_options(file, fresh=fresh, close=close)
    folder = file.path.absolute().parent / file.name if out is None else out
    console = Console(quiet=quiet, stderr=json == "-")
    identity = _identity(file, key)
    with _stopped(fresh=fresh):
        prepare(folder, fresh=fresh)
        before = finished_on(folder)
        if before is not None:
            console.print(
                f"This study was finished on {before}: it is shown from its journal, and nothing is asked, or spent, "
                "again (--fresh begins anew).",
                highlight=False,
            )
        elif not anyway and not _begun(file, folder):
            require_promising(file, console)
        result = _result(file, folder, console, close=close, quiet=quiet)
        if result is None:
            return
        signed = Signed(identity=identity, ledger_head=opened_books(file).head, training=file.training)
        written = write_folder(folder, result, study_text=file.text, signed=signed)
        if mlflow is not None:
            from fedassay.integrations.mlflow import log_study  # an extra, imported only if asked for

            log_study(folder, tracking_uri=mlflow)
        _deliver(result, written, json=json, console=console)


@contextmanager
def _stopped(*, fresh: bool) -> Iterator[None]:
    """Say what Ctrl-C leaves behind: every message that was sent stands in the journal, or at whoever carries it."""
    try:
        yield
    except KeyboardInterrupt:
        same = "The same command without --fresh" if fresh else "The same command"
        Console(stderr=True).print(
            f"Stopped. {same} goes on from here; nothing is charged twice.", soft_wrap=True
        )
        raise typer.Exit(STOPPED) from None


def _begun(file: StudyFile, folder: Path) -> bool:
    """Whether an earlier call has begun this study, so that it is too late for doubts."""
    if isinstance(file.runtime, FileDrop):
        return (file.runtime.drop / folders.ANNOUNCEMENT).exists()
    return (folder / JOURNAL).exists()


def _check_options(file: StudyFile, *, fresh: bool, close: bool) -> None:
    """Refuse options that would do nothing here: somebody counts on them."""
    if fresh and not file.simulated:
        raise UsageError(
            f"--fresh: what sites have answered cannot be forgotten; begin a new study under another name than "
            f"{file.name}" + (" with another drop." if isinstance(file.runtime, FileDrop) else ".")
        )
    if close and not isinstance(file.runtime, FileDrop):
        raise UsageError(
            f"--close: it is for studies by files, this one runs on {file.runtime.name}; leave it out."
        )


def _identity(file: StudyFile, key: Path | None) -> Identity | None:
    """Who signs: whoever was named, the coordinator of a study by files, or nobody in particular."""
    if key is None and isinstance(file.runtime, FileDrop):
        key = file.runtime.key
    return None if key is None else Identity.load(key)


def _result(file: StudyFile, folder: Path, console: Console, *, close: bool, quiet: bool) -> Result | None:
    """The result, or None if sites have yet to answer."""
    if file.simulated:
        with output.progress(quiet=quiet) as advance:
            return conduct(file, folder, progress=advance)
    agenda = file.agenda(shares=shares_of(file))
    if isinstance(file.runtime, FileDrop):
        found = between.by_files(file, file.runtime, agenda, close=close, console=console)
    else:
        assert isinstance(file.runtime, FlowerDeployment)
        found = between.on_flower(file, file.runtime, agenda, quiet=quiet)
    if found is None:
        return None
    study = found.parameters["study"]
    return finished(replace(found, parameters={**described(file), "study": study}), agenda)


def _deliver(result: Result, written: Written, *, json: str | None, console: Console) -> None:
    if json == "-":
        sys.stdout.write(result.to_json())
    elif json is not None:
        result.save(json)
    render(result.to_dict(), console)
    for text in written.missing:
        console.print(f"Not written: {text}", highlight=False, soft_wrap=True, markup=False)
    others = ", ".join(name for name in written.files if name != written.report.name)
    console.print(f"Report: {written.report}", highlight=False, soft_wrap=True, markup=False)
    console.print(f"Beside it: {others}", highlight=False, soft_wrap=True, markup=False)
    console.print(
        f"Check them: fedassay verify {shlex.quote(str(written.folder))}",
        highlight=False,
        soft_wrap=True,
        markup=False,
    )
