"""Smoothing against oracles on small curves, its symmetries, and its edge cases."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog, nnls
from sklearn.isotonic import IsotonicRegression

from fedassay.errors import UsageError
from smoothing_certificates import Smoothed, isotonic, l1, l2

EXACT = 1e-12


def small_curves(rng: np.random.Generator, count: int) -> dict[str, np.ndarray]:
    """One curve of each kind that has its own way to go wrong."""
    rise = np.sort(rng.random(count))
    return {
        "white": rng.normal(size=count),
        "walk": np.cumsum(rng.normal(size=count)),
        "ties": rng.integers(-2, 4, count).astype(float),
        "heavy": 10 * rng.standard_cauchy(count),
        "noisy": rise + rng.normal(0, 0.05, count),
        "huge noise": rise + rng.normal(0, 1e6, count),
        "constant": np.full(count, rng.normal()),
        "below": -1 - rng.random(count),
        "above": 10 + rng.random(count),
        "rising": rise,
        "falling": rise[::-1].copy(),
    }


def incidence(count: int, points: np.ndarray) -> np.ndarray:
    """How each node (narrowest first) moves the steps between points, from the paper's own indices.

    Node (j, l) is added to the values i = 1..N with ⌈i/2^l⌉ = j.
    """
    i = np.arange(1, count + 1)
    columns = []
    for level in range(count.bit_length()):
        for j in range(1, count // 2**level + 1):
            moved = (np.ceil(i / 2**level) == j).astype(float)[points]
            columns.append(np.diff(moved, prepend=0.0, append=0.0))
    return np.array(columns).T


def least_distance(B: np.ndarray, q: np.ndarray) -> np.ndarray:
    """The ν of least norm with q + Bν >= 0 (Lawson and Hanson 1995, chapter 23, problem LDP)."""
    system = np.vstack([B.T, -q])
    target = np.zeros(len(system))
    target[-1] = 1.0
    solution, _ = nnls(system, target, maxiter=100 * len(q))
    residual = system @ solution - target
    return -residual[:-1] / residual[-1]


def least_absolute_sum(B: np.ndarray, q: np.ndarray) -> float:
    result = linprog(np.ones(2 * B.shape[1]), A_ub=np.hstack([-B, B]), b_ub=q, method="highs-ds")
    assert result.status == 0
    return float(result.fun)


def is_distribution(curve: np.ndarray, top: float) -> bool:
    return bool((np.diff(curve) >= 0).all() and curve[0] >= 0 and curve[-1] <= top)


def as_the_paper_writes_it(curve: np.ndarray, correction: tuple[np.ndarray, ...], i: int) -> float:
    """F̂(τ_i) + Σ_l ν_{⌈i/2^l⌉,l} with i and j from one."""
    return curve[i - 1] + sum(correction[level][-(-i // 2**level) - 1] for level in range(len(correction)))


def random_points(rng: np.random.Generator, count: int) -> np.ndarray | None:
    if rng.random() < 0.4:
        return None
    return np.sort(rng.choice(count, int(rng.integers(1, count + 1)), replace=False))


@pytest.mark.parametrize("seed", range(32))
def test_both_are_what_general_solvers_find(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for curve in small_curves(rng, 2 ** int(rng.integers(1, 7))).values():
        top, points = float(rng.choice([0.01, 1.0, 5.0, 1000.0])), random_points(rng, len(curve))
        chosen = np.arange(len(curve)) if points is None else points
        B, q = incidence(len(curve), chosen), np.diff(curve[chosen], prepend=0.0, append=top)
        size = max(top, np.abs(curve).max())

        squares, absolute = l2(curve, top=top, points=points), l1(curve, top=top, points=points)
        assert squares.residual <= EXACT
        assert absolute.residual <= EXACT
        expected = least_distance(B, q / size) * size
        assert np.allclose(np.concatenate(squares.correction), expected, atol=1e-9 * size)
        assert squares.objective == pytest.approx(expected @ expected, rel=1e-8, abs=1e-12 * size**2)
        assert absolute.objective == pytest.approx(least_absolute_sum(B, q), rel=1e-8, abs=1e-9 * size)
        for smoothed in (squares, absolute):
            assert is_distribution(smoothed.curve, top)
            steps = np.diff(smoothed.curve, prepend=0.0, append=top)
            assert np.allclose(steps, q + B @ np.concatenate(smoothed.correction), atol=1e-12 * size)


@pytest.mark.parametrize("seed", range(10))
def test_isotonic_is_what_scikit_learn_finds(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 65))
    for curve in small_curves(rng, count).values():
        smoothed = isotonic(curve, top=1.0)
        peer = IsotonicRegression(y_min=0.0, y_max=1.0).fit(np.arange(count), curve)
        assert np.allclose(smoothed.curve, peer.predict(np.arange(count)), atol=1e-9)
        assert smoothed.residual <= EXACT
        assert is_distribution(smoothed.curve, 1.0)


def test_the_indices_are_the_papers() -> None:
    curve = np.random.default_rng(0).normal(size=16)
    for smoothed in (l1(curve, top=1.0), l2(curve, top=1.0)):
        assert [len(level) for level in smoothed.correction] == [16, 8, 4, 2, 1]
        by_hand = [as_the_paper_writes_it(curve, smoothed.correction, i) for i in range(1, 17)]
        assert np.allclose(smoothed.curve, by_hand, atol=1e-14)


# --- symmetries -----------------------------------------------------------------------------------------

curves = st.integers(1, 6).flatmap(
    lambda height: st.lists(
        st.floats(-100, 100, allow_subnormal=False) | st.integers(-3, 3).map(float),
        min_size=2**height,
        max_size=2**height,
    ).map(np.array)
)


def close(one: np.ndarray, other: np.ndarray, size: float) -> bool:
    return np.allclose(one, other, rtol=0, atol=1e-11 * size)


@given(curves, st.floats(0.01, 200))
def test_everything_is_certified_and_a_distribution(curve: np.ndarray, top: float) -> None:
    for method in (isotonic, l1, l2):
        smoothed = method(curve, top=top)
        assert smoothed.residual <= EXACT
        assert is_distribution(smoothed.curve, top)


@given(curves, st.floats(0.01, 200), st.floats(1e-6, 1e6))
def test_units_do_not_matter(curve: np.ndarray, top: float, unit: float) -> None:
    size = max(top, np.abs(curve).max())
    for method in (isotonic, l2):
        assert close(method(unit * curve, top=unit * top).curve / unit, method(curve, top=top).curve, size)
    assert l1(unit * curve, top=unit * top).objective / unit == pytest.approx(
        l1(curve, top=top).objective, rel=1e-9, abs=1e-11 * size
    )


@given(curves, st.floats(0.01, 200))
def test_counting_from_the_other_end_does_not_matter(curve: np.ndarray, top: float) -> None:
    size, mirrored = max(top, np.abs(curve).max()), top - curve[::-1]
    for method in (isotonic, l2):
        there, back = method(curve, top=top), method(mirrored, top=top)
        assert close(top - back.curve[::-1], there.curve, size)
    assert l1(mirrored, top=top).objective == pytest.approx(l1(curve, top=top).objective, abs=1e-10 * size)


@given(curves, st.floats(0, 500))
def test_a_shift_that_no_bound_sees_does_not_matter(curve: np.ndarray, shift: float) -> None:
    for method in (isotonic, l2):
        low, high = method(curve + 1e4, top=3e4), method(curve + 1e4 + shift, top=3e4)
        assert close(low.curve + shift, high.curve, 3e4)
        assert low.objective == pytest.approx(high.objective, rel=1e-9, abs=1e-6)


@given(curves, st.floats(0.01, 200))
def test_a_distribution_is_left_alone(curve: np.ndarray, top: float) -> None:
    # Sums of the increments are the curve again, as long as nothing underflows.
    proper = np.clip(np.sort(np.where(np.abs(curve) < 1e-200, 0.0, curve)), 0.0, top)
    for method in (isotonic, l1, l2):
        smoothed = method(proper, top=top)
        assert (smoothed.curve == proper).all()
        assert smoothed.objective == 0
        assert smoothed.residual == 0


@given(curves, st.floats(0.01, 200))
def test_all_points_by_name_are_all_points(curve: np.ndarray, top: float) -> None:
    everywhere = np.arange(len(curve))
    for method in (l1, l2):
        assert close(
            method(curve, top=top, points=everywhere).curve,
            method(curve, top=top).curve,
            max(top, np.abs(curve).max()),
        )


@given(curves, st.floats(0.01, 200), st.integers(0, 2**32 - 1))
def test_isotonic_never_adds_to_the_squared_error(curve: np.ndarray, top: float, seed: int) -> None:
    truth = np.sort(np.random.default_rng(seed).uniform(0, top, len(curve)))
    before, after = (
        (values - truth) @ (values - truth) for values in (curve, isotonic(curve, top=top).curve)
    )
    assert after <= before * (1 + 1e-12)


def test_the_tree_methods_may_add_to_the_squared_error() -> None:
    """Why isotonic is the default: of a curve that is at the top from the first point on, `l2` makes a slope."""
    rng = np.random.default_rng(4)
    truth = np.full(1024, 1e5)
    noise = sum(np.repeat(rng.laplace(0, 6, 1024 >> level), 1 << level) for level in range(11))
    errors = {
        method: ((method(truth + noise, top=1e5).curve - truth) ** 2).mean() for method in (isotonic, l1, l2)
    }
    assert errors[isotonic] < (noise**2).mean() < min(errors[l1], errors[l2])


# --- points ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", [0, 1, 7, 8, 15])
@pytest.mark.parametrize("value", [-3.0, 0.5, 5.0])
def test_one_point_is_cut_off_by_its_own_nodes(point: int, value: float) -> None:
    curve = np.random.default_rng(0).normal(size=16)
    curve[point] = value
    move = np.clip(value, 0, 1) - value
    squares, absolute = (method(curve, top=1.0, points=[point]) for method in (l2, l1))
    assert squares.curve == pytest.approx([value + move])
    assert squares.objective == pytest.approx(move**2 / 5)
    assert absolute.objective == pytest.approx(abs(move))
    for level, nodes in enumerate(squares.correction):
        expected = np.zeros(len(nodes))
        expected[point >> level] = move / 5
        assert nodes == pytest.approx(expected)


def test_values_that_do_not_count_are_not_looked_at() -> None:
    rng = np.random.default_rng(1)
    curve, points = rng.normal(size=64), np.array([3, 4, 17, 40, 41, 42, 63])
    other = rng.normal(size=64)
    other[points] = curve[points]
    for method in (l1, l2):
        one, two = method(curve, top=1.0, points=points), method(other, top=1.0, points=points)
        assert np.allclose(one.curve, two.curve, atol=1e-14)


# --- edges ----------------------------------------------------------------------------------------------


def test_nothing_given_is_changed() -> None:
    curve, points = np.random.default_rng(0).normal(size=32), np.arange(0, 32, 3)
    kept = curve.copy(), points.copy()
    isotonic(curve, top=1.0)
    for method in (l1, l2):
        method(curve, top=1.0, points=points)
    assert all((now == then).all() for now, then in zip((curve, points), kept, strict=True))


@pytest.mark.parametrize("method", [isotonic, l1, l2])
@pytest.mark.parametrize(("size", "top"), [(1e90, 1.0), (1.0, 1e90), (1e-200, 1e-200), (1e20, 1e-20)])
def test_any_size_is_fine(method, size: float, top: float) -> None:
    for seed in range(5):
        curve = size * np.random.default_rng(seed).normal(size=64)
        smoothed: Smoothed = method(curve, top=top)
        assert is_distribution(smoothed.curve, top)
        assert smoothed.residual <= EXACT


def test_whole_numbers_and_lists_are_fine() -> None:
    assert l2([3, 1], top=4).curve == pytest.approx([2, 2])
    assert l1([0, 0, 0, 0], top=1).curve.tolist() == [0, 0, 0, 0]
    assert isotonic([2], top=1).curve.tolist() == [1]


@pytest.mark.parametrize("method", [l1, l2])
@pytest.mark.parametrize("curve", [[1.0], [1.0, 2.0, 3.0], np.zeros(100)])
def test_other_lengths_are_refused(method, curve) -> None:
    with pytest.raises(UsageError, match="power of two"):
        method(curve, top=1.0)


@pytest.mark.parametrize("method", [isotonic, l1, l2])
@pytest.mark.parametrize("curve", [[], [0.0, np.nan], [0.0, np.inf], [[0.0, 1.0]], [0.0, 1e101]])
def test_curves_that_are_none_are_refused(method, curve) -> None:
    with pytest.raises(UsageError, match="curve: got"):
        method(curve, top=1.0)


@pytest.mark.parametrize("method", [isotonic, l1, l2])
@pytest.mark.parametrize("top", [0.0, -1.0, np.nan, np.inf])
def test_tops_that_are_none_are_refused(method, top: float) -> None:
    with pytest.raises(UsageError, match="top: got"):
        method([0.0, 1.0], top=top)


@pytest.mark.parametrize("method", [l1, l2])
@pytest.mark.parametrize("points", [[], [0, 0], [1, 0], [-1, 0], [0, 4], [0.5], [[0, 1]], [np.nan]])
def test_points_that_are_none_are_refused(method, points) -> None:
    with pytest.raises(UsageError, match="points: expected"):
        method(np.zeros(4), top=1.0, points=points)
