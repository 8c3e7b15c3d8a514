"""Ctrl-C: one sentence and no traceback, from the first moment on, and a study that goes on from there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from command_line import call
from fedassay.artefacts.verified import ANY_KEY, check
from fedassay.kernel.journal import FileJournal
from fedassay.study import folder as folder_module
from fedassay.version import VERSION
from study_runs import LEDGER, charges, place, rows, study_text

STUDY = study_text(
    {"evaluate": {"height": 5, "share": 0.5}, "conformal": {"share": 0.5}},
    {
        "privacy": {"privacy": "server-dp", "epsilon": 4.0, "delta": 1e-6},
        "runtime": {"seed": 1},
        "ledger": {"place": LEDGER, "dataset": "d", "epsilon": 4.5, "delta": 1e-6},
    },
)

WHILE_IMPORTING = """
import os, signal, sys
signal.signal(signal.SIGINT, {handler})
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {name!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder())
from fedassay.cli import main
main({words})
"""


def interrupted_import(name: str, handler: str, *words: str) -> tuple[int, str, str]:
    """Run a command, with Ctrl-C while this module is imported."""
    code = WHILE_IMPORTING.format(name=name, handler=handler, words=list(words))
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return found.returncode, found.stdout, found.stderr


@pytest.mark.parametrize("name", ["fedassay.cli.commands", "numpy"])
def test_while_commands_are_imported(name: str) -> None:
    found = interrupted_import(name, "signal.default_int_handler", "evaluate", "--help")
    assert found == (130, "", "Stopped.\n")


def test_a_job_in_the_background_is_not_stopped() -> None:
    """A shell starts it with the signal ignored: Ctrl-C is meant for what runs in the foreground."""
    found = interrupted_import("cyclopts", "signal.SIG_IGN", "--version")
    assert found == (0, f"fedassay {VERSION}\n", "")


@pytest.fixture
def foreground() -> Iterator[None]:
    """Ctrl-C as a command in the foreground gets it, wherever these tests were started."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A study whose report is one line: reports have tests of their own."""
    monkeypatch.setattr(folder_module, "page", lambda document: "<!doctype html>\n")
    return place(tmp_path, STUDY, rows(3, 30))


@pytest.mark.usefixtures("foreground")
@pytest.mark.parametrize("more", [(), ("--fresh",)])
def test_a_study_says_that_it_goes_on_and_does(
    capsys: Any, path: Path, monkeypatch: pytest.MonkeyPatch, more: tuple[str, ...]
) -> None:
    written: list[str] = []
    append = FileJournal.append

    def interrupted(self: FileJournal, entry: Any) -> None:
        append(self, entry)
        written.append(entry["kind"])
        if written.count("released") == 1:  # one exchange is paid for and answered
            os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as patched:
        patched.setattr(FileJournal, "append", interrupted)
        code, _, error = call(capsys, "run", path, "--quiet", *more)
    same = "The same command without --fresh" if more else "The same command"
    assert (code, error) == (130, f"Stopped. {same} goes on from here; nothing is charged twice.\n")
    assert written[-1] == "released"
    begun = [one.id for one in charges(path.parent)]
    assert begun
    code, _, error = call(capsys, "run", path, "--quiet")
    assert (code, error) == (0, "")
    paid = [one.id for one in charges(path.parent)]
    assert paid[: len(begun)] == begun
    assert len(set(paid)) == len(paid) > len(begun)
    assert check(path.parent / "small", key=ANY_KEY).holds
