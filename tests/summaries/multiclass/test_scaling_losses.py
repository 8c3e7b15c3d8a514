"""Losses of scaled logits and their derivatives: definitions, finite differences, odd logits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedassay.errors import DataError, UsageError
from fedassay.summaries.multiclass.losses import FAMILIES, LARGEST_LOGIT, LARGEST_PARAMETER, blocks, loss_sums
from multiclass_rows import design, drawn, objective

METHODS = tuple(FAMILIES)
MIDDLING = st.floats(-8, 8, allow_subnormal=False)


@st.composite
def cases(draw: st.DrawFn, method: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    c, n = draw(st.integers(2, 5)), draw(st.integers(1, 6))
    # Whole numbers have ties.
    z = draw(
        st.one_of(
            arrays(np.float64, (n, c), elements=MIDDLING),
            arrays(np.int64, (n, c), elements=st.integers(-3, 3)),
        )
    )
    y = draw(arrays(np.int64, n, elements=st.integers(0, c - 1)))
    least = 0.05 if method == "order-preserving" else -2.0
    return z, y, draw(arrays(np.float64, FAMILIES[method].size(c), elements=st.floats(least, 2)))


@pytest.mark.parametrize("method", METHODS)
@given(data=st.data())
@settings(max_examples=40)
def test_derivatives_are_those_of_finite_differences(method: str, data: st.DataObject) -> None:
    z, y, theta = data.draw(cases(method))
    sums = loss_sums(method, z, y, theta)
    assert sums.hessian is not None
    # Central differences: h² times third derivatives (at most |z|³) and 1e-16/h of the sum, far below 1e-5.
    h = 1e-5
    for j, e in enumerate(np.eye(len(theta))):
        up, down = (loss_sums(method, z, y, theta + sign * h * e, order=1) for sign in (1, -1))
        assert sums.gradient[j] == pytest.approx((up.loss - down.loss) / (2 * h), abs=1e-5, rel=1e-5)
        assert sums.hessian[j] == pytest.approx((up.gradient - down.gradient) / (2 * h), abs=1e-4, rel=1e-5)
    assert np.array_equal(sums.hessian, sums.hessian.T) or np.allclose(
        sums.hessian, sums.hessian.T, atol=1e-12
    )
    assert np.linalg.eigvalsh(sums.hessian)[0] >= -1e-9  # convex in theta, every family


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("classes", [2, 3, 7])
def test_sums_are_those_of_the_definition(method: str, classes: int) -> None:
    columns = drawn(150, classes)
    family, n = FAMILIES[method], 150
    size = family.size(classes)
    theta = family.identity(classes) + 0.3 * np.random.default_rng(1).random(size)
    J = design(method, columns["logits"], size)
    value, gradient, second = objective(J, columns["class"], family.identity(classes), 0.0)(theta)
    for order in (1, 2):
        sums = loss_sums(method, columns["logits"], columns["class"], theta, order=order)
        assert sums.rows == n
        assert sums.loss == pytest.approx(n * value, rel=1e-12)
        assert sums.gradient == pytest.approx(n * gradient, abs=1e-9)
        assert (sums.hessian is None) == (order == 1)
    assert sums.hessian == pytest.approx(n * second, abs=1e-9)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("classes", [3, 40])
def test_blocks_and_types_do_not_matter(method: str, classes: int) -> None:
    """More rows than a block has, in both layouts; float32 logits, and whole numbers of a small type."""
    rows, order = 8_000 if classes == 3 else 600, 1 if method == "matrix" and classes > 20 else 2
    columns = drawn(rows, classes, seed=2)
    z, y = np.rint(columns["logits"]), columns["class"]
    theta = FAMILIES[method].identity(classes) * 0.7
    whole = loss_sums(method, z, y, theta, order=order)
    parts = [
        loss_sums(method, z[i : i + 100], y[i : i + 100], theta, order=order) for i in range(0, rows, 100)
    ]
    assert whole.loss == pytest.approx(sum(part.loss for part in parts), rel=1e-12)
    assert whole.gradient == pytest.approx(np.sum([part.gradient for part in parts], axis=0), abs=1e-8)
    if order == 2:
        assert whole.hessian == pytest.approx(np.sum([part.hessian for part in parts], axis=0), abs=1e-7)
    for dtype in (np.float32, np.int8):
        again = loss_sums(method, z.astype(dtype), y, theta, order=order)
        assert again.loss == pytest.approx(whole.loss, rel=1e-13)
        assert again.gradient == pytest.approx(whole.gradient, abs=1e-9)


HUGE = {
    "huge": [[1e300, -1e300, 0.0], [-1e300, 1e300, 1e300]],
    "equal": [[7.0, 7.0, 7.0], [1e6, 1e6, 1e6]],
    "one-hot-like": [[1e5, 0.0, 0.0], [0.0, 1e5, 0.0]],
    "masked": [[2.0, -1e9, 1.0], [-1e38, 0.0, -1e38]],
    "tiny": [[1e-300, 0.0, -1e-300], [5e-324, 0.0, 0.0]],
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", HUGE)
@pytest.mark.parametrize("factor", [1.0, 1e-3, LARGEST_PARAMETER])
def test_odd_logits_neither_overflow_nor_warn(method: str, name: str, factor: float) -> None:
    z, theta = np.array(HUGE[name]), factor * np.maximum(FAMILIES[method].identity(3), 1e-6)
    for y in ([0, 0], [1, 2]):
        sums = loss_sums(method, z, y, theta)
        assert sums.hessian is not None
        assert np.isfinite([sums.loss, *sums.gradient, *sums.hessian.reshape(-1)]).all()
        assert sums.loss >= 0
        assert np.abs(sums.hessian).max() <= 2 * (2 * LARGEST_LOGIT) ** 2


def test_a_logit_beyond_the_bound_counts_as_the_bound() -> None:
    ends = [[LARGEST_LOGIT, -LARGEST_LOGIT, 0.0]]
    for z in ([[1e300, -1e300, 0.0]], ends):
        assert next(blocks(z))[1].T.tolist() == ends
    # A mask far below the others is one all the same: nobody can tell it from less.
    one, other = (loss_sums("temperature", [[2.0, mask, 1.0]], [0], [1.0]) for mask in (-1e9, -1e6))
    assert (one.loss, one.gradient[0]) == (other.loss, other.gradient[0])


@pytest.mark.parametrize(
    ("logits", "labels", "message"),
    [
        ([[0.0, np.nan]], [0], "NaN or infinite"),
        ([[0.0, np.inf]], [0], "NaN or infinite"),
        ([[0.0, -np.inf]], [0], "NaN or infinite"),
        ([[0.0, 1.0]], [2], "class: got 2, expected whole numbers from 0 to 1"),
        ([[0.0, 1.0]], [-1], "class: got -1"),
        ([[0.0, 1.0]], [0.5], "whole numbers"),
        ([[0.0, 1.0]], [0, 1], "one per row"),
        ([[0.0]], [0], "at least 2 classes"),
        ([0.0, 1.0], [0], "rows x at least 2 classes"),
        ([["a", "b"]], [0], "expected numbers"),
    ],
)
def test_rows_that_cannot_be_used(logits: list, labels: list, message: str) -> None:
    for method in METHODS:
        with pytest.raises(DataError, match=message):
            loss_sums(method, logits, labels, FAMILIES[method].identity(2))


def test_theta_of_another_length() -> None:
    with pytest.raises(UsageError, match="got 3 parameters for 2 classes, expected 4"):
        loss_sums("vector", [[0.0, 1.0]], [0], [1.0, 1.0, 0.0])


@pytest.mark.parametrize("method", METHODS)
def test_no_rows_are_zeros(method: str) -> None:
    sums = loss_sums(method, np.empty((0, 3)), np.empty(0, dtype=np.int64), FAMILIES[method].identity(3))
    assert (sums.rows, sums.loss, np.abs(sums.gradient).max()) == (0, 0.0, 0.0)
    assert not np.any(sums.hessian)
