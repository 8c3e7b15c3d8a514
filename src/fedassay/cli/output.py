"""Output of commands: tables to the terminal, JSON to a file or standard output, pages to files."""

from __future__ import annotations

import json as json_module
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from fedassay.cli.command import Option
from fedassay.errors import FedassayError, UsageError
from fedassay.protocol.files import write_atomically
from fedassay.protocol.result import Result
from fedassay.protocol.texts import printable
from fedassay.tasks.card import KINDS

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, ProgressColumn, TaskID
    from rich.table import Table

    from fedassay.runtimes.simulated import Progress as OnProgress


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """Destinations of a result: the terminal unless `quiet`, a JSON file (``-`` is standard output), a page."""

    json: str | None
    report: Path | None
    quiet: bool

    def __post_init__(self) -> None:
        check_writable(self.json, self.report)
        if self.report is not None and self.report.suffix not in (".html", ".htm"):
            raise UsageError(f"--report {self.report}: the page is HTML; give a file that ends in .html.")
        if self.report is not None and self.json is not None and Path(self.json) == self.report:
            raise UsageError(f"--json and --report: both name {self.report}; give two files.")

    @property
    def console(self) -> Console:
        """Console for text apart from the result; standard error if the result itself goes to standard output."""
        return console_beside(self.json, quiet=self.quiet)

    def deliver(self, result: Result, *, out: Path | None = None, also: Sequence[Path] = ()) -> None:
        """Show the result, and write its calibrator or predictor to `out`, or report why there is none."""
        if out is None:
            self.show(result, also)
            return
        from fedassay.documents.kind import card_of  # help and version need no documents

        artefact = card_of(result.to_dict()).artefact
        if artefact is None:
            known = ", ".join(dict.fromkeys(card.asked_as for card in KINDS.values() if card.artefact))
            raise UsageError(f"--out: {result.task} writes no artefact, only {known} do; leave it out.")
        try:
            artefact.load()(result).save(out)
        except FedassayError:
            self.show(result)  # it has been paid for
            raise
        self.show(result, [*also, out])

    def show(self, result: Result, also: Sequence[Path] = ()) -> None:
        """Print the result and write JSON and page; name them, and what was written before."""
        from fedassay.documents.page import page
        from fedassay.documents.terminal import render

        document = result.to_dict()
        if self.report is not None:
            write(page(document), self.report)
        write(result.to_json(), self.json)
        render(document, self.console)
        paths = (None if self.json == "-" else self.json, self.report, *also)
        say(self.console, *(f"Written: {path}" for path in paths if path is not None))


def delivery(
    json: Annotated[
        str | None, Option("--json", metavar="FILE", help="Write the result as JSON; - for standard output.")
    ] = None,
    report: Annotated[
        Path | None, Option("--report", metavar="FILE.html", help="Write a page with tables and plots.")
    ] = None,
    quiet: Annotated[bool, Option("--quiet", "-q", help="Print nothing but errors.")] = False,
) -> Delivery:
    """Return the destinations from the options of every command that ends in a result."""
    return Delivery(json=json, report=report, quiet=quiet)


def check_writable(*paths: str | Path | None) -> None:
    """Refuse, before the work begins, paths that could not be written after it."""
    if "-" in paths and sys.stdout is None:
        raise UsageError("standard output: it is closed, and the result was to go there (-); give a file.")
    for path in (Path(path) for path in paths if path is not None and str(path) != "-"):
        if not path.absolute().parent.is_dir():
            raise UsageError(f"{path}: its folder does not exist; create it or give another file.")
        if path.is_dir():
            raise UsageError(f"{path}: is a folder; give a file.")


def warning(*, quiet: bool) -> Callable[[str], None]:
    """Print warnings to standard error, or nothing."""
    return lambda text: None if quiet else print(f"Warning: {text}", file=sys.stderr)


def write(text: str, to: str | Path | None) -> None:
    """Write a text to a file, to standard output (`-`), or nowhere (None)."""
    if to == "-":
        sys.stdout.write(text)
    elif to is not None:
        write_atomically(Path(to), text)


def write_json(document: object, to: str | None) -> None:
    """Write plain values as `write` does."""
    write(json_module.dumps(document, indent=2, allow_nan=False) + "\n", to)


# --- what is printed ----------------------------------------------------------------------------------------


def console_beside(json: str | None, *, quiet: bool = False) -> Console:
    """Make a console for words; standard error if JSON goes to standard output."""
    from rich.console import Console

    return Console(quiet=quiet, stderr=json == "-")


def say(console: Console, *texts: str, markup: bool = False) -> None:
    """Print texts, which are broken where the terminal ends and nowhere else; names in them are not ours."""
    for text in texts:
        console.print(text if markup else printable(text), highlight=False, soft_wrap=True)


def titled(title: str, *columns: str) -> Table:
    """Make a table with a title on its left."""
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="bold")
    for name in columns:
        table.add_column(name, overflow="fold")
    return table


@contextmanager
def bar(*columns: str | ProgressColumn, quiet: bool, **entries: Any) -> Iterator[tuple[Progress, TaskID]]:
    """Show a progress bar on standard error, if it is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

    console = Console(stderr=True)
    first = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn())
    hidden = quiet or not console.is_terminal
    with Progress(*first, *columns, console=console, transient=True, disable=hidden) as shown:
        yield shown, shown.add_task("reading", total=None, **entries)


@contextmanager
def progress(*, quiet: bool) -> Iterator[OnProgress]:
    """Show a progress bar over the clients of each leg."""
    from rich.progress import MofNCompleteColumn, TimeElapsedColumn

    with bar(MofNCompleteColumn(), TimeElapsedColumn(), quiet=quiet) as (shown, work):

        def advance(leg: int, done: int, total: int) -> None:
            shown.update(work, description=f"clients, leg {leg + 1}", completed=done, total=total)
            # A leg that is done is not the end of the work: the clock and the spinner go on.
            shown.tasks[work].finished_time = None

        yield advance


@contextmanager
def rounds(*, quiet: bool) -> Iterator[OnProgress]:
    """Show a progress bar over the rounds of a task, with the time that is left.

    It hears of rounds as they begin, and of their number: 0 if that is unknown, and then no time is shown.
    """
    from rich.progress import TextColumn, TimeElapsedColumn, TimeRemainingColumn

    times = TimeElapsedColumn(), TimeRemainingColumn(compact=True), TextColumn("{task.fields[left]}")
    with bar(*times, quiet=quiet, left="") as (shown, work):

        def advance(leg: int, begun: int, total: int) -> None:
            # The width does not change from round to round, so that nothing moves.
            of = f"round {begun:>{len(str(total))}} of {total}" if total else f"sum {begun}"
            left = "left" if total else ""
            shown.update(work, description=of, completed=begun - 1, total=total or None, left=left)

        yield advance
