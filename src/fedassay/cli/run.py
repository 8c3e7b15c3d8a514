"""`fedassay run`: a whole study from one file, and all that it leaves behind."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

from rich.console import Console

from fedassay.api.study import conduct, finished, finished_on, shares_of
from fedassay.cli import STOPPED, options, output
from fedassay.cli.command import Argument, GivenOptions, Option, OptionsOf, takes
from fedassay.crypto.identity import Identity
from fedassay.documents.terminal import render
from fedassay.errors import FedassayError, ParameterError, Refused, UsageError
from fedassay.planning import Sufficiency, predict_tasks
from fedassay.protocol.parameters import in_words, parameters
from fedassay.protocol.result import Result
from fedassay.runtimes.card import RUNTIME_CARDS, ReleaseParameters
from fedassay.runtimes.released import StudyRun
from fedassay.study.file import StudyFile
from fedassay.study.folder import JOURNAL, Written, folder_of, prepare, write_folder
from fedassay.study.pre_flight import opened_books, require_affordable, require_writable

# --- before a budget is spent -------------------------------------------------------------------------------


def require_promising(file: StudyFile, console: Console) -> None:
    """Refuse a study under noise of which the planner expects nothing, and report single tasks of this sort.

    This is only done where the file states what it expects of the data: nothing is read for it.
    """
    if not file.trust.private or file.expected is None:
        return
    try:
        hopeless = _hopeless(file)
    except FedassayError:
        return  # what is wrong is reported when it is run
    if len(hopeless) == len(file.tasks):
        raise Refused(
            f"{file.path}: by what [expected] says, noise would leave nothing of any task ({', '.join(hopeless)}), "
            f"and the budget would be spent for nothing; `fedassay plan study {file.path.name}` says what would be "
            "enough, --anyway runs it."
        )
    for name in hopeless:
        text = f"the plan expects too little of {name}; see `fedassay plan study {file.path.name}`."
        console.print(f"[yellow]Warning:[/] {text}", highlight=False)


def _hopeless(file: StudyFile) -> list[str]:
    """Return the tasks that will not reach what most would ask of them."""
    study = file.planned()
    agenda = file.agenda(shares=shares_of(file), known=file.expected_parameters(study.expectation.classes))
    plans = predict_tasks(agenda, study, shares={item.name: item.share for item in agenda.items})
    return [name for name, plan in plans.items() if plan.verdict is Sufficiency.NOT_ENOUGH]


# --- `fedassay run` -----------------------------------------------------------------------------------------

_OPTIONS = {name: card.options for name, card in RUNTIME_CARDS.items() if card.options is not None}
"""Options of this command that only some runtimes have."""


@takes(OptionsOf("of_runtime", _OPTIONS))
def run(
    study: Annotated[Path, Argument(metavar="STUDY.toml", help="The study.")],
    out: Annotated[
        Path | None, Option(help="Folder for the results. Default: the name of the study, next to its file.")
    ] = None,
    key: Annotated[
        Path | None,
        Option(help="Private key that signs the certificate. Default: one that is made for this study."),
    ] = None,
    fresh: Annotated[
        bool, Option("--fresh", help="Begin anew: forget an earlier run, and spend again.")
    ] = False,
    *,
    of_runtime: GivenOptions,
    mlflow: Annotated[
        str | None, Option(metavar="URI", help="Log the study to this MLflow tracking server too.")
    ] = None,
    anyway: Annotated[
        bool, Option("--anyway", help="Run what the planner expects to measure nothing well enough.")
    ] = False,
    json: options.JsonFile = None,
    quiet: options.Quiet = False,
) -> None:
    """Run a study: evaluate, calibrate, conformalise and judge under one budget, then write report and certificate.

    A study that broke off, or waits for sites, goes on when the command is called again.
    """
    output.check_writable(json)
    file = StudyFile.read(study)
    _check_options(file, of_runtime, fresh=fresh)
    folder = folder_of(file, out)
    console = output.console_beside(json, quiet=quiet)
    identity = _identity(file, key)
    with _stopped(fresh=fresh):
        prepare(folder, fresh=fresh)
        before = finished_on(folder)
        if before is not None:
            text = (
                f"This study was finished on {before}: it is shown from its journal, and nothing is asked, or spent, "
                "again (--fresh begins anew)."
            )
            console.print(text, highlight=False)
        elif not anyway and not _begun(file, folder):
            require_promising(file, console)
        result = _result(file, folder, console, of_runtime, quiet=quiet)
        if result is None:
            return
        head = opened_books(file).head
        written = write_folder(folder, result, file, identity=identity, ledger_head=head)
        if mlflow is not None:
            from fedassay.study.mlflow import log_study  # an extra, imported only if asked for

            log_study(folder, tracking_uri=mlflow)
        _deliver(result, written, json=json, console=console)


@contextmanager
def _stopped(*, fresh: bool) -> Iterator[None]:
    """Report what Ctrl-C leaves behind: every message that was sent is in the journal, or with its carrier."""
    try:
        yield
    except KeyboardInterrupt:
        same = "The same command without --fresh" if fresh else "The same command"
        Console(stderr=True).print(
            f"Stopped. {same} goes on from here; nothing is charged twice.", soft_wrap=True
        )
        sys.exit(STOPPED)


def _begun(file: StudyFile, folder: Path) -> bool:
    """Return whether an earlier call has begun this study, so that it is too late for doubts."""
    if isinstance(file.runtime, ReleaseParameters):
        return file.runtime.begun
    return (folder / JOURNAL).exists()


def _check_options(file: StudyFile, of_runtime: GivenOptions, *, fresh: bool) -> None:
    """Refuse options that would do nothing here, as the user relies on them."""
    if fresh and not file.simulated:
        anew = file.card.anew and f" with {file.card.anew}"
        raise UsageError(
            "--fresh: what sites have answered cannot be forgotten; begin a new study under another name than "
            f"{file.name}{anew}."
        )
    for option in of_runtime:
        able = [name for name, kind in _OPTIONS.items() if option in {one.name for one in parameters(kind)}]
        if file.card.name not in able:
            raise ParameterError(
                option,
                f"it is for studies on {in_words(able)}, this one runs on {file.card.name}; leave it out.",
            )


def _identity(file: StudyFile, key: Path | None) -> Identity | None:
    """Return the signer: of the given key, else the coordinator of a study between sites, else None."""
    if key is None and isinstance(file.runtime, ReleaseParameters):
        key = file.runtime.signer
    return None if key is None else Identity.load(key)


def _result(
    file: StudyFile, folder: Path, console: Console, of_runtime: GivenOptions, *, quiet: bool
) -> Result | None:
    """Return the result, or None if sites have yet to answer."""
    card = file.card
    if card.carry is None:
        with output.progress(quiet=quiet) as advance:
            return conduct(file, folder, progress=advance)
    agenda, books = file.agenda(shares=shares_of(file)), opened_books(file)
    if not _begun(file, folder):
        require_writable(file, agenda, folder)
    study = StudyRun(
        name=file.name,
        agenda=agenda,
        trust=file.trust,
        budget=file.budget,
        protection=file.protection,
        ledger=books.ledger,
        dataset=books.dataset,
        require_affordable=lambda clients: require_affordable(file, agenda, books, file.setting(clients)),
        options=None if card.options is None else card.options(**of_runtime),
        again=f"fedassay run {shlex.quote(str(file.path))}",
        say=partial(output.say, console),
        warn=output.warning(quiet=quiet),
        progress=partial(output.progress, quiet=quiet),
    )
    found = card.carry.load()(file.runtime, study)
    if found is None:
        return None
    study_name = found.parameters["study"]
    return finished(replace(found, parameters={**file.described, "study": study_name}), agenda)


def _deliver(result: Result, written: Written, *, json: str | None, console: Console) -> None:
    output.write(result.to_json(), json)
    render(result.to_dict(), console)
    others = ", ".join(name for name in written.files if name != written.report.name)
    output.say(
        console,
        *(f"Not written: {text}" for text in written.missing),
        f"Report: {written.report}",
        f"In the same folder: {others}",
        f"Check them: fedassay verify {shlex.quote(str(written.folder))} --key {written.key}",
    )
