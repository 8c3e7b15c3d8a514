"""Uniform integers and coins of exact probability, vectorised: what every sampler of noise is made of.

No floating point takes part in any decision. Integers are uniform by rejection, so without modulo bias, and
all comparisons are of integers that are proven to fit 64 bits.

===============  ==========================================================================================
`below`          uniform integers in [0, bound)
`fair`           coins of 1/2
`rational`       coins of any ratio
`bernoulli_exp`  coins of exp(-γ), 0 ≤ γ ≤ 1 a product of ratios (Canonne, Kamath, Steinke 2020, Algorithm 1)
`geometric`      how many coins of exp(-1) show heads before the first tail
`fill`           the first so many accepted candidates
===============  ==========================================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from fedassay.protocol import Randomness, Vector

Words = NDArray[np.uint64]
Flags = NDArray[np.bool_]

LONGEST_RUN = 1024
"""Geometric draws stop here: this changes the law by exp(-1024) < 1e-444 in total variation."""
LONGEST_COIN = 2048
"""Algorithm 1 stops here: it goes on for so long with probability below 1/2048! < 1e-5000."""
CHUNK = 1 << 15
"""Candidates per pass: few enough for the processor's cache."""


def below(bound: int, count: int, randomness: Randomness) -> Words:
    """Uniform integers in [0, bound): each owns ⌊2^64/bound⌋ words; the words left over are redrawn."""
    if bound == 1:
        return np.zeros(count, dtype=np.uint64)
    width = np.uint64(2**64 // bound)
    drawn = randomness.words(count) // width
    while (over := np.flatnonzero(drawn >= np.uint64(bound))).size:
        drawn[over] = randomness.words(over.size) // width
    return drawn


def fair(count: int, randomness: Randomness) -> Flags:
    """Fair coins."""
    bits = np.frombuffer(randomness.bytes(-(-count // 8)), dtype=np.uint8)
    return np.unpackbits(bits, count=count).view(np.bool_)


def rational(probability: Fraction, count: int, randomness: Randomness) -> Flags:
    """Coins of any ratio, however long its numbers.

    A uniform real number is compared with the ratio, 64 binary digits at a time: if they agree in the first
    64, the next 64 decide.

    Examples
    --------
    >>> from fedassay.privacy.randomness import SimulatedRandomness
    >>> rational(Fraction(1), 2, SimulatedRandomness(1)), rational(Fraction(0), 2, SimulatedRandomness(1))
    (array([ True,  True]), array([False, False]))
    """
    if probability >= 1:
        return np.ones(count, dtype=np.bool_)
    heads = np.zeros(count, dtype=np.bool_)
    active = np.arange(count)
    while active.size and probability > 0:
        digits, probability = divmod(probability * 2**64, 1)
        words = randomness.words(active.size)
        heads[active[words < np.uint64(digits)]] = True
        active = active[words == np.uint64(digits)]
    return heads


def bernoulli_exp(factors: Sequence[tuple[Words, int]], randomness: Randomness) -> Flags:
    """Coins with P(heads) = exp(-γ), γ the product of the ratios (numerators, denominator), each at most 1.

    Algorithm 1: flip coins of γ/1, γ/2, γ/3, .. until the first tail; heads exactly if that was coin
    number 1, 3, 5, ... A coin of γ/K is heads if independent coins of all its factors are.
    """
    (first, denominator), *others = factors
    heads = np.ones(first.size, dtype=np.bool_)
    active = np.arange(first.size)
    k = 1
    while active.size and k <= LONGEST_COIN:
        active = active[below(denominator * k, active.size, randomness) < first[active]]
        for numerators, bound in others:
            active = active[below(bound, active.size, randomness) < numerators[active]]
        k += 1
        heads[active] = k % 2 == 1
    return heads


def geometric(count: int, randomness: Randomness) -> Words:
    """How many coins with P(heads) = exp(-1) show heads before the first tail."""
    runs = np.zeros(count, dtype=np.uint64)
    active = np.arange(count)
    length = 0
    while active.size and length < LONGEST_RUN - 1:
        length += 1
        active = active[bernoulli_exp([(np.ones(active.size, dtype=np.uint64), 1)], randomness)]
        runs[active] = length
    return runs


def fill(count: int, candidates: Callable[[int], Vector]) -> Vector:
    """The first `count` accepted candidates."""
    result = np.empty(count, dtype=np.int64)
    filled = 0
    while filled < count:
        accepted = candidates(min(CHUNK, 2 * (count - filled) + 8))[: count - filled]
        result[filled : filled + accepted.size] = accepted
        filled += accepted.size
    return result
