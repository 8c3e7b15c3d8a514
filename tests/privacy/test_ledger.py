"""The ledger: all or nothing, once per id, never over budget."""

from __future__ import annotations

import math
import threading
import time
from dataclasses import replace
from typing import Any

import pytest

from fedassay.errors import BudgetExceeded, ProtocolError, UnsupportedQuery, UsageError
from fedassay.privacy.accounting import GAUSSIAN
from fedassay.privacy.ledger import charges as ledgers
from fedassay.privacy.ledger.charges import Charge, MemoryLedger, admit, compose
from fedassay.protocol.vocabulary import Budget, Neighbours, Part, Protection, Setting, Sum, Unit
from fedassay.trust.plain import Plain
from fedassay.trust.server_dp import ServerDP
from ledgers import charge, exact
from toys import CountsUpTo


def test_charges_add_up_until_the_budget_is_gone() -> None:
    ledger = MemoryLedger(Budget(epsilon=1.0))
    for number in range(4):
        ledger.charge([charge(str(number))])
    assert ledger.spent("rows", 0.0) == 1.0
    with pytest.raises(BudgetExceeded):
        ledger.charge([charge("4", scale=2.0**40)])
    assert len(ledger.charges) == 4


def test_the_refusal_has_all_three_numbers() -> None:
    ledger = MemoryLedger(Budget(epsilon=0.4, delta=1e-7))
    ledger.charge([charge("1")])
    with pytest.raises(BudgetExceeded) as refusal:
        ledger.charge([charge("2", scale=2.0)])
    for words in (
        *("rows", "requested epsilon 0.5", "remaining 0.15", "of 0.4", "delta 1e-07", "difference 0.35"),
    ):
        assert words in str(refusal.value)


def test_a_batch_is_all_or_nothing() -> None:
    ledger = MemoryLedger(Budget(epsilon=0.6))
    with pytest.raises(BudgetExceeded):
        ledger.charge([charge("1"), charge("2"), charge("3")])
    assert ledger.charges == ()
    with pytest.raises(BudgetExceeded):
        ledger.charge([charge("1", dataset="other"), charge("2", scale=1.0)])
    assert ledger.charges == ()
    ledger.charge([charge("1"), charge("2")])
    assert len(ledger.charges) == 2


def test_the_same_id_counts_once() -> None:
    ledger = MemoryLedger(Budget(epsilon=0.3))
    ledger.charge([charge(b"\x01"), charge(b"\x01")])
    ledger.charge([charge(b"\x01")])
    assert ledger.spent("rows", 0.0) == 0.25


@pytest.mark.parametrize(
    "changes", [{"scale": 8.0}, {"dataset": "other"}, {"study": "other"}, {"part": Part.FIT}, {"l1": 2.0}]
)
def test_an_id_cannot_be_used_for_something_else(changes: dict[str, Any]) -> None:
    ledger = MemoryLedger(None)
    ledger.charge([charge("1")])
    with pytest.raises(ProtocolError, match="other content"):
        ledger.charge([charge("2"), charge("1", **changes)])
    with pytest.raises(ProtocolError, match="other content"):
        ledger.charge([charge("3"), charge("3", **changes)])
    assert ledger.charges == (charge("1"),)


def test_data_sets_have_budgets_of_their_own() -> None:
    ledger = MemoryLedger(Budget(epsilon=0.25))
    ledger.charge([charge("1"), charge("2", dataset="other")])
    assert ledger.spent("rows", 0.0) == ledger.spent("other", 0.0) == 0.25
    assert ledger.spent("unknown", 0.0) == 0.0


def test_fit_and_held_out_rows_compose_in_parallel() -> None:
    ledger = MemoryLedger(Budget(epsilon=0.75))
    ledger.charge(
        [charge("1", part=Part.FIT), charge("2", part=Part.HELD_OUT), charge("3", part=Part.HELD_OUT)]
    )
    assert ledger.spent("rows", 0.0) == 0.5
    ledger.charge([charge("4", part=Part.ALL)])
    assert ledger.spent("rows", 0.0) == 0.75
    ledger.charge([charge("5", part=Part.FIT)])
    with pytest.raises(BudgetExceeded):
        ledger.charge([charge("6", part=Part.FIT)])
    with pytest.raises(BudgetExceeded):
        ledger.charge([charge("6", part=Part.HELD_OUT)])


def test_gaussian_charges_need_a_delta() -> None:
    gaussian = charge("1", law=GAUSSIAN, scale=5.0)
    with pytest.raises(BudgetExceeded, match="delta above 0"):
        MemoryLedger(Budget(epsilon=100.0)).charge([gaussian])
    ledger = MemoryLedger(Budget(epsilon=1.0, delta=1e-6))
    ledger.charge([gaussian])
    assert ledger.spent("rows", 0.0) == math.inf
    assert 0 < ledger.spent("rows", 1e-3) < ledger.spent("rows", 1e-6) <= 1.0


