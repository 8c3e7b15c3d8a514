"""Any interleaving of charges, refusals, replays, restarts and new budgets: what is spent is what dp-accounting says.

The oracle below is dp-accounting alone, with its own accountants: a Rényi accountant over many orders for everything,
and privacy loss distributions for pure releases. Ours may be a little larger (headroom for rounding), never smaller
beyond the accountants' own tolerance.
"""

from __future__ import annotations

import math
import random
import shutil
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from dp_accounting import DpEvent, NeighboringRelation, ZCDpEvent
from dp_accounting.dp_event import DiscreteLaplaceDpEvent, RandomizedResponseDpEvent
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from fedassay.errors import BudgetExceeded, ProtocolError
from fedassay.privacy.accounting import GAUSSIAN, LAPLACE
from fedassay.privacy.ledger.charges import Charge
from fedassay.privacy.ledger.database import DatabaseLedger, SpentTally
from fedassay.protocol.vocabulary import Budget, Part
from ledgers import charge

ORDERS = [1 + math.exp(x) for x in np.linspace(-3, 12, 300)] + list(range(2, 200))
DELTA = 1e-5
KINDS = st.sampled_from([(LAPLACE, 4.0), (LAPLACE, 40.0), (GAUSSIAN, 12.0), (GAUSSIAN, 150.0)])


def response(epsilon: float) -> DpEvent:
    """Randomised response: the privacy loss of discrete Laplace noise where one unit moves a count by one."""
    return RandomizedResponseDpEvent(noise_parameter=2 / (1 + math.exp(epsilon)), num_buckets=2)


def oracle(charges: list[Charge]) -> float:
    """The smallest epsilon that dp-accounting gives for the rows that have met most."""
    worst = 0.0
    for parts in ((Part.FIRST_FIT, Part.FIT), (Part.SECOND_FIT, Part.FIT), (Part.HELD_OUT,)):
        counts = Counter((one.law, one.scale) for one in charges if one.part in (*parts, Part.ALL))
        renyi = RdpAccountant(ORDERS, NeighboringRelation.REPLACE_ONE)
        loss = PLDAccountant(value_discretization_interval=1e-4)
        for (law, scale), times in counts.items():
            one = response(1 / scale) if law == LAPLACE else ZCDpEvent(rho=1 / (2 * scale**2))
            renyi.compose(one, times)
            if law == LAPLACE:
                # Not as randomised response: of that, dp-accounting 0.6.0 composes one where many are asked for.
                loss.compose(DiscreteLaplaceDpEvent(noise_parameter=1 / scale, sensitivity=1), times)
        bounds = [renyi.get_epsilon(DELTA)] if counts else [0.0]
        if counts and all(law == LAPLACE for law, _ in counts):
            bounds.append(sum(times / scale for (_, scale), times in counts.items()))
            bounds.append(loss.get_epsilon(DELTA))
        worst = max(worst, min(bounds))
    return worst


class Machine(RuleBasedStateMachine):
    """A ledger in a file, and the list of charges that a reader of its promises would keep."""

    @initialize(epsilon=st.sampled_from([0.6, 1.5, 3.0]))
    def begin(self, epsilon: float) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.budget = Budget(epsilon=epsilon, delta=DELTA)
        self.largest = epsilon
        self.model: dict[str | bytes, Charge] = {}
        self.dirty: set[str] = set()
        self.restart()

    @rule()
    def restart(self) -> None:
        self.ledger = DatabaseLedger(self.folder / "ledger.sqlite", self.budget)

    @rule(factor=st.sampled_from([0.5, 2.0]))
    def other_budget(self, factor: float) -> None:
        self.budget = Budget(epsilon=self.budget.epsilon * factor, delta=DELTA)
        self.largest = max(self.largest, self.budget.epsilon)
        self.restart()

    @rule(
        kinds=st.lists(st.tuples(KINDS, st.sampled_from(list(Part))), min_size=1, max_size=3),
        dataset=st.sampled_from("ab"),
    )
    def spend(self, kinds: list[tuple[tuple[str, float], Part]], dataset: str) -> None:
        number = len(self.model)
        new = [
            charge(f"{number}/{i}", law=law, scale=scale, part=part, dataset=dataset)
            for i, ((law, scale), part) in enumerate(kinds)
        ]
        before = [one for one in self.model.values() if one.dataset == dataset]
        would = oracle([*before, *new])
        try:
            self.ledger.charge(new)
        except BudgetExceeded:
            assert would > 0.97 * self.budget.epsilon
            assert not self.ledger.has(new[0].id)
        else:
            assert would <= 1.001 * self.budget.epsilon
            self.model |= {one.id: one for one in new}
            self.dirty.add(dataset)

    @rule(which=st.randoms(use_true_random=False), changed=st.booleans())
    def send_again(self, which: random.Random, changed: bool) -> None:
        if not self.model:
            return
        again = which.choice(list(self.model.values()))
        if not changed:
            self.ledger.charge([again])
            return
        other = charge(again.id, law=LAPLACE, scale=5.0, dataset=again.dataset, part=again.part)
        with pytest.raises(ProtocolError, match="other content"):
            self.ledger.charge([other])

    @invariant()
    def nothing_is_lost_and_nothing_exceeded(self) -> None:
        if not hasattr(self, "model"):
            return
        assert {one.id: one for one in self.ledger.charges} == self.model
        for dataset in self.dirty:
            spent = self.ledger.spent(dataset, DELTA)
            expected = oracle([one for one in self.model.values() if one.dataset == dataset])
            assert spent <= self.largest
            assert spent >= 0.995 * expected - 1e-3
            assert spent <= 1.005 * expected + 1e-3
        self.dirty.clear()

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            del self.ledger
            shutil.rmtree(self.folder)


def test_any_interleaving_keeps_to_the_budget_and_to_dp_accounting() -> None:
    run_state_machine_as_test(
        Machine, settings=settings(max_examples=8, stateful_step_count=15, deadline=None)
    )


@pytest.mark.full
def test_many_interleavings() -> None:
    run_state_machine_as_test(
        Machine, settings=settings(max_examples=100, stateful_step_count=40, deadline=None)
    )


def test_a_ledger_that_counts_each_kind_once_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        SpentTally, "add", lambda self, kind: self.counts.update({kind: 1 - self.counts[kind]})
    )
    once = settings(
        max_examples=50,
        stateful_step_count=10,
        deadline=None,
        phases=[Phase.generate],
        report_multiple_bugs=False,
        print_blob=False,
    )
    with pytest.raises(AssertionError):
        run_state_machine_as_test(Machine, settings=once)
