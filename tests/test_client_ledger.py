"""What clients charge: by whom, for which part of the rows, and what leaves the site when the ledger says no."""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from fedassay.kernel.envelope import Refusal
from fedassay.kernel.run import Job, run
from fedassay.privacy.ledger.book import RECORDS
from fedassay.privacy.ledger.charges import Charge
from fedassay.privacy.ledger.database import DatabaseLedger
from fedassay.protocol.vocabulary import Budget, Part, Protection, Setting, Sum
from fedassay.runtimes.in_process.runtime import Faithful
from fedassay.trust.server_dp import ServerDP
from ledgers import sql
from policy_sites import HISTOGRAM, SECURE, Ask, InProcess, Sites, close, code_of
from sealed_requests import refused
from test_client import client, request
from toys import Once

TOTAL = "[total]\nepsilon = 1.0\n"
DP = ServerDP()


@pytest.fixture
def sites(tmp_path: Path) -> Sites:
    found = Sites(tmp_path, ("a", "b", "c"))
    for name in found.names:
        found.allow(name, TOTAL, trust_models=("server-dp", "plain", "secure-sum"))
    return found


def asked(sites: Sites, part: Part, *, epsilon: float = 1.0, name: str = "a") -> str | None:
    """The code of a refusal, or None."""
    ask = Ask(trust=DP, budget=Budget(epsilon=epsilon), part=part)
    return code_of(InProcess(sites).said(name, ask.body(name), 0))


def parts(sites: Sites) -> list[str]:
    ledger = DatabaseLedger(sites.root / "a" / "state" / "ledger.sqlite", None)
    return [str(one.part) for one in ledger.charges]


def shuffled(lines: list[str]) -> list[str]:
    return random.Random(1).sample(lines, len(lines))


# --- parts of rows that have changed --------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [shuffled, lambda lines: lines[1:], lambda lines: [*lines, "0.5,1"], lambda lines: ["0.5,1", *lines[1:]]],
    ids=["another order", "one removed", "one appended", "one replaced"],
)
def test_parts_of_other_rows_add_up(sites: Sites, change: Callable[[list[str]], list[str]]) -> None:
    path = sites.root / "a" / "rows.csv"
    header, *lines = path.read_text().splitlines()
    assert asked(sites, Part.FIT, epsilon=0.5) is None
    path.write_text("\n".join([header, *change(lines)]) + "\n")
    assert asked(sites, Part.HELD_OUT) == Refusal.BUDGET
    assert asked(sites, Part.HELD_OUT, epsilon=0.5) is None  # what remains beside the other part
    assert parts(sites) == ["fit", "all"]
    assert asked(sites, Part.FIT, epsilon=0.1) == Refusal.BUDGET


def test_parts_of_the_same_rows_compose_in_parallel(sites: Sites) -> None:
    path = sites.root / "a" / "rows.csv"
    assert asked(sites, Part.FIT) is None
    path.write_text(path.read_text() + "\n")  # a newer file, the same rows
    os.utime(path)
    assert asked(sites, Part.HELD_OUT) is None
    assert parts(sites) == ["fit", "held-out"]
    assert asked(sites, Part.FIT, epsilon=0.1) == Refusal.BUDGET


def test_after_the_first_rows_are_back_parts_count_as_parts(sites: Sites) -> None:
    path = sites.root / "a" / "rows.csv"
    before = path.read_text()
    assert asked(sites, Part.FIT, epsilon=0.5) is None
    path.write_text(before + "0.5,1\n")
    assert asked(sites, Part.HELD_OUT, epsilon=0.25) is None
    path.write_text(before)
    assert asked(sites, Part.HELD_OUT, epsilon=0.75) is None
    assert parts(sites) == ["fit", "all", "held-out"]
    assert asked(sites, Part.HELD_OUT, epsilon=0.01) == Refusal.BUDGET


def test_releases_on_all_rows_split_nothing(sites: Sites) -> None:
    path = sites.root / "a" / "rows.csv"
    assert asked(sites, Part.ALL, epsilon=0.5) is None
    path.write_text(path.read_text() + "0.5,1\n")
    assert asked(sites, Part.FIT, epsilon=0.5) is None
    assert asked(sites, Part.HELD_OUT, epsilon=0.5) is None
    assert parts(sites) == ["all", "fit", "held-out"]


