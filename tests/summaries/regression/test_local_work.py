"""Local steps: against loops, against all sequences of rows there are, and client by client."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from fedassay.protocol.arrays import Floats
from fedassay.summaries.regression.local_work import (
    CORRECTED,
    FIXED,
    LOCAL,
    PUBLISHED,
    LocalSteps,
    Work,
    local_work,
)
from fedassay.summaries.regression.losses import Design, LogLoss, SmoothLoss, SquaredError

MODELS = [SquaredError(), LogLoss()]
named = pytest.mark.parametrize("loss", MODELS, ids=lambda loss: loss.name)


def some(rows: int, features: int = 3, seed: int = 0) -> Design:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, features)) + 0.3
    return Design.of(x, rng.integers(0, 2, size=rows), rng.normal(size=rows) / 4)


THETA = np.array([0.4, -0.7, 0.2])


# --- dealing ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [1, 2, 3, 5, 12])
@pytest.mark.parametrize("rows", [1, 2, 3, 7, 12])
def test_every_row_is_dealt_once_and_rows_share_their_step(rows: int, steps: int) -> None:
    marked = Design.of(np.arange(rows, dtype=float)[:, None], 10 + np.arange(rows), 20 + np.arange(rows))
    dealt = LocalSteps.deal(marked, steps)
    there = dealt.weight > 0
    assert sorted(dealt.rows.x[..., 0][there].tolist()) == list(range(rows))
    np.testing.assert_array_equal(dealt.rows.y[there], 10 + dealt.rows.x[..., 0][there])
    np.testing.assert_array_equal(dealt.rows.offset[there], 20 + dealt.rows.x[..., 0][there])
    assert set(dealt.weight.reshape(-1).tolist()) <= {0.0, 1.0}
    sizes = there.sum(axis=-1)
    assert len(sizes) == dealt.count == min(steps, rows)
    assert sizes.max() - sizes.min() <= 1  # as evenly as can be, and no step is empty
    np.testing.assert_allclose(dealt.share.sum(axis=-1), 1.0)
    np.testing.assert_allclose(dealt.share[there], (1 / sizes).repeat(sizes))


@named
@pytest.mark.parametrize("local", LOCAL)
def test_without_rows_there_is_no_work(loss: SmoothLoss, local: str) -> None:
    dealt = LocalSteps.deal(some(0), 4)
    assert dealt.count == 0
    work = local_work(loss, THETA, dealt, step=0.1, local=local)
    assert not work.gradient.any()
    assert not work.hessian.any()
    assert not work.drift.any()
    assert work.steps == 0


# --- against a loop ---------------------------------------------------------------------------------------


def looped(loss: SmoothLoss, rows: Design, steps: int, step: float, *, fixed: bool = False) -> Work:
    """The definitions at the top of local_work.py, one row after the other."""
    steps = min(steps, rows.rows)
    batches = [list(range(first, rows.rows, steps)) for first in range(steps)]
    point, found, gradients, hessians = THETA, [], [], []
    for batch in batches:
        walked = loss.gradients(THETA if fixed else point, rows.take(batch)).mean(axis=0)
        point = point - step * walked
        found.append(walked)
        gradients.append(loss.gradients(THETA, rows.take(batch)).mean(axis=0))
        hessians.append(loss.hessians(THETA, rows.take(batch)).mean(axis=0))
    drift = np.zeros(len(THETA))
    for j, k in itertools.permutations(range(steps), 2):
        drift = drift + hessians[j] @ gradients[k] / (2 * steps)
    return Work(
        gradient=np.mean(found, axis=0), hessian=np.mean(hessians, axis=0), drift=drift, steps=np.array(steps)
    )


@named
@pytest.mark.parametrize(("rows", "steps"), [(1, 1), (4, 1), (6, 3), (7, 3), (5, 8)])
@pytest.mark.parametrize("local", LOCAL)
def test_the_work_is_that_of_a_loop(loss: SmoothLoss, rows: int, steps: int, local: str) -> None:
    work = local_work(loss, THETA, LocalSteps.deal(some(rows), steps), step=0.3, local=local)
    expected = looped(loss, some(rows), steps, 0.3, fixed=local == FIXED)
    np.testing.assert_allclose(work.gradient, expected.gradient, rtol=1e-12)
    np.testing.assert_allclose(work.hessian, expected.hessian, rtol=1e-12)
    np.testing.assert_allclose(
        work.drift, expected.drift if local == CORRECTED else 0.0, rtol=1e-12, atol=1e-14
    )
    assert work.steps == expected.steps


@named
def test_the_mean_gradient_is_how_far_the_walk_has_come(loss: SmoothLoss) -> None:
    rows, eta, steps = some(12), 0.2, 4
    point = THETA
    for first in range(steps):
        point = point - eta * loss.gradients(point, rows.take(slice(first, None, steps))).mean(axis=0)
    for local in (CORRECTED, PUBLISHED):
        work = local_work(loss, THETA, LocalSteps.deal(rows, steps), step=eta, local=local)
        np.testing.assert_allclose(work.gradient, (THETA - point) / (eta * steps), rtol=1e-12)


@named
@pytest.mark.parametrize("local", LOCAL)
def test_one_step_is_the_gradient_whatever_is_done_about_local_steps(loss: SmoothLoss, local: str) -> None:
    rows = some(9)
    work = local_work(loss, THETA, LocalSteps.deal(rows, 1), step=0.7, local=local)
    np.testing.assert_allclose(work.gradient, loss.gradients(THETA, rows).mean(axis=0), rtol=1e-12)
    assert not work.drift.any()  # one row says nothing about products of different rows


# --- many at once -----------------------------------------------------------------------------------------


def padded(dealt: list[LocalSteps]) -> LocalSteps:
    """Clients side by side, with gaps where one has fewer steps or rows than another."""
    most, batch = (max(one.weight.shape[axis] for one in dealt) for axis in (0, 1))
    weight = np.zeros((len(dealt), most, batch))
    x = np.full((len(dealt), most, batch, 3), 0.5)  # gaps hold rows that must not count
    y, offset = np.ones(weight.shape), np.ones(weight.shape)
    for place, one in enumerate(dealt):
        e, b = one.weight.shape
        weight[place, :e, :b], x[place, :e, :b] = one.weight, one.rows.x
        y[place, :e, :b], offset[place, :e, :b] = one.rows.y, one.rows.offset
    return LocalSteps(rows=Design(x=x, y=y, offset=offset), weight=weight)


@named
@pytest.mark.parametrize("local", LOCAL)
@pytest.mark.parametrize("own_theta", [False, True])
def test_clients_at_once_are_clients_one_by_one(loss: SmoothLoss, local: str, own_theta: bool) -> None:
    """Clients with different rows and steps, one of them without any; from one point, or each from its own."""
    each = [
        LocalSteps.deal(some(rows, seed=rows), steps)
        for rows, steps in ((6, 3), (7, 5), (1, 4), (0, 2), (8, 1))
    ]
    theta = THETA + np.arange(5)[:, None] / 10 if own_theta else THETA
    together = local_work(loss, theta, padded(each), step=0.3, local=local)
    for place, one in enumerate(each):
        alone = local_work(loss, theta[place] if own_theta else theta, one, step=0.3, local=local)
        for name in ("gradient", "hessian", "drift", "steps"):
            np.testing.assert_allclose(
                getattr(together, name)[place], getattr(alone, name), rtol=1e-11, atol=1e-13
            )


# --- what it estimates ------------------------------------------------------------------------------------

ALL_ROWS = some(3, seed=5)
"""A population of three rows: every sequence of three draws can be listed."""


def expected(loss: SmoothLoss, steps: int, step: float, local: str) -> tuple[Floats, Floats]:
    """The mean gradient and the mean drift over all sequences of independent rows."""
    sequences = np.array(list(itertools.product(range(3), repeat=steps)))
    rows = ALL_ROWS.take(sequences)
    dealt = LocalSteps(
        rows=Design(x=rows.x[:, :, None, :], y=rows.y[:, :, None], offset=rows.offset[:, :, None]),
        weight=np.ones((*sequences.shape, 1)),
    )
    work = local_work(loss, THETA, dealt, step=step, local=local)
    return work.gradient.mean(axis=0), work.drift.mean(axis=0)


@named
@pytest.mark.parametrize("steps", [2, 3, 4])
def test_the_drift_is_right_on_average(loss: SmoothLoss, steps: int) -> None:
    """Exactly: E c = ((E-1)/2) H grad, over all sequences."""
    gradient = loss.gradients(THETA, ALL_ROWS).mean(axis=0)
    hessian = loss.hessians(THETA, ALL_ROWS).mean(axis=0)
    _, drift = expected(loss, steps, 0.1, CORRECTED)
    np.testing.assert_allclose(drift, (steps - 1) / 2 * hessian @ gradient, rtol=1e-12)
    # With products of the same row, as a plain product of means has them, it would not be.
    same = np.mean(
        [loss.hessians(THETA, ALL_ROWS)[k] @ loss.gradients(THETA, ALL_ROWS)[k] for k in range(3)], axis=0
    )
    assert np.abs(same - hessian @ gradient).max() > 0.02


@named
def test_the_correction_leaves_a_bias_of_second_order_only(loss: SmoothLoss) -> None:
    """Halving the step divides the bias by two as published, and by four (or more) when corrected."""
    gradient = loss.gradients(THETA, ALL_ROWS).mean(axis=0)
    biases: dict[str, list[float]] = {CORRECTED: [], PUBLISHED: []}
    for local, found in biases.items():
        for step in (0.008, 0.004, 0.002):
            walked, drift = expected(loss, 4, step, local)
            found.append(float(np.linalg.norm(walked + step * drift - gradient)))
    published = [a / b for a, b in itertools.pairwise(biases[PUBLISHED])]
    corrected = [a / b for a, b in itertools.pairwise(biases[CORRECTED])]
    assert published == pytest.approx([2.0, 2.0], abs=0.05)
    assert corrected == pytest.approx([4.0, 4.0], abs=0.1)
    assert biases[CORRECTED][0] < 0.1 * biases[PUBLISHED][0]


def test_fixed_gradients_and_two_steps_of_a_parabola_have_no_bias() -> None:
    loss = SquaredError()
    gradient = loss.gradients(THETA, ALL_ROWS).mean(axis=0)
    np.testing.assert_allclose(expected(loss, 4, 0.5, FIXED)[0], gradient, rtol=1e-12)
    walked, drift = expected(loss, 2, 0.5, CORRECTED)
    np.testing.assert_allclose(walked + 0.5 * drift, gradient, rtol=1e-12)
