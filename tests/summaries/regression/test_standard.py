"""Features on a common scale and back: the same predictions, the same fit, the same errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedassay.errors import DataError, UsageError
from fedassay.summaries.regression.losses import LogLoss
from fedassay.summaries.regression.moments import MOST_FEATURES, Standard

STANDARDS = {
    "plain": Standard(features=3),
    "scaled": Standard(features=3, scales=(2.0, 1e-3, 1e5), intercept=False, target_scale=7.0),
    "shifted": Standard(
        features=3, centres=(5.0, -2e-3, 3e4), scales=(2.0, 1e-3, 1e5), target_centre=-4.0, target_scale=0.5
    ),
    "offset": Standard(features=3, centres=(1.0, 0.0, 0.0), offset=True, target_centre=3.0, target_scale=2.0),
}
each = pytest.mark.parametrize("name", sorted(STANDARDS))


def rows(standard: Standard, count: int = 40) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(8)
    x = rng.normal(size=(count, 3)) * np.array(standard.scales) + np.array(standard.centres)
    return {"features": x, "target": rng.normal(size=count), "offset": rng.normal(size=count)}


def raw(standard: Standard, x: np.ndarray) -> np.ndarray:
    return np.concatenate([np.ones((len(x), 1)), x], axis=1) if standard.intercept else x


@each
def test_predictions_are_the_same_in_both_units(name: str) -> None:
    standard, theta = STANDARDS[name], np.random.default_rng(2).normal(size=STANDARDS[name].parameters)
    batch = rows(standard)
    design = standard.design(batch, linear=True)
    there = standard.target_scale * (design.x @ theta) + standard.target_centre
    np.testing.assert_allclose(
        raw(standard, batch["features"]) @ standard.back(theta), there, rtol=1e-9, atol=1e-9
    )


@each
def test_least_squares_on_the_common_scale_are_least_squares(name: str) -> None:
    """The estimate, and its covariance by the same map."""
    standard = STANDARDS[name]
    batch = rows(standard)
    design = standard.design(batch, linear=True)
    scaled = np.linalg.lstsq(design.x, design.y, rcond=None)[0]
    x, y = raw(standard, batch["features"]), batch["target"] - standard.offset * batch["offset"]
    # In units of each column: scales differ by 10^8.
    unit = np.abs(x).max(axis=0)
    direct = np.linalg.lstsq(x / unit, y, rcond=None)[0] / unit
    np.testing.assert_allclose(standard.back(scaled), direct, rtol=1e-9)
    assert not design.offset.any()
    here = np.linalg.inv(design.x.T @ design.x)
    there = np.linalg.inv((x / unit).T @ (x / unit)) / np.outer(unit, unit) * standard.target_scale**2
    np.testing.assert_allclose(standard.matrix @ here @ standard.matrix.T, there, rtol=1e-8)


def test_an_offset_of_a_logistic_model_is_part_of_the_index() -> None:
    standard = Standard(features=3, centres=(1.0, 2.0, 3.0), scales=(2.0, 3.0, 4.0), offset=True)
    batch = rows(standard)
    theta = np.array([0.3, -0.2, 0.5, 0.1])
    there = LogLoss.index(theta, standard.design(batch))
    here = raw(standard, batch["features"]) @ standard.back(theta) + batch["offset"]
    np.testing.assert_allclose(there, here, rtol=1e-12)
    np.testing.assert_array_equal(standard.design(batch).y, batch["target"])


def test_roles_and_rows_with_another_number_of_features() -> None:
    standard = Standard(features=2, offset=True)
    assert standard.columns == ("features", "target", "offset")
    assert Standard(features=2).columns == ("features", "target")
    assert (standard.parameters, Standard(features=2, intercept=False).parameters) == (3, 2)
    other = {"features": np.ones((4, 3)), "target": np.ones(4), "offset": np.ones(4)}
    assert standard.design(other).x.shape == (0, 3)
    assert len(standard.design(other).offset) == 0
    with pytest.raises(DataError, match="'offset'"):
        standard.design({"features": np.ones((4, 2)), "target": np.ones(4)})


def test_an_intercept_alone() -> None:
    alone = Standard(features=0)
    assert alone.design({"features": np.ones((3, 0)), "target": np.zeros(3)}).x.tolist() == [[1.0]] * 3
    assert alone.back(np.array([2.0])).tolist() == [2.0]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"features": 0, "intercept": False}, "features: got 0"),
        ({"features": MOST_FEATURES + 1}, f"features: got {MOST_FEATURES + 1}"),
        ({"features": 2, "centres": (1.0,)}, "centres: expected 2 finite numbers"),
        ({"features": 1, "scales": (np.inf,)}, "scales: got inf"),
        ({"features": 1, "centres": (np.nan,)}, "centres: got nan"),
        ({"features": 1, "intercept": False, "centres": (1.0,)}, "without an intercept"),
        ({"features": 1, "intercept": False, "target_centre": 1.0}, "without an intercept"),
    ],
)
def test_what_cannot_be_a_scale_is_refused(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Standard(**fields)
