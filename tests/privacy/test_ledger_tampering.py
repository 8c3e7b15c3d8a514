"""Whoever changes a ledger behind its back is noticed: every field, every record, the end, and an older copy."""

from __future__ import annotations

import hashlib
import json
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from fedassay.cli import run_command
from fedassay.errors import BudgetExceeded, LedgerUnusable, UsageError
from fedassay.privacy.ledger.book import RECORDS, REFUSALS, STEPS, VERSION, upgrade
from fedassay.privacy.ledger.chain import (
    CHARGE,
    Anchor,
    Head,
    body_of,
    digest,
    id_text,
    record_after,
)
from fedassay.privacy.ledger.database import DatabaseLedger
from fedassay.protocol.vocabulary import Budget
from ledgers import KINDS, POSTGRESQL, SQLITE, charge, ledger_connection, opened, place, sql

BUDGET = Budget(epsilon=10.0)
CHANGES = {
    "a law": f"UPDATE {RECORDS} SET content = replace(content, '\"scale\":4.0', '\"scale\":4e9') WHERE sequence = 3",
    "a data set": f"UPDATE {RECORDS} SET content = replace(content, 'rows', 'rest') WHERE sequence = 3",
    "a time": f'UPDATE {RECORDS} SET content = replace(content, \'"time":"20\', \'"time":"19\') WHERE sequence = 3',
    "an id": f"UPDATE {RECORDS} SET id = '\"x\"' WHERE sequence = 3",
    "no id": f"UPDATE {RECORDS} SET id = NULL WHERE sequence = 3",
    "a kind": f"UPDATE {RECORDS} SET kind = 'refused' WHERE sequence = 3",
    "a hash": f"UPDATE {RECORDS} SET hash = '{'0' * 64}' WHERE sequence = 3",
    "a link": f"UPDATE {RECORDS} SET previous = '{'0' * 64}' WHERE sequence = 3",
}


@pytest.mark.parametrize(
    ("kind", "change"),
    [*((SQLITE, change) for change in CHANGES), (POSTGRESQL, "a law"), (POSTGRESQL, "an id")],
)
def test_a_changed_field_is_named_and_nothing_is_spent(tmp_path: Path, kind: str, change: str) -> None:
    where = filled(tmp_path, kind)
    sql(where, CHANGES[change])
    require_unusable(opened(where, tmp_path, BUDGET), r"record 3 was changed; nothing is released")
    assert len(sql(where, f"SELECT 1 FROM {RECORDS}")) == 5


def require_unusable(ledger: DatabaseLedger, said: str) -> None:
    """Whatever is asked of the ledger."""
    for attempt in (
        lambda: ledger.charge([charge("new")]),
        lambda: ledger.has("1"),
        lambda: ledger.spent("rows", 0.0),
        lambda: ledger.charges,
    ):
        with pytest.raises(LedgerUnusable, match=said):
            attempt()


def filled(folder: Path, kind: str = SQLITE, charges: int = 5) -> str:
    """A place with a ledger of so many charges."""
    where = place(kind, folder)
    opened(where, folder, BUDGET).charge([charge(str(i)) for i in range(charges)])
    return where


@pytest.mark.parametrize(
    ("statements", "said"),
    [
        ([f"DELETE FROM {RECORDS} WHERE sequence = 3"], "record 3 is missing"),
        ([f"DELETE FROM {RECORDS} WHERE sequence = 1"], "record 1 is missing"),
        ([f"DELETE FROM {RECORDS} WHERE sequence = 5"], "record 5 and perhaps others are missing"),
        ([f"DELETE FROM {RECORDS}"], "record 5 and perhaps others are missing"),
        ([f"DROP TABLE {name}" for name in (RECORDS, REFUSALS, VERSION)], "record 5 and perhaps others are missing"),
        (
            [
                f"DELETE FROM {RECORDS} WHERE sequence = 3",
                f"UPDATE {RECORDS} SET sequence = sequence - 1 WHERE sequence > 3",
            ],
            "record 3 was changed",
        ),
        (
            [f"UPDATE {RECORDS} SET sequence = {to} WHERE sequence = {of}" for of, to in ((3, 99), (4, 3), (99, 4))],
            "record 3 was changed",
        ),
        ([f"UPDATE {RECORDS} SET sequence = 0 WHERE sequence = 5"], "record 0 is not ours"),
    ],
)  # fmt: skip
def test_a_missing_or_swapped_record_is_noticed(tmp_path: Path, statements: list[str], said: str) -> None:
    where = filled(tmp_path)
    sql(where, *statements)
    require_unusable(opened(where, tmp_path, BUDGET), said)


