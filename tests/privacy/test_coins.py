"""Uniform integers and coins: every word counts, and every probability is exact."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest

from fedassay.privacy import samplers
from fedassay.privacy.randomness import SimulatedRandomness


class Scripted:
    """Words that a test chooses; afterwards pseudorandom ones."""

    simulated = True

    def __init__(self, script: Sequence[int]) -> None:
        self._script = list(script)
        self._rest = SimulatedRandomness(0)

    def words(self, count: int) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
        now, self._script = self._script[:count], self._script[count:]
        return np.concatenate([np.array(now, dtype=np.uint64), self._rest.words(count - len(now))])

    def bytes(self, count: int) -> bytes:
        return self._rest.bytes(count)


@pytest.mark.parametrize("bound", [2, 3, 7, 1000, 2**32, 2**52 + 1, 2**63, 2**63 + 1])
def test_a_uniform_integer_owns_equally_many_words(bound: int) -> None:
    width = 2**64 // bound
    edges = [0, width - 1, width, 2 * width - 1, (bound - 1) * width, bound * width - 1]
    drawn = samplers.below(bound, len(edges), Scripted(edges))
    assert drawn.tolist() == [0, 0, 1, 1, bound - 1, bound - 1]


def test_words_left_over_are_drawn_again() -> None:
    # 2^64 = 3·width + 1: only the last word is left over, twice in a row here.
    drawn = samplers.below(3, 2, Scripted([2**64 - 1, 5, 2**64 - 1, 2**64 - 2]))
    assert drawn.tolist() == [2, 0]


def test_a_coin_of_exp_minus_zero_is_always_heads() -> None:
    zeros = np.zeros(1000, dtype=np.uint64)
    assert samplers.bernoulli_exp([(zeros, 1)], SimulatedRandomness(1)).all()
    assert samplers.bernoulli_exp([(zeros, 10), (zeros + 1, 1)], SimulatedRandomness(1)).all()


@pytest.mark.parametrize(
    ("first", "second"), [((3, 4), (1, 1)), ((1, 2), (3, 2**32)), ((2**52 - 1, 2**52), (1, 1))]
)
def test_a_coin_has_the_probability_of_the_product(first: tuple[int, int], second: tuple[int, int]) -> None:
    n = 200_000
    factors = [(np.full(n, top, dtype=np.uint64), bottom) for top, bottom in (first, second)]
    heads = samplers.bernoulli_exp(factors, SimulatedRandomness(2)).sum()
    p = math.exp(-(first[0] / first[1]) * (second[0] / second[1]))
    assert abs(heads - n * p) <= 6 * math.sqrt(n * p * (1 - p)) + 1


@pytest.mark.parametrize(
    "probability", [Fraction(1, 3), Fraction(7, 10**6), Fraction(10**31 - 10**20 - 1, 10**31)]
)
def test_a_rational_coin_is_decided_by_as_many_digits_as_it_takes(probability: Fraction) -> None:
    first, rest = divmod(probability * 2**64, 1)
    second = int(rest * 2**64)
    assert samplers.rational(probability, 1, Scripted([first - 1]))[0]
    assert not samplers.rational(probability, 1, Scripted([first + 1]))[0]
    assert samplers.rational(probability, 1, Scripted([first, second - 1]))[0]
    assert not samplers.rational(probability, 1, Scripted([first, second + 1]))[0]


@pytest.mark.parametrize("probability", [Fraction(1, 2), Fraction(1, 2**64), Fraction(3, 2**70)])
def test_a_rational_coin_with_few_digits_ends_where_they_end(probability: Fraction) -> None:
    first, rest = divmod(probability * 2**64, 1)
    if rest == 0:
        assert not samplers.rational(probability, 1, Scripted([first]))[0]
        assert samplers.rational(probability, 1, Scripted([first - 1]))[0]
    else:
        assert samplers.rational(probability, 1, Scripted([first, int(rest * 2**64) - 1]))[0]
        assert not samplers.rational(probability, 1, Scripted([first, int(rest * 2**64)]))[0]


@pytest.mark.parametrize("probability", [Fraction(1, 3), Fraction(99, 100)])
def test_rational_coins_are_heads_that_often(probability: Fraction) -> None:
    n, p = 200_000, float(probability)
    heads = samplers.rational(probability, n, SimulatedRandomness(3)).sum()
    assert abs(heads - n * p) < 6 * math.sqrt(n * p * (1 - p))
