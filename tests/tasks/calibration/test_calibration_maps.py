"""Maps keep [0, 1], survive JSON bit for bit, and refuse what is no map."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedassay.errors import UsageError
from fedassay.tasks.calibration.maps import Map, Points, Sigmoid, Steps, map_from_json

UNIT = st.floats(0, 1)
INSIDE = st.floats(1e-300, 1, exclude_max=True)
COEFFICIENT = st.floats(-1e3, 1e3)


@st.composite
def maps(draw: st.DrawFn) -> Map:
    kind = draw(st.sampled_from(["steps", "points", "sigmoid"]))
    if kind == "sigmoid":
        return Sigmoid(a=draw(COEFFICIENT), b=draw(COEFFICIENT), c=draw(COEFFICIENT))
    if kind == "steps":
        edges = sorted(draw(st.sets(INSIDE, max_size=8)))
        values = draw(st.lists(UNIT, min_size=len(edges) + 1, max_size=len(edges) + 1))
        return Steps(edges=tuple(edges), values=tuple(values))
    scores = sorted(draw(st.sets(UNIT, min_size=1, max_size=8)))
    values = draw(st.lists(UNIT, min_size=len(scores), max_size=len(scores)))
    return Points(scores=tuple(scores), values=tuple(values))


@given(one=maps(), scores=st.lists(UNIT, min_size=1, max_size=20))
def test_every_score_becomes_a_probability(one: Map, scores: list[float]) -> None:
    calibrated = one(np.array([*scores, 0.0, 1.0]))
    assert np.all((calibrated >= 0) & (calibrated <= 1))


@given(one=maps())
def test_a_map_survives_json_bit_for_bit(one: Map) -> None:
    assert map_from_json(json.loads(json.dumps(one.to_json(), allow_nan=False))) == one


@given(a=st.floats(0, 50), b=st.floats(0, 50), c=COEFFICIENT, scores=st.lists(UNIT, min_size=2))
def test_a_sigmoid_with_coefficients_above_zero_never_falls(
    a: float, b: float, c: float, scores: list[float]
) -> None:
    calibrated = Sigmoid(a=a, b=b, c=c)(np.sort(scores))
    assert np.all(np.diff(calibrated) >= -1e-12)


@given(
    edges=st.lists(UNIT, max_size=12).map(sorted),
    data=st.data(),
    scores=st.lists(UNIT, min_size=1, max_size=9),
)
def test_merging_steps_keeps_the_function(
    edges: list[float], data: st.DataObject, scores: list[float]
) -> None:
    values = data.draw(
        st.lists(st.sampled_from([0.0, 0.25, 1.0]), min_size=len(edges) + 1, max_size=len(edges) + 1)
    )
    merged = Steps.merged(edges, values)
    places = np.searchsorted(edges, scores, side="right")
    # A score of exactly 1 that is also an edge has no step of its own left: it belongs to the last one below.
    expected = [values[k] if s < 1 else merged.values[-1] for k, s in zip(places, scores, strict=True)]
    assert merged(np.array(scores)).tolist() == expected
    assert all(x != y for x, y in zip(merged.values, merged.values[1:], strict=False))


BAD: dict[str, Any] = {
    "not an object": [1, 2],
    "unknown kind": {"kind": "python", "code": "1"},
    "missing field": {"kind": "sigmoid", "a": 1.0, "b": 1.0},
    "extra field": {"kind": "sigmoid", "a": 1.0, "b": 1.0, "c": 0.0, "d": 0.0},
    "text": {"kind": "sigmoid", "a": "1", "b": 1.0, "c": 0.0},
    "truth value": {"kind": "sigmoid", "a": True, "b": 1.0, "c": 0.0},
    "infinite": {"kind": "sigmoid", "a": float("inf"), "b": 1.0, "c": 0.0},
    "too few values": {"kind": "steps", "edges": [0.5], "values": [0.1]},
    "edges that fall": {"kind": "steps", "edges": [0.5, 0.4], "values": [0.1, 0.2, 0.3]},
    "edge at the end": {"kind": "steps", "edges": [1.0], "values": [0.1, 0.2]},
    "value above one": {"kind": "steps", "edges": [0.5], "values": [0.1, 1.2]},
    "NaN": {"kind": "points", "scores": [0.5], "values": [float("nan")]},
    "no points": {"kind": "points", "scores": [], "values": []},
    "equal scores": {"kind": "points", "scores": [0.5, 0.5], "values": [0.1, 0.2]},
    "no list": {"kind": "points", "scores": 0.5, "values": [0.1]},
}


@pytest.mark.parametrize("name", sorted(BAD))
def test_what_is_no_map_is_refused_with_a_sentence(name: str) -> None:
    with pytest.raises(UsageError, match="map|steps|points|sigmoid"):
        map_from_json(BAD[name])
