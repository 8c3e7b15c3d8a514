from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from fedassay.errors import DataError, UsageError
from fedassay.summaries.distribution.grid import MOST_POINTS, ValueGrid, power_of_two

TINY, HUGE = 5e-324, 1.7976931348623157e308


def grid(lower: float, upper: float, height: int, spacing: str = "uniform") -> ValueGrid:
    return ValueGrid(lower=lower, upper=upper, points=1 << height, spacing=spacing)


def awkward(points: np.ndarray, seed: int, lower: float, upper: float) -> np.ndarray:
    """The points, their neighbours among the numbers, numbers between and beyond, and the infinite ones."""
    with np.errstate(over="ignore"):
        beside = np.concatenate([np.nextafter(points, -np.inf), points, np.nextafter(points, np.inf)])
    between = np.random.default_rng(seed).uniform(0, 1, 500)
    inner = lower * (1 - between) + upper * between
    return np.concatenate([beside, inner, [-np.inf, -HUGE, -TINY, 0.0, TINY, HUGE, np.inf]])


def found(g: ValueGrid, x: np.ndarray) -> np.ndarray:
    """The first point that is not below, the last leaf if all are: by definition."""
    return np.minimum(np.searchsorted(g.thresholds, x, side="left"), g.points - 1)


def check(g: ValueGrid, seed: int = 0) -> None:
    inner = g.thresholds[: g.named]
    assert (np.diff(inner) > 0).all()
    assert inner[-1] == g.upper
    some = inner if len(inner) <= 4096 else inner[np.random.default_rng(seed).integers(0, len(inner), 4096)]
    x = awkward(some, seed, g.lower, g.upper)
    assert (g.locate(x) == found(g, x)).all()


@given(st.floats(-1e12, 1e12), st.floats(1e-9, 1e12), st.integers(1, 12), st.integers(0, 99))
def test_uniform_grids_find_the_leaf(lower: float, width: float, height: int, seed: int) -> None:
    try:
        g = grid(lower, lower + width, height)
    except UsageError:
        assume(False)
    check(g, seed)
    assert np.allclose(
        g.thresholds,
        np.linspace(g.lower, g.upper, g.points + 1)[1:],
        rtol=1e-12,
        atol=1e-14 * max(abs(lower), abs(lower + width)),
    )


@given(st.floats(-300, 300), st.floats(1e-6, 300), st.integers(1, 12), st.integers(0, 99))
@example(-323.3, 300, 12, 0)
@example(300, 1e-6, 12, 0)
def test_logarithmic_grids_find_the_leaf(low: float, decades: float, height: int, seed: int) -> None:
    try:
        g = grid(10.0**low, min(HUGE, 10.0 ** min(308.0, low + decades)), height, "logarithmic")
    except UsageError:
        assume(False)
    check(g, seed)
    steps = np.log(g.thresholds / 2) - np.log(np.concatenate([[g.lower], g.thresholds[:-1]]) / 2)
    if g.lower > 1e-290:  # below, numbers themselves are far apart
        assert np.allclose(
            steps, math.log(g.upper / 2) / g.points - math.log(g.lower / 2) / g.points, atol=1e-12
        )


@given(
    st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=40, unique=True),
    st.integers(0, 99),
)
@example([-0.0], 0)
@example([-HUGE, 0.0, TINY, HUGE], 0)
def test_given_grids_find_the_leaf(points: list[float], seed: int) -> None:
    g = ValueGrid.of(sorted(set(points)))
    assert g.named == len(points) < g.points <= max(2, 2 * len(points))
    assert (g.lower, g.upper) == (min(points), max(points))
    check(g, seed)
    assert g.locate([math.nextafter(g.upper, np.inf), np.inf]).tolist() == [g.named, g.named]
    assert g.outside([-np.inf, np.inf]) == 0


