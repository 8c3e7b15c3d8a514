"""Where sites and coordinators keep their ledgers: named in their files, and never charged by a rehearsal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from command_line import call
from fedassay.errors import UsageError
from fedassay.kernel.sites import SiteFile
from fedassay.privacy.ledger.book import RECORDS
from fedassay.privacy.ledger.database import DatabaseLedger
from file_drop_town import Town
from ledgers import POSTGRESQL, charge, place, recorded, sql


@pytest.fixture
def town(tmp_path: Path) -> Town:
    return Town(tmp_path, names=("a", "b", "c"))


def test_a_site_and_a_coordinator_may_name_a_ledger(town: Town, capsys: Any) -> None:
    books = [place(POSTGRESQL, town.root / name) for name in ("a", "coordinator")]
    town.write_site("a", ledger=books[0])
    assert town.begin("--privacy", "local-dp", "--epsilon", 1, "--ledger", books[1]) == 0
    # A rehearsal goes by a copy, wherever the original is.
    assert town.contribute("a", "--dry-run") == 0
    town.contribute_all()
    assert town.aggregate("-q", "--ledger", books[1]) == 0
    for book, folder in zip(books, ("a/state", "coordinator/fedassay-state"), strict=True):
        ledger = DatabaseLedger(book, None, anchor=town.root / folder / "ledger.head")
        assert len(ledger.charges) == 1
        assert not recorded(town.root / folder)
    assert len(recorded(town.root / "b" / "state")) == 1
    capsys.readouterr()
    code, out, err = call(capsys, "ledger", "budget", "--site", town.root / "a" / "site.toml")
    assert code == 0
    text = " ".join(out.split())
    assert "a/rows 1 0 0 1 3 2 " in text  # releases, exact ones, delta, spent, budget, remaining
    assert "the chain is whole and the end is the one that was kept" in text
    assert "reader" not in out + err


def test_a_rehearsal_reads_what_was_charged_and_charges_nothing(town: Town) -> None:
    where = place(POSTGRESQL, town.root)
    path = town.write_site("a", ledger=where)
    anchor = town.root / "a" / "state" / "ledger.head"
    assert town.begin("--privacy", "local-dp", "--epsilon", 1) == 0
    DatabaseLedger(where, None, anchor=anchor).charge([charge("before", dataset="a/rows", scale=0.4)])
    before, head = sql(where, f"SELECT * FROM {RECORDS}"), anchor.read_bytes()
    assert town.contribute("a", "--dry-run") == 3  # 2.5 of 3 are gone
    assert sql(where, f"SELECT * FROM {RECORDS}") == before
    assert anchor.read_bytes() == head
    assert SiteFile.read(path).ledger == where


def test_a_changed_ledger_refuses_and_says_so_at_the_site(town: Town, capsys: Any) -> None:
    assert town.begin("--privacy", "local-dp", "--epsilon", 1) == 0
    assert town.contribute("a") == 0
    path = town.root / "a" / "state" / "ledger.sqlite"
    sql(str(path), f"UPDATE {RECORDS} SET content = replace(content, '1.0', '9.0')")
    capsys.readouterr()
    code, _, err = call(capsys, "ledger", "show", "--site", town.root / "a" / "site.toml")
    assert code == 3
    assert "record 1 was changed" in " ".join(err.split())
    town.folder = "second"
    town.drop.mkdir()
    assert town.begin("--privacy", "local-dp", "--epsilon", 1) == 0
    capsys.readouterr()
    assert town.contribute("a") == 3
    assert "record 1 was changed" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("named", ["mysql://me:secret@host/x", "postgresql://me:secret@x@host/y"])
def test_a_place_that_is_none_is_refused_without_its_password(town: Town, named: str) -> None:
    with pytest.raises(UsageError, match=r"site.toml: ledger: got") as refusal:
        SiteFile.read(town.write_site("a", ledger=named))
    assert "secret" not in str(refusal.value)


def test_a_coordinator_of_flower_may_name_one_too(town: Town) -> None:
    from fedassay.runtimes.flower.coordinator_file import CoordinatorFile

    path = town.root / "coordinator" / "coordinator.toml"
    text = f'key = "coordinator.key"\nstate = "state"\n%s\n{town.roster(town.names)}'
    path.write_text(text % "")
    assert CoordinatorFile.read(path).ledger == path.parent / "state" / "ledger.sqlite"
    path.write_text(text % 'ledger = "books.sqlite"')
    assert CoordinatorFile.read(path).ledger == path.parent / "books.sqlite"
    path.write_text(text % 'ledger = "postgresql://me:secret@host/books"')
    read = CoordinatorFile.read(path)
    assert read.ledger == "postgresql://me:secret@host/books"
    assert "secret" not in repr(read)
    path.write_text(text % "ledger = 3")
    with pytest.raises(UsageError, match="text in quotes"):
        CoordinatorFile.read(path)
