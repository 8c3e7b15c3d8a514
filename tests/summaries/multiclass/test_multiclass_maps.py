"""Maps of logits: probabilities for any finite logits, rankings kept, JSON bit for bit, nonsense refused."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.special import softmax

from class_calibrators import some_map
from fedassay.errors import DataError, UsageError
from fedassay.summaries.multiclass.losses import FAMILIES
from fedassay.summaries.multiclass.scaling_maps import OrderPreserving, VectorScaling
from fedassay.tasks.calibration.multiclass import LOGIT_MAPS, logit_map_from_json
from logit_maps import LOGIT, maps, same_ranking
from multiclass_rows import drawn, scaled

KINDS = tuple(FAMILIES)


def test_every_family_has_a_map() -> None:
    assert set(FAMILIES) <= set(LOGIT_MAPS)


@pytest.mark.parametrize("kind", LOGIT_MAPS)
@given(data=st.data())
def test_finite_logits_become_probabilities_and_a_map_survives_json_and_theta(
    kind: str, data: st.DataObject
) -> None:
    one = data.draw(maps(kind))
    z = data.draw(arrays(np.float64, (data.draw(st.integers(0, 5)), one.width), elements=LOGIT))
    p = one.predict_proba(z)
    assert p.shape == z.shape
    assert ((p >= 0) & (p <= 1)).all()
    assert p.sum(axis=1) == pytest.approx(np.ones(len(z)), abs=1e-14)
    again = logit_map_from_json(json.loads(json.dumps(one.to_json(), allow_nan=False)))
    assert again == one
    assert np.array_equal(again.predict_proba(z), p)
    assert LOGIT_MAPS[kind].of(one.theta, one.width) == one


@pytest.mark.parametrize("kind", ["order-preserving", "fedcal"])
@given(data=st.data())
@settings(max_examples=250)
def test_maps_of_gaps_never_change_a_ranking(kind: str, data: st.DataObject) -> None:
    one = data.draw(maps(kind))
    assert one.keeps_order
    z = data.draw(arrays(np.float64, (3, one.width), elements=LOGIT))
    assert same_ranking(z, one.predict_proba(z))


def test_order_preserving_scaling_keeps_accuracy_and_tells_different_classes_apart() -> None:
    z = drawn(2_000, 8)["logits"]
    p = OrderPreserving(slopes=(3.0, 0.1, 1e-6, 2.0, 0.5, 1.0, 7.0, 1.0)).predict_proba(z)
    assert np.array_equal(np.argsort(-p, axis=1), np.argsort(-z, axis=1))
    other = VectorScaling(
        slopes=(3.0, 0.1, 1e-6, 2.0, 0.5, 1.0, 7.0, 1.0), intercepts=(0.0,) * 8
    ).predict_proba(z)
    assert not np.array_equal(other.argmax(axis=1), z.argmax(axis=1))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("classes", [2, 5])
def test_maps_are_what_they_are_defined_as(kind: str, classes: int) -> None:
    family = FAMILIES[kind]
    theta = family.identity(classes) + 0.5 * np.random.default_rng(0).random(family.size(classes))
    z = drawn(5_000, classes)["logits"]
    z[::7] = np.rint(z[::7])
    expected = softmax(np.stack([scaled(kind, row, theta) for row in z]), axis=1)
    one = LOGIT_MAPS[kind].of(theta, classes)
    assert one.predict_proba(z) == pytest.approx(expected, abs=1e-13)
    identity = LOGIT_MAPS[kind].of(family.identity(classes), classes)
    assert identity.predict_proba(z) == pytest.approx(softmax(z, axis=1), abs=1e-13)
    assert one.predict_proba(z.astype(np.float32)) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("kind", LOGIT_MAPS)
def test_logits_that_do_not_fit(kind: str) -> None:
    one = some_map(kind, 3)
    for z in ([0.0, 1.0, 2.0], [[0.0, 1.0]]):
        with pytest.raises(DataError, match="expected rows x 3 classes"):
            one.predict_proba(z)
    for bad in (np.inf, np.nan):
        with pytest.raises(DataError, match="NaN or infinite"):
            one.predict_proba([[0.0, 1.0, bad]])


T = {"kind": "temperature", "inverse_temperature": 1.0, "classes": 3}
M = {"kind": "matrix", "weights": [[1.0, 0.0], [0.0, 1.0]], "intercepts": [0.0, 0.0]}
BAD: dict[str, Any] = {
    "not an object": [1, 2],
    "no kind": {},
    "unknown kind": {"kind": "python", "code": "1"},
    "kind that is no name": {"kind": ["temperature"]},
    "missing field": {"kind": "temperature", "classes": 3},
    "extra field": {**T, "code": "1"},
    "text": {**T, "inverse_temperature": "1"},
    "truth value": {**T, "inverse_temperature": True},
    "infinite": {**T, "inverse_temperature": float("inf")},
    "NaN": {**T, "inverse_temperature": float("nan")},
    "too large": {**T, "inverse_temperature": 1e10},
    "one class": {**T, "classes": 1},
    "classes that are no number": {**T, "classes": "3"},
    "unequal": {"kind": "vector", "slopes": [1.0, 1.0], "intercepts": [0.0]},
    "one slope": {"kind": "vector", "slopes": [1.0], "intercepts": [0.0]},
    "no list": {"kind": "vector", "slopes": 1.0, "intercepts": [0.0, 0.0]},
    "not square": {**M, "weights": [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]},
    "too few rows": {**M, "weights": [[1.0, 0.0]]},
    "rows that are none": {**M, "weights": [1.0, 2.0]},
    "weights that are none": {**M, "weights": 1.0},
    "slope of zero": {"kind": "order-preserving", "slopes": [0.0, 1.0]},
    "slope below zero": {"kind": "order-preserving", "slopes": [1.0, -1.0]},
    "no slopes": {"kind": "order-preserving", "slopes": []},
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_map_is_refused(name: str) -> None:
    with pytest.raises(UsageError):
        logit_map_from_json(BAD[name])