EXTREME = [
    (0.0, 1.0, 20, "uniform"),
    (-1e-300, 1e300, 20, "uniform"),
    (-8e307, 8e307, 20, "uniform"),
    (0.0, 1000 * TINY, 6, "uniform"),  # steps of 15.6 times the smallest number
    (-2e-308, 3e-308, 20, "uniform"),
    (1e15, 1e15 + 2**12, 8, "uniform"),
    (1e-292, HUGE, 20, "logarithmic"),
    (1e300, 2e300, 20, "logarithmic"),
    (HUGE / 2, HUGE, 20, "logarithmic"),
    (100 * TINY, 1e9 * TINY, 3, "logarithmic"),
    (1.0, 1.0 + 1e-6, 20, "logarithmic"),
]


@pytest.mark.parametrize(("lower", "upper", "height", "spacing"), EXTREME)
def test_extreme_ranges_find_the_leaf(lower: float, upper: float, height: int, spacing: str) -> None:
    check(grid(lower, upper, height, spacing))


@pytest.mark.parametrize(
    ("lower", "upper", "spacing"),
    [
        (0.0, 1.0, "uniform"),
        (-7.3e11, 5e11, "uniform"),
        (1e-9, 1e9, "logarithmic"),
        (1.0, 2.0, "logarithmic"),
    ],
)
def test_leaves_of_the_largest_grid_hold_their_values(lower: float, upper: float, spacing: str) -> None:
    g = grid(lower, upper, 20, spacing)
    places = np.random.default_rng(3).integers(0, g.points, 5000)
    x = awkward(g.threshold(places), 4, lower, upper)
    leaf = g.locate(x)
    assert leaf.min() == 0
    assert leaf.max() == MOST_POINTS - 1
    assert ((x <= g.threshold(leaf)) | (leaf == g.points - 1)).all()
    assert ((x > g.threshold(leaf - 1)) | (leaf == 0)).all()


def test_infinities_count_into_the_ends_and_are_reported() -> None:
    for spacing in ("uniform", "logarithmic"):
        g = grid(1.0, 9.0, 3, spacing)
        assert g.locate([-np.inf, np.inf]).tolist() == [0, 7]
        assert g.outside([-np.inf, 0.9, 1.0, 5.0, 9.0, 9.1, np.inf]) == 4


@pytest.mark.parametrize("g", [grid(0, 1, 2), grid(1, 9, 2, "logarithmic"), ValueGrid.of([1.0, 2.0])])
def test_nan_is_refused(g: ValueGrid) -> None:
    for values in ([np.nan], [1.0, np.nan, np.inf], [np.inf, -np.inf, np.nan]):
        with pytest.raises(DataError, match="values: got a value that is NaN"):
            g.locate(values)
    assert g.locate(np.empty(0)).shape == (0,)


def test_values_are_not_changed() -> None:
    x = np.array([-5.0, 0.5, 5.0])
    x.flags.writeable = False
    for g in (grid(0, 1, 2), grid(0.1, 1, 2, "logarithmic"), ValueGrid.of([0.2])):
        g.locate(x)
        with pytest.raises(ValueError, match="read-only"):
            g.thresholds[0] = 7.0


