"""Binned maps: what their definition says row by row, the bin that a row was counted in, JSON bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis.extra.numpy import arrays
from scipy.special import softmax

from fedassay.data.tables import ArrayRows
from fedassay.errors import UsageError
from fedassay.summaries.multiclass.binned_map import Binned, BinnedChanged
from fedassay.summaries.multiclass.histograms import ProbabilityHistograms
from fedassay.summaries.multiclass.maps import logit_map_from_json
from logit_maps import LOGIT
from multiclass_rows import drawn

BOTH = (Binned, BinnedChanged)


def random_map(kind: type[Binned], classes: int, bins: int, *, zeros: float = 0.0, seed: int = 0) -> Binned:
    rng = np.random.default_rng(seed)
    theta = rng.random(classes * (bins + 1))
    theta[: classes * bins] *= rng.random(classes * bins) >= zeros
    return kind.of(theta, classes)


def slow(one: Binned, z: np.ndarray) -> np.ndarray:
    """One row, from the definition."""
    p, bins = softmax(z), len(one.values[0])
    g = np.array([one.values[j][min(int(p[j] * bins), bins - 1)] for j in range(len(p))])
    q = np.array([a * x + (1 - a) * y for a, x, y in zip(one.weights, g, p, strict=True)])
    if isinstance(one, BinnedChanged):
        top = int(np.argmax(g)) if g.any() else int(np.argmax(p))
        q = q if top != int(np.argmax(p)) else g
    return q / q.sum() if q.any() else p


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize(("classes", "bins", "zeros"), [(2, 1, 0.0), (3, 8, 0.0), (3, 8, 0.7), (7, 128, 0.3)])
def test_maps_are_what_they_are_defined_as(kind: type[Binned], classes: int, bins: int, zeros: float) -> None:
    one, z = random_map(kind, classes, bins, zeros=zeros), drawn(400, classes)["logits"]
    assert one.predict_proba(z) == pytest.approx(np.stack([slow(one, row) for row in z]), abs=1e-14)
    assert one.predict_proba(z.astype(np.float32)).shape == z.shape


@given(arrays(np.float64, (6, 3), elements=LOGIT))
def test_a_row_is_looked_up_where_it_was_counted(z: np.ndarray) -> None:
    """The values are the numbers of the bins: probabilities are then those of the bins in which clients count."""
    bins = 8
    values = np.tile((1 + np.arange(bins)) / 16, (3, 1))
    one = Binned.of(np.append(values.reshape(-1), np.ones(3)), 3)
    summary = ProbabilityHistograms(classes=3, height=3)
    for row in z:
        columns = {"logits": row[None], "class": np.array([0])}
        counts = summary.read(summary.measure(ArrayRows(columns=columns), {})[0])
        number = 1 + (counts.positives + counts.negatives).argmax(axis=1)
        assert one.predict_proba(row[None])[0] == pytest.approx(number / number.sum(), abs=1e-15)


def test_where_every_class_is_impossible_the_model_stands() -> None:
    z = drawn(50, 3)["logits"]
    for kind in BOTH:
        one = kind.of(np.append(np.zeros(3 * 4), np.ones(3)), 3)
        assert one.predict_proba(z) == pytest.approx(softmax(z, axis=1), abs=1e-15)


def test_a_calibrator_that_is_not_believed_changes_nothing() -> None:
    z = drawn(500, 4)["logits"]
    fields = {"values": random_map(Binned, 4, 16).values, "weights": (0.0,) * 4}
    one, changed = Binned(**fields), BinnedChanged(**fields)
    p = softmax(z, axis=1)
    assert one.predict_proba(z) == pytest.approx(p, abs=1e-15)
    assert one.keeps_order
    # Rows that it would not change are calibrated all the same; no row has another most probable class.
    found = changed.predict_proba(z)
    assert np.array_equal(found.argmax(axis=1), p.argmax(axis=1))
    same = np.abs(found - p).max(axis=1) < 1e-12
    assert 0.1 < same.mean() < 0.9
    assert not changed.keeps_order
    assert not random_map(Binned, 4, 16).keeps_order


def test_weights_count_only_where_the_most_probable_class_would_change() -> None:
    z = drawn(500, 4)["logits"]
    changed, every = (random_map(kind, 4, 16, seed=1) for kind in (BinnedChanged, Binned))
    alone = Binned(values=every.values, weights=(1.0,) * 4).predict_proba(z)
    would = alone.argmax(axis=1) != z.argmax(axis=1)
    assert 0.1 < would.mean() < 0.95
    assert np.array_equal(changed.predict_proba(z), np.where(would[:, None], every.predict_proba(z), alone))


G = {"kind": "binned", "values": [[0.5, 0.5], [0.0, 1.0]], "weights": [1.0, 0.0]}
BAD: dict[str, Any] = {
    "no values": {"kind": "binned", "weights": [1.0, 1.0]},
    "extra field": {**G, "code": "1"},
    "values that are none": {**G, "values": 0.5},
    "values of no class": {**G, "values": [0.5, 0.5]},
    "one class": {"kind": "binned", "values": [[0.5]], "weights": [1.0]},
    "unequal": {**G, "values": [[0.5, 0.5], [0.5]]},
    "not a power of two": {**G, "values": [[0.5] * 3] * 2},
    "too many bins": {**G, "values": [[0.5] * 8192] * 2},
    "no bins": {**G, "values": [[], []]},
    "above one": {**G, "values": [[0.5, 1.5], [0.0, 1.0]]},
    "below zero": {**G, "values": [[0.5, -0.1], [0.0, 1.0]]},
    "NaN": {**G, "values": [[0.5, float("nan")], [0.0, 1.0]]},
    "truth value": {**G, "values": [[0.5, True], [0.0, 1.0]]},
    "weight above one": {**G, "weights": [1.0, 1.1]},
    "weights that are none": {**G, "weights": 1.0},
    "too few weights": {**G, "weights": [1.0]},
}


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("name", BAD)
def test_what_is_no_map_is_refused(name: str, kind: type[Binned]) -> None:
    assert logit_map_from_json({**G, "kind": kind.kind}).width == 2
    with pytest.raises(UsageError):
        logit_map_from_json({**BAD[name], "kind": kind.kind})


@pytest.mark.parametrize("size", [0, 3, 5, 7, 8, 12])
def test_parameters_that_make_no_map_are_refused(size: int) -> None:
    """For three classes: a multiple of three, a power of two of bins and a weight for each."""
    with pytest.raises(UsageError, match="map: got"):
        Binned.of(np.zeros(size), 3)
    assert len(Binned.of(np.zeros(9), 3).values[0]) == 2