def test_laws_compose_better_than_their_epsilons() -> None:
    ledger = MemoryLedger(Budget(epsilon=1.0, delta=1e-6))
    ledger.charge([charge(str(number), scale=200.0) for number in range(400)])  # 400 · 0.005 = 2
    assert ledger.spent("rows", 1e-6) < 0.6
    assert ledger.spent("rows", 0.0) == pytest.approx(2.0)


def test_a_release_without_noise_needs_permission() -> None:
    with pytest.raises(BudgetExceeded, match="without noise"):
        MemoryLedger(Budget(epsilon=100.0)).charge([exact()])
    ledger = MemoryLedger(Budget(epsilon=0.3), allow_exact=True)
    ledger.charge([exact()])
    assert ledger.spent("rows", 0.0) == math.inf
    ledger.charge([charge("1")])  # the budget still bounds the others
    with pytest.raises(BudgetExceeded, match="requested"):
        ledger.charge([charge("2")])


def test_without_a_budget_everything_is_recorded() -> None:
    ledger = MemoryLedger(None)
    ledger.charge([exact(), charge("1", scale=0.1), charge("2", unit=Unit.CLIENT)])
    assert len(ledger.charges) == 3
    assert ledger.spent("rows", 0.0) == math.inf


@pytest.mark.parametrize("changes", [{"unit": Unit.CLIENT}, {"neighbours": Neighbours.REPLACE_ONE}])
def test_different_promises_do_not_add_up(changes: dict[str, Any]) -> None:
    ledger = MemoryLedger(Budget(epsilon=10.0))
    ledger.charge([charge("1")])
    with pytest.raises(BudgetExceeded, match="no single promise"):
        ledger.charge([charge("2", **changes)])
    assert compose([charge("1"), charge("2", **changes)], 0.0) == math.inf


def test_a_charge_says_what_the_plan_says() -> None:
    protection = Protection(unit=Unit.CLIENT, neighbours=Neighbours.REPLACE_ONE, rows_per_client=7)
    setting = Setting(trust=ServerDP(), protection=protection, budget=Budget(epsilon=0.5), clients=9)
    plan = ServerDP().plan(Sum(of=CountsUpTo(top=3), share=0.5, part=Part.HELD_OUT), setting)
    made = Charge.of(plan, id=b"id", dataset="d", study="s")
    assert (made.noise, made.sensitivity, made.part) == (plan.noise, plan.sensitivity, Part.HELD_OUT)
    assert (made.unit, made.neighbours, made.trust_model) == (
        Unit.CLIENT,
        Neighbours.REPLACE_ONE,
        "server-dp",
    )
    assert compose([made], 0.0) == pytest.approx(0.25)
    plain = Plain().plan(Sum(of=CountsUpTo(top=3)), replace(setting, trust=Plain(), budget=None))
    assert Charge.of(plain, id="2", dataset="d", study="s").exact


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"scale": math.nan}, UsageError),
        ({"scale": 0.0}, UsageError),
        ({"scale": -4.0}, UsageError),
        ({"law": "laplace"}, UsageError),
        ({"law": "none"}, UsageError),
        ({"law": "none", "scale": 0.0, "l1": math.nan}, UsageError),
        ({"l1": math.nan}, UnsupportedQuery),
        ({"l1": 0.0}, UnsupportedQuery),
        ({"l2": -1.0}, UnsupportedQuery),
        ({"part": "nowhere"}, UsageError),
        ({"unit": "example"}, UsageError),
    ],
)
def test_a_charge_that_would_count_for_nothing_cannot_be_made(
    changes: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        charge(**changes)


def test_admitting_changes_nothing() -> None:
    recorded = {"1": charge("1")}
    assert admit([charge("1"), charge("2")], recorded, budget=None) == (charge("2"),)
    assert recorded == {"1": charge("1")}


def test_threads_cannot_overspend_together(monkeypatch: pytest.MonkeyPatch) -> None:
    def admit_slowly(*values: Any, **options: Any) -> tuple[Charge, ...]:
        new = admit(*values, **options)
        time.sleep(0.001)  # another thread would come in between, if it could
        return new

    monkeypatch.setattr(ledgers, "admit", admit_slowly)
    ledger = MemoryLedger(Budget(epsilon=2.5))
    outcomes: list[bool] = []

    def spend(name: str) -> None:
        for number in range(5):
            try:
                ledger.charge([charge(f"{name}/{number}")])
                outcomes.append(True)
            except BudgetExceeded:
                outcomes.append(False)

    threads = [threading.Thread(target=spend, args=(str(i),)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(outcomes) == len(ledger.charges) == 10
