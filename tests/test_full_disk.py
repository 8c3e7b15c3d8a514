"""A disk without room: one sentence, exit code 2, nothing half written, and it goes on once there is room."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from command_line import call
from fedassay.artefacts.verified import ANY_KEY, check
from fedassay.crypto.identity import Identity
from fedassay.crypto.keys import Secret
from fedassay.errors import UsageError
from fedassay.kernel.journal import FileJournal
from fedassay.study import folder as folder_module
from study_runs import place, rows, study_text

STUDY = study_text({"evaluate": {"height": 5}}, {"runtime": {"seed": 1}})
FULL = Path("/dev/full")


@pytest.fixture(scope="module", autouse=True)
def rehearsals() -> None:
    """They notice that there is no room."""


@contextmanager
def room(size: int) -> Iterator[None]:
    """Let files of this process have so many bytes and no more."""
    before, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (before, most))


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("more", [0, 1, 50, 80, 200])
def test_an_entry_for_which_there_is_no_room_leaves_nothing(tmp_path: Path, more: int) -> None:
    path = tmp_path / "journal"
    journal = FileJournal(path)
    journal.append({"kind": "begun", "key": "a"})
    before = path.read_bytes()
    with (
        room(len(before) + more),
        pytest.raises(UsageError, match=r"journal: cannot be written \(.+\); make room"),
    ):
        journal.append({"kind": "released", "key": "a", "values": bytes(1000)})
    assert path.read_bytes() == before
    journal.append({"kind": "heard", "key": "a"})
    journal.close()
    again = FileJournal(path)
    assert again.entries() == journal.entries()
    assert [entry["kind"] for entry in again.entries()] == ["begun", "heard"]


def test_a_study_goes_on_when_there_is_room_again(capsys: Any, tmp_path: Path) -> None:
    path, out = place(tmp_path, STUDY, rows(3, 30)), tmp_path / "small"
    with room(600):
        code, said, error = call(capsys, "run", path, "-q")
    assert (code, said) == (2, "")
    assert error.startswith(f"Error: {out}: cannot be written to (")
    assert error.endswith("); make room and run it again.\n")
    assert contents(out).keys() == {"journal", "journal.lock"}
    assert call(capsys, "run", path, "-q")[0] == 0
    assert check(out, key=ANY_KEY).holds


def test_artefacts_are_as_they_were_if_the_new_ones_do_not_fit(
    capsys: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, out = place(tmp_path, STUDY, rows(3, 30)), tmp_path / "small"
    assert call(capsys, "run", path, "-q")[0] == 0
    before = contents(out)
    monkeypatch.setattr(folder_module, "page", lambda document: "x" * 3_000_000)
    with room(2_000_000):
        code, said, error = call(capsys, "run", path, "-q")
    assert (code, said) == (2, "")
    assert "report.html: cannot be written" in error
    assert contents(out) == before
    assert check(out, key=ANY_KEY).holds


def test_half_a_key_is_no_key(tmp_path: Path) -> None:
    me, path = Identity.of(Secret(bytes(32))), tmp_path / "me.key"
    with room(30), pytest.raises(UsageError, match="cannot be written"):
        me.save(path)
    assert not path.exists()
    me.save(path)
    assert Identity.load(path) == me


@pytest.mark.skipif(not FULL.exists(), reason="this system has no device that is always full")
@pytest.mark.parametrize(
    ("command", "unbuffered", "also_errors"),
    [
        ("--version", "", False),
        ("--version", "1", True),
        ("evaluate", "1", False),
        ("evaluate --json - --quiet", "", False),
    ],
)
def test_standard_output_without_room(
    tmp_path: Path, command: str, unbuffered: str, also_errors: bool
) -> None:
    rows(3, 30).to_csv(tmp_path / "rows.csv", index=False)
    arguments = command.replace("evaluate", "evaluate rows.csv --client site --score p --label y").split()
    with FULL.open("wb") as full:
        found = subprocess.run(
            [sys.executable, "-c", "from fedassay.cli import main; main()", *arguments],
            cwd=tmp_path,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
            stdout=full,
            stderr=full if also_errors else subprocess.PIPE,
            text=True,
            check=False,
        )
    assert found.returncode == 2
    if not also_errors:
        sentence = "standard output: cannot be written (No space left on device); make room and run it again."
        assert found.stderr == f"Error: {sentence}\n"


@pytest.mark.parametrize(("output", "code"), [(">&-", 0), ("| head -1; exit ${PIPESTATUS[0]}", 1)])
def test_an_output_that_is_not_read_is_no_error(tmp_path: Path, output: str, code: int) -> None:
    rows(3, 30).to_csv(tmp_path / "rows.csv", index=False)
    options = "evaluate rows.csv --client site --score p --label y"
    command = f"{sys.executable} -c 'from fedassay.cli import main; main()' {options}"
    found = subprocess.run(
        ["bash", "-c", f"{command} {output}"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (found.returncode, found.stderr) == (code, "")
    assert found.stdout == ("" if output == ">&-" else "Evaluation, all rows\n")
