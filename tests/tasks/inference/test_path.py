"""The path of federated averaging: sums against a loop that keeps everything, and the one-step estimate."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

import numpy as np
import pytest
from scipy.special import expit

from fedassay.errors import UsageError
from fedassay.tasks.inference.path import IteratePath, StepSizes

Floats = np.ndarray
SIZES = StepSizes(first=0.4, decay=0.6)
P = 3


@dataclass(frozen=True)
class Told:
    """What a round said: gradient, Hessian, drift; and its step and mean number of local steps."""

    gradient: Floats
    hessian: Floats
    drift: Floats
    step: float
    mean_steps: float


def rounds(count: int, axes: tuple[int, ...] = (), *, drift: bool = True, seed: int = 0) -> list[Told]:
    """Arbitrary ones: nothing about a path's sums depends on where they come from."""
    rng = np.random.default_rng(seed)
    told = []
    for t in range(1, count + 1):
        half = rng.normal(size=(*axes, P, P))
        told.append(
            Told(
                gradient=rng.normal(size=(*axes, P)),
                hessian=half @ np.swapaxes(half, -1, -2) + np.eye(P),
                drift=rng.normal(size=(*axes, P)) if drift else np.zeros((*axes, P)),
                step=SIZES.at(t),
                mean_steps=float(rng.integers(1, 4)),
            )
        )
    return told


def walked(told: list[Told], start: Floats) -> IteratePath:
    path = IteratePath.start(start)
    for one in told:
        path = path.after(one.gradient, one.hessian, one.drift, step=one.step, mean_steps=one.mean_steps)
    return path


def points(told: list[Told], start: Floats) -> Floats:
    """Where each round began, and where the last one ended."""
    at = [start]
    for one in told:
        at.append(at[-1] - one.step * one.mean_steps * one.gradient)
    return np.array(at)


START = np.array([1.0, -2.0, 0.5])


