"""Shifts of the classes from one release: found where they are, left alone where only noise is."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.special import softmax

from conformal_drive import answer
from fedassay.protocol import Budget, Protection, Setting, Unit
from fedassay.summaries.multiclass.client_profiles import LARGEST_EXCESS, Profiles
from fedassay.summaries.multiclass.loss_curves import Curves
from fedassay.summaries.multiclass.scaling_maps import Temperature, VectorScaling
from fedassay.tasks.calibration.multiclass.exact import Fit
from fedassay.tasks.calibration.multiclass.shifted import fit_shifted, shifts_of
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


def fitted(columns: Columns, *, clients: int, epsilon: float, seed: int = 0) -> tuple[Fit, list[Any]]:
    setting = Setting(
        trust=ServerDP(),
        protection=Protection(unit=Unit.CLIENT, rows_per_client=100),
        budget=Budget(epsilon=epsilon, delta=1e-5),
        clients=clients,
    )
    flow = fit_shifted(CLASSES, setting, clients=float(clients))
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


def seen(excess: np.ndarray, uncertainty: float = 50.0) -> Profiles:
    curves = Curves(grid=np.ones(1), losses=np.zeros(1))
    return Profiles(curves=curves, excess=excess, uncertainty=uncertainty, units=(1.0, 1.0, 1.0))


def test_noise_alone_is_hardly_ever_taken_for_a_shift() -> None:
    """A sum of squares of c - 1 draws beyond its mean by two standard deviations: 4.6 % for c = 10.

    Of 2,000 draws more than 130 would be four standard deviations above that; with half of the noise accounted for,
    more than half of the draws would be taken for shifts.
    """
    rng, clients, deviation = np.random.default_rng(0), 1e6, 1e3
    draws = rng.normal(0, deviation, (2_000, 10))
    shifted = sum(shifts_of(seen(draw), deviation, clients).any() for draw in draws)
    assert 20 < shifted < 130
    assert sum(shifts_of(seen(draw), 0.5 * deviation, clients).any() for draw in draws) > 1_000


def test_shifts_are_shrunk_by_what_noise_accounts_for() -> None:
    excess = np.array([3.0, -1.0, -1.0, -1.0])
    clear = shifts_of(seen(excess), 1e-6, 100.0)
    expected = -(excess / 100) * 4 / 0.5**2
    part = 1 - LARGEST_EXCESS**2 / 100 / float((excess / 100) @ (excess / 100))
    np.testing.assert_allclose(clear, part * expected, rtol=1e-9)
    noisy = shifts_of(seen(excess), 1.0, 100.0)
    assert 0 < np.linalg.norm(noisy) < np.linalg.norm(clear)
    # No mean of clipped vectors is as long as this noise: nothing is seen then, however long it is.
    assert not shifts_of(seen(1e3 * excess), 300.0, 100.0).any()
    assert np.abs(shifts_of(seen(1e3 * excess), 1e-6, 100.0)).max() <= 1.0
    # A model that seems to be sure of everything is not moved further than one that is quite sure.
    assert np.array_equal(
        shifts_of(seen(excess, -5.0), 1e-6, 100.0), shifts_of(seen(excess, 35.0), 1e-6, 100.0)
    )
    assert math.isclose(clear.sum(), 0.0, abs_tol=1e-12)
