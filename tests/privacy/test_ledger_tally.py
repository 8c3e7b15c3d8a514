"""Running sums decide as the whole history would: never more, and never less, than `admit`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedassay.errors import BudgetExceeded
from fedassay.privacy import renyi
from fedassay.privacy.accounting import CHOICE, GAUSSIAN, LAPLACE, SKELLAM, UNARY
from fedassay.privacy.ledger.charges import Charge, admit, check, compose
from fedassay.privacy.ledger.database import SpentTally
from fedassay.protocol.vocabulary import Budget, Part
from ledgers import charge, exact

PURE = (LAPLACE, UNARY, CHOICE)


@st.composite
def releases(draw: Any) -> dict[str, Any]:
    """A kind of release, of any law, from nearly free to dearer than any budget here."""
    law = draw(st.sampled_from([*PURE, GAUSSIAN, SKELLAM, "none", "shuffled"]))
    scale = float(2 ** draw(st.integers(0 if law in PURE else 2, 14)))
    part = draw(st.sampled_from(list(Part)))
    if law == "none":
        return {"law": "none", "scale": 0.0, "part": part}
    if law == "shuffled":
        return {
            "law": UNARY,
            "scale": 0.25,
            "part": part,
            "shuffled_epsilon": 1 / scale,
            "shuffled_delta": 1e-8,
        }
    return {"law": law, "scale": scale, "part": part, "l1": draw(st.sampled_from([1.0, 3.0]))}


histories = st.lists(st.tuples(releases(), st.integers(1, 40)), max_size=5)
budgets = st.builds(
    Budget,
    epsilon=st.sampled_from([0.01, 0.3, 1.0, 4.0, 50.0]),
    delta=st.sampled_from([0.0, 1e-300, 1e-9, 1e-6, 1e-2]),
)


@settings(max_examples=60)
@given(
    before=histories, added=st.lists(releases(), min_size=1, max_size=3), budget=budgets, free=st.booleans()
)
def test_it_decides_as_admit_does(before: Any, added: Any, budget: Budget, free: bool) -> None:
    recorded: dict[str | bytes, Charge] = {}
    tally = SpentTally()
    for kind, times in before:
        for _ in range(times):
            one = charge(str(len(recorded)), **kind)
            recorded[one.id] = one
            tally.add(one.kind)
    new = [charge(f"new {i}", **kind) for i, kind in enumerate(added)]

    def outcome(decide: Any) -> str:
        try:
            decide()
        except BudgetExceeded as error:
            return str(error)
        return ""

    plain = outcome(lambda: admit(new, recorded, budget=budget, allow_exact=free))
    if tally.fits(new, budget, allow_exact=free):
        assert plain == ""
    assert outcome(lambda: check("rows", tally.counts, new, budget=budget, allow_exact=free)) == plain
    assert compose(tally.counts, budget.delta) == compose(recorded.values(), budget.delta)


@pytest.mark.parametrize(
    ("law", "scale", "size"), [(LAPLACE, 1e6, 20_000), (GAUSSIAN, 1e5, 20_000), (SKELLAM, 1e5, 9)]
)
def test_what_clearly_fits_needs_no_composition(law: str, scale: float, size: int) -> None:
    tally, one = SpentTally(), charge("1", law=law, scale=scale)
    for _ in range(size):
        tally.add(one.kind)
    spent = compose(tally.counts, 1e-6)
    assert tally.fits([one], Budget(epsilon=1.01 * spent + 1e-3, delta=1e-6))
    assert not tally.fits([one], Budget(epsilon=0.999 * spent, delta=1e-6))


def test_what_sampling_amplifies_is_always_composed() -> None:
    from fedassay.protocol.vocabulary import Unit

    one = charge("1", law=GAUSSIAN, scale=2.0**30, sampled=0.1, unit=Unit.CLIENT)
    assert not SpentTally().fits([one], Budget(epsilon=50.0, delta=1e-12))
    assert compose([one], 1e-12) == math.inf


def test_exact_releases_are_counted_and_cost_no_sum() -> None:
    tally = SpentTally()
    tally.add(exact().kind)
    assert compose(tally.counts, 0.1) == math.inf
    assert tally.fits([charge("1")], Budget(epsilon=0.26))
    assert not tally.fits([exact("2")], Budget(epsilon=9.0))
    assert tally.fits([exact("2")], Budget(epsilon=9.0), allow_exact=True)


def test_the_few_orders_are_among_those_of_the_tight_bound() -> None:
    assert np.isin(renyi.FEW, renyi._WHOLE).all()
