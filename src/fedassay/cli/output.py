"""Where a command's words go: tables to the terminal, JSON to a file or standard output, pages to files."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

from fedassay.errors import UsageError
from fedassay.files import write_atomically
from fedassay.reports.page import page
from fedassay.reports.terminal import render
from fedassay.result import Result
from fedassay.runtimes.in_process import Progress as OnProgress


def deliver(result: Result, *, json: str | None, report: Path | None, quiet: bool) -> None:
    """Print the result and write the files that were asked for."""
    document = result.to_dict()
    if report is not None:
        write_atomically(report, page(document))
    if json == "-":
        sys.stdout.write(result.to_json())
    elif json is not None:
        result.save(json)
    if not quiet:
        console = Console(stderr=json == "-")
        render(document, console)
        for path in (None if json == "-" else json, report):
            if path is not None:
                console.print(f"Written: {path}", highlight=False)


def check_writable(*paths: str | Path | None) -> None:
    """Refuse before the work what could not be written after it."""
    for path in paths:
        if path is not None and str(path) != "-" and not Path(path).absolute().parent.is_dir():
            raise UsageError(f"{path}: its folder does not exist; create it or give another file.")


@contextmanager
def progress(*, quiet: bool) -> Iterator[OnProgress]:
    """A progress bar on standard error over the clients of each leg, if somebody is there to see it."""
    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(
        *columns,
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=quiet or not console.is_terminal,
    ) as bar:
        work = bar.add_task("reading", total=None)

        def advance(leg: int, done: int, total: int) -> None:
            bar.update(work, description=f"clients, leg {leg + 1}", completed=done, total=total)

        yield advance
