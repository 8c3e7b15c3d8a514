"""Maps keep [0, 1], survive JSON and a row of numbers bit for bit, and refuse what is no map."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedassay.errors import UsageError
from fedassay.protocol import wire
from fedassay.summaries import maps as module
from fedassay.summaries.maps import (
    MOST_NUMBERS,
    InterpolatedMap,
    Map,
    Sigmoid,
    Steps,
    map_from_json,
    map_from_numbers,
    numbers_of,
)

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
    return InterpolatedMap(scores=tuple(scores), values=tuple(values))


@given(one=maps(), scores=st.lists(UNIT, min_size=1, max_size=20))
def test_every_score_becomes_a_probability(one: Map, scores: list[float]) -> None:
    calibrated = one(np.array([*scores, 0.0, 1.0]))
    assert np.all((calibrated >= 0) & (calibrated <= 1))


def test_a_line_that_rounds_to_more_than_1_says_1() -> None:
    one = InterpolatedMap(scores=(0.06, 0.72), values=(0.08, 1.0))
    scores = np.nextafter(0.72, 0) - np.arange(3) * np.spacing(0.72)
    assert np.interp(scores, one.scores, one.values).max() > 1
    assert one(scores).max() == 1


@given(one=maps())
def test_a_map_survives_json_bit_for_bit(one: Map) -> None:
    assert map_from_json(json.loads(json.dumps(one.to_json(), allow_nan=False))) == one


@given(one=maps())
def test_a_map_survives_a_row_of_numbers_bit_for_bit(one: Map) -> None:
    numbers = numbers_of(one)
    assert np.array(numbers).tobytes() == np.array(numbers_of(map_from_numbers(list(numbers)))).tobytes()
    assert map_from_numbers(numbers) == one
    carried = wire.decode(wire.encode({"parameters": list(numbers)}))["parameters"]
    assert np.array(carried).tobytes() == np.array(numbers).tobytes()


def test_a_row_of_numbers_by_hand() -> None:
    assert numbers_of(Steps(edges=(), values=(0.5,))) == (0.0, 0.5)
    assert numbers_of(InterpolatedMap(scores=(0.0, 1.0), values=(0.2, 0.4))) == (1.0, 0.0, 1.0, 0.2, 0.4)
    assert numbers_of(Sigmoid(a=-0.0, b=2, c=3)) == (2.0, -0.0, 2.0, 3.0)
    assert np.signbit(numbers_of(map_from_numbers((2.0, -0.0, 2.0, 3.0)))[1])
    assert map_from_numbers([]) is None


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ((0.5, 1.0), "map: got 0.5 as its kind, expected a whole number from 0 to 2"),
        ((-1.0, 1.0), "got -1.0 as its kind"),
        ((3.0,), "got 3.0 as its kind"),
        ((float("nan"), 1.0), "got nan as its kind"),
        ((0.0,), "got 0 edges and 0 values"),
        ((0.0, 0.5, 0.1), "steps: got 1 edges and 1 values"),
        ((0.0, 0.6, 0.5, 0.1, 0.2, 0.3), "edges are not increasing"),
        ((0.0, 1.0, 0.1, 0.2), "edges hold 1.0"),
        ((1.0,), "points: got 0 scores"),
        ((1.0, 0.5), "points: got 0 scores and 1 values"),
        ((1.0, 0.5, float("nan")), "values hold nan"),
        ((2.0, 1.0, 1.0), "sigmoid: got 2 numbers, expected three"),
        ((2.0, 1.0, 1.0, float("inf")), "sigmoid: got inf for c"),
    ],
)
def test_numbers_that_are_no_map_are_refused(numbers: tuple[float, ...], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        map_from_numbers(numbers)


def test_a_map_that_is_too_long_is_refused_on_both_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enough for what is fitted on a histogram of 2^15 bins: a value for each, and the edges between."""
    assert MOST_NUMBERS > 2 * 2**15
    one = InterpolatedMap(scores=(0.0, 0.5, 1.0), values=(0.1, 0.2, 0.3))
    numbers = numbers_of(one)
    monkeypatch.setattr(module, "MOST_NUMBERS", len(numbers) - 1)
    for work in (lambda: numbers_of(one), lambda: map_from_numbers(numbers)):
        with pytest.raises(UsageError, match="map: got 7 numbers, expected at most 6; calibrate with fewer"):
            work()


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
