"""The command line. `main` turns every error raised on purpose into one sentence and an exit code.

Commands are imported when one is run: that takes a second, in which the user may press Ctrl-C.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TextIO

from fedassay.errors import FedassayError
from fedassay.protocol.texts import printable

STOPPED = 130
"""Exit code of a command that was stopped by Ctrl-C."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and exit.

    0 success, 2 bad usage or input, 3 refused, 4 the federation failed, 5 an audit, or `verify`, has found something,
    130 stopped by Ctrl-C.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    with _stopped_at_once(), suppress(FedassayError):  # which `run_command` says
        from fedassay.cli.commands import load

        load(words)  # all that takes long to import
    code = run_command(words)
    for stream in (sys.stdout, sys.stderr):
        _let_go(stream)
    sys.exit(code)


@contextmanager
def _stopped_at_once() -> Iterator[None]:
    """End the process at Ctrl-C with one word.

    Nothing has begun yet. An exception would not do: modules that are half imported turn it into others.
    """
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler:  # another handler decides, or it is ignored
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
    """Run a command; return the exit code instead of exiting."""
    from cyclopts import CycloptsError
    from rich.console import Console

    from fedassay.cli.command import forget_options, in_options, misread
    from fedassay.errors import UsageError
    from fedassay.protocol.files import FULL, unwritable

    words = list(sys.argv[1:] if arguments is None else arguments)
    forget_options()
    try:
        from fedassay.cli.commands import (
            COMMANDS,
            app,
            load,
        )  # it fails where two packages offer the same kind

        load(words)
        code = app(words)
        if not words or (len(words) == 1 and isinstance(COMMANDS.get(words[0]), dict)):
            code = UsageError.exit_code  # the help that was shown says what is missing
        if sys.stdout is not None:
            sys.stdout.flush()
        return int(code or 0)
    except SystemExit as ended:
        return int(ended.code or 0)
    except FedassayError as error:
        return _failed(in_options(error), error.exit_code)
    except CycloptsError as error:
        return _failed(_meant(words) or misread(error), UsageError.exit_code)
    except (EOFError, KeyboardInterrupt):
        Console(stderr=True).print("Stopped.")
        return STOPPED
    except OSError as error:
        if error.errno not in FULL:
            raise
        # What writes files names them; the stream has no name.
        lost = unwritable(error.filename or "standard output", error)
        return _failed(lost, lost.exit_code)


def _failed(said: object, code: int) -> int:
    """Print what is wrong, unless standard error is on the same full disk; return the exit code."""
    from rich.console import Console

    with suppress(OSError):
        Console(stderr=True).print(f"[bold red]Error:[/] {printable(said)}", soft_wrap=True, highlight=False)
    return code


def _let_go(stream: TextIO | None) -> None:
    """Forget what a stream cannot deliver: Python would complain about it at the end, with an exit code of its own."""
    if stream is None:  # it was closed when the command began
        return
    try:
        stream.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def _meant(words: Sequence[str]) -> str | None:
    """Return the command that was meant, where a file stands in the place of its name."""
    of_plans = list(words[:1]) == ["plan"]
    word = next(iter(words[of_plans:]), "")
    if re.fullmatch(r".*\.(?:toml|csv|parquet|npz)", word) is None:
        return None
    command = ("plan study" if of_plans else "run") if word.endswith(".toml") else "init"
    return f"{word}: no such command; did you mean: fedassay {command} {shlex.quote(word)}"
