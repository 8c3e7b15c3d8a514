"""The command line. `main` turns every error raised on purpose into one sentence and an exit code.

Commands are imported when one is run: that takes a second, in which somebody may change his mind.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import click

STOPPED = 130
"""The exit code of a command that was stopped by Ctrl-C."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and exit.

    0 success, 2 bad usage or input, 3 refused, 4 the federation failed, 5 an audit, or `verify`, has found something,
    130 stopped by Ctrl-C.
    """
    with _stopped_at_once():
        import fedassay.cli.commands  # noqa: F401 # all that takes long to import
    sys.exit(run_command(arguments))


@contextmanager
def _stopped_at_once() -> Iterator[None]:
    """End the process at Ctrl-C with one word.

    Nothing has begun yet. An exception would not do: modules that are half imported turn it into others.
    """
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler:  # somebody else decides, or it is ignored
        yield
        return
    signal.signal(signal.SIGINT, _stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _stop(number: int, frame: FrameType | None) -> None:
    os.write(2, b"Stopped.\n")
    os._exit(STOPPED)


def run_command(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit code instead of an exit."""
    import click
    from rich.console import Console

    from fedassay.cli.commands import app
    from fedassay.errors import FedassayError

    console = Console(stderr=True)
    try:
        code = app(args=list(arguments) if arguments is not None else None, standalone_mode=False)
        return int(code or 0)
    except FedassayError as error:
        console.print(f"[bold red]Error:[/] {_escaped(error)}", soft_wrap=True, highlight=False)
        return error.exit_code
    except click.ClickException as error:
        error.show()
        hint = _meant(error)
        if hint is not None:
            console.print(_escaped(hint), soft_wrap=True, highlight=False)
        return 2
    except (click.Abort, KeyboardInterrupt):
        console.print("Stopped.")
        return STOPPED


def _escaped(text: object) -> str:
    return str(text).replace("[", r"\[")


def _meant(error: click.ClickException) -> str | None:
    """The command that was meant, where a file stands in the place of its name."""
    found = re.search(r"No such command '(.*\.(?:toml|csv|parquet|npz))'", error.message)
    if found is None:
        return None
    study = found[1].endswith(".toml")
    of_plans = getattr(getattr(error, "ctx", None), "info_name", None) == "plan"
    command = ("plan study" if of_plans else "run") if study else "init"
    return f"Did you mean: fedassay {command} {shlex.quote(found[1])}"
