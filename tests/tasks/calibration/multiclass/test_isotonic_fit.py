"""The isotonic fit equals one on pooled rows, whoever holds them, and is the temperature where rows are few."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from scipy.special import expit, softmax
from sklearn.isotonic import IsotonicRegression

from conformal_drive import answer, setting_of
from fedassay.errors import UsageError
from fedassay.protocol.vocabulary import Part, Setting, Sum
from fedassay.summaries.multiclass.binned_map import Isotonic
from fedassay.summaries.multiclass.maps import logit_map_from_json
from fedassay.summaries.multiclass.scaling_maps import Temperature
from fedassay.tasks.calibration.multiclass.exact import RIDGE, Fit
from fedassay.tasks.calibration.multiclass.isotonic_fit import (
    FEWEST_ROWS,
    HEIGHT,
    MOST_NUMBERS,
    REACH,
    fit_isotonic,
)
from fedassay.trust import TRUST_MODELS
from fedassay.trust.secure_sum import SecureSum
from multiclass_rows import Columns, design, dirichlet, drawn, objective, pooled_optimum

EDGES = expit(np.linspace(-REACH, REACH, (1 << HEIGHT) + 1)[1:-1])


def fitted(clients: Sequence[Columns], classes: int, setting: Setting | None = None) -> Fit:
    setting = setting or setting_of(clients=len(clients))
    flow = fit_isotonic(classes, setting)
    step = next(flow)
    assert all(isinstance(query, Sum) and query.part is Part.FIT for query in step)  # type: ignore[union-attr]
    assert sum(query.share for query in step) <= 1  # type: ignore[union-attr]
    with pytest.raises(StopIteration) as finished:
        flow.send(tuple(answer(query, setting, clients, 0) for query in step))  # type: ignore[union-attr, arg-type]
    found: Fit = finished.value.value
    return found


def pooled_temperature(columns: Columns) -> float:
    at = objective(design("temperature", columns["logits"], 1), columns["class"], np.ones(1), RIDGE)
    return float(pooled_optimum(at, np.ones(1), None)[0])


def slow(columns: Columns, new: np.ndarray) -> np.ndarray:
    """By scikit-learn on the bins of the pooled rows, and SciPy for the temperature; probabilities of new rows."""
    z, y = columns["logits"], columns["class"]
    classes = z.shape[1]
    p, q = softmax(z, axis=1), softmax(pooled_temperature(columns) * new, axis=1)
    leaf, leaf_of_new = (np.searchsorted(EDGES, one, side="right") for one in (p, softmax(new, axis=1)))
    g = np.zeros_like(q)
    for j in range(classes):
        steps = IsotonicRegression(y_min=0.0, y_max=1.0).fit(leaf[:, j], y == j)
        seen = np.unique(leaf[:, j])
        # A bin nobody is in says what the next one below says; below all of them, the first.
        below = seen[np.maximum(np.searchsorted(seen, leaf_of_new[:, j], side="right") - 1, 0)]
        g[:, j] = steps.predict(below)
    total = g.sum(axis=1, keepdims=True)
    g = np.where(total > 0, g / np.where(total > 0, total, 1), q)
    rows = np.bincount(y, minlength=classes)
    w = rows / (rows + 50) if len(y) >= 1_000 else np.zeros(classes)
    mixed = w * g + (1 - w) * q
    return mixed / mixed.sum(axis=1, keepdims=True)


@pytest.fixture(scope="module")
def columns() -> Columns:
    return drawn(1_500, 5)


@pytest.fixture(scope="module")
def pooled(columns: Columns) -> Fit:
    return fitted([columns], 5)


def test_it_equals_the_pooled_oracle(columns: Columns, pooled: Fit) -> None:
    new = np.concatenate([columns["logits"], drawn(500, 5, seed=9, scale=6.0)["logits"], 30 * np.eye(5)])
    assert np.abs(pooled.map.predict_proba(new) - slow(columns, new)).max() < 1e-7
    assert (pooled.rows, pooled.clients, pooled.sums, pooled.reason) == (1_500, 1, 1, "")
    assert isinstance(pooled.map, Isotonic)
    assert pooled.map.inverse_temperature == pytest.approx(pooled_temperature(columns), abs=1e-7)


@pytest.mark.parametrize("trust", [None, SecureSum()], ids=["plain", "secure-sum"])
def test_how_rows_are_dealt_has_no_influence(columns: Columns, pooled: Fit, trust: Any) -> None:
    clients = dirichlet(columns, 100, 0.1)
    assert min(len(one["class"]) for one in clients) == 0
    found = fitted(clients, 5, setting_of(trust, clients=100))
    assert isinstance(found.map, Isotonic)
    assert isinstance(pooled.map, Isotonic)
    assert (found.map.values, found.map.weights) == (pooled.map.values, pooled.map.weights)
    assert found.map.inverse_temperature == pytest.approx(pooled.map.inverse_temperature, rel=1e-11)
    assert (found.rows, found.clients) == (1_500, 100)


def test_it_calibrates() -> None:
    """On rows it has not seen: their log loss falls by more than that of the temperature alone."""
    columns = drawn(30_000, 4, seed=1)
    fit, rest = (
        {name: column[part] for name, column in columns.items()}
        for part in (slice(20_000), slice(20_000, None))
    )
    found = fitted([fit], 4)

    def loss(p: np.ndarray) -> float:
        return float(-np.log(p[np.arange(len(p)), rest["class"]]).mean())

    alone = Temperature(inverse_temperature=found.map.theta[-2], classes=4)
    before, scaled, after = (
        loss(p)
        for p in (
            softmax(rest["logits"], axis=1),
            alone.predict_proba(rest["logits"]),
            found.map.predict_proba(rest["logits"]),
        )
    )
    assert after < scaled - 0.01 < before - 0.02


def test_few_rows_are_left_to_the_temperature() -> None:
    for rows in (0, 1, 50, FEWEST_ROWS - 1):
        columns = drawn(rows, 3, seed=2)
        found = fitted([columns], 3)
        assert isinstance(found.map, Isotonic)
        assert found.map.weights == (0.0, 0.0, 0.0)
        assert found.map.keeps_order
        s = pooled_temperature(columns) if rows > 1 else found.map.inverse_temperature
        z = drawn(100, 3, seed=3)["logits"]
        assert np.abs(found.map.predict_proba(z) - softmax(s * z, axis=1)).max() < 1e-6
    found = fitted([drawn(FEWEST_ROWS, 3, seed=2)], 3)
    assert isinstance(found.map, Isotonic)
    assert min(found.map.weights) > 0.5


def test_nobody_has_rows() -> None:
    found = fitted([drawn(0, 3)] * 4, 3)
    assert (found.rows, found.clients, found.reason) == (0, 4, "there are no rows")
    assert np.allclose(found.map.predict_proba([[1.0, 2.0, 0.0]]), softmax([1.0, 2.0, 0.0]))


def test_a_class_that_nobody_has() -> None:
    columns = drawn(1_200, 4, seed=4)
    columns["class"] = np.where(columns["class"] == 2, 0, columns["class"])
    found = fitted(dirichlet(columns, 20, 0.1), 4)
    assert isinstance(found.map, Isotonic)
    assert found.map.weights[2] == 0
    assert found.map.values[2] == (0.0,) * (1 << HEIGHT)
    p = found.map.predict_proba(columns["logits"])
    assert np.abs(p - slow(columns, columns["logits"])).max() < 1e-7
    assert np.abs(p.sum(axis=1) - 1).max() < 1e-12


def test_json_keeps_every_bit(pooled: Fit, columns: Columns) -> None:
    again = logit_map_from_json(json.loads(json.dumps(pooled.map.to_json(), allow_nan=False)))
    assert again == pooled.map
    z = columns["logits"]
    assert np.array_equal(again.predict_proba(z), pooled.map.predict_proba(z))


@pytest.mark.parametrize(("classes", "bins"), [(2, 256), (256, 256), (300, 128), (1024, 64)])
def test_many_classes_have_fewer_bins(classes: int, bins: int) -> None:
    histograms = next(fit_isotonic(classes, setting_of(clients=3)))[1].of  # type: ignore[index]
    assert 1 << histograms.height == bins
    assert histograms.length <= MOST_NUMBERS


@pytest.mark.parametrize("trust", sorted(name for name, kind in TRUST_MODELS.items() if kind.private))
def test_it_is_not_for_noise(trust: str) -> None:
    setting = setting_of(TRUST_MODELS[trust](), clients=5, epsilon=1.0)
    with pytest.raises(
        UsageError, match="method: got isotonic under differential privacy, expected temperature"
    ):
        next(fit_isotonic(3, setting))