def test_a_chain_that_was_computed_anew_is_not_the_anchored_one(tmp_path: Path) -> None:
    """Hashes have no key: an administrator can make a whole chain, but not one with the same head."""
    where = filled(tmp_path)
    rows = sql(where, f"SELECT sequence, content FROM {RECORDS} ORDER BY sequence")
    previous = Head().hash
    for sequence, content in rows:
        forged = content.replace('"scale":4.0', '"scale":4000000000.0')
        fresh = digest(previous, forged)
        sql(
            where,
            f"UPDATE {RECORDS} SET content = '{forged}', previous = '{previous}', hash = '{fresh}' "
            f"WHERE sequence = {sequence}",
        )
        previous = fresh
    require_unusable(opened(where, tmp_path, BUDGET), "record 5 and perhaps others")


@pytest.mark.parametrize("kind", KINDS)
def test_a_running_process_notices_that_records_went_away(tmp_path: Path, kind: str) -> None:
    where = place(kind, tmp_path)
    ledger = opened(where, tmp_path, BUDGET)
    ledger.charge([charge("1"), charge("2")])
    sql(where, f"DELETE FROM {RECORDS} WHERE sequence = 2")
    require_unusable(ledger, "record 2")


def test_an_insert_that_the_server_swallows_is_noticed(tmp_path: Path) -> None:
    where = place(POSTGRESQL, tmp_path)
    ledger = opened(where, tmp_path, BUDGET)
    ledger.charge([charge("1")])
    sql(where, f"CREATE RULE nothing AS ON INSERT TO {RECORDS} DO INSTEAD NOTHING")
    ledger.charge([charge("2")])  # it cannot know yet, but it has kept the head
    for one in (ledger, opened(where, tmp_path, BUDGET)):
        with pytest.raises(LedgerUnusable, match="record 2"):
            one.charge([charge("3")])


def test_rows_that_are_hidden_are_noticed(tmp_path: Path) -> None:
    where = place(POSTGRESQL, tmp_path)
    opened(where, tmp_path, BUDGET).charge([charge("1"), charge("2")])
    sql(
        where,
        f"ALTER TABLE {RECORDS} RENAME TO hidden",
        f"CREATE VIEW {RECORDS} AS SELECT * FROM hidden WHERE sequence < 2",
    )
    with pytest.raises(LedgerUnusable, match="record 2"):
        opened(where, tmp_path, BUDGET).has("2")


@pytest.mark.parametrize("running", [False, True])
def test_an_older_copy_of_the_file_is_refused(tmp_path: Path, running: bool) -> None:
    path, copy = tmp_path / "ledger.sqlite", tmp_path / "copy.sqlite"
    DatabaseLedger(path, BUDGET).charge([charge("1")])  # closed, so that one file holds all
    shutil.copy(path, copy)
    ledger = DatabaseLedger(path, BUDGET)
    ledger.charge([charge("2")])
    if not running:
        ledger = DatabaseLedger(path, BUDGET)
    copy.replace(path)
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    require_unusable(ledger, r"record 2.*restore the newest copy")


def test_a_newest_copy_may_take_its_place(tmp_path: Path) -> None:
    path, copy = tmp_path / "ledger.sqlite", tmp_path / "copy.sqlite"
    ledger = DatabaseLedger(path, Budget(epsilon=0.75))
    ledger.charge([charge("1"), charge("2")])
    with sqlite3.connect(path) as source, sqlite3.connect(copy) as target:
        source.backup(target)
    target.close()
    source.close()
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    copy.replace(path)
    ledger.charge([charge("3")])
    assert DatabaseLedger(path, None).spent("rows", 0.0) == 0.75


def test_a_ledger_ahead_of_its_anchor_is_fine_and_catches_up(tmp_path: Path) -> None:
    path, head = tmp_path / "ledger.sqlite", tmp_path / "ledger.head"
    DatabaseLedger(path, BUDGET).charge([charge("1")])
    before = head.read_bytes()
    DatabaseLedger(path, BUDGET).charge([charge("2")])
    after = head.read_bytes()
    head.write_bytes(before)  # a process that was killed between the record and its anchor
    assert DatabaseLedger(path, BUDGET).has("2")
    assert head.read_bytes() == after


