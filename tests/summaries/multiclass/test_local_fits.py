"""A client's own fit: the penalised optimum, within bounds, for any rows; gradient steps for networks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import brentq
from scipy.special import softmax

from fedassay.summaries.multiclass import local_fits
from fedassay.summaries.multiclass.fedcal import fedcal_identity, fedcal_size
from fedassay.summaries.multiclass.local_fits import AVERAGED, LARGEST_UPDATE, RIDGE, local_fit
from fedassay.summaries.multiclass.losses import FAMILIES, LEAST_SLOPE
from fedassay.summaries.multiclass.maps import LOGIT_MAPS
from logit_maps import fedcal_sums
from multiclass_rows import Columns, design, drawn, objective, pooled_optimum

METHODS = tuple(AVERAGED)
CONVEX = tuple(FAMILIES)
EXTREME = st.sampled_from([0.0, 1.0, -1.0, 1e308, -1e308, 5e-324, 1e6, -1e9]) | st.floats(-30, 30)


def by_scipy(method: str, columns: Columns, theta: np.ndarray, ridge: float = RIDGE) -> np.ndarray:
    """The same optimum, found independently."""
    z, y = columns["logits"], columns["class"]
    if method == "temperature":
        start, true = 1 / theta[0], z[np.arange(len(y)), y]

        def slope(s: float) -> float:
            return float(np.mean((softmax(s * z, axis=1) * z).sum(axis=1) - true) + ridge * (s - start))

        ends = slope(0.1) >= 0, slope(10.0) <= 0
        s = 0.1 if ends[0] else 10.0 if ends[1] else brentq(slope, 0.1, 10.0, xtol=1e-13, rtol=1e-13)
        return np.array([1 / s])
    at = objective(design(method, z, len(theta)), y, theta, ridge)
    return pooled_optimum(at, theta, LEAST_SLOPE if method == "order-preserving" else None)


@pytest.mark.parametrize("method", CONVEX)
@pytest.mark.parametrize("seed", range(3))
def test_convex_methods_find_the_penalised_optimum(method: str, seed: int) -> None:
    """From the identity and from elsewhere, with rows of few classes as skewed clients have them."""
    columns = drawn(40, 4, seed=seed)
    kept = columns["class"] < (4, 2, 1)[seed]
    columns = {name: column[kept] for name, column in columns.items()}
    identity = AVERAGED[method].identity(4)
    for theta in (identity, 0.6 * identity + 0.2):
        found = local_fit(method, columns["logits"], columns["class"], theta)
        # What SciPy's L-BFGS-B leaves where a bound holds is 1e-5; elsewhere both are optima to 1e-8.
        expected = by_scipy(method, columns, theta)
        assert found == pytest.approx(expected, abs=1e-4 if method == "order-preserving" else 1e-7)
        assert np.abs(found - theta).max() > 0.01
        if method == "order-preserving":
            at = objective(design(method, columns["logits"], 4), columns["class"], theta, RIDGE)
            assert at(found)[0] <= at(expected)[0] + 1e-12


def test_without_a_penalty_the_mean_would_be_decided_by_few() -> None:
    """What the penalty is for: a client whose rows are all right would go as far as it may."""
    y = np.arange(12) % 3
    z = 2.0 * np.eye(3)[y]
    for method in ("vector", "matrix", "order-preserving"):
        theta = AVERAGED[method].identity(3)
        near, far = (np.linalg.norm(local_fit(method, z, y, theta, ridge=r) - theta) for r in (RIDGE, 1e-9))
        loss = np.log1p(2 * np.exp(-2.0))
        assert near <= np.sqrt(2 * loss / RIDGE)
        assert near < 3 < far


def test_temperatures_stay_within_bounds() -> None:
    y = np.arange(30) % 3
    right, wrong = 0.02 * np.eye(3)[y], -5.0 * np.eye(3)[y]
    assert local_fit("temperature", right, y, np.ones(1), ridge=1e-9) == pytest.approx([0.1])
    assert local_fit("temperature", wrong, y, np.ones(1)) == pytest.approx([10.0])
    # From where noise may have led the federation.
    for start in (0.05, 20.0):
        assert 0.1 <= local_fit("temperature", right, y, np.array([start]))[0] <= 10.0


@pytest.mark.parametrize("method", CONVEX)
def test_large_problems_are_solved_without_hessians(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    columns, theta = drawn(60, 4, seed=3), AVERAGED[method].identity(4)
    rows = columns["logits"], columns["class"]
    newton = local_fit(method, *rows, theta)
    monkeypatch.setattr(local_fits, "_MOST_NEWTON", 0)
    found = local_fit(method, *rows, theta)
    assert not np.array_equal(found, newton)
    assert found == pytest.approx(newton, abs=0.02)


@pytest.mark.parametrize("method", METHODS)
def test_no_rows_change_nothing_and_nothing_is_written_into(method: str) -> None:
    theta, columns = AVERAGED[method].identity(4), drawn(50, 4)
    assert np.array_equal(local_fit(method, np.empty((0, 4)), np.empty(0, dtype=np.int64), theta), theta)
    before = theta.copy(), columns["logits"].copy()
    one, two = (local_fit(method, columns["logits"], columns["class"], theta) for _ in range(2))
    assert np.array_equal(one, two)
    assert np.array_equal(theta, before[0])
    assert np.array_equal(columns["logits"], before[1])


@pytest.mark.parametrize("method", METHODS)
@given(data=st.data())
@settings(max_examples=60)
def test_whatever_rows_there_are_it_is_finite_and_within_bounds(method: str, data: st.DataObject) -> None:
    c, n = data.draw(st.integers(2, 4)), data.draw(st.integers(1, 6))
    z = data.draw(arrays(np.float64, (n, c), elements=EXTREME))
    y = data.draw(arrays(np.int64, n, elements=st.integers(0, c - 1)))
    of = AVERAGED[method]
    some = data.draw(
        st.lists(st.floats(-10, 10) | st.sampled_from([of.least, of.most]), min_size=1, max_size=6)
    )
    theta = of.within(of.identity(c) + np.resize(some, of.size(c)))
    found = local_fit(method, z, y, theta)
    assert found.shape == theta.shape
    assert np.isfinite(found).all()
    assert np.array_equal(found, of.within(found))
    assert np.abs(found - theta).max() <= LARGEST_UPDATE


def test_networks_take_the_published_steps() -> None:
    """Three passes, 32 rows at a time, in the order of the rows, 0.01 times the mean gradient."""
    columns = drawn(70, 5, seed=4)
    z, y = columns["logits"], columns["class"]
    theta = fedcal_identity(5)
    expected = theta
    for _ in range(3):
        for rows in (slice(32), slice(32, 64), slice(64, 70)):
            gradient = fedcal_sums(z[rows], y[rows], expected).gradient / len(y[rows])
            expected = expected - 0.01 * gradient * min(1.0, 10 / np.linalg.norm(gradient))
    found = local_fit("fedcal", z, y, theta)
    assert found == pytest.approx(expected, abs=1e-13)
    assert not np.allclose(local_fit("fedcal", z[::-1], y[::-1], theta), expected, atol=1e-6)


def test_networks_learn_and_steps_have_a_bound() -> None:
    columns, theta = drawn(3_000, 5, seed=5), fedcal_identity(5)
    z, y = columns["logits"], columns["class"]
    before, after = (fedcal_sums(z, y, at).loss for at in (theta, local_fit("fedcal", z, y, theta)))
    assert after < 0.93 * before
    extreme = local_fit("fedcal", 1e5 * z[:64], y[:64], theta)
    assert 0.01 < np.linalg.norm(extreme - theta) <= 6 * 0.01 * 10


@pytest.mark.parametrize("method", METHODS)
def test_what_is_averaged_makes_a_map(method: str) -> None:
    of = AVERAGED[method]
    start = of.identity(3)
    assert start.shape == (of.size(3),)
    z = drawn(20, 3)["logits"]
    assert of.map(start, 3).predict_proba(z) == pytest.approx(softmax(z, axis=1), abs=1e-13)
    assert isinstance(of.map(start, 3), LOGIT_MAPS[method])
    far = of.map(of.within(np.full(of.size(3), -1e9)), 3)
    assert np.isfinite(far.predict_proba(z)).all()


def test_what_is_averaged_for_temperatures_is_the_temperature() -> None:
    one: Any = AVERAGED["temperature"].map(np.array([4.0]), 3)
    assert one.inverse_temperature == 0.25
    assert AVERAGED["fedcal"].size(10) == fedcal_size(10)
