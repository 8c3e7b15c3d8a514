from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedassay.errors import UsageError
from fedassay.tasks.distribution import area_between


@st.composite
def roc_curves(draw: st.DrawFn) -> tuple[list[float], list[float]]:
    """Broken lines with vertical and flat pieces."""
    count = draw(st.integers(0, 6))
    inner = [sorted(draw(st.lists(st.integers(0, 8), min_size=count, max_size=count))) for _ in range(2)]
    return [0.0, *(x / 8 for x in inner[0]), 1.0], [0.0, *(y / 8 for y in inner[1]), 1.0]


def measured(one: tuple[list[float], list[float]], two: tuple[list[float], list[float]]) -> float:
    """The same by brute force: between the corners no curve is vertical, so that points just beside them do."""
    x = np.linspace(0, 1, 200_001)[:-1] + 2.5e-6
    return float(np.abs(np.interp(x, *one) - np.interp(x, *two)).mean())


@given(roc_curves(), roc_curves())
def test_it_is_the_integral_of_the_distance(
    one: tuple[list[float], list[float]], two: tuple[list[float], list[float]]
) -> None:
    area = area_between(*one, *two)
    assert area == pytest.approx(measured(one, two), abs=1e-5)
    assert area == pytest.approx(area_between(*two, *one))
    assert area_between(*one, *one) == 0


@given(roc_curves(), roc_curves())
def test_it_bounds_the_difference_of_the_areas_under_them(
    one: tuple[list[float], list[float]], two: tuple[list[float], list[float]]
) -> None:
    difference = np.trapezoid(one[1], one[0]) - np.trapezoid(two[1], two[0])
    assert area_between(*one, *two) >= abs(difference) - 1e-12


def test_curves_that_cross_do_not_cancel() -> None:
    below_then_above = ([0, 0.5, 1], [0, 0.25, 1])
    above_then_below = ([0, 0.25, 1], [0, 0.5, 1])
    assert area_between(*below_then_above, [0, 1], [0, 1]) == pytest.approx(0.125)
    crossing = ([0, 0.25, 0.75, 1], [0, 0.5, 0.5, 1])
    assert area_between(*crossing, [0, 1], [0, 1]) == pytest.approx(0.125)
    assert area_between(*above_then_below, *below_then_above) == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("fpr", "tpr"),
    [
        ([0, 1], [0]),
        ([0], [0]),
        ([0, 0.5, 0.4, 1], [0, 0.5, 0.6, 1]),
        ([0, 1], [0.1, 1]),
        ([0, 0.5], [0, 1]),
        ([0, np.nan, 1], [0, 0.5, 1]),
        ([[0, 1]], [[0, 1]]),
    ],
)
def test_what_is_no_curve_is_refused(fpr: list[float], tpr: list[float]) -> None:
    with pytest.raises(UsageError, match="ROC curve: expected"):
        area_between(fpr, tpr, [0, 1], [0, 1])