def test_without_its_anchor_it_waits_for_a_word(tmp_path: Path) -> None:
    path, head = tmp_path / "ledger.sqlite", tmp_path / "ledger.head"
    DatabaseLedger(path, BUDGET).charge([charge("1")])
    for lose in (head.unlink, lambda: head.write_bytes(b"")):
        lose()
        require_unusable(DatabaseLedger(path, BUDGET), "fedassay ledger anchor")
    DatabaseLedger(path, BUDGET).adopt()
    DatabaseLedger(path, BUDGET).charge([charge("2")])


@pytest.mark.parametrize(
    "line",
    [
        b"x",
        b"fedassay-ledger-head 1 2\n",
        b"fedassay-ledger-head %020d %064d" % (1, 1),
        b"fedassay-ledger-head %020d %064d\n" % (2**63, 1),
        b"fedassay-ledger-head %s %064d\n" % (b"9" * 20, 1),
    ],
)
def test_an_anchor_that_cannot_be_read_refuses(tmp_path: Path, line: bytes) -> None:
    DatabaseLedger(tmp_path / "ledger.sqlite", BUDGET).charge([charge("1")])
    (tmp_path / "ledger.head").write_bytes(line)
    with pytest.raises(LedgerUnusable, match="not the head of a ledger"):
        DatabaseLedger(tmp_path / "ledger.sqlite", BUDGET).has("1")


def test_the_anchor_is_one_short_line(tmp_path: Path) -> None:
    with Anchor(tmp_path / "head").locked() as held:
        assert held.read() is None
        for head in (Head(), Head(sequence=2**63 - 1, hash="f" * 64)):
            held.write(head)
            assert held.read() == head
    assert (tmp_path / "head").stat().st_size < 512


def test_a_record_in_the_middle_is_checked_when_it_is_asked_for(tmp_path: Path) -> None:
    where = place(SQLITE, tmp_path)
    ledger = opened(where, tmp_path, BUDGET)
    ledger.charge([charge(str(i)) for i in range(5)])
    sql(where, CHANGES["a law"])
    with pytest.raises(LedgerUnusable, match="record 3 was changed"):
        ledger.charge([charge("2")])


def slip_in(
    where: str, sequence: int, *, previous: str, content: str, kind: str = CHARGE, name: str = "x"
) -> None:
    """Add a row whose hash is right."""
    values = (sequence, kind, name, content, previous, digest(previous, content))
    quoted = ", ".join("'" + str(value).replace("'", "''") + "'" for value in values)
    sql(where, f"INSERT INTO {RECORDS} VALUES ({quoted})")


def whole(sequence: int, name: str, **changes: Any) -> str:
    """The content of a record of a charge, as it would be at this place."""
    body = body_of(charge(name)) | changes
    told = {"sequence": sequence, "time": "2026", "kind": CHARGE, "id": id_text(name), "body": body}
    return json.dumps(told, sort_keys=True, separators=(",", ":"))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sequence", [0, -1, -(2**31)])
def test_a_record_outside_the_chain_makes_nothing_free(tmp_path: Path, kind: str, sequence: int) -> None:
    where, zero = place(kind, tmp_path), Head().hash
    running = opened(where, tmp_path, Budget(epsilon=0.25))
    running.charge([charge("1")])
    slip_in(where, sequence, previous=zero, content=whole(sequence, "2"), name=id_text("2"))
    for ledger in (running, opened(where, tmp_path, Budget(epsilon=0.25))):
        with pytest.raises(LedgerUnusable, match=f"record {sequence} is not ours"):
            ledger.charge([charge("2")])
        require_unusable(ledger, f"record {sequence} is not ours")


