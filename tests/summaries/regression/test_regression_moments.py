"""Means and deviations are those of the pooled rows, to nearly all digits, and nothing cancels."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from fedassay.data.tables import ArrayRows, StreamedRows
from fedassay.summaries.regression.moments import LARGEST_VALUE, Moments, RegressionMoments, standard_from


def of(clients: Sequence[dict[str, Any]], **fields: Any) -> Moments:
    summary = RegressionMoments(features=clients[0]["features"].shape[1], **fields)
    vectors = [summary.measure(ArrayRows(columns=one), {})[0] for one in clients]
    assert all(np.abs(vector).max(initial=0) <= summary.largest for vector in vectors)
    return summary.read(np.sum(vectors, axis=0))


def split(x: np.ndarray, y: np.ndarray, *cuts: int) -> list[dict[str, Any]]:
    return [
        {"features": one, "target": other}
        for one, other in zip(np.split(x, cuts), np.split(y, cuts), strict=True)
    ]


@pytest.mark.parametrize(
    ("mean", "deviation"),
    [(0.0, 1.0), (1e6, 1.0), (-1e9, 1.0), (1e12, 1e4), (1.0, 1e-6), (0.0, 1e-12), (3e18, 1e9)],
)
def test_nothing_cancels(mean: float, deviation: float) -> None:
    """Six digits were asked for, with a mean a million deviations away; nine are there."""
    rng = np.random.default_rng(0)
    # Sorted: clients differ, and their means matter as much as what varies within.
    x = mean + deviation * np.sort(rng.standard_normal((500, 1)), axis=0)
    exact = [Fraction(float(value)) for value in x[:, 0]]
    centre = sum(exact) / 500
    spread = float(sum((value - centre) ** 2 for value in exact) / 500) ** 0.5
    found = of(split(x, x[:, 0], 0, 1, 40, 300))
    assert found.means[0] == pytest.approx(float(centre), rel=1e-15, abs=1e-15 * deviation)
    assert found.deviations[0] == pytest.approx(spread, rel=1e-9)
    assert (found.target_mean, found.target_deviation) == (found.means[0], found.deviations[0])


def test_counts() -> None:
    x, y = np.zeros((7, 2)), np.array([1.0, 1.0, 0.0, 1.0, 2.0, 0.5, 1.0])
    found = of(split(x, y, 2, 2, 4, 6))
    assert (found.rows, found.clients, found.constant_targets, found.not_binary, found.cut) == (7, 4, 2, 2, 0)
    assert found.deviations.tolist() == [0.0, 0.0]


@pytest.mark.parametrize("value", [0.1, -1e-6, 1e15 / 3, 1 / 3, 1e-12])
def test_a_constant_is_exactly_one(value: float) -> None:
    """In whatever batches it comes; and the smallest change of one row of 0.1 by a millionth is seen."""
    x = np.full((101, 1), value)
    assert of(split(x, x[:, 0], 3, 50)).deviations[0] == 0.0
    x[7] *= 1 + 1e-6
    assert of(split(x, x[:, 0], 3, 50)).deviations[0] == pytest.approx(x.std(), rel=1e-3)


def test_batches_are_added_up() -> None:
    rng = np.random.default_rng(1)
    x, y = rng.normal(5, 2, (40, 3)), rng.normal(size=40)
    summary, pieces = RegressionMoments(features=3), split(x, y, 7, 7, 21)
    streamed, _ = summary.measure(StreamedRows(read=lambda: iter(pieces)), {})
    found = summary.read(streamed)
    assert found.rows == 40
    np.testing.assert_allclose(found.means, x.mean(axis=0), rtol=1e-14)
    np.testing.assert_allclose(found.deviations, x.std(axis=0), rtol=1e-13)


def test_an_offset_is_taken_off_if_asked() -> None:
    rows = {
        "features": np.ones((3, 1)),
        "target": np.array([1.0, 0.0, 1.0]),
        "offset": np.array([3.0, 0.0, -3.0]),
    }
    assert of([rows]).target_mean == pytest.approx(2 / 3)
    found = of([rows], less_offset=True)
    assert found.target_deviation == pytest.approx(np.std([-2.0, 0.0, 4.0]))
    assert found.not_binary == 0


def test_what_is_too_large_is_cut_and_counted() -> None:
    x = np.array([[1e300], [1.0], [2.0]])
    found = of(split(x, np.ones(3), 1, 2))
    assert found.cut == 1
    assert found.means[0] == pytest.approx(LARGEST_VALUE / 3)


def test_no_rows_and_rows_of_another_width() -> None:
    found = of([{"features": np.zeros((0, 2)), "target": np.zeros(0)}])
    assert (found.rows, found.clients, found.means.tolist()) == (0, 0, [0.0, 0.0])
    vector, _ = RegressionMoments(features=3).measure(
        ArrayRows(columns={"features": np.ones((4, 2)), "target": np.ones(4)}), {}
    )
    assert not vector.any()


def test_the_standard_that_follows() -> None:
    rng = np.random.default_rng(2)
    x, y = rng.normal(5, [1.0, 1e4], (50, 2)), rng.normal(-3, 2, 50)
    found = of(split(x, y, 10))
    rows = {"features": x, "target": y}
    design = standard_from(found, intercept=True, linear=True, offset=False).design(rows, linear=True)
    for column in (*design.x.T[1:], design.y):
        assert (column.mean(), column.std()) == pytest.approx((0.0, 1.0), abs=1e-12)
    plain = standard_from(found, intercept=False, linear=False, offset=True)
    assert plain.centres == (0.0, 0.0)
    assert plain.scales == pytest.approx(np.sqrt((x**2).mean(axis=0)))
    assert (plain.target_centre, plain.target_scale, plain.offset) == (0.0, 1.0, True)