def test_sums_are_those_of_a_loop_that_keeps_everything() -> None:
    told = rounds(30)
    path, at = walked(told, START), points(told, START)
    assert path.rounds == 30
    np.testing.assert_allclose(path.theta, at[-1], rtol=1e-12)
    np.testing.assert_allclose(path.mean, at[1:].mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(path.hessian, np.mean([one.hessian for one in told], axis=0), rtol=1e-12)
    np.testing.assert_allclose(path.sums.starts / 30, at[:-1].mean(axis=0), rtol=1e-12)
    eta, drift = np.mean([one.step for one in told]), np.mean([one.drift for one in told], axis=0)
    bent = eta * np.linalg.inv(path.hessian) @ drift
    np.testing.assert_allclose(path.averaged, path.mean - bent, rtol=1e-12)


def test_without_drift_the_published_estimate_is_the_mean() -> None:
    path = walked(rounds(7, drift=False), START)
    np.testing.assert_array_equal(path.averaged, path.mean)


def test_random_scaling_is_that_of_all_partial_means() -> None:
    told = rounds(40)
    path, at = walked(told, START), points(told, START)[1:]
    t = len(at)
    means = np.cumsum(at, axis=0) / np.arange(1, t + 1)[:, None]
    # (1/T) times the published (1/T) sum over s of |sum over i <= s of (theta_i - mean)|^2/T.
    partial = np.cumsum(at - at.mean(axis=0), axis=0)
    np.testing.assert_allclose(
        partial, np.arange(1, t + 1)[:, None] * (means - means[-1]), rtol=1e-9, atol=1e-10
    )
    np.testing.assert_allclose(path.scaling, partial.T @ partial / t**3, rtol=1e-9)


@pytest.mark.parametrize("settled", [3, 7])
def test_the_spread_is_that_of_neighbours_at_the_fit_a_little_ago(settled: int) -> None:
    """With everything kept: sums over s < r of H_s (v - start_s) + g_s vanish at v, where rounds are compared.

    r is the last power of 2^(1/4), rounded, up to t: 1 to 8, 10 and 11.
    """
    told = rounds(12)
    at = points(told, START)
    path = IteratePath.start(START)
    for t, one in enumerate(told):
        sums = (one.gradient, one.hessian, one.drift)
        path = path.after(*sums, step=one.step, mean_steps=one.mean_steps, compare=t >= settled)
    straight = [one.gradient + one.step * one.drift for one in told]
    total, pairs = np.zeros((P, P)), 0
    for t in range(settled, 12):
        known = 8 if t == 9 else t
        pulls = sum(told[s].hessian @ at[s] - straight[s] for s in range(known))
        fit = np.linalg.solve(sum(one.hessian for one in told[:known]), pulls)
        moved = [straight[s] - told[s].hessian @ (at[s] - fit) for s in (t - 1, t)]
        total, pairs = total + np.outer(moved[1] - moved[0], moved[1] - moved[0]), pairs + 1
    assert path.compared == pairs == 12 - settled
    np.testing.assert_allclose(path.spread, total / (2 * pairs), rtol=1e-6)


def test_where_iterates_are_does_not_change_the_spread_of_a_parabola() -> None:
    """The same rows from a start that is hundreds of standard errors away."""
    found, plain = [], []
    for start in (np.ones(P), np.full(P, 20.0)):
        rng = np.random.default_rng(1)
        path, gradients = IteratePath.start(start), []
        for t in range(1, 201):
            x = rng.normal(size=(10, P))
            y = x @ np.ones(P) + rng.normal(size=10)
            gradients.append(x.T @ (x @ path.theta - y) / 10)
            path = path.after(gradients[-1], x.T @ x / 10, np.zeros(P), step=0.4 * t**-0.6, mean_steps=1.0)
        found.append(path)
        plain.append((np.diff(gradients, axis=0) ** 2).mean(axis=0) / 2)
    np.testing.assert_allclose(np.diagonal(found[1].spread), np.diagonal(found[0].spread), rtol=0.1)
    np.testing.assert_allclose(
        found[1].one_step(quadratic=True), found[0].one_step(quadratic=True), rtol=1e-9
    )
    # The variance of one round is 0.1, that of ten rows with unit noise; of gradients as they are it is not.
    np.testing.assert_allclose(np.diagonal(found[0].spread), 0.1, rtol=0.35)
    assert plain[1].min() > 0.5


def test_the_freedom_of_neighbours() -> None:
    """Var of the mean squared difference of n normal numbers is 2 sigma^4/freedom: here against 40,000 draws."""
    n = 12
    rng = np.random.default_rng(2)
    differences = np.diff(rng.normal(size=(40_000, n)), axis=1)
    found = (differences**2).sum(axis=1) / (2 * (n - 1))
    path = walked(rounds(n - 1 + 3), START)
    assert path.compared == n - 1
    # The variance of 40,000 such numbers is known to about 1.5 %: 6 % are four standard deviations; n - 1 is 30 % off.
    assert 2 / found.var() == pytest.approx(path.freedom, rel=0.06)
    assert abs(2 / found.var() / (n - 1) - 1) > 0.2
    assert walked(rounds(4), START).freedom == 1.0


def test_the_sandwich() -> None:
    path = walked(rounds(9), START)
    spread = np.diag([1.0, 2.0, 3.0])
    inverse = np.linalg.inv(path.hessian)
    np.testing.assert_allclose(path.sandwich(spread), inverse @ spread @ inverse / 9, rtol=1e-12)
    np.testing.assert_array_equal(path.sandwich(spread), path.sandwich(spread).T)


# --- one step -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", [1e-6, 0.2, 0.9, 3.0])
@pytest.mark.parametrize("clients", [1, 4])
def test_one_step_is_least_squares_whatever_the_steps(first: float, clients: int) -> None:
    """All clients in every round, every row once, weights that differ: the weighted fit to all rows."""
    rng = np.random.default_rng(6)
    t, each = 12, 5
    x = rng.normal(size=(t, clients, each, P))
    y = x @ np.array([1.0, 2.0, -1.0]) + rng.normal(size=x.shape[:-1])
    weight = rng.uniform(0.5, 2.0, size=clients)
    path = IteratePath.start(np.array([3.0, -3.0, 10.0]))
    for one in range(t):
        wrong = x[one] @ path.theta - y[one]
        gradient = np.einsum("c,cn,cnp->p", weight, wrong, x[one]) / (each * clients)
        hessian = np.einsum("c,cnp,cnq->pq", weight, x[one], x[one]) / (each * clients)
        path = path.after(gradient, hessian, np.zeros(P), step=first * (one + 1) ** -0.7, mean_steps=1.0)
    root = np.sqrt(np.broadcast_to(weight[None, :, None], y.shape)).reshape(-1)
    fit = np.linalg.lstsq(root[:, None] * x.reshape(-1, P), root * y.reshape(-1), rcond=None)[0]
    np.testing.assert_allclose(path.one_step(quadratic=True), fit, rtol=1e-9)
    if first >= 0.2:  # half the product would not be, nor would the mean of the iterates
        assert np.abs(path.one_step(quadratic=False) - fit).max() > 1e-6
        assert np.abs(path.averaged - fit).max() > 1e-3


def missed(starts: Floats, *, quadratic: bool = False) -> Floats:
    """The one-step estimate from noise-free rounds that begin here, of R(v) = sum exp(v_j) - v_j: its optimum is 0."""
    path = IteratePath.start(np.zeros(P))
    for start in starts:
        begun = replace(path, theta=start)
        path = begun.after(np.expm1(start), np.diag(np.exp(start)), np.zeros(P), step=0.1, mean_steps=1.0)
    return path.one_step(quadratic=quadratic)


def test_how_iterates_fluctuate_moves_one_step_by_third_order_only() -> None:
    starts = np.random.default_rng(0).normal(size=(8, P))
    starts = starts - starts.mean(axis=0)

    def errors(*, quadratic: bool) -> list[float]:
        return [float(np.linalg.norm(missed(d * starts, quadratic=quadratic))) for d in (0.02, 0.01, 0.005)]

    third, second = errors(quadratic=False), errors(quadratic=True)
    assert [third[0] / third[1], third[1] / third[2]] == pytest.approx([8, 8], rel=0.1)
    assert [second[0] / second[1], second[1] / second[2]] == pytest.approx([4, 4], rel=0.1)


def test_the_mean_of_the_starts_moves_one_step_as_a_newton_step_does() -> None:
    """By half H^{-1} D[m, m], with m from the optimum to the mean; here H is 1 and D is 1 in each coordinate."""
    starts = 0.01 * (np.random.default_rng(0).normal(size=(8, P)) + np.array([3.0, -2.0, 1.0]))
    np.testing.assert_allclose(missed(starts), starts.mean(axis=0) ** 2 / 2, rtol=0.1, atol=1e-6)


@pytest.mark.parametrize("truth", [(0.0, 1.0, -1.0), (-2.0, 0.3, 0.3), (-3.0, 1.0, 1.0)], ids=str)
def test_where_a_logistic_path_began_is_not_seen_in_the_estimate(truth: tuple[float, ...]) -> None:
    """Rounds of a whole population with steps that are too small: without restarts the bias is that of few rows."""
    x = np.random.default_rng(3).normal(size=(2000, P))
    x[:, 0] = 1.0
    chance = expit(x @ np.array(truth))
    errors = np.sqrt(np.diagonal(np.linalg.inv((x * (chance * (1 - chance))[:, None]).T @ x / 2000)))
    biases = {}
    for restarts in (False, True):
        path = IteratePath.start(np.zeros(P))
        for t in range(1, 201):
            found = expit(x @ path.theta)
            gradient = x.T @ (found - chance) / 2000
            hessian = (x * (found * (1 - found))[:, None]).T @ x / 2000
            step = 0.5 * t**-0.505
            path = path.after(gradient, hessian, np.zeros(P), step=step, mean_steps=1.0, restarts=restarts)
        # In standard errors of a fit to 50,000 rows.
        biases[restarts] = np.abs((path.one_step(quadratic=False) - truth) / errors).max() * np.sqrt(50_000)
    assert biases[False] > 3
    assert biases[True] < 0.3


# --- many at once, and to keep -----------------------------------------------------------------------------


def test_paths_with_leading_axes_are_paths_one_by_one() -> None:
    told = rounds(10, axes=(2, 4))
    start = np.random.default_rng(5).normal(size=(2, 4, P))
    together = walked(told, start)
    for i, j in np.ndindex(2, 4):
        own = [
            Told(one.gradient[i, j], one.hessian[i, j], one.drift[i, j], one.step, one.mean_steps)
            for one in told
        ]
        alone = walked(own, start[i, j])
        for name in ("theta", "mean", "averaged", "hessian", "spread", "scaling"):
            np.testing.assert_allclose(getattr(together, name)[i, j], getattr(alone, name), rtol=1e-9)
        for quadratic in (False, True):
            ours, theirs = together.one_step(quadratic=quadratic)[i, j], alone.one_step(quadratic=quadratic)
            np.testing.assert_allclose(ours, theirs, rtol=1e-9)
        np.testing.assert_allclose(
            together.sandwich(together.spread)[i, j], alone.sandwich(alone.spread), rtol=1e-9
        )


def test_a_path_is_kept_to_the_last_bit() -> None:
    path = walked(rounds(11), START)
    again = IteratePath.from_json(json.loads(json.dumps(path.to_json())))
    more = rounds(5, seed=9)
    for one in more:
        told = (one.gradient, one.hessian, one.drift)
        path = path.after(*told, step=one.step, mean_steps=one.mean_steps, restarts=True)
        again = again.after(*told, step=one.step, mean_steps=one.mean_steps, restarts=True)
    assert json.dumps(again.to_json()) == json.dumps(path.to_json())
    np.testing.assert_array_equal(again.one_step(quadratic=False), path.one_step(quadratic=False))
    np.testing.assert_array_equal(again.sandwich(again.spread), path.sandwich(path.spread))


def test_a_path_does_not_change_what_it_was_given() -> None:
    start, told = START.copy(), rounds(3)
    path = IteratePath.start(start)
    walked(told, start)
    assert (start == START).all()
    start[0] = 99.0
    assert path.theta[0] == START[0]
    assert path.rounds == 0
    assert not path.mean.any()


def test_step_sizes() -> None:
    assert [StepSizes(first=2.0, decay=0.75).at(t) for t in (1, 16, 81)] == pytest.approx([2.0, 0.25, 2 / 27])
    for wrong, said in (
        ({"first": 0.0, "decay": 0.6}, "step: got 0"),
        ({"first": np.inf, "decay": 0.6}, "step: got inf"),
        ({"first": np.nan, "decay": 0.6}, "step: got nan"),
        ({"first": 1.0, "decay": 0.5}, "decay: got 0.5, expected a number between 0.5 and 1"),
        ({"first": 1.0, "decay": 1.0}, "decay: got 1, expected"),
        ({"first": 1.0, "decay": np.nan}, "decay: got nan"),
    ):
        with pytest.raises(UsageError, match=said):
            StepSizes(**wrong)
