"""Processes that are killed, and processes that compete: nothing is lost, nothing is spent twice, nothing too much."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedassay.errors import BudgetExceeded, LedgerUnusable
from fedassay.privacy import accounting  # noqa: F401 - what children need is imported before they are forked
from fedassay.privacy.ledger.charges import Charge, compose
from fedassay.privacy.ledger.database import DatabaseLedger
from fedassay.protocol.vocabulary import Budget
from ledgers import FORK, KINDS, POSTGRESQL, SQLITE, charge, opened, place
from stated import Verify

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

BUDGET = Budget(epsilon=1.5)
"""Six charges of 0.25 for each data set."""


def requests(life: int) -> Iterator[list[Charge]]:
    """Requests of one to three charges, more than the budget allows."""
    dealt = random.Random(life)
    for number in range(10_000):
        names = [f"{life}/{number}/{i}" for i in range(dealt.randint(1, 3))]
        yield [charge(name, dataset=f"{life}/{number // 4}") for name in names]


def spend(where: str, folder: Path, life: int, pipe: int) -> None:
    """Charge until killed, and tell what was charged."""
    ledger = opened(where, folder, BUDGET)
    for number, request in enumerate(requests(life)):
        os.write(pipe, f"begun {number}\n".encode())
        try:
            ledger.charge(request)
        except BudgetExceeded:
            os.write(pipe, f"refused {number}\n".encode())
        else:
            os.write(pipe, f"charged {number}\n".encode())  # short writes to a pipe are whole


def one_life(where: str, folder: Path, life: int) -> tuple[list[str], int]:
    """What a process told before it was killed at a random moment, and how many requests it had begun.

    Four of five die within milliseconds of a word about one of their requests, the others perhaps while the ledger is
    being opened.
    """
    dealt = random.Random(~life)
    reading, writing = os.pipe()
    worker = FORK.Process(target=spend, args=(where, folder, life, writing))
    worker.start()
    os.close(writing)
    told = b""
    words = 0 if dealt.random() < 0.2 else dealt.randint(1, 20)
    while told.count(b"\n") < words:
        told += os.read(reading, 65536)
    time.sleep(dealt.expovariate(1 / 0.003) if words else dealt.uniform(0.0, 0.05))
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGKILL)
    worker.join()
    while more := os.read(reading, 65536):
        told += more
    os.close(reading)
    lines = told.decode().splitlines()
    return lines, sum(line.startswith("begun") for line in lines)


def survive(where: str, folder: Path, lives: int) -> tuple[int, int, int]:
    """Kill so many processes; how many charges were told, how many were recorded but not told, and refused ones."""
    told, untold, refused = 0, 0, 0
    kept = opened(where, folder, BUDGET)
    before = 0
    for life in range(lives):
        lines, begun = one_life(where, folder, life)
        all_requests = [request for request, _ in zip(requests(life), range(begun), strict=False)]
        recorded = kept.charges[before:]
        promised = [
            one.id
            for line in lines
            if line.startswith("charged")
            for one in all_requests[int(line.split()[1])]
        ]
        assert [one.id for one in recorded][: len(promised)] == promised  # all that was told, in order
        rest = [one.id for one in recorded][len(promised) :]
        assert not rest or rest == [one.id for one in all_requests[-1]]  # and at most the last one, whole
        for dataset in {one.dataset for one in recorded}:
            of_it = [one for one in recorded if one.dataset == dataset]
            assert kept.spent(dataset, 0.0) == compose(of_it, 0.0) <= BUDGET.epsilon
        # Going on, also with the request that was cut short: it counts once.
        if rest:
            kept.charge(all_requests[-1])
            assert len(kept.charges) == before + len(recorded)
        kept.charge([charge(f"{life}/after", dataset=f"{life}/after")])
        told, untold = told + len(promised), untold + len(rest)
        refused += sum(line.startswith("refused") for line in lines)
        before += len(recorded) + 1
    assert (
        len(opened(where, folder, BUDGET).charges) == before
    )  # from the first record, chain and anchor checked
    return told, untold, refused


@pytest.mark.parametrize(("kind", "lives"), [(SQLITE, 25), (POSTGRESQL, 6)])
def test_killed_at_any_moment_nothing_is_lost_nor_too_much(tmp_path: Path, kind: str, lives: int) -> None:
    told, _, refused = survive(place(kind, tmp_path), tmp_path, lives)
    assert told > lives
    assert refused > 0


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
def test_five_hundred_kills(tmp_path: Path, kind: str, verify: Verify) -> None:
    told, untold, refused = survive(place(kind, tmp_path), tmp_path, 500)
    verify(
        f"500 kill -9 at random points of a charge, {kind}: none lost, none counted twice, no budget exceeded",
        f"{told} charges told, {untold} recorded but not told, {refused} requests refused; all 500 as promised",
    )
    assert told > 500
    assert untold > 0  # some were killed between the record and the word


def test_the_check_above_would_see_a_ledger_that_forgets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ledger that tells before its transaction ends: found by the same drive."""
    monkeypatch.setattr(DatabaseLedger, "charge", lambda self, charges: self.has("x") or None)
    with pytest.raises((AssertionError, IndexError)):
        survive(place(SQLITE, tmp_path), tmp_path, 3)


