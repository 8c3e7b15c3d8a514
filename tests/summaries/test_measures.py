"""Numbers in fixed point: totals are the exact sums of what was written, and cannot wrap."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedassay.summaries.measures import SUMS, FixedPoint

KINDS = pytest.mark.parametrize(
    "fixed", [SUMS, FixedPoint(limbs=5, point=80)], ids=lambda one: str(one.limbs)
)
NUMBERS = st.floats(-(2.0**75), 2.0**75) | st.floats(-1, 1) | st.integers(-(2**75), 2**75).map(float)


@KINDS
@given(st.lists(NUMBERS, min_size=1, max_size=20))
def test_sums_are_exact(fixed: FixedPoint, numbers: list[float]) -> None:
    limbs = fixed.write(np.array(numbers)).reshape(-1, fixed.limbs)
    assert (
        limbs.reshape(-1).tolist() == fixed.write_exactly([Fraction(number) for number in numbers]).tolist()
    )
    assert (limbs[:, :-1] >= 0).all()
    assert (limbs < 2**32).all()
    assert (limbs[:, -1] >= -(2**31)).all()
    unit = 2**fixed.point
    exact = sum(Fraction(round(Fraction(number) * unit), unit) for number in numbers)
    total = limbs.sum(axis=0)
    assert fixed.read_exactly(total) == [exact]
    assert fixed.read(total)[0] == pytest.approx(float(exact), rel=4 * 2.0**-53, abs=0)


@KINDS
def test_a_billion_clients_do_not_wrap(fixed: FixedPoint) -> None:
    least = 2.0**-fixed.point
    total = fixed.read(fixed.write(np.array([-1.5, least])) * 2**30)
    assert total.tolist() == [-1.5 * 2**30, least * 2**30]