@pytest.mark.parametrize("kind", KINDS)
def test_a_record_that_takes_the_place_of_another_makes_nothing_free(tmp_path: Path, kind: str) -> None:
    """Whole in itself, in a place where the running process has checked another."""
    where = place(kind, tmp_path)
    ledger = opened(where, tmp_path, Budget(epsilon=1.25))
    ledger.charge([charge(str(i)) for i in range(5)])
    ((previous,),) = sql(where, f"SELECT previous FROM {RECORDS} WHERE sequence = 3")
    sql(where, f"DELETE FROM {RECORDS} WHERE sequence = 3")
    slip_in(where, 3, previous=previous, content=whole(3, "free"), name=id_text("free"))
    for attempt in (lambda: ledger.charge([charge("free")]), lambda: ledger.has("free")):
        with pytest.raises(LedgerUnusable, match="record 3 was changed, or added by others"):
            attempt()
    with pytest.raises(LedgerUnusable, match="record 4 was changed"):
        opened(where, tmp_path, None).has("free")


def test_a_record_that_is_far_ahead_is_noticed(tmp_path: Path) -> None:
    where = place(SQLITE, tmp_path)
    ledger = opened(where, tmp_path, Budget(epsilon=0.25))
    ledger.charge([charge("1")])
    slip_in(where, 7, previous=ledger._book.head.hash, content=whole(7, "2"), name=id_text("2"))
    for one in (ledger, opened(where, tmp_path, None)):
        with pytest.raises(LedgerUnusable, match="record 2 is missing"):
            one.has("2")


@pytest.mark.parametrize("change", ["a law", "a data set", "a time", "an id", "a kind", "a link"])
def test_a_running_process_reads_the_last_record_again(tmp_path: Path, change: str) -> None:
    where = place(SQLITE, tmp_path)
    ledger = opened(where, tmp_path, BUDGET)
    ledger.charge([charge(str(i)) for i in range(3)])
    sql(where, CHANGES[change])
    require_unusable(ledger, "record 3 and perhaps others")


