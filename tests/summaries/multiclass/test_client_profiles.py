"""Profiles of clients: what the definitions say, and no client moves them further than is stated."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax

from fedassay.data.tables import ArrayRows
from fedassay.protocol.vocabulary import Neighbours, Protection, Unit
from fedassay.summaries.multiclass.loss_curves import (
    LARGEST_MOMENTS,
    PARTS,
    SPREAD_WEIGHT,
    UNITS,
    ClientProfiles,
)
from multiclass_rows import Columns, drawn

GRID = (0.5, 1.0, 2.0)
CLIENT = Protection(unit=Unit.CLIENT, rows_per_client=100)


def measure(columns: Columns, summary: ClientProfiles | None = None) -> np.ndarray:
    summary = summary or ClientProfiles(classes=columns["logits"].shape[1], grid=GRID)
    return summary.measure(ArrayRows(columns=columns), {})[0]


def moments(columns: Columns, s: float) -> tuple[np.ndarray, np.ndarray]:
    p = softmax(s * columns["logits"], axis=1)
    return (p - np.eye(p.shape[1])[columns["class"]]).mean(axis=0), (p * (1 - p)).mean(axis=0)


@pytest.mark.parametrize("rows", [1, 3, 10, 200])
@pytest.mark.parametrize("at", [None, 0.7])
def test_sums_are_those_of_the_definitions(rows: int, at: float | None) -> None:
    columns = drawn(rows, 4, seed=2)
    summary = ClientProfiles(classes=4, grid=GRID, at=at)
    found = summary.read(measure(columns, summary))
    direction = summary.curves.measure(ArrayRows(columns=columns), {})[0] / UNITS
    np.testing.assert_allclose(found.curves.losses, direction, atol=1e-6)
    excess, spread = moments(columns, at or min(1.0, GRID[int(direction.argmin())]))
    length = math.sqrt(float(excess @ excess) + SPREAD_WEIGHT**2 * float(spread @ spread))
    weight = min(1.0, rows / 10) * min(1.0, LARGEST_MOMENTS / length)
    np.testing.assert_allclose(found.excess, weight * excess, atol=1e-6)
    np.testing.assert_allclose(found.spread, weight * spread, atol=1e-6)
    assert summary.length == 3 + 2 * 4


def test_a_model_that_is_too_sure_is_looked_at_where_it_is_right() -> None:
    """With unequal classes, at s = 1 frequent ones look too probable; at the client's own temperature they do not."""
    rng = np.random.default_rng(4)
    z = np.log([0.8, 0.15, 0.05]) + 1.5 * rng.normal(size=(20_000, 3))
    y = (softmax(z, axis=1).cumsum(axis=1) > rng.random((20_000, 1))).argmax(axis=1)
    columns = {"logits": 2 * z, "class": y.astype(np.int64)}
    own, fixed = (ClientProfiles(classes=3, grid=GRID, at=at) for at in (None, 1.0))
    calm, biased = (np.abs(s.read(measure(columns, s)).excess).max() for s in (own, fixed))
    assert calm < 0.01 < 0.03 < biased


def test_clients_without_rows_say_nothing() -> None:
    assert not measure({"logits": np.zeros((0, 3)), "class": np.zeros(0, dtype=np.int64)}).any()


extreme = st.sampled_from([0.0, -0.0, 1e-300, 1e300, -1e300, 1e6, -1e6]) | st.floats(-50, 50)


@st.composite
def some_rows(draw: st.DrawFn) -> Columns:
    classes = 3
    n = draw(st.integers(0, 25))
    logits = draw(st.lists(st.lists(extreme, min_size=classes, max_size=classes), min_size=n, max_size=n))
    labels = draw(st.lists(st.integers(0, classes - 1), min_size=n, max_size=n))
    return {
        "logits": np.array(logits, dtype=np.float64).reshape(n, classes),
        "class": np.array(labels, dtype=np.int64),
    }


def apart(one: np.ndarray, other: np.ndarray) -> tuple[float, float]:
    gap = [int(a) - int(b) for a, b in zip(one, other, strict=True)]
    return float(sum(abs(g) for g in gap)), math.sqrt(sum(g * g for g in gap))


@settings(max_examples=150, deadline=None)
@given(
    one=some_rows(), other=some_rows(), full=st.sampled_from([1, 10]), at=st.sampled_from([None, 0.25, 1.0])
)
def test_no_client_moves_it_further_than_is_stated(
    one: Columns, other: Columns, full: int, at: float | None
) -> None:
    summary = ClientProfiles(classes=3, grid=GRID, full_rows=full, at=at)
    first, second = (measure(rows, summary) for rows in (one, other))
    alone = summary.sensitivity(CLIENT)
    replaced = summary.sensitivity(
        Protection(unit=Unit.CLIENT, rows_per_client=5, neighbours=Neighbours.REPLACE_ONE)
    )
    l1, l2 = apart(first, np.zeros_like(first))
    assert l1 <= alone.l1
    assert l2 <= alone.l2 == UNITS
    l1, l2 = apart(first, second)
    assert l1 <= replaced.l1 == summary.sensitivity(Protection()).l1
    assert l2 <= replaced.l2
    assert np.abs(first).max(initial=0) <= summary.largest


def test_the_bound_is_nearly_reached_and_could_be_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """With parts that add up to more than one the same check fails."""
    wrong = {"logits": np.array([[9.0, 0.0, 0.0]] * 20), "class": np.array([1] * 20)}
    assert sum(PARTS) == pytest.approx(1.0, abs=1e-15)
    assert 0.99 * UNITS < apart(measure(wrong), np.zeros(9))[1] <= UNITS
    monkeypatch.setattr("fedassay.summaries.multiclass.loss_curves.LARGEST_MOMENTS", 0.0)
    assert apart(measure(wrong), np.zeros(9))[1] <= UNITS  # a norm of its own is one too
    monkeypatch.setattr("fedassay.summaries.multiclass.loss_curves.PARTS", (0.5, 0.9))
    assert apart(measure(wrong), np.zeros(9))[1] > UNITS


def test_bad_fields_are_refused() -> None:
    for fields in (
        {"classes": 1, "grid": GRID},
        {"classes": 3, "grid": ()},
        {"classes": 3, "grid": (2.0, 1.0)},
        {"classes": 3, "grid": GRID, "at": 0.0},
    ):
        with pytest.raises(Exception, match="expected"):
            ClientProfiles(**fields)  # type: ignore[arg-type]
