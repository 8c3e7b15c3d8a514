"""The ends of intervals: what is inside is exactly what scores at most the threshold, bit for bit."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fedassay.artefacts.conformal import intervals
from fedassay.summaries.quantities import scores_of

FINITE = st.floats(allow_nan=False, allow_infinity=False)
NORMAL = st.floats(-1e6, 1e6)
DECIMAL = st.integers(-400, 400).map(lambda whole: whole / 10)
ANY = NORMAL | DECIMAL | FINITE


def inside(ends: Any, y: Any) -> Any:
    return (ends[:, 0] <= y) & (y <= ends[:, 1])


def neighbours(ends: Any) -> list[float]:
    """The ends, and the doubles next to them on either side."""
    finite = ends[np.isfinite(ends)]
    with np.errstate(over="ignore", under="ignore"):
        return [*finite, *np.nextafter(finite, -math.inf), *np.nextafter(finite, math.inf)]


def score(y: Any, low: float, high: float, scale: float) -> Any:
    with np.errstate(over="ignore"):
        return np.maximum((low - y) / scale, (y - high) / scale)


@given(p=ANY, scale=st.just(1.0) | st.floats(1e-3, 1e3), t=st.floats(0, 1e6) | st.just(0.0), y=ANY)
@example(p=5.0, scale=1.0, t=5.0, y=-2e-16)
@example(p=1e308, scale=1.0, t=1.7e308, y=-7e307)
@example(p=0.0, scale=1e-300, t=1e-30, y=5e-324)
def test_a_value_is_in_the_interval_exactly_if_it_scores_at_most_the_threshold(
    p: float, scale: float, t: float, y: float
) -> None:
    ends = intervals([p], [p], [scale], t)
    assert ends[0, 0] <= p <= ends[0, 1]
    tried = np.array([y for y in [y, *neighbours(ends)] if math.isfinite(y)])
    assert (inside(ends, tried) == (score(tried, p, p, scale) <= t)).all()


@given(low=ANY, high=ANY, t=NORMAL | DECIMAL, y=ANY)
def test_the_same_for_two_quantiles_which_may_cross_and_leave_nothing(
    low: float, high: float, t: float, y: float
) -> None:
    ends = intervals([low], [high], 1.0, t)
    tried = np.array([y for y in [y, low, high, *neighbours(ends)] if math.isfinite(y)])
    assert (inside(ends, tried) == (score(tried, low, high, 1.0) <= t)).all()
    assert np.isnan(ends).all() or ends[0, 0] <= ends[0, 1]


@pytest.mark.parametrize("quantity", ["absolute", "normalised", "cqr"])
def test_rounded_measurements_are_told_apart_as_the_calibration_does(quantity: str) -> None:
    """Tied scores, one of which is the threshold: without looking at rounding, values at the ends get lost."""
    rng = np.random.default_rng(0)
    y, p, b = (rng.integers(-40, 40, 4000) / 10 for _ in range(3))
    scale = rng.integers(1, 9, 4000) / 10
    batch = {"target": y, "prediction": p, "scale": scale, "lower": p, "upper": b}
    scores = scores_of(batch, quantity, ())
    high, scale = b if quantity == "cqr" else p, scale if quantity == "normalised" else np.ones(4000)
    lost = 0
    for t in np.unique(scores)[100:400:20]:
        covered = scores <= t
        assert (inside(intervals(p, high, scale, t), y) == covered).all()
        simple = np.stack([p - t * scale, high + t * scale], axis=1)
        lost += np.count_nonzero(covered & ~inside(simple, y))
    assert lost > 0


def test_what_infinite_thresholds_and_empty_intervals_look_like() -> None:
    assert intervals([1.0], [2.0], 1.0, math.inf).tolist() == [[-math.inf, math.inf]]
    assert np.isnan(intervals([1.0], [2.0], 1.0, -0.6)).all()
    assert intervals([1.0], [2.0], 1.0, -0.5).tolist() == [[1.5, 1.5]]
    assert intervals([0.0], [0.0], 1.0, 0.0).tolist() == [[0.0, 0.0]]
    assert not np.signbit(intervals([0.0], [0.0], 1.0, 0.0)).any()
    assert intervals([], [], [], []).shape == (0, 2)


def test_nothing_that_is_passed_in_is_changed_and_each_row_may_have_its_own_threshold() -> None:
    low, high = np.array([1.0, 2.0, 3.0]), np.array([1.5, 2.0, 4.0])
    scale, t = np.array([1.0, 2.0, 4.0]), np.array([0.5, math.inf, 0.25])
    before = [column.copy() for column in (low, high, scale, t)]
    together = intervals(low, high, scale, t)
    assert together == pytest.approx(np.array([[0.5, 2.0], [-math.inf, math.inf], [2.0, 5.0]]), abs=1e-15)
    assert all((a == b).all() for a, b in zip(before, (low, high, scale, t), strict=True))
