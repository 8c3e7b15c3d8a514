"""What a site remembers besides its charges: every storage keeps the same contract."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fedassay.privacy.database_ledger import DatabaseLedger
from fedassay.privacy.database_records import DatabaseRecords
from fedassay.privacy.records import MemoryRecords, RefusedRequest, SiteRecords
from ledgers import KINDS, charge, place

REFUSAL = RefusedRequest(
    time="2026-01-01T00:00:00Z", exchange="00", study="s\0", asker=None, code="policy", reason="µ: no"
)


@pytest.fixture(params=["memory", *KINDS])
def reopen(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], SiteRecords]:
    if request.param == "memory":
        kept = MemoryRecords()
        return lambda: kept
    where = place(request.param, tmp_path)
    return lambda: DatabaseRecords(where, anchor=tmp_path / "ledger.head")


def test_cohorts_are_remembered_once_each_by_data_set(reopen: Callable[[], SiteRecords]) -> None:
    ab, abc = frozenset("ab"), frozenset("abc")
    records = reopen()
    assert list(records.cohorts("rows")) == []
    records.opened("rows", "1", ab)
    records.opened("rows", "1", ab)
    records.opened("rows", "2", ab)
    records.opened("rows", "2", abc)  # the same exchange over others is another total
    records.opened("other", "3", abc)
    for one in (records, reopen()):
        assert list(one.cohorts("rows")) == [ab, abc]
        assert list(one.cohorts("other")) == [abc]


def test_cohorts_may_be_large_and_are_told_apart(reopen: Callable[[], SiteRecords]) -> None:
    """Random names: what an index holds is measured after compression."""
    names = [f"hospital-{random.Random(i).randbytes(6).hex()}" for i in range(600)]
    most, all_of_them = frozenset(names[1:]), frozenset(names)
    records = reopen()
    for exchange in ("1", "1", "2"):
        records.opened("rows", exchange, most)
    records.opened("rows", "1", all_of_them)
    assert list(reopen().cohorts("rows")) == [most, all_of_them]


def test_refusals_are_kept_in_order(reopen: Callable[[], SiteRecords]) -> None:
    records = reopen()
    log = [REFUSAL, REFUSAL, replace(REFUSAL, asker="key", code="budget")]
    for one in log:
        records.refused(one)
    assert list(records.refusals()) == list(reopen().refusals()) == log


def test_another_object_sees_what_this_one_records(reopen: Callable[[], SiteRecords]) -> None:
    first, second = reopen(), reopen()
    first.opened("rows", "1", frozenset("ab"))
    assert list(second.cohorts("rows")) == [frozenset("ab")]
    second.opened("rows", "2", frozenset("cd"))
    assert list(first.cohorts("rows")) == [frozenset("ab"), frozenset("cd")]


def test_it_shares_its_place_with_a_ledger(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    records, ledger = DatabaseRecords(path), DatabaseLedger(path, None)
    for number in range(3):
        ledger.charge([charge(str(number))])
        records.opened("rows", str(number), frozenset({"a", str(number)}))
        records.refused(REFUSAL)
    assert len(ledger.charges) == len(records.cohorts("rows")) == len(records.refusals()) == 3
    assert DatabaseLedger(path, None).spent("rows", 0.0) == 0.75