FORGED = {
    "null": "null",
    "an empty object": "{}",
    "a list": "[1,2]",
    "no JSON": "not json",
    "a deep list": "[" * 100_000,
    "a number that is none": whole(2, "2").replace("4.0", "NaN"),
    "a number too large": whole(2, "2").replace("4.0", "1e999"),
    "an integer too large": whole(2, "2").replace("4.0", "1" + 400 * "0"),
    "more fields": whole(2, "2").replace('{"body"', '{"at":1,"body"'),
    "another time": whole(2, "2").replace('"2026"', "2026"),
    "an empty body": json.dumps({"sequence": 2, "time": "", "kind": CHARGE, "id": id_text("2"), "body": {}}),
    "no body": json.dumps({"sequence": 2, "time": "", "kind": CHARGE, "id": id_text("2"), "body": None}),
    "a negative sensitivity": whole(2, "2", l1=-5.0),
    "a law that is a list": whole(2, "2", law=[]),
    "a data set that is a list": whole(2, "2", dataset=["rows"]),
    "a fingerprint that is a number": whole(2, "2", fingerprint=1),
    "a field of the future": whole(2, "2", more=1),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_record_that_nobody_could_have_written_is_one_sentence(tmp_path: Path, name: str) -> None:
    """Well chained: hashes have no key."""
    where = place(SQLITE, tmp_path)
    running = opened(where, tmp_path, BUDGET)
    running.charge([charge("1")])
    slip_in(where, 2, previous=running._book.head.hash, content=FORGED[name], name=id_text("2"))
    for ledger in (running, opened(where, tmp_path, BUDGET)):
        require_unusable(ledger, r"record 2 (was changed|cannot be read)")
    assert run_command(["ledger", "show", "--ledger", where]) == 3


def test_another_record_of_the_same_id_cannot_be_slipped_in(tmp_path: Path) -> None:
    where = place(SQLITE, tmp_path)
    opened(where, tmp_path, BUDGET).charge([charge("1")])
    with pytest.raises(Exception, match="UNIQUE"):
        sql(where, f"INSERT INTO {RECORDS} SELECT 2, kind, id, content, hash, hash FROM {RECORDS}")


def test_a_refused_first_charge_leaves_a_ledger_that_works(tmp_path: Path) -> None:
    ledger = DatabaseLedger(tmp_path / "ledger.sqlite", Budget(epsilon=0.1))
    with pytest.raises(BudgetExceeded):
        ledger.charge([charge("1")])
    ledger.charge([charge("2", scale=40.0)])
    assert ledger.charges == (charge("2", scale=40.0),)


def test_a_file_that_was_deleted_is_not_made_again(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    DatabaseLedger(path, BUDGET).charge([charge("1")])
    path.unlink()
    require_unusable(DatabaseLedger(path, BUDGET), "record 1 and perhaps others are missing")
    assert not path.exists()


# --- versions -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_version_1_becomes_the_newest_with_all_its_records(tmp_path: Path, kind: str) -> None:
    where = filled(tmp_path, kind, charges=3)
    rows = sql(where, f"SELECT * FROM {RECORDS} ORDER BY sequence")
    sql(
        where,
        *(f"DROP TABLE {name}" for name in (RECORDS, REFUSALS, VERSION)),
        *STEPS[0],
        f"UPDATE {VERSION} SET version = 1",
    )
    for row in rows:
        values = ", ".join(f"'{value}'" for value in row)
        sql(where, f"INSERT INTO {RECORDS} VALUES ({values})")
    ledger = opened(where, tmp_path, Budget(epsilon=1.0))
    ledger.charge([charge("3")])
    assert ledger.spent("rows", 0.0) == 1.0
    assert [list(row) for row in sql(where, f"SELECT version FROM {VERSION}")] == [[len(STEPS)]]
    with pytest.raises(Exception, match="(?i)unique"):
        sql(
            where,
            f"INSERT INTO {RECORDS} SELECT 9, kind, id, content, hash, hash FROM {RECORDS} WHERE sequence = 1",
        )


def test_a_newer_version_is_refused_in_one_sentence(tmp_path: Path) -> None:
    where = place(SQLITE, tmp_path)
    opened(where, tmp_path, BUDGET).charge([charge("1")])
    sql(where, f"UPDATE {VERSION} SET version = {len(STEPS) + 1}")
    require_unusable(
        opened(where, tmp_path, BUDGET),
        rf"version {len(STEPS) + 1}, this fedassay knows up to {len(STEPS)}; upgrade fedassay\.$",
    )


def test_a_database_of_something_else_is_not_touched(tmp_path: Path) -> None:
    where = place(SQLITE, tmp_path)
    sql(where, "CREATE TABLE scores (p REAL)")
    with pytest.raises(UsageError, match="something else"):
        opened(where, tmp_path, BUDGET).charge([charge("1")])
    assert [row[0] for row in sql(where, "SELECT name FROM sqlite_master")] == ["scores"]


def test_steps_can_be_taken_one_by_one(tmp_path: Path) -> None:
    with ledger_connection(place(SQLITE, tmp_path)) as connection:
        for version in range(1, len(STEPS) + 1):
            upgrade(connection, label="x", to=version)
        indexes = connection.execute(
            "SELECT tbl_name FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL"
        )
        assert (RECORDS,) in list(indexes)


def test_the_form_of_a_record_stays() -> None:
    """Ledgers outlive versions: another hash for the same charge would break every chain there is."""
    body = body_of(charge("1", fingerprint="f", law="none", scale=0.0, l1=float("inf")))
    record = record_after(Head(), kind=CHARGE, id=id_text("1"), body=body, time="2026-01-01T00:00:00+00:00")
    assert record.content == (
        '{"body":{"asker":"","dataset":"rows","fingerprint":"f","id":"1","l1":"inf","l2":1.0,"law":"none",'
        '"neighbours":"add-remove","part":"all","sampled":1.0,"scale":0.0,"shuffled_delta":0.0,"shuffled_epsilon":0.0,'
        '"study":"study","summary":"","task":"","trust_model":"server-dp","unit":"example"},"id":"\\"1\\"",'
        '"kind":"charge","sequence":1,"time":"2026-01-01T00:00:00+00:00"}'
    )
    assert record.hash == "ff9dd5fae7dd6e0378b9fb12cfbac06027dced24a1224ea2c793137f5cf88636"
    line = b"fedassay ledger record 1\n" + 64 * b"0" + b"\n" + record.content.encode()
    assert hashlib.sha256(line).hexdigest() == record.hash


def test_the_content_is_plain_json(tmp_path: Path) -> None:
    where = place(SQLITE, tmp_path)
    opened(where, tmp_path, BUDGET).charge([charge(b"\x01", fingerprint="f")])
    ((content,),) = sql(where, f"SELECT content FROM {RECORDS}")
    parsed = json.loads(content)
    assert parsed["sequence"] == 1
    assert parsed["body"]["fingerprint"] == "f"
    assert parsed["body"]["id"] == {"bytes": "01"}
