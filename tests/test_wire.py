"""The wire format: what goes in comes out, and nothing else is accepted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from fedassay.errors import ProtocolError
from fedassay.protocol import wire

VECTORS = json.loads((Path(__file__).parent / "vectors" / "wire.json").read_text())

ARRAYS = st.sampled_from(["<i8", "<u8", "<f8", "|u1"]).flatmap(
    lambda dtype: npst.arrays(dtype, npst.array_shapes(min_dims=1, max_dims=2, min_side=0, max_side=4))
)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=8)
    | st.binary(max_size=8)
    | ARRAYS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
MESSAGES = st.dictionaries(st.text(max_size=6), VALUES, max_size=4)


def same(left: Any, right: Any) -> bool:
    if isinstance(left, np.ndarray):
        return (
            isinstance(right, np.ndarray)
            and left.dtype == right.dtype
            and left.shape == right.shape
            and left.tobytes() == right.tobytes()
        )
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    return type(left) is type(right) and left == right


@given(MESSAGES)
def test_what_goes_in_comes_out(message: dict[str, Any]) -> None:
    assert same(message, wire.decode(wire.encode(message)))


@settings(max_examples=500)
@given(st.binary(max_size=200))
def test_random_bytes_are_refused_or_understood(data: bytes) -> None:
    try:
        message = wire.decode(data)
    except ProtocolError:
        return
    assert isinstance(message, dict)


@settings(max_examples=500)
@given(MESSAGES, st.data())
def test_changed_bytes_never_raise_anything_else(message: dict[str, Any], data: st.DataObject) -> None:
    raw = bytearray(wire.encode(message))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        wire.decode(bytes(raw))
    except ProtocolError:
        pass


@pytest.mark.parametrize("name", sorted(VECTORS))
def test_the_stored_bytes_have_not_changed(name: str) -> None:
    messages = {
        "empty": {},
        "scalars": {
            "none": None,
            "yes": True,
            "int": -5,
            "big": 2**64 - 1,
            "float": 0.5,
            "text": "é",
            "raw": b"\0\1",
        },
        "vector": {"values": np.array([1, -2, 3], dtype=np.int64)},
        "matrix": {"values": np.array([[1, 2], [3, 2**64 - 1]], dtype=np.uint64)},
        "nested": {"list": [1, [2, {"three": 3.0}]]},
    }
    assert wire.encode(messages[name]).hex() == VECTORS[name]
    assert same(wire.decode(bytes.fromhex(VECTORS[name])), messages[name])


def test_a_size_limit_holds_before_parsing() -> None:
    with pytest.raises(ProtocolError, match="expected at most 10"):
        wire.decode(b"\xff" * 11, largest=10)


def test_deep_nesting_is_refused() -> None:
    message: Any = {}
    for _ in range(20):
        message = {"deeper": message}
    with pytest.raises(ProtocolError, match="nested deeper"):
        wire.decode(wire.encode(message))


@pytest.mark.parametrize("value", [object(), {1, 2}, np.array([1.0], dtype=np.float32), np.array(["a"])])
def test_only_plain_values_can_be_sent(value: object) -> None:
    with pytest.raises(TypeError, match="cannot put"):
        wire.encode({"value": value})


def test_a_key_that_stands_twice_is_refused() -> None:
    with pytest.raises(ProtocolError, match="stands twice"):
        wire.decode(b"\x82\xa1a\x01\xa1a\x02")


@pytest.mark.parametrize("filler", [b"\x80", b"\x90"], ids=["mappings", "lists"])
def test_a_small_message_does_not_become_a_large_one(filler: bytes) -> None:
    count = wire.MOST_CONTAINERS + 1
    data = b"\x81\xa1x\xdd" + count.to_bytes(4, "big") + filler * count
    with pytest.raises(ProtocolError, match="more lists"):
        wire.decode(data)
    fewer = 1000
    assert len(wire.decode(b"\x81\xa1x\xdd" + fewer.to_bytes(4, "big") + filler * fewer)["x"]) == fewer
