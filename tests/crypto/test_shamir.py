from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedassay.crypto.keys import Secret
from fedassay.crypto.shamir import PRIME, combine, split
from fedassay.errors import UsageError
from secure_sum_driver import Seeded

secrets = st.binary(min_size=32, max_size=32).map(Secret)


def value_at(points: dict[int, int], x: int) -> int:
    """Lagrange's formula as it stands in the book."""
    total = 0
    for a, y in points.items():
        term = y
        for b in points:
            if b != a:
                term = term * (x - b) * pow(a - b, -1, PRIME)
        total += term
    return total % PRIME


def number(share: Secret) -> int:
    return int.from_bytes(share.data)


def test_the_modulus_is_prime_and_large_enough_for_any_secret():
    odd, twos = PRIME - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    generator = random.Random(1)
    for _ in range(64):  # Miller-Rabin: a composite number passes with probability at most 4^-64
        power = pow(generator.randrange(2, PRIME - 1), odd, PRIME)
        assert power == 1 or any(pow(power, 2**i, PRIME) == PRIME - 1 for i in range(twos))
    assert 2**256 < PRIME < 2**264


@given(secret=secrets, data=st.data(), shares=st.integers(1, 30), seed=st.integers())
@settings(max_examples=60, deadline=None)
def test_any_threshold_of_the_shares_give_the_secret(secret, data, shares, seed):
    threshold = data.draw(st.integers(1, shares))
    dealt = split(secret, threshold=threshold, shares=shares, randomness=Seeded(seed))
    chosen = data.draw(st.permutations(range(1, shares + 1)))[: data.draw(st.integers(threshold, shares))]
    assert combine({x: dealt[x - 1] for x in chosen}) == secret


@given(secret=secrets, other=secrets, data=st.data(), threshold=st.integers(2, 12), seed=st.integers())
@settings(max_examples=30, deadline=None)
def test_fewer_shares_fit_every_secret(secret, other, data, threshold, seed):
    """Whatever t - 1 shares are seen, each other secret has exactly one polynomial through them."""
    dealt = split(secret, threshold=threshold, shares=threshold + 3, randomness=Seeded(seed))
    seen = data.draw(st.permutations(range(1, threshold + 4)))[: threshold - 1]
    points = {x: number(dealt[x - 1]) for x in seen} | {0: number(other)}
    missing = next(x for x in range(1, threshold + 4) if x not in seen)
    completed = {x: dealt[x - 1] for x in seen} | {missing: Secret(value_at(points, missing).to_bytes(33))}
    assert combine(completed) == other


@given(secret=secrets, threshold=st.integers(1, 10), seed=st.integers())
@settings(max_examples=20, deadline=None)
def test_shares_lie_on_a_polynomial_of_the_stated_degree(secret, threshold, seed):
    dealt = split(secret, threshold=threshold, shares=threshold + 5, randomness=Seeded(seed))
    points = {0: number(secret)} | {x: number(dealt[x - 1]) for x in range(1, threshold)}
    for x in range(threshold, threshold + 6):
        assert number(dealt[x - 1]) == value_at(points, x)


def test_one_share_too_few_gives_something_else():
    secret = Secret(bytes(32))
    dealt = split(secret, threshold=5, shares=9, randomness=Seeded())
    assert combine({x: dealt[x - 1] for x in range(1, 5)}) != secret


def test_a_value_that_is_no_32_bytes_is_no_secret():
    too_large = (2**256).to_bytes(33)
    assert combine({1: Secret(too_large)}) is None
    assert combine({1: Secret((2**256 - 1).to_bytes(33))}) == Secret(b"\xff" * 32)


@pytest.mark.parametrize(("threshold", "shares"), [(0, 3), (4, 3), (-1, 3), (1, 0)])
def test_impossible_thresholds_are_refused(threshold, shares):
    with pytest.raises(UsageError, match="threshold"):
        split(Secret(bytes(32)), threshold=threshold, shares=shares, randomness=Seeded())


def test_other_lengths_are_refused():
    with pytest.raises(UsageError, match="31 bytes"):
        split(Secret(bytes(31)), threshold=1, shares=1, randomness=Seeded())
