"""The ledger in a database keeps the contract of every ledger, whatever holds it and whoever shares it."""

from __future__ import annotations

import os
import random
import stat
import threading
from pathlib import Path
from typing import Any

import pytest

from fedassay.errors import BudgetExceeded, LedgerUnusable, ProtocolError, UsageError
from fedassay.privacy.accounting import GAUSSIAN, SKELLAM
from fedassay.privacy.ledger.charges import Ledger, MemoryLedger
from fedassay.privacy.ledger.database import DatabaseLedger
from fedassay.privacy.ledger.place import Place
from fedassay.protocol.vocabulary import Budget, Neighbours, Part, Unit
from ledgers import FORK, KINDS, POSTGRESQL, SQLITE, charge, exact, opened, place

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

LONG = random.Random(0).randbytes(4000).hex()
"""More than an index of PostgreSQL holds, also compressed."""

STEPS: list[list[Any]] = [
    [charge("1"), charge("2", part=Part.FIT)],
    [charge("1")],
    [charge("1", fingerprint="other rows")],
    [charge("3", part=Part.HELD_OUT, scale=1.5)],
    [exact("4")],
    [charge("1", scale=8.0)],
    [charge("5"), charge("5", part=Part.FIT)],
    [charge("5"), charge("5")],
    [charge("6", scale=1.0)],
    [charge("7", unit=Unit.CLIENT)],
    [charge("8", neighbours=Neighbours.REPLACE_ONE)],
    [charge("9", dataset="other", unit=Unit.CLIENT)],
    [charge(name, dataset="\0") for name in (b"1", b"\xff\x00", "nul \0 and \ud800 and µ")],
    [
        charge("10", law=GAUSSIAN, scale=400.0, dataset="noisy"),
        charge("11", law=SKELLAM, scale=1e5, dataset="noisy"),
    ],
    [charge(LONG, dataset="long"), charge(LONG + "1", dataset="long")],
    [charge(LONG, dataset="long")],
    [charge(LONG, dataset="long", scale=8.0)],
    [
        charge("14", dataset="split", part=Part.FIT, fingerprint="f"),
        charge("15", dataset="split", fingerprint="g"),
    ],
    [charge("16", dataset="split", part=Part.HELD_OUT, fingerprint="g")],
    [charge("17", dataset="split", part=Part.HELD_OUT, fingerprint="f")],
    [charge("18", dataset="twice", part=part, fingerprint=str(part)) for part in (Part.FIT, Part.HELD_OUT)],
    [charge("12", dataset="a", scale=40.0), charge("13", dataset="b", scale=0.5)],
    [],
]


def outcome(ledger: Ledger, step: list[Any]) -> str:
    try:
        ledger.charge(step)
    except (BudgetExceeded, ProtocolError) as error:
        return str(error)
    return ""


