"""Losses of regressions: derivatives against differences, sums against loops, at any leading axes."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest

from fedassay.errors import UsageError
from fedassay.protocol.arrays import Floats
from fedassay.summaries.regression.losses import (
    Design,
    IndexLoss,
    LogLoss,
    SmoothLoss,
    SquaredError,
    lent,
    loss_of,
)


class Poisson(IndexLoss):
    """A loss of an index that fedassay does not know."""

    name: ClassVar[str] = "poisson"

    def value(self, u: Floats, y: Floats) -> Floats:
        return np.asarray(np.exp(u) - y * u)

    def first(self, u: Floats, y: Floats) -> Floats:
        return np.asarray(np.exp(u) - y)

    def second(self, u: Floats, y: Floats) -> Floats:
        return np.asarray(np.exp(u))


class Decay(SmoothLoss):
    """The squared error of a·exp(-b x): not a function of one index, and with a parameter more than features."""

    name: ClassVar[str] = "decay"

    def parameters(self, features: int) -> int:
        return features + 1

    def _parts(self, theta: Floats, rows: Design) -> tuple[Floats, Floats, Floats, Floats]:
        x, a = rows.x[..., 0], theta[..., None, 0]
        shape = np.exp(-theta[..., None, 1] * x)
        return x, a, shape, a * shape - rows.y

    def losses(self, theta: Floats, rows: Design) -> Floats:
        return np.asarray(self._parts(theta, rows)[3] ** 2 / 2)

    def gradients(self, theta: Floats, rows: Design) -> Floats:
        x, a, shape, wrong = self._parts(theta, rows)
        return np.stack([wrong * shape, -wrong * a * x * shape], axis=-1)

    def hessians(self, theta: Floats, rows: Design) -> Floats:
        x, a, shape, wrong = self._parts(theta, rows)
        mixed = -x * shape * (a * shape + wrong)
        first = np.stack([shape**2, mixed], axis=-1)
        return np.stack([first, np.stack([mixed, a * x**2 * shape * (a * shape + wrong)], axis=-1)], axis=-1)


LOSSES = [SquaredError(), LogLoss(), Poisson(), Decay()]
AXES = [((), ()), ((3,), (3,)), ((), (4,)), ((2, 1), (2, 3))]
named = pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
shaped = pytest.mark.parametrize("axes", AXES, ids=str)


def some(
    loss: SmoothLoss, axes: tuple[tuple[int, ...], tuple[int, ...]], rows: int = 5
) -> tuple[Floats, Design]:
    rng = np.random.default_rng(3)
    features = 1 if loss.name == "decay" else 3
    theta = rng.normal(size=(*axes[0], loss.parameters(features))) / 2
    x = rng.normal(size=(*axes[1], rows, features))
    y = rng.integers(0, 2, size=(*axes[1], rows)).astype(float)
    return theta, Design.of(x, y, rng.normal(size=y.shape) / 3)


def differences(function: object, theta: Floats) -> Floats:
    """Derivatives along the last axis of theta, in a new last axis, to about 1e-10."""
    h = 1e-5
    moved = [h * one for one in np.eye(theta.shape[-1])]
    return np.stack([(function(theta + one) - function(theta - one)) / (2 * h) for one in moved], axis=-1)  # type: ignore[operator]


@named
@shaped
def test_derivatives_are_those_of_the_loss(
    loss: SmoothLoss, axes: tuple[tuple[int, ...], tuple[int, ...]]
) -> None:
    theta, rows = some(loss, axes)
    gradients, hessians = loss.gradients(theta, rows), loss.hessians(theta, rows)
    assert gradients.shape == (*axes[1], 5, theta.shape[-1])
    assert hessians.shape == (*axes[1], 5, theta.shape[-1], theta.shape[-1])
    np.testing.assert_allclose(
        gradients, differences(lambda at: loss.losses(at, rows), theta), rtol=1e-7, atol=1e-8
    )
    np.testing.assert_allclose(
        hessians, differences(lambda at: loss.gradients(at, rows), theta), rtol=1e-7, atol=1e-8
    )


@named
@shaped
def test_sums_are_weighted_sums_over_rows(
    loss: SmoothLoss, axes: tuple[tuple[int, ...], tuple[int, ...]]
) -> None:
    theta, rows = some(loss, axes)
    rng = np.random.default_rng(4)
    weight, vector = rng.normal(size=rows.y.shape), rng.normal(size=(*axes[1], theta.shape[-1]))
    gradient = (weight[..., None] * loss.gradients(theta, rows)).sum(axis=-2)
    hessian = (weight[..., None, None] * loss.hessians(theta, rows)).sum(axis=-3)
    np.testing.assert_allclose(loss.gradient_sum(theta, rows, weight), gradient, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(loss.hessian_sum(theta, rows, weight), hessian, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(
        loss.hessian_products(theta, rows, weight, vector),
        np.einsum("...pq,...q->...p", hessian, vector),
        rtol=1e-11,
        atol=1e-12,
    )


@named
def test_many_at_once_are_each_by_itself(loss: SmoothLoss) -> None:
    theta, rows = some(loss, ((2, 1), (2, 3)))
    together = loss.gradient_sum(theta, rows, np.ones(rows.y.shape))
    for i in range(2):
        for j in range(3):
            one = Design(x=rows.x[i, j], y=rows.y[i, j], offset=rows.offset[i, j])
            alone = loss.gradient_sum(theta[i, 0], one, np.ones(5))
            np.testing.assert_allclose(together[i, j], alone, rtol=1e-12, atol=1e-14)


@named
def test_no_rows_add_nothing(loss: SmoothLoss) -> None:
    theta, rows = some(loss, ((), ()), rows=0)
    assert not loss.gradient_sum(theta, rows, np.zeros(0)).any()
    assert not loss.hessian_sum(theta, rows, np.zeros(0)).any()


def test_the_log_loss_far_out() -> None:
    """Where exp(u) overflows: the loss is |u| or 0, its slope 0 or ±1, its curvature 0 and never below."""
    u, loss = np.array([-1e4, -800.0, 800.0, 1e4]), LogLoss()
    for label, losses, slopes in (
        (0.0, [0, 0, 800, 1e4], [0, 0, 1, 1]),
        (1.0, [1e4, 800, 0, 0], [-1, -1, 0, 0]),
    ):
        y = np.full(4, label)
        np.testing.assert_array_equal(loss.value(u, y), losses)
        np.testing.assert_array_equal(loss.first(u, y), slopes)
    np.testing.assert_array_equal(loss.second(u, np.zeros(4)), 0.0)
    # 1 - expit(40) is 0 in floating point, the curvature is not.
    assert loss.second(np.array([40.0]), np.zeros(1))[0] == pytest.approx(np.exp(-40), rel=1e-12, abs=0)


def test_what_losses_say_of_themselves() -> None:
    assert (SquaredError.quadratic, LogLoss.quadratic, Poisson.quadratic) == (True, False, False)
    assert (SquaredError.standardises, Decay.standardises) == (True, False)
    assert SquaredError().problem(np.array([0.3])) is None
    assert LogLoss().problem(np.array([0.0, 1.0])) is None
    assert LogLoss().problem(np.array([0.0, 2.0, 3.0])) == "2, expected 0 or 1 in every row"
    assert LogLoss().problem(np.array([np.nan])) == "nan, expected 0 or 1 in every row"


def test_designs_take_rows_at_any_leading_axes() -> None:
    rows = Design.of(np.arange(12.0).reshape(2, 3, 2), np.arange(6.0).reshape(2, 3))
    taken = rows.take(np.array([[2, 0]]))
    assert (rows.rows, rows.features, taken.x.shape) == (3, 2, (2, 1, 2, 2))
    assert taken.y[1].tolist() == [[5.0, 3.0]]
    assert taken.x[1, 0, 0].tolist() == [10.0, 11.0]
    assert not taken.offset.any()


def test_a_loss_of_ones_own_is_known_while_it_is_lent() -> None:
    mine = Poisson()
    with lent(mine) as name:
        assert (name, loss_of("poisson")) == ("poisson", mine)
        with pytest.raises(UsageError, match="'poisson', which is taken"), lent(Poisson()):
            pass
        assert loss_of("poisson") is mine  # the one that was refused has not ended the loan
    with pytest.raises(UsageError, match="got 'poisson', expected one of linear, logistic"):
        loss_of("poisson")
    with pytest.raises(ZeroDivisionError), lent(mine):
        raise ZeroDivisionError
    with pytest.raises(UsageError):
        loss_of("poisson")


def test_no_loan_replaces_what_every_site_knows() -> None:
    class Fake(Poisson):
        name: ClassVar[str] = "linear"

    with pytest.raises(UsageError, match="'linear', which is taken"), lent(Fake()):
        pass
    known = loss_of("linear")
    with lent(known) as name:
        assert name == "linear"
    assert loss_of("linear") is known
