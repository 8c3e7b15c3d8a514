"""The ledger in a file: the same rules as in memory, many processes at a time, crashes, and changed lines."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import stat
from pathlib import Path
from typing import Any

import pytest

from fedassay.errors import BudgetExceeded, ProtocolError
from fedassay.privacy.accounting import LAPLACE
from fedassay.privacy.file_ledger import FileLedger
from fedassay.privacy.ledger import Charge, MemoryLedger
from fedassay.protocol import Budget, Neighbours, Part, Unit

# Processes that inherit the ledger's module; there is one thread here, so a fork is safe.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
FORK = multiprocessing.get_context("fork")


def charge(name: str, **changes: Any) -> Charge:
    """A release that costs epsilon = 0.25."""
    values: dict[str, Any] = {
        "dataset": "rows",
        "study": "study",
        "law": LAPLACE,
        "scale": 4.0,
        "l1": 1.0,
        "l2": 1.0,
        "trust_model": "server-dp",
        **changes,
    }
    return Charge(id=name, **values)


def test_it_records_what_a_ledger_in_memory_records(tmp_path: Path) -> None:
    path, budget = tmp_path / "ledger.jsonl", Budget(epsilon=1.0)
    memory, file = MemoryLedger(budget, allow_exact=True), FileLedger(path, budget, allow_exact=True)
    steps = [
        [charge("1"), charge("2", part=Part.FIT)],
        [charge("1")],
        [charge("3", part=Part.HELD_OUT, scale=1.5)],
        [charge("4", law="none", scale=0.0, l1=float("inf"), l2=float("inf"))],
        [charge("1", scale=8.0)],
        [charge("5", scale=1.0)],
        [charge("6", unit=Unit.CLIENT)],
        [charge("7", neighbours=Neighbours.REPLACE_ONE)],
        [charge("8", dataset="other", unit=Unit.CLIENT)],
    ]
    for step in steps:
        outcomes = []
        for ledger in (memory, file):
            try:
                ledger.charge(step)
                outcomes.append("")
            except (BudgetExceeded, ProtocolError) as error:
                outcomes.append(str(error))
        assert outcomes[0] == outcomes[1]
        assert memory.charges == file.charges == FileLedger(path, budget).charges
    assert len(file.charges) == 5
    assert memory.spent("rows", 0.0) == file.spent("rows", 0.0)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_exact_releases_need_a_word(tmp_path: Path) -> None:
    ledger = FileLedger(tmp_path / "ledger.jsonl", Budget(epsilon=1.0))
    with pytest.raises(BudgetExceeded, match="without noise"):
        ledger.charge([charge("1", law="none", scale=0.0)])
    assert ledger.charges == ()


def _spend(path: Path, name: str, tries: int, done: Any) -> None:
    ledger = FileLedger(path, Budget(epsilon=5.0))
    for number in range(tries):
        try:
            ledger.charge([charge(f"{name}/{number}")])
        except BudgetExceeded:
            return
        done.put(f"{name}/{number}")


def test_eight_processes_spend_exactly_the_budget(tmp_path: Path) -> None:
    path, done = tmp_path / "ledger.jsonl", FORK.Queue()
    workers = [FORK.Process(target=_spend, args=(path, str(i), 10, done)) for i in range(8)]
    for worker in workers:
        worker.start()
    said = {done.get(timeout=60) for _ in range(20)}
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    assert done.empty()
    ledger = FileLedger(path, Budget(epsilon=5.0))
    assert {str(one.id) for one in ledger.charges} == said  # 80 tries, 20 fit into the budget
    assert ledger.spent("rows", 0.0) == pytest.approx(5.0)


def _spend_and_tell(path: Path, pipe: int) -> None:
    ledger = FileLedger(path, None)
    for number in range(10_000):
        ledger.charge([charge(f"{os.getpid()}/{number}")])
        os.write(pipe, f"{os.getpid()}/{number}\n".encode())  # short writes to a pipe are whole


@pytest.mark.parametrize("moment", range(6))
def test_a_killed_process_loses_nothing_that_was_promised(tmp_path: Path, moment: int) -> None:
    path = tmp_path / "ledger.jsonl"
    reading, writing = os.pipe()
    worker = FORK.Process(target=_spend_and_tell, args=(path, writing))
    worker.start()
    os.close(writing)
    told = b""
    while told.count(b"\n") < 1 + 2 * moment:
        told += os.read(reading, 1000)
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGKILL)
    worker.join()
    while more := os.read(reading, 1000):
        told += more
    os.close(reading)
    promised = told.decode().split()
    recorded = [str(one.id) for one in FileLedger(path, None).charges]
    assert recorded[: len(promised)] == promised
    assert len(recorded) <= len(promised) + 1
    FileLedger(path, None).charge([charge("after")])
    assert str(FileLedger(path, None).charges[-1].id) == "after"


def test_a_cut_last_line_belongs_to_a_charge_that_never_returned(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    ledger = FileLedger(path, None)
    ledger.charge([charge("1"), charge("2")])
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1
    for length in range(first, len(whole)):
        path.write_bytes(whole[:length])
        assert [one.id for one in ledger.charges] == ["1"]
        ledger.charge([charge("3")])
        assert [one.id for one in ledger.charges] == ["1", "3"]
    assert path.read_bytes().startswith(whole[:first])


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{}",
        b"3",
        b"[]",
        b"\xff",
        b'{"id": "1"',
        b'{"id": "1", "part": "some"}',
        json.dumps({"extra": 1}).encode(),
    ],
)
def test_an_unreadable_line_refuses_everything(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "ledger.jsonl"
    ledger = FileLedger(path, Budget(epsilon=1.0))
    ledger.charge([charge("1")])
    ledger.charge([charge("2")])
    lines = path.read_bytes().split(b"\n")
    lines[0] = line
    path.write_bytes(b"\n".join(lines))
    before = path.read_bytes()
    for attempt in (lambda: ledger.charge([charge("3")]), lambda: ledger.spent("rows", 0.0)):
        with pytest.raises(ProtocolError, match="cannot be read; restore it"):
            attempt()
    assert path.read_bytes() == before


def test_a_line_with_another_field_or_value_is_not_taken(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    FileLedger(path, None).charge([charge("1")])
    content = json.loads(path.read_bytes())
    for change in ({"note": "x"}, {"part": "none"}, {"unit": "row"}):
        path.write_text(json.dumps({**content, **change}) + "\n")
        with pytest.raises(ProtocolError):
            FileLedger(path, None).charge([charge("2")])
