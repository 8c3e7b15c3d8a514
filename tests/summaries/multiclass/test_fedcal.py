"""Factors from a network: definition, gradient, start, and rankings that never change."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.special import log_softmax, softmax

from fedassay.errors import DataError, UsageError
from fedassay.summaries.multiclass.fedcal import HIDDEN, FedCal, fedcal_identity, fedcal_size
from fedassay.summaries.multiclass.losses import LARGEST_PARAMETER
from fedassay.summaries.multiclass.maps import logit_map_from_json
from logit_maps import fedcal_sums, same_ranking, some_weights
from multiclass_rows import drawn


def slowly(z: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """u of one row, from the definition."""
    c, h, at = len(z), HIDDEN, 0
    found = []
    for rows, columns in ((h, c), (h, h), (c, h)):
        matrix = theta[at : at + rows * columns].reshape(rows, columns)
        at += rows * columns
        found.append((matrix, theta[at : at + rows]))
        at += rows
    assert at == len(theta)
    S = np.eye(c)[np.argsort(-z, kind="stable")]
    y = S @ z
    x = np.clip(y - y.mean(), -50, 50)
    (w1, b1), (w2, b2), (w3, b3) = found
    first = np.maximum(w1 @ x + b1, 0)
    second = np.maximum(w2 @ first + b2, 0)
    out = w3 @ second + b3
    m = np.log1p(np.exp(out)) + 1e-6
    w = np.append(np.abs(y[:-1] - y[1:]), 0.0) * m
    return S.T @ np.triu(np.ones((c, c))) @ w


@pytest.mark.parametrize("classes", [2, 5])
def test_it_is_what_it_is_defined_as(classes: int) -> None:
    theta, columns = some_weights(classes), drawn(3_000, classes)
    z, y = columns["logits"], columns["class"]
    z[::7] = np.rint(z[::7])
    z[::50] *= 40.0  # beyond what the network reads
    u = np.stack([slowly(row, theta) for row in z])
    one = FedCal.of(theta, classes)
    assert one.predict_proba(z) == pytest.approx(softmax(u, axis=1), abs=1e-12)
    sums = fedcal_sums(z, y, theta)
    assert sums.rows == len(z)
    assert sums.loss == pytest.approx(-log_softmax(u, axis=1)[np.arange(len(y)), y].sum(), rel=1e-12)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("classes", [2, 4])
def test_the_gradient_is_that_of_finite_differences(classes: int, seed: int) -> None:
    """Some weights of every layer, and along random directions, which no weight is left out of."""
    rng, theta, columns = np.random.default_rng(seed), some_weights(classes, seed), drawn(6, classes, seed)
    z, y = columns["logits"], columns["class"]
    gradient = fedcal_sums(z, y, theta).gradient
    h = 1e-6
    directions = [*np.eye(len(theta))[rng.choice(len(theta), 60)], *rng.normal(size=(5, len(theta)))]
    for e in directions:
        up, down = (fedcal_sums(z, y, theta + sign * h * e).loss for sign in (1, -1))
        # h² times third derivatives and 1e-15/h of the loss: far below 1e-6 of what gradients are here.
        assert gradient @ e == pytest.approx((up - down) / (2 * h), abs=1e-6, rel=1e-5)
    parts = np.split(gradient, np.cumsum([HIDDEN * classes, HIDDEN, HIDDEN**2, HIDDEN, classes * HIDDEN]))
    assert all(np.abs(part).max() > 1e-3 for part in parts)


def test_blocks_and_types_do_not_matter() -> None:
    columns, theta = drawn(30_000, 5, seed=2), some_weights(5)
    z, y = np.rint(columns["logits"]), columns["class"]
    whole = fedcal_sums(z, y, theta)
    parts = [fedcal_sums(z[i : i + 3_000], y[i : i + 3_000], theta) for i in range(0, len(y), 3_000)]
    assert whole.loss == pytest.approx(sum(part.loss for part in parts), rel=1e-12)
    assert whole.gradient == pytest.approx(np.sum([part.gradient for part in parts], axis=0), abs=1e-8)
    again = fedcal_sums(z.astype(np.int8), y, theta)
    assert again.loss == pytest.approx(whole.loss, rel=1e-13)
    p = FedCal.of(theta, 5).predict_proba(z)
    assert p[:3_000] == pytest.approx(FedCal.of(theta, 5).predict_proba(z[:3_000]), abs=1e-15)


def test_it_starts_as_the_identity_map_with_units_that_differ() -> None:
    z = drawn(500, 10)["logits"]
    theta = fedcal_identity(10)
    assert FedCal.of(theta, 10).predict_proba(z) == pytest.approx(softmax(z, axis=1), abs=1e-13)
    hidden = theta[: 10 * HIDDEN].reshape(HIDDEN, 10)
    assert len(np.unique(hidden)) == hidden.size
    assert hidden.std() == pytest.approx(np.sqrt(1 / 10), rel=0.1)
    assert np.abs(hidden).max() <= np.sqrt(3 / 10)
    # The same numbers everywhere and for ever.
    assert hidden[0, :3].tolist() == [0.13703521780202058, 0.4351259178868078, 0.3019985426573488]


def test_it_has_as_many_weights_as_the_published_one() -> None:
    """43.08 kb for ten classes (Table 5), as eight bytes each."""
    assert round(8 * fedcal_size(10) / 1024, 2) == 43.08


def test_usual_logits_are_told_apart() -> None:
    z = drawn(2_000, 8)["logits"]
    one = FedCal.of(some_weights(8, scale=0.1), 8)
    assert one.keeps_order
    p = one.predict_proba(z)
    assert np.array_equal(np.argsort(-p, axis=1), np.argsort(-z, axis=1))
    assert np.abs(p - softmax(z, axis=1)).max() > 0.1
    # One class that is a little more probable is noticed.
    assert same_ranking(z, p)
    assert not same_ranking(z, p * np.where(np.arange(8) == 3, 1.001, 1.0))


def test_a_shift_of_all_logits_does_not_matter() -> None:
    z, one = drawn(300, 4)["logits"], FedCal.of(some_weights(4), 4)
    assert one.predict_proba(z + 37.5) == pytest.approx(one.predict_proba(z), abs=1e-10)


@pytest.mark.parametrize("scale", [1.0, LARGEST_PARAMETER])
def test_odd_logits_neither_overflow_nor_warn(scale: float) -> None:
    rng = np.random.default_rng(0)
    z = np.array([[1e300, -1e300, 0.0], [-1e300, 1e300, 1e300], [7.0, 7.0, 7.0], [2.0, -1e9, 5e-324]])
    for signs in (np.ones(fedcal_size(3)), rng.choice([-1.0, 1.0], fedcal_size(3))):
        theta = scale * signs
        for y in ([0, 0, 0, 0], [1, 2, 1, 1]):
            sums = fedcal_sums(z, y, theta)
            assert np.isfinite([sums.loss, *sums.gradient]).all()
        assert np.isfinite(FedCal.of(theta, 3).predict_proba(z)).all()


GOOD: dict[str, Any] = {"kind": "fedcal", "classes": 2, "weights": [0.0] * fedcal_size(2)}


@pytest.mark.parametrize(
    "wrong",
    [
        {"classes": 3},
        {"classes": 1},
        {"classes": "2"},
        {"weights": [0.0]},
        {"weights": 1.0},
        {"weights": [float("nan")] * fedcal_size(2)},
        {"weights": [1e7] * fedcal_size(2)},
        {"weights": ["0"] * fedcal_size(2)},
        {"layers": 2},
    ],
)
def test_what_is_no_map_is_refused(wrong: dict[str, Any]) -> None:
    assert isinstance(logit_map_from_json(GOOD), FedCal)
    with pytest.raises(UsageError):
        logit_map_from_json({**GOOD, **wrong})


def test_rows_that_cannot_be_used() -> None:
    theta = fedcal_identity(2)
    with pytest.raises(DataError, match="NaN or infinite"):
        fedcal_sums([[0.0, np.nan]], [0], theta)
    with pytest.raises(DataError, match="class: got 2"):
        fedcal_sums([[0.0, 1.0]], [2], theta)
    nothing = fedcal_sums(np.empty((0, 2)), np.empty(0, dtype=np.int64), theta)
    assert (nothing.rows, nothing.loss, np.abs(nothing.gradient).max()) == (0, 0.0, 0.0)