def test_a_log_that_is_cut_anywhere_holds_whole_charges(tmp_path: Path) -> None:
    """What a power loss can leave of the write-ahead log: any beginning of it."""
    path = tmp_path / "ledger.sqlite"
    ledger = DatabaseLedger(path, None)
    heads = []
    for number in range(3):
        ledger.charge([charge(f"{number}/0"), charge(f"{number}/1")])
        heads.append((tmp_path / "ledger.head").read_bytes())
    log = path.with_name("ledger.sqlite-wal").read_bytes()
    seen = set()
    for length in range(0, len(log) + 1, 1031):  # a frame is 4120 bytes
        folder = tmp_path / str(length)
        folder.mkdir()
        shutil.copy(path, folder / path.name)
        (folder / "ledger.sqlite-wal").write_bytes(log[:length])
        cut = DatabaseLedger(folder / path.name, None)
        cut.adopt()
        ids = [one.id for one in cut.charges]
        assert ids == [f"{number}/{i}" for number in range(len(ids) // 2) for i in range(2)]
        seen.add(len(ids))
        del cut
        (folder / "ledger.head").write_bytes(heads[-1])  # had all three been promised, two are not enough
        again = DatabaseLedger(folder / path.name, None)
        if len(ids) < 6:
            with pytest.raises(LedgerUnusable, match="record 6"):
                again.charge([charge("new")])
    assert seen >= {0, 2, 4}


# --- many at once -------------------------------------------------------------------------------------


def compete(where: str, folder: Path, name: str, start: int, pipe: int) -> None:
    ledger = opened(where, folder, Budget(epsilon=10.0))
    ledger.has("nothing")  # each machine has an anchor before there are records
    os.write(pipe, b"ready\n")
    os.read(start, 1)
    for number in range(3):
        try:
            ledger.charge([charge(f"{name}/{number}")])
        except BudgetExceeded:
            continue
        os.write(pipe, f"{name}/{number}\n".encode())


@pytest.mark.parametrize(
    ("kind", "anchors"),
    [(SQLITE, "one machine"), (POSTGRESQL, "one machine"), (POSTGRESQL, "a machine each")],
)
def test_thirty_two_spenders_spend_exactly_the_budget(tmp_path: Path, kind: str, anchors: str) -> None:
    """96 requests of 0.25 for a budget of 10: 40 pass, whoever makes them."""
    where = place(kind, tmp_path)
    reading, writing = os.pipe()
    start, go = os.pipe()
    folders = [tmp_path if anchors == "one machine" else tmp_path / str(i) for i in range(32)]
    workers = [
        FORK.Process(target=compete, args=(where, folder, str(i), start, writing))
        for i, folder in enumerate(folders)
    ]
    for worker in workers:
        worker.start()
    os.close(writing)
    told = b""
    while told.count(b"ready") < 32:
        told += os.read(reading, 65536)
    os.write(go, b"x" * 32)
    while more := os.read(reading, 65536):
        told += more
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    for descriptor in (reading, start, go):
        os.close(descriptor)
    ledger = opened(where, folders[0], Budget(epsilon=10.0))
    assert sorted(set(told.decode().split()) - {"ready"}) == sorted(str(one.id) for one in ledger.charges)
    assert len(ledger.charges) == 40
    assert ledger.spent("rows", 0.0) == 10.0
    with pytest.raises(BudgetExceeded):
        ledger.charge([charge("one more", scale=2.0**40)])
