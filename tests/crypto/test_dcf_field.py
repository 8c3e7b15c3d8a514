"""Arithmetic modulo 2^61 − 1 agrees with Python's integers, also at the ends of every range."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedassay.crypto.field61 import (
    PRIME,
    add,
    fold,
    from_bits,
    limbs,
    multiply,
    negate,
    reduce,
    require_reduced,
    sums,
    weighted_sums,
)
from fedassay.errors import ProtocolError

EDGES = [0, 1, 2, 6, 7, 8, 2**31, 2**61 - 2, 2**61 - 1, 2**61, 2**62, 2**63, 2**64 - 8, 2**64 - 1]
words = st.sampled_from(EDGES) | st.integers(0, 2**64 - 1)
elements = st.sampled_from([e for e in EDGES if e < PRIME]) | st.integers(0, PRIME - 1)


def array(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.uint64)


@given(a=words)
def test_reductions(a):
    assert reduce(array(a)).tolist() == [a % PRIME]
    folded = int(fold(array(a))[0])
    assert folded % PRIME == a % PRIME
    assert folded <= PRIME + 7
    assert from_bits(array(a)).tolist() == [a % 2**61 % PRIME]


@given(a=elements, b=elements)
@settings(max_examples=300)
def test_operations(a, b):
    assert add(array(a), array(b)).tolist() == [(a + b) % PRIME]
    assert negate(array(a)).tolist() == [-a % PRIME]
    assert multiply(array(a), array(b)).tolist() == [a * b % PRIME]


@pytest.mark.parametrize(
    ("w", "n", "k"), [(1, 1, 1), (2, 5, 3), (2, 2048, 1), (2, 5000, 4), (1, 3, 20_000), (2, 0, 3)]
)
@pytest.mark.parametrize("largest", [False, True])
def test_weighted_sums(w, n, k, largest):
    generator = np.random.default_rng(n)
    low = PRIME - 1 if largest else 0
    weights, values = (generator.integers(low, PRIME, shape).astype(np.uint64) for shape in ((w, n), (n, k)))
    exact = weights.astype(object) @ values.astype(object) % PRIME if n else np.zeros((w, k), object)
    np.testing.assert_array_equal(weighted_sums(limbs(weights), values).astype(object), exact)


@given(numbers=st.lists(elements, min_size=1, max_size=40))
def test_sums(numbers):
    assert int(sums(array(*numbers))) == sum(numbers) % PRIME


def test_sums_of_many_and_along_the_last_axis():
    many = np.full((2, 100_000), PRIME - 1, np.uint64)
    assert sums(many).tolist() == [-100_000 % PRIME] * 2


def test_arguments_are_left_alone():
    a, b = array(*EDGES[:5]), array(*EDGES[:5])
    for function in (fold, reduce, from_bits, negate, sums, limbs):
        function(a[None])
    add(a, a)
    multiply(a, a)
    np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("given_", "sentence"),
    [
        ([1, 2], r"numbers: got list, expected uint64 in the shape \(2,\)\."),
        (np.zeros(2), r"numbers: got float64 in the shape \(2,\), expected uint64 in the shape \(2,\)\."),
        (np.zeros(3, np.uint64), r"numbers: got uint64 in the shape \(3,\), expected"),
        (
            array(0, PRIME),
            r"numbers: got a number of at least 2\^61 - 1, expected numbers modulo that prime\.",
        ),
    ],
)
def test_foreign_arrays_are_refused(given_, sentence):
    with pytest.raises(ProtocolError, match=sentence):
        require_reduced(given_, shape=(2,), what="numbers")
