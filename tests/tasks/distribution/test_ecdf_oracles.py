"""Without noise: equal to NumPy, SciPy, statsmodels and scikit-learn on the pooled rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom
from sklearn.metrics import roc_auc_score, roc_curve
from statsmodels.distributions.empirical_distribution import ECDF

from drawn_values import PLAIN, drive
from fedassay.summaries.distribution.grid import ValueGrid
from fedassay.tasks.distribution import Ecdf, area_between, quantile_at, value_at

GRIDS: dict[str, dict[str, Any]] = {
    "uniform": {"lower": 1.0, "upper": 9.0, "points": 64},
    "logarithmic": {"lower": 1.0, "upper": 9.0, "points": 64, "grid": "logarithmic"},
    "quantile": {"lower": 1.0, "upper": 9.0, "points": 64, "grid": "quantile"},
    "given": {"grid": (2.0, 2.5, 4.0, 4.5, 7.0)},
}
QUANTILES = (0.01, 0.1, 0.25, 0.5, 0.9, 0.99)


def values(rows: int = 500, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.gamma(4.0, 1.0, rows), np.full(rows // 10, 4.5)])


@pytest.mark.parametrize("smoothing", ["none", "isotonic", "l1", "l2"])
@pytest.mark.parametrize("grid", GRIDS)
def test_the_curve_is_the_empirical_one(grid: str, smoothing: str) -> None:
    x = values()
    results = drive(Ecdf(**GRIDS[grid], smoothing=smoothing), PLAIN, {"value": x})
    points = np.array(results["points"])
    expected = ECDF(x)(points)
    if grid in ("uniform", "logarithmic"):
        expected[-1] = 1.0  # values above the range count as its end
    assert results["values"] == pytest.approx(expected, abs=1e-12)
    assert results["rows"]["interval"] == [len(x), len(x)]
    assert results["mechanism"] == "none"
    assert (np.diff(points) > 0).all()


@pytest.mark.parametrize("grid", GRIDS)
def test_quantiles_are_numpys_up_to_the_grid(grid: str) -> None:
    x = np.clip(values(), 1.0, 9.0)
    results = drive(Ecdf(**GRIDS[grid], quantiles=QUANTILES), PLAIN, {"value": x})
    points = np.array(results["points"])
    for entry in results["quantiles"]:
        exact = np.quantile(x, entry["quantile"], method="inverted_cdf")
        if exact > points[-1]:
            assert entry["value"] is None
            assert entry["interval"][1] is None
            assert entry["reason"].startswith("above 7")
        else:
            assert entry["value"] == points[np.searchsorted(points, exact, side="left")]


@given(st.lists(st.integers(0, 40), min_size=1, max_size=60), st.integers(1, 5), st.sampled_from(QUANTILES))
def test_whole_numbers_on_a_grid_of_their_own_are_exact(
    numbers: list[int], height: int, quantile: float
) -> None:
    task = Ecdf(lower=-0.5, upper=63.5, points=1 << (height + 1), quantiles=(quantile,))
    results = drive(task, PLAIN, {"value": np.array(numbers, dtype=float)})
    points = np.array(results["points"])
    assert results["values"] == pytest.approx(ECDF(numbers)(points), abs=1e-12)
    exact = np.quantile(numbers, quantile, method="inverted_cdf")
    assert results["quantiles"][0]["value"] == points[np.searchsorted(points, exact)]


def test_the_interval_is_that_of_order_statistics() -> None:
    """Without noise and with points between all values, the ends are those of the binomial distribution."""
    x = np.arange(100.0)
    results = drive(Ecdf(lower=-0.5, upper=127.5, points=128, quantiles=(0.5, 0.9)), PLAIN, {"value": x})
    for entry in results["quantiles"]:
        q, (low, high) = entry["quantile"], entry["interval"]
        first, last = binom.ppf(0.025, 100, q), binom.isf(0.025, 100, q)
        # The order statistics of these ranks, each in the leaf of half a unit around it.
        assert (low, high) == (first - 1 - 0.5, last + 0.5)
        assert binom.cdf(last, 100, q) - binom.cdf(first - 1, 100, q) >= 0.95


def labelled(rows: int = 800) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(4)
    label = (rng.random(rows) < 0.3).astype(np.int8)
    return {"value": rng.normal(0.4 + 0.2 * label, 0.15), "label": label}


@pytest.mark.parametrize("points", [2, 16, 1024])
def test_the_area_is_scikit_learns_on_binned_values(points: int) -> None:
    rows = labelled()
    results = drive(Ecdf(points=points, labelled=True), PLAIN, rows)
    binned = ValueGrid(lower=0, upper=1, points=points).locate(rows["value"])
    assert results["roc_auc"]["value"] == pytest.approx(roc_auc_score(rows["label"], binned), abs=1e-14)
    exact = roc_auc_score(rows["label"], rows["value"])
    assert abs(results["roc_auc"]["value"] - exact) <= results["roc_auc"]["error"]["discretisation"] + 1e-12
    for name, label in (("positives", 1), ("negatives", 0)):
        of_class = rows["value"][rows["label"] == label]
        assert results[name]["rows"]["value"] == len(of_class)
        clipped = np.clip(of_class, 0, 1)
        assert results[name]["values"] == pytest.approx(ECDF(clipped)(results["points"]), abs=1e-12)
    everyone = ECDF(np.clip(rows["value"], 0, 1))
    assert results["values"] == pytest.approx(everyone(results["points"]), abs=1e-12)


def test_the_roc_curve_goes_through_scikit_learns_points() -> None:
    rows = labelled()
    results = drive(Ecdf(points=64, labelled=True), PLAIN, rows)
    binned = ValueGrid(lower=0, upper=1, points=64).locate(rows["value"])
    fpr, tpr, _ = roc_curve(rows["label"], binned, drop_intermediate=False)
    mine = results["roc_curve"]
    assert mine["fpr"][0] == mine["tpr"][0] == 0
    assert mine["fpr"][-1] == mine["tpr"][-1] == 1
    assert {(round(a, 9), round(b, 9)) for a, b in zip(fpr, tpr, strict=True)} >= {
        (round(a, 9), round(b, 9)) for a, b in zip(mine["fpr"], mine["tpr"], strict=True)
    }
    assert mine["thresholds"][0] is mine["thresholds"][-1] is None
    inside = [t for t in mine["thresholds"] if t is not None]
    for threshold, rate in zip(inside, mine["tpr"][1:-1], strict=True):
        positives = np.clip(rows["value"][rows["label"] == 1], 0, 1)
        assert (positives > threshold).mean() == pytest.approx(rate)
    # Points that are close together are listed once.
    assert area_between(mine["fpr"], mine["tpr"], fpr, tpr) < 1e-4


def test_what_is_asked_later_is_what_would_have_been_listed() -> None:
    x = values()
    task = Ecdf(**GRIDS["uniform"], quantiles=QUANTILES)
    results = drive(task, PLAIN, {"value": x})
    for entry in results["quantiles"]:
        assert quantile_at(results, entry["quantile"]) == entry
    for place in (0, 7, 62):
        at = value_at(results, results["points"][place])
        assert at["applied"] == results["points"][place]
        assert at["value"] == results["values"][place]
        assert at["error"]["discretisation"] == 0
    last = value_at(results, results["points"][63])  # where values above the range are counted too
    assert last["value"] is None
    assert last["interval"] == [value_at(results, results["points"][62])["interval"][0], 1.0]
    assert "values above 9 are counted" in last["reason"]
    between = value_at(results, results["points"][30] + 0.03)
    exact = ECDF(np.clip(x, 1, 9))(results["points"][30] + 0.03)
    assert between["applied"] == results["points"][30]
    assert abs(between["value"] - exact) <= between["error"]["discretisation"]
