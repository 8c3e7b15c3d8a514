"""Profiles of clients: what the definitions say, and no client moves them further than is stated."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax

from fedassay.data.rows import ArrayRows
from fedassay.protocol import Neighbours, Protection, Unit
from fedassay.summaries.multiclass.client_profiles import LARGEST_EXCESS, PARTS, ClientProfiles
from fedassay.summaries.multiclass.loss_curves import UNITS
from multiclass_rows import Columns, drawn

GRID = (0.5, 1.0, 2.0)
CLIENT = Protection(unit=Unit.CLIENT, rows_per_client=100)


def measure(columns: Columns, summary: ClientProfiles | None = None) -> np.ndarray:
    summary = summary or ClientProfiles(classes=columns["logits"].shape[1], grid=GRID)
    return summary.measure(ArrayRows(columns=columns), {})[0]


@pytest.mark.parametrize("rows", [1, 3, 10, 200])
def test_sums_are_those_of_the_definitions(rows: int) -> None:
    columns = drawn(rows, 4, seed=2)
    summary = ClientProfiles(classes=4, grid=GRID)
    found = summary.read(measure(columns))
    p, weight = softmax(columns["logits"], axis=1), min(1.0, rows / 10)
    excess = (p - np.eye(4)[columns["class"]]).mean(axis=0)
    excess *= min(1.0, LARGEST_EXCESS / np.linalg.norm(excess))
    np.testing.assert_allclose(found.excess, weight * excess, atol=1e-6)
    assert found.uncertainty == pytest.approx(weight * math.sqrt((1 - (p**2).sum(axis=1)).mean()), abs=1e-6)
    curve = summary.curves
    direction = curve.measure(ArrayRows(columns=columns), {})[0] / UNITS
    np.testing.assert_allclose(found.curves.losses, direction, atol=1e-6)
    assert summary.length == 3 + 4 + 1


def test_clients_without_rows_say_nothing() -> None:
    assert not measure({"logits": np.zeros((0, 3)), "class": np.zeros(0, dtype=np.int64)}).any()
    other = ClientProfiles(classes=4, grid=GRID)
    assert not measure(drawn(20, 3), other).any()


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
@given(one=some_rows(), other=some_rows(), full=st.sampled_from([1, 10]))
def test_no_client_moves_it_further_than_is_stated(one: Columns, other: Columns, full: int) -> None:
    summary = ClientProfiles(classes=3, grid=GRID, full_rows=full)
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
    """Without the clip on the excess the same check fails."""
    wrong = {"logits": np.array([[9.0, 0.0, 0.0]] * 20), "class": np.array([1] * 20)}
    assert 0.88 * UNITS < apart(measure(wrong), np.zeros(7))[1] <= UNITS
    monkeypatch.setattr("fedassay.summaries.multiclass.client_profiles.LARGEST_EXCESS", 0.0)
    assert apart(measure(wrong), np.zeros(7))[1] <= UNITS  # a norm of its own is one too
    monkeypatch.setattr("fedassay.summaries.multiclass.client_profiles.PARTS", (0.4, 0.9, 0.1))
    assert apart(measure(wrong), np.zeros(7))[1] > UNITS


def test_parts_add_up_to_one() -> None:
    assert sum(PARTS) == pytest.approx(1.0, abs=1e-15)


def test_bad_fields_are_refused() -> None:
    for fields in (
        {"classes": 1, "grid": GRID},
        {"classes": 3, "grid": ()},
        {"classes": 3, "grid": (2.0, 1.0)},
    ):
        with pytest.raises(Exception, match="expected"):
            ClientProfiles(**fields)  # type: ignore[arg-type]