UNUSABLE = [
    ({"lower": 1, "upper": 1, "points": 4}, "range: got 1 to 1, expected a lower end below the upper end"),
    ({"lower": 2, "upper": 1, "points": 4}, "expected a lower end below the upper end"),
    ({"lower": 0, "upper": np.nan, "points": 4}, "expected two finite numbers"),
    ({"lower": -np.inf, "upper": 0, "points": 4}, "expected two finite numbers"),
    ({"lower": -HUGE, "upper": HUGE, "points": 4}, "expected ends whose distance is a finite number"),
    ({"lower": 0, "upper": 1, "points": 1000}, "points: got 1000, expected a power of two from 2 to 2^20"),
    ({"lower": 0, "upper": 1, "points": 1}, "expected a power of two"),
    ({"lower": 0, "upper": 1, "points": 0}, "expected a power of two"),
    ({"lower": 0, "upper": 1, "points": -4}, "expected a power of two"),
    ({"lower": 0, "upper": 1, "points": 4.0}, "expected a power of two"),
    ({"lower": 0, "upper": 1, "points": True}, "expected a power of two"),
    ({"lower": 0, "upper": 1, "points": 1 << 21}, "expected a power of two from 2 to 2^20"),
    ({"lower": 0, "upper": 1, "points": 4, "spacing": "cubic"}, "grid: got 'cubic', expected one of uniform"),
    (
        {"lower": 0, "upper": 1, "points": 4, "spacing": "logarithmic"},
        "got 0 as the lower end, expected one above 0",
    ),
    ({"lower": -1, "upper": 1, "points": 4, "spacing": "logarithmic"}, "expected one above 0"),
    ({"lower": 0, "upper": 8 * TINY, "points": 4}, "closer together than numbers can be"),
    ({"lower": 1e15, "upper": 1e15 + 2**12, "points": 1 << 13}, "closer together than numbers can be"),
    ({"lower": TINY, "upper": 1, "points": 1024, "spacing": "logarithmic"}, "closer together"),
    (
        {"lower": 1e300, "upper": 1e300 * (1 + 1e-9), "points": 1 << 14, "spacing": "logarithmic"},
        "closer together",
    ),
    ({"lower": 0, "upper": 1, "points": 4, "given": (0.5,)}, "exactly for the spacing given"),
    ({"lower": 0, "upper": 1, "points": 4, "spacing": "given"}, "exactly for the spacing given"),
    (
        {"lower": 1, "upper": 3, "points": 4, "spacing": "given", "given": (1, 3, 2, 3)},
        "finite and increasing",
    ),
    ({"lower": 1, "upper": 1, "points": 4, "spacing": "given", "given": (1, 1)}, "finite and increasing"),
    (
        {"lower": 1, "upper": 3, "points": 4, "spacing": "given", "given": (1, np.nan, 3)},
        "finite and increasing",
    ),
    ({"lower": 1, "upper": 3, "points": 2, "spacing": "given", "given": (1, 3)}, "got 2 for 2 given ones"),
    ({"lower": 0, "upper": 3, "points": 4, "spacing": "given", "given": (1, 3)}, "the first and the last"),
]


@pytest.mark.parametrize(("fields", "message"), UNUSABLE)
def test_bad_grids_are_refused_in_one_sentence(fields: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError) as raised:
        ValueGrid(**fields)  # type: ignore[arg-type]
    assert message in str(raised.value)
    assert str(raised.value).count(". ") == 0
    assert str(raised.value).endswith(".")


def test_given_points_have_a_number_and_an_end() -> None:
    with pytest.raises(UsageError, match="got no points"):
        ValueGrid.of([])
    with pytest.raises(UsageError, match="got 1,048,576 given points, expected fewer than 2\\^20"):
        ValueGrid.of(np.arange(MOST_POINTS))
    assert ValueGrid.of(np.arange(MOST_POINTS - 1)).points == MOST_POINTS


def test_coinciding_points_would_be_noticed() -> None:
    """`check` itself: a grid whose step is lost in rounding does not pass."""
    too_fine = object.__new__(ValueGrid)
    for name, value in {
        "lower": 1e300,
        "upper": 1e300 * (1 + 1e-9),
        "points": 1 << 14,
        "spacing": "logarithmic",
        "given": (),
    }.items():
        object.__setattr__(too_fine, name, value)
    with pytest.raises(AssertionError):
        check(too_fine)


@given(st.integers(1, MOST_POINTS))
def test_powers_of_two(points: int) -> None:
    power = power_of_two(points)
    assert power.bit_count() == 1
    assert max(points, 2) <= power < max(2 * points, 3)


@pytest.mark.parametrize(
    ("lower", "upper", "points"), [(0.7, 7.1, 64), (-51.2, 51.2, 1024), (0, 12.8, 128), (-0.3, 0.5, 8)]
)
def test_points_are_the_decimals_that_are_meant(lower: float, upper: float, points: int) -> None:
    """A lab value of 3.9 is a value up to 3.9, whatever lower + i·step rounds to."""
    decimals = [round(lower + (i + 1) * (upper - lower) / points, 9) for i in range(points)]
    found = ValueGrid(lower=lower, upper=upper, points=points)
    assert found.thresholds.tolist() == decimals
    assert found.locate(decimals).tolist() == list(range(points))