def test_rows_that_change_while_they_are_charged_are_not_measured(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, charge = sites.root / "a" / "rows.csv", DatabaseLedger.charge

    def meanwhile(self: DatabaseLedger, charges: Sequence[Charge]) -> None:
        charge(self, charges)
        path.write_text(path.read_text() + "0.5,1\n")

    monkeypatch.setattr(DatabaseLedger, "charge", meanwhile)
    assert asked(sites, Part.ALL) == Refusal.DATA
    assert "rows: they have changed since this study was charged" in sites.refusals("a")[-1].reason


# --- exact totals over rows that have changed -----------------------------------------------------------


def asked_exactly(sites: Sites, *, dataset: str = "a/rows") -> str | None:
    """The code with which a site refuses an exact total (in the clear, where one message is all of it)."""
    path = sites.root / "a" / "site.toml"
    path.write_text(re.sub("dataset = .*", f'dataset = "{dataset}"', path.read_text()))
    return code_of(InProcess(sites).said("a", Ask().body("a"), 0))


def test_an_exact_total_over_changed_rows_is_refused_unless_the_policy_allows_it(sites: Sites) -> None:
    path = sites.root / "a" / "rows.csv"
    before = path.read_text()
    assert asked_exactly(sites) is None
    path.write_text(before + "0.5,1\n")  # a patient more: the difference of the totals would be that patient
    assert asked_exactly(sites) == Refusal.POLICY
    assert "rows that have changed since an earlier one" in sites.refusals("a")[-1].reason
    assert asked(sites, Part.ALL, epsilon=0.5) is None  # noise needs no such rule
    assert asked_exactly(sites, dataset="a/rows of 2027") is None
    path.write_text(before)
    assert asked_exactly(sites) is None
    path.write_text(before + "0.5,1\n")
    sites.allow("a", "changed_rows = true\n" + TOTAL, trust_models=("plain",))
    assert asked_exactly(sites) is None


# --- several parties, one ledger ------------------------------------------------------------------------


def test_sites_and_their_coordinator_may_share_a_ledger(sites: Sites) -> None:
    shared = sites.root / "shared.sqlite"
    for name in sites.names:
        path = sites.root / name / "site.toml"
        path.write_text(f'ledger = "{shared}"\n{path.read_text()}')
        (sites.root / name / "state").mkdir()
        DatabaseLedger(shared, None, anchor=sites.root / name / "state" / "ledger.head").adopt()
    clients = [sites.open(name) for name in sites.names]
    setting = Setting(trust=DP, protection=Protection(), budget=Budget(epsilon=0.5), clients=3)
    ledger = DatabaseLedger(shared, None)
    ledger.adopt()
    job = Job(name="evaluate", task=Once(query=Sum(of=HISTOGRAM)), setting=setting)
    released = run(
        [job], runtime=Faithful(clients), ledger=ledger, dataset="all", randomness=SECURE, study="s"
    )["evaluate"]
    assert [one.reason for one in clients] == [None] * 3
    assert released.clients == 3
    assert sorted(one.dataset for one in ledger.charges) == ["a/rows", "all", "b/rows", "c/rows"]
    for one in clients:
        close(one)


def test_an_answer_that_is_lost_is_not_given_anew_whoever_shares_the_ledger(sites: Sites) -> None:
    one = client([])
    other = client([], name="b", ledger=one.site.ledger)
    assert refused(one, request()) is None
    other.name = "a"  # who has the same name is the same client
    assert refused(other, request()) == Refusal.LOST


# --- a ledger that cannot be used -----------------------------------------------------------------------


def test_a_ledger_that_cannot_be_used_has_a_code_of_its_own(sites: Sites) -> None:
    assert asked(sites, Part.ALL, epsilon=0.1) is None
    sql(str(sites.root / "a" / "state" / "ledger.sqlite"), f"DELETE FROM {RECORDS}")
    assert asked(sites, Part.ALL, epsilon=0.1) == Refusal.LEDGER
