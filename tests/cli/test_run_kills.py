"""`fedassay run` that is killed at any moment, and run again: it ends, and every release is paid for once."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from command_line import call, refused
from fedassay.artefacts.verified import ANY_KEY, check
from fedassay.cli import run_command
from fedassay.kernel.journal import FileJournal
from fedassay.protocol import files as files_module
from fedassay.study import folder as folder_module
from ledgers import FORK
from stated import Verify
from study_runs import LEDGER, charges, place, rows, study_text

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

STUDY = study_text(
    {
        "evaluate": {"share": 0.3},
        "calibrate": {"method": "platt", "share": 0.3},
        "conformal": {"level": 0.8, "share": 0.3},
    },
    {
        "privacy": {"privacy": "distributed-dp", "epsilon": 6.0, "delta": 1e-6},
        "runtime": {"mode": "faithful"},
        # Room for one such study, not for two.
        "ledger": {"place": LEDGER, "dataset": "d", "epsilon": 6.5, "delta": 1e-6},
    },
)


RELEASES = 5
"""All rows once, both halves of the fit rows once each, and held-out rows twice."""


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A study whose report is one line: its own tests say that it is right, and it takes longest."""
    monkeypatch.setattr(folder_module, "page", lambda document: "<!doctype html>\n")
    return place(tmp_path, STUDY, rows(5, 40))


def alone(path: str, out: str) -> None:
    """The command in a process of its own, silent."""
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    os._exit(run_command(["run", path, "--out", out, "-q"]))


def killed(path: Path, out: Path, after: float) -> bool:
    """Run the command and kill it after so many seconds; whether it was still at work."""
    worker = FORK.Process(target=alone, args=(str(path), str(out)))
    worker.start()
    worker.join(after)
    at_work = worker.is_alive()
    assert worker.pid is not None
    if at_work:
        os.kill(worker.pid, signal.SIGKILL)
    worker.join()
    assert at_work or worker.exitcode == 0
    return at_work


def moments(seed: int, most: float) -> Iterator[float]:
    """When to kill: any moment is as likely as any other."""
    dealt = random.Random(seed)
    while True:
        yield dealt.uniform(0.0, most)


def survive(path: Path, kills: int, seed: int) -> Counter[str]:
    """Kill so many runs, one study after another until each has ended; where they were killed."""
    started = time.monotonic()
    assert not killed(path, path.parent / "whole", 600)
    whole = time.monotonic() - started
    assert len(charges(path.parent)) == RELEASES
    found: Counter[str] = Counter()
    when = moments(seed, 1.1 * whole)
    study = 0
    while sum(found.values()) < kills:
        study += 1
        text = STUDY.replace('dataset = "d"', f'dataset = "d{study}"')
        path.write_text(text)
        out = path.parent / f"out {study}"
        while sum(found.values()) < kills and killed(path, out, next(when)):
            found[_stage(out)] += 1
        assert not killed(path, out, 600)
        _hold(path.parent, out, f"d{study}")
    return found


def _stage(out: Path) -> str:
    """How far a run had come."""
    if (out / "certificate.json").exists():
        return "certified"
    if not (out / "journal").exists():
        return "not begun"
    journal = FileJournal(out / "journal")
    kinds = Counter(entry["kind"] for entry in journal.entries())
    journal.close()
    return f"{kinds['released']} of {kinds['begun']} exchanges"


def _hold(folder: Path, out: Path, dataset: str) -> None:
    verified = check(out, key=ANY_KEY)
    assert verified.holds, verified.wrong
    document = folder_module.Result.from_json((out / "result.json").read_text())
    assert list(document["tasks"]) == ["evaluate", "calibrate", "conformal"]
    paid = [one.id for one in charges(folder) if one.dataset == dataset]
    assert paid == [one["id"] for one in document["budget"]["charges"]]
    assert len(set(paid)) == len(paid) == RELEASES


def test_five_kills(path: Path) -> None:
    found = survive(path, 5, seed=1)
    assert sum(found.values()) == 5


@pytest.mark.full
def test_sixty_kills(path: Path, verify: Verify) -> None:
    found = survive(path, 60, seed=2)
    stages = ", ".join(f"{count} at {stage!r}" for stage, count in sorted(found.items()))
    verify(
        "`fedassay run` killed at random moments goes on to a complete study, each release charged once",
        stages,
    )
    assert len(found) >= 4


# --- two at once, and anew ----------------------------------------------------------------------------------


def test_a_second_run_of_the_same_folder_is_refused_with_a_sentence(
    path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = path.parent / "out"
    out.mkdir()
    journal = FileJournal(out / "journal")
    monkeypatch.setattr(files_module, "PATIENCE", 0.1)
    for more in ((), ("--fresh",)):
        error = refused(capsys, "run", path, "--out", out, "-q", *more)
        assert "journal.lock: another process is using it; wait until it has ended." in " ".join(
            error.split()
        )
    assert (out / "journal.lock").exists()
    journal.close()
    assert not charges(path.parent)
    assert call(capsys, "run", path, "--out", out, "-q")[0] == 0


def test_a_changed_file_is_refused_and_fresh_begins_anew(path: Path, capsys: Any) -> None:
    out = path.parent / "out"
    assert call(capsys, "run", path, "--out", out, "-q")[0] == 0
    first = (out / "result.json").read_bytes()
    path.write_text(STUDY.replace("level = 0.8", "level = 0.9"))
    error = refused(capsys, "run", path, "--out", out, "-q")
    assert "begin anew with `fedassay run --fresh` (which asks, and spends, again)" in error
    assert (out / "result.json").read_bytes() == first
    error = refused(capsys, "run", path, "--out", out, "-q", "--fresh", code=3)
    assert "cannot be afforded, and no site was asked" in error
    path.write_text(path.read_text().replace("epsilon = 6.5", "epsilon = 16.5"))
    assert call(capsys, "run", path, "--out", out, "-q", "--fresh")[0] == 0
    assert len(charges(path.parent)) == 2 * RELEASES
    assert check(out, key=ANY_KEY).holds


def test_what_a_fresh_run_does_not_write_again_is_gone(path: Path, capsys: Any) -> None:
    """An old calibrator could be taken for one of the new study."""
    out = path.parent / "out"
    assert call(capsys, "run", path, "--out", out, "-q")[0] == 0
    assert (out / "conformal.json").exists()
    (out / "notes.txt").write_text("mine")
    path.write_text(study_text({"evaluate": {}}))
    assert call(capsys, "run", path, "--out", out, "-q", "--fresh")[0] == 0
    assert not (out / "conformal.json").exists()
    assert (out / "notes.txt").read_text() == "mine"
    assert check(out, key=ANY_KEY).holds


def test_a_study_file_in_its_own_folder_survives(path: Path, capsys: Any) -> None:
    text = path.read_text()
    for _ in range(2):
        assert call(capsys, "run", path, "--out", path.parent, "-q")[0] == 0
        assert path.read_text() == text
    assert check(path.parent, key=ANY_KEY).holds