@pytest.mark.parametrize("allow_exact", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_it_answers_as_a_ledger_in_memory_does(tmp_path: Path, kind: str, allow_exact: bool) -> None:
    budget, where = Budget(epsilon=1.0, delta=1e-6), place(kind, tmp_path)
    memory = MemoryLedger(budget, allow_exact=allow_exact)
    kept = opened(where, tmp_path, budget, allow_exact=allow_exact)
    for step in STEPS:
        assert outcome(memory, step) == outcome(kept, step)
        anew = opened(where, tmp_path, None)
        assert memory.charges == kept.charges == anew.charges
        assert [one.fingerprint for one in memory.charges] == [one.fingerprint for one in kept.charges]
    for dataset in ("rows", "other", "noisy", "a", "unknown"):
        for delta in (0.0, 1e-9, 1e-3):
            assert memory.spent(dataset, delta) == kept.spent(dataset, delta) == anew.spent(dataset, delta)
    for dataset, split in (("split", "f"), ("rows", ""), ("twice", None), ("unknown", None), ("noisy", None)):
        assert memory.split_fingerprint(dataset) == kept.split_fingerprint(dataset) == split
        assert anew.split_fingerprint(dataset) == split
    for name in ("1", b"1", "13", LONG, "16", "17", "18", "unknown"):
        assert memory.has(name) == kept.has(name)
    assert len(memory.charges) >= 9


@pytest.mark.parametrize("budget", [None, Budget(epsilon=1.0)])
def test_parts_of_other_rows_are_not_taken_for_parts_of_the_first(
    tmp_path: Path, budget: Budget | None
) -> None:
    ledgers: list[Ledger] = [MemoryLedger(budget), DatabaseLedger(tmp_path / "ledger.sqlite", budget)]
    for ledger in ledgers:
        ledger.charge([charge("1", part=Part.FIT, fingerprint="f")])
        with pytest.raises(
            BudgetExceeded, match="held-out part of other rows than those that were first split"
        ):
            ledger.charge([charge("2", part=Part.HELD_OUT, fingerprint="g")])
        ledger.charge([charge("2", part=Part.ALL, fingerprint="g")])
        ledger.charge([charge("3", part=Part.HELD_OUT, fingerprint="f")])
        assert ledger.spent("rows", 0.0) == 0.5


def test_a_budget_that_is_lowered_or_raised_holds_from_then_on(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    DatabaseLedger(path, Budget(epsilon=1.0)).charge([charge("1"), charge("2")])
    with pytest.raises(BudgetExceeded, match=r"remaining 0 of 0.3 at delta 0, difference 0.45"):
        DatabaseLedger(path, Budget(epsilon=0.3)).charge([charge("3")])
    DatabaseLedger(path, Budget(epsilon=0.75)).charge([charge("3")])
    with pytest.raises(BudgetExceeded):
        DatabaseLedger(path, Budget(epsilon=0.75)).charge([charge("4", scale=2.0**40)])


def test_the_smallest_numbers_are_said_as_they_are(tmp_path: Path) -> None:
    ledger = DatabaseLedger(tmp_path / "ledger.sqlite", Budget(epsilon=1e-9, delta=1e-300))
    with pytest.raises(BudgetExceeded) as refusal:
        ledger.charge([charge("1", scale=0.9e9)])
    assert "requested epsilon 1.11e-09, remaining 1e-09 of 1e-09 at delta 1e-300, difference 1.11e-10" in str(
        refusal.value
    )


def test_its_files_are_for_its_owner_and_made_when_needed(tmp_path: Path) -> None:
    path = tmp_path / "new" / "ledger.sqlite"
    ledger = DatabaseLedger(path, None)
    assert not path.parent.exists()
    ledger.charge([charge("1")])
    for file in path.parent.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
    assert {file.name for file in path.parent.iterdir()} >= {"ledger.sqlite", "ledger.head"}


@pytest.mark.parametrize("kind", KINDS)
def test_threads_share_one(tmp_path: Path, kind: str) -> None:
    ledger = opened(place(kind, tmp_path), tmp_path, Budget(epsilon=2.5))
    done: list[str] = []

    def spend(name: str) -> None:
        for number in range(4):
            if outcome(ledger, [charge(f"{name}/{number}")]) == "":
                done.append(f"{name}/{number}")

    threads = [threading.Thread(target=spend, args=(str(i),)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(done) == 10
    assert sorted(done) == sorted(str(one.id) for one in ledger.charges)


@pytest.mark.parametrize("kind", KINDS)
def test_a_forked_child_uses_it_beside_its_parent(tmp_path: Path, kind: str) -> None:
    ledger = opened(place(kind, tmp_path), tmp_path, Budget(epsilon=1.25))
    ledger.charge([charge("before")])
    child = FORK.Process(target=ledger.charge, args=([charge("child")],))
    child.start()
    ledger.charge([charge("parent")])
    child.join()
    assert child.exitcode == 0
    ledger.charge([charge("after 1")])
    ledger.charge([charge("after 2")])
    assert {one.id for one in ledger.charges} == {"before", "child", "parent", "after 1", "after 2"}
    with pytest.raises(BudgetExceeded):
        ledger.charge([charge("one too many")])


def test_a_broken_connection_is_replaced(tmp_path: Path) -> None:
    import postgres

    ledger = opened(place(POSTGRESQL, tmp_path), tmp_path, None)
    ledger.charge([charge("1")])
    postgres.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND usename = 'reader'"
    )
    ledger.charge([charge("2")])
    assert [one.id for one in ledger.charges] == ["1", "2"]


def test_records_reach_the_disk_although_the_server_need_not(tmp_path: Path) -> None:
    where = place(POSTGRESQL, tmp_path)
    for setting in ("off", "on", "remote_apply"):
        asked = Place.of(f"{where}%20-csynchronous_commit%3D{setting}")
        connection = asked.connect()
        connection.begin()
        ((found,),) = connection.execute("SHOW synchronous_commit")
        ((level,),) = connection.execute("SHOW transaction_isolation")
        connection.close()
        assert (found, level) == ("on" if setting == "off" else setting, "read committed")


def test_commits_are_flushed(tmp_path: Path) -> None:
    connection = Place.of(tmp_path / "ledger.sqlite").connect()
    assert list(connection.execute("PRAGMA synchronous")) == [(2,)]
    assert list(connection.execute("PRAGMA journal_mode")) == [("wal",)]
    connection.close()


@pytest.mark.parametrize(
    "url",
    [
        "mysql://me:secret@host/books",
        "postgresql+asyncpg://me:secret@host/books",
        "postgresql://me:secret@x@host/books",
        "postgresql://me:secret@host:port/books",
        "sqlite://",
        "://secret",
        "postgresql:/me:secret@host/books",
        "postgresql:me:secret@host/books",
        "postgres:secret@host",
        "PostgreSQL+psycopg:secret",
        " postgresql//me:secret@host/books",
        "mysql:/secret",
        "me:secret@host/books",
    ],
)
def test_a_url_that_is_not_understood_is_not_repeated(tmp_path: Path, url: str) -> None:
    with pytest.raises(UsageError, match="^ledger: got") as refusal:
        DatabaseLedger(url, None, anchor=tmp_path / "head")
    assert "secret" not in str(refusal.value)


@pytest.mark.parametrize(
    "name", ["postgres/ledger.sqlite", "postgres.sqlite", "a@b/ledger.sqlite", "12:30.sqlite"]
)
def test_files_may_have_odd_names(tmp_path: Path, name: str) -> None:
    assert Place.of(name, folder=tmp_path).file == tmp_path / name


@pytest.mark.parametrize(
    "parameters",
    ["sslmode=secret", "connect_timeout=secret", "pasword=secret", "secret=1", "options=-c%20secret%3Dx"],
)
def test_the_parameters_of_a_url_are_not_repeated(tmp_path: Path, parameters: str) -> None:
    where = f"{place(POSTGRESQL, tmp_path).partition('?')[0]}?{parameters}"
    with pytest.raises(LedgerUnusable, match="complains about the URL's parameters") as refusal:
        DatabaseLedger(where, None, anchor=tmp_path / "head").has("1")
    assert "secret" not in str(refusal.value)


def test_a_server_that_does_not_answer_is_one_sentence_without_the_password(tmp_path: Path) -> None:
    ledger = DatabaseLedger("postgresql://me:secret@127.0.0.1:1/books", None, anchor=tmp_path / "head")
    with pytest.raises(LedgerUnusable, match=r"postgresql://127.0.0.1:1/books: .*cannot be used") as refusal:
        ledger.charge([charge("1")])
    assert "secret" not in f"{refusal.value} {ledger!r} {ledger._book.place!r}"
    assert refusal.value.__suppress_context__


def test_a_shared_ledger_needs_an_anchor_of_this_machine(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no anchor"):
        DatabaseLedger("postgresql://host/books", None)
    with pytest.raises(UsageError, match="another name"):
        DatabaseLedger(tmp_path / "ledger.head", None)


@pytest.mark.parametrize("content", [b"not a database at all" * 300, b"\0" * 5000])
def test_a_file_of_something_else_is_refused_and_stays(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "ledger.sqlite"
    path.write_bytes(content)
    with pytest.raises((LedgerUnusable, UsageError)):
        DatabaseLedger(path, None).charge([charge("1")])
    assert path.read_bytes() == content


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LedgerUnusable, match="cannot be opened"):
        DatabaseLedger(tmp_path / "file" / "ledger.sqlite", None).charge([charge("1")])


def test_nothing_stays_open(tmp_path: Path) -> None:
    def descriptors() -> list[str]:
        links = []
        for one in Path("/proc/self/fd").iterdir():
            try:
                links.append(os.readlink(one))
            except OSError:
                continue
        return [link for link in links if str(tmp_path) in link]

    ledger = opened(place(SQLITE, tmp_path), tmp_path, None)
    ledger.charge([charge("1")])
    assert descriptors()
    del ledger
    assert descriptors() == []
