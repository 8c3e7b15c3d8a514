"""The isotonic map: what its definition says, a probability vector for any logits, and every bit of it in JSON."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, softmax

from fedassay.errors import UsageError
from fedassay.summaries.multiclass.binned_map import Isotonic
from fedassay.summaries.multiclass.maps import logit_map_from_json
from fedassay.summaries.multiclass.scaling_maps import Temperature
from logit_maps import LOGIT, isotonic_maps
from multiclass_rows import drawn

STEPS = ((0.0, 0.1, 0.1, 0.4, 0.5, 0.5, 0.9, 1.0), (0.0,) * 4 + (0.3,) * 4, (0.2,) * 6 + (0.3,) * 2)
MAP = Isotonic(inverse_temperature=0.6, values=STEPS, weights=(0.9, 0.0, 1.0), reach=4.0)


def slow(map_: Isotonic, z: np.ndarray) -> np.ndarray:
    """One row at a time, from the definition; bins are equally spaced in the logit of a probability."""
    found = []
    for row in z:
        p, q = softmax(row), softmax(map_.inverse_temperature * row)
        bins = len(map_.values[0])
        edges = expit(np.linspace(-map_.reach, map_.reach, bins + 1)[1:-1])
        g = np.array([map_.values[j][int(np.count_nonzero(edges <= p[j]))] for j in range(len(p))])
        g = g / g.sum() if g.sum() > 0 else q
        w = np.array(map_.weights)
        mixed = w * g + (1 - w) * q
        found.append(mixed / mixed.sum() if mixed.sum() > 0 else q)
    return np.array(found)


def test_it_does_what_the_definition_says() -> None:
    z = drawn(300, 3)["logits"]
    p = MAP.predict_proba(z)
    assert np.abs(p - slow(MAP, z)).max() < 1e-14
    assert np.abs(p - Temperature(inverse_temperature=0.6, classes=3).predict_proba(z)).max() > 0.1


def test_without_weights_it_is_the_temperature() -> None:
    z = drawn(100, 3)["logits"]
    alone = replace(MAP, weights=(0.0, 0.0, 0.0))
    assert (
        np.abs(
            alone.predict_proba(z) - Temperature(inverse_temperature=0.6, classes=3).predict_proba(z)
        ).max()
        < 1e-15
    )
    assert alone.keeps_order
    assert not MAP.keeps_order
    assert not replace(alone, inverse_temperature=-0.5).keeps_order
    assert not replace(alone, inverse_temperature=0.0).keeps_order


def test_where_all_steps_are_zero_the_temperature_stands() -> None:
    nothing = replace(MAP, values=((0.0,) * 8,) * 3, weights=(1.0,) * 3)
    z = drawn(20, 3)["logits"]
    assert np.allclose(nothing.predict_proba(z), softmax(0.6 * z, axis=1), atol=1e-15)


def test_where_nothing_is_believed_the_temperature_stands() -> None:
    """The class that the steps speak for has no weight, the other has no step: 0/0 must not come out."""
    against = Isotonic(
        inverse_temperature=1.0, values=((0.0,) * 4, (0.5,) * 4), weights=(1.0, 0.0), reach=16.0
    )
    assert against.predict_proba([[1e6, -1e6], [0.0, 0.0]]).tolist() == [[1.0, 0.0], [0.0, 1.0]]


@given(st.integers(2, 4).flatmap(isotonic_maps), st.integers(0, 3), LOGIT, st.floats(0, 50))
@settings(max_examples=60)
def test_a_step_never_falls(map_: Isotonic, which: int, at: float, more: float) -> None:
    """With full weight on all classes, the share of a class against a constant other one rises with its logit."""
    which %= map_.width
    values = tuple(one if j == which else (0.25,) * len(one) for j, one in enumerate(map_.values))
    full = replace(map_, values=values, weights=(1.0,) * map_.width)
    z = np.zeros((2, map_.width))
    z[:, which] = np.clip([at, at + more], -1e6, 1e6)
    p = full.predict_proba(z)[:, which]
    assert p[1] >= p[0]


def test_theta_is_all_there_is() -> None:
    theta = MAP.theta
    assert len(theta) == 3 * 8 + 3 + 2
    assert theta[-2:].tolist() == [0.6, 4.0]
    assert Isotonic.of(theta, 3) == MAP
    assert (MAP.width, MAP.kind) == (3, "isotonic")


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "one class": ({"values": (STEPS[0],), "weights": (0.5,)}, "classes: got 1"),
    "falls": ({"values": (STEPS[0], STEPS[1], STEPS[0][::-1])}, "values fall"),
    "above one": ({"values": (STEPS[0], STEPS[1], (0.0,) * 7 + (1.5,))}, "hold 1.5"),
    "below zero": ({"values": (STEPS[0], STEPS[1], (-0.5,) + (0.0,) * 7)}, "hold -0.5"),
    "not a number": ({"values": (STEPS[0], STEPS[1], (math.nan,) * 8)}, "hold nan"),
    "text": ({"values": (STEPS[0], STEPS[1], ("a",) * 8)}, "not a number"),
    "no lists": ({"values": 3}, "values are not a list"),
    "no list": ({"values": (STEPS[0], STEPS[1], 0.5)}, "not a list"),
    "bins": ({"values": ((0.5,) * 3,) * 3}, "a power of two"),
    "two bins": ({"values": ((0.5,) * 2,) * 3}, "expected 4 to 4,096"),
    "other bins": ({"values": (STEPS[0], STEPS[1], (0.5,) * 4)}, "the same for each class"),
    "weights": ({"weights": (0.5, 0.5)}, "got 2 weights for 3 classes"),
    "heavy": ({"weights": (0.5, 0.5, 1.5)}, "expected numbers in"),
    "light": ({"weights": (0.5, 0.5, -0.5)}, "hold -0.5"),
    "temperature": ({"inverse_temperature": math.inf}, "hold inf"),
    "reach": ({"reach": 0.5}, "reach: got 0.5"),
}


@pytest.mark.parametrize("name", sorted(BAD))
def test_what_is_no_map(name: str) -> None:
    fields, words = BAD[name]
    with pytest.raises(UsageError, match=words):
        replace(MAP, **fields)
    content = {**MAP.to_json(), **fields}
    with pytest.raises(UsageError):
        logit_map_from_json(content)


@pytest.mark.parametrize(("size", "classes"), [(0, 3), (4, 3), (5, 3), (31, 3), (29, 4)])
def test_numbers_that_are_no_map(size: int, classes: int) -> None:
    with pytest.raises(UsageError, match=f"got {size} parameters for {classes} classes"):
        Isotonic.of(np.full(size, 0.5), classes)
