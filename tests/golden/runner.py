"""Commands run in this process, as a terminal without colours would show them."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

COLUMNS = 80
TRACEBACK = 1
"""The exit code of a process that ends with a traceback."""


def call(*arguments: object) -> tuple[int, str, str]:
    """The exit code and what is printed; an exception that nothing has caught is a traceback, as in a process."""
    from fedassay.cli import run_command

    out, err = io.StringIO(), io.StringIO()
    # The name of the program stands in its help; click and its likes take it from the process.
    program = (
        mock.patch.object(sys, "argv", ["fedassay"]),
        mock.patch.object(sys.modules["__main__"], "__package__", None, create=True),
        mock.patch.dict(os.environ, {"COLUMNS": str(COLUMNS)}),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    )
    with contextlib.ExitStack() as stack:
        for context in program:
            stack.enter_context(context)
        try:
            code = run_command([str(argument) for argument in arguments])
        except SystemExit as stopped:
            code = stopped.code if isinstance(stopped.code, int) else TRACEBACK
        except Exception:
            code = TRACEBACK
            traceback.print_exc()
    return code, out.getvalue(), err.getvalue()


@contextlib.contextmanager
def inside(folder: Path) -> Iterator[None]:
    """Run in this folder, so that messages name files without it."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
