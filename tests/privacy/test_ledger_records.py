"""What a site remembers besides its charges: every storage keeps the same contract."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fedassay.privacy.ledger.database import (
    DatabaseLedger,
    DatabaseRecords,
    RefusedRequest,
    SiteRecords,
)
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
    return lambda: DatabaseRecords(where, anchor=tmp_path / "ledger.head")


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
