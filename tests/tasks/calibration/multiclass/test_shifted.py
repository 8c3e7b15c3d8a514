"""Shifts of the classes from one release: found where they are, left alone where only noise is."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.special import softmax

from conformal_drive import answer
from fedassay.protocol.vocabulary import Budget, Protection, Setting, Unit
from fedassay.summaries.multiclass.loss_curves import LARGEST_MOMENTS, Curves, Profiles
from fedassay.summaries.multiclass.scaling_maps import Temperature, VectorScaling
from fedassay.tasks.calibration.multiclass.exact import Fit
from fedassay.tasks.calibration.multiclass.one_shot import BEYOND, fit_shifted, shifts_of
from fedassay.trust.server_dp import ServerDP
from multiclass_rows import Columns

CLASSES = 4


def model(rows: int, shifts: np.ndarray, scale: float, seed: int) -> Columns:
    """Rows whose classes follow softmax(z), and a model that says scale·(z - shifts)."""
    rng = np.random.default_rng(seed)
    z = 2.5 * rng.normal(size=(rows, CLASSES))
    y = (softmax(z, axis=1).cumsum(axis=1) > rng.random((rows, 1))).argmax(axis=1)
    return {"logits": scale * z - shifts, "class": y.astype(np.int64)}


def spread(columns: Columns, clients: int) -> list[Columns]:
    owner = np.arange(len(columns["class"])) % clients
    return [{name: column[owner == k] for name, column in columns.items()} for k in range(clients)]


def fitted(
    columns: Columns, *, clients: int, epsilon: float, seed: int = 0, classes: int = CLASSES
) -> tuple[Fit, list[Any]]:
    setting = Setting(
        trust=ServerDP(),
        protection=Protection(unit=Unit.CLIENT, rows_per_client=100),
        budget=Budget(epsilon=epsilon, delta=1e-5),
        clients=clients,
    )
    flow = fit_shifted(classes, setting, clients=float(clients))
    rows, asked = spread(columns, clients), [next(flow)]
    while True:
        try:
            asked.append(flow.send(answer(asked[-1], setting, rows, seed)))
        except StopIteration as finished:
            return finished.value, asked


SHIFTS = np.array([0.6, -0.6, 0.3, -0.3])


def test_a_shift_is_found_and_improves_the_model() -> None:
    columns = model(6_000, SHIFTS, 1.0, 1)
    found, asked = fitted(columns, clients=300, epsilon=8.0)
    assert isinstance(found.map, VectorScaling)
    assert sum(query.share for query in asked) == pytest.approx(1.0)
    assert np.corrcoef(found.map.intercepts, SHIFTS)[0, 1] > 0.9
    fresh = model(20_000, SHIFTS, 1.0, 2)
    p = found.map.predict_proba(fresh["logits"])
    base = softmax(fresh["logits"], axis=1)
    at = np.arange(len(fresh["class"])), fresh["class"]
    assert -np.log(p[at]).mean() < -np.log(base[at]).mean() - 0.01
    shares = np.bincount(fresh["class"]) / 20_000
    assert abs(p.mean(axis=0) - shares).max() < 0.8 * abs(base.mean(axis=0) - shares).max()


def test_a_small_budget_is_one_release_and_a_large_one_two() -> None:
    columns = model(2_000, np.zeros(CLASSES), 2.0, 3)
    small, asked = fitted(columns, clients=100, epsilon=1.0)
    assert ([query.share for query in asked], small.sums) == ([1.0], 1)
    large, asked = fitted(columns, clients=100, epsilon=10.0)
    assert ([query.share for query in asked], large.sums) == ([0.5, 0.5], 2)
    assert isinstance(large.map, Temperature)
    assert large.map.inverse_temperature == pytest.approx(0.5, abs=0.08)


@pytest.mark.parametrize("epsilon", [1.0, 8.0])
def test_a_temperature_beyond_the_grid_is_said_to_be(epsilon: float) -> None:
    timid, right = (model(2_000, np.zeros(CLASSES), scale, 3) for scale in (0.1, 1.0))
    assert fitted(timid, clients=100, epsilon=epsilon)[0].reason == BEYOND
    assert not fitted(right, clients=100, epsilon=epsilon)[0].reason


def seen(excess: np.ndarray, spread: np.ndarray | float = 10.0) -> Profiles:
    curves = Curves(grid=np.ones(1), losses=np.zeros(1))
    wide = np.broadcast_to(np.asarray(spread, dtype=np.float64), excess.shape)
    return Profiles(curves=curves, excess=excess, spread=wide, units=(1.0, 1.0, 1.0))


def test_noise_alone_makes_no_long_shifts() -> None:
    """A sum of squares of c - 1 draws is above its mean in 43.7 % of all cases for c = 10, and shifts are then short.

    Of 2,000 draws between 780 and 970 are so in all but 1 of 10,000 cases. With half of the noise accounted for nearly
    all are, and shifts are four times as long.
    """
    rng, clients, deviation = np.random.default_rng(0), 1e6, 1e3
    draws = rng.normal(0, deviation, (2_000, 10))
    found = np.array([shifts_of(seen(draw, 1e5), deviation, clients) for draw in draws])
    assert 780 < found.any(axis=1).sum() < 970
    unshrunk = np.linalg.norm(draws, axis=1).mean() / (2 * 1e5)
    assert np.linalg.norm(found, axis=1).mean() < 0.15 * unshrunk
    half = np.array([shifts_of(seen(draw, 1e5), 0.5 * deviation, clients) for draw in draws])
    assert half.any(axis=1).sum() > 1_900
    assert np.linalg.norm(half, axis=1).mean() > 0.6 * unshrunk


def test_shifts_are_shrunk_by_what_noise_accounts_for() -> None:
    excess = np.array([3.0, -1.0, -1.0, -1.0])
    clear = shifts_of(seen(excess), 1e-9, 100.0)
    part = 1 - LARGEST_MOMENTS**2 / 100 / float((excess / 100) @ (excess / 100))
    np.testing.assert_allclose(clear, -part * excess / 100 / (2 * 0.1), rtol=1e-6)
    noisy = shifts_of(seen(excess), 1.0, 100.0)
    assert 0 < np.linalg.norm(noisy) < np.linalg.norm(clear)
    assert not shifts_of(seen(excess), 3.0, 100.0).any()
    assert math.isclose(clear.sum(), 0.0, abs_tol=1e-12)
    # Models that seem to be sure of everything are not moved by more than the largest shift.
    for spread in (0.0, -5.0, 1e-9):
        assert np.abs(shifts_of(seen(excess, spread), 1e-9, 100.0)).max() == pytest.approx(1.0)


def test_curvature_is_that_of_the_classes_that_move() -> None:
    """Classes without uncertainty do not make the step longer, however many there are."""
    excess = np.array([1.0, -1.0, *[0.0] * 98])
    spread = np.array([20.0, 20.0, *[0.0] * 98])
    many = shifts_of(seen(excess, spread), 1e-9, 100.0)
    two = shifts_of(seen(excess[:2], spread[:2]), 1e-9, 100.0)
    np.testing.assert_allclose(many[:2], two)
    assert np.abs(two).max() < 1.0 / (2 * 20.0)


def loss(p: np.ndarray, y: np.ndarray) -> float:
    return float(-np.log(p[np.arange(len(y)), y]).mean())


def few_uncertain(classes: int, seed: int) -> Columns:
    """Two classes have nearly all of the mass; the model finds the first too probable, by 0.3."""
    rng = np.random.default_rng(seed)
    z = np.log([0.49, 0.49, *[0.02 / (classes - 2)] * (classes - 2)]) + rng.normal(size=(12_000, classes))
    y = (softmax(z, axis=1).cumsum(axis=1) > rng.random((12_000, 1))).argmax(axis=1)
    return {"logits": z + 0.3 * (np.arange(classes) == 0), "class": y.astype(np.int64)}


@pytest.mark.parametrize("classes", [3, 40])
def test_where_two_classes_hold_the_uncertainty_the_step_is_not_too_long(classes: int) -> None:
    found, _ = fitted(few_uncertain(classes, 5), clients=200, epsilon=8.0, classes=classes)
    fresh = few_uncertain(classes, 6)
    assert isinstance(found.map, VectorScaling)
    b = np.array(found.map.intercepts)
    assert -0.45 < b[0] - b[1] < -0.15
    p = found.map.predict_proba(fresh["logits"])
    assert loss(p, fresh["class"]) < loss(softmax(fresh["logits"], axis=1), fresh["class"]) - 0.003


def test_where_noise_would_drown_shifts_nobody_is_asked_for_them() -> None:
    columns = model(2_000, SHIFTS, 1.0, 7)
    for clients, epsilon in ((20, 1.0), (100, 0.5)):
        found, asked = fitted(columns, clients=clients, epsilon=epsilon)
        assert [type(query.of).name for query in asked] == ["loss-curves"]
        assert isinstance(found.map, Temperature)
