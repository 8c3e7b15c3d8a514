"""What a site remembers besides its charges: every storage keeps the same contract."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fedassay.privacy.ledger import refusals
from fedassay.privacy.ledger.database import DatabaseLedger
from fedassay.privacy.ledger.refusals import DatabaseRecords, RefusedRequest, SiteRecords
from ledgers import KINDS, charge, place

REFUSAL = RefusedRequest(
    time="2026-01-01T00:00:00Z", exchange="00", study="s\0", asker=None, code="policy", reason="µ: no"
)


@pytest.fixture(params=["memory", *KINDS])
def reopen(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], SiteRecords]:
    if request.param == "memory":
        kept = SiteRecords()
        return lambda: kept
    where = place(request.param, tmp_path)
    return lambda: DatabaseRecords(where)


def test_refusals_are_kept_in_order(reopen: Callable[[], SiteRecords]) -> None:
    records = reopen()
    log = [REFUSAL, REFUSAL, replace(REFUSAL, asker="key", code="budget")]
    for one in log:
        records.refused(one)
    assert list(records.refusals()) == list(reopen().refusals()) == log


def test_another_object_sees_what_this_one_records(reopen: Callable[[], SiteRecords]) -> None:
    first, second = reopen(), reopen()
    first.refused(REFUSAL)
    assert list(second.refusals()) == [REFUSAL]
    second.refused(replace(REFUSAL, exchange="01"))
    assert [one.exchange for one in first.refusals()] == ["00", "01"]


def test_it_shares_its_place_with_a_ledger(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    records, ledger = DatabaseRecords(path), DatabaseLedger(path, None)
    for number in range(3):
        ledger.charge([charge(str(number))])
        records.refused(REFUSAL)
    assert len(ledger.charges) == len(records.refusals()) == 3
    assert DatabaseLedger(path, None).spent("rows", 0.0) == 0.75


def test_only_the_newest_are_kept_and_the_others_counted(
    reopen: Callable[[], SiteRecords], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refusals, "MOST_KEPT", 3)
    records = reopen()
    for number in range(7):
        records.refused(replace(REFUSAL, exchange=f"{number:02}"))
    assert [one.exchange for one in records.refusals()] == ["04", "05", "06"]
    if isinstance(records, DatabaseRecords):
        assert list(records.numbered()) == [5, 6, 7]


def test_a_stranger_cannot_fill_the_disk_of_a_site(tmp_path: Path) -> None:
    """Two refused requests of 30 MB left a ledger of 90 MB for ever."""
    path = tmp_path / "ledger.sqlite"
    ledger = DatabaseLedger(path, None)
    ledger.charge([charge("1")])
    for _ in range(2):
        DatabaseRecords(path).refused(replace(REFUSAL, study="x" * 30_000_000, reason="y" * 30_000_000))
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 200_000
    assert ledger._book.head.sequence == 1
    ledger.charge([charge("2")])
    assert ledger._book.head.sequence == 2


def test_what_a_stranger_wrote_is_kept_in_one_visible_line() -> None:
    refusal = replace(REFUSAL, study="spring\x1b[2J\nsummer", reason="\r\x07")
    assert (refusal.study, refusal.reason) == ("spring\\x1b[2J\\nsummer", "\\r\\x07")
