"""Arrays of integers modulo the Mersenne prime p = 2^61 − 1.

An element is an unsigned 64-bit word. *Reduced* means below p: everything that is stored, sent or compared is
reduced; sums may wait with it, since eight numbers of at most p fit into a word. All functions are plain array
arithmetic (2^61 ≡ 1, so a reduction is a shift and an addition), and none changes its arguments.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedassay.protocol import Randomness

PRIME = 2**61 - 1

Elements = NDArray[np.uint64]
"""Integers modulo p, reduced."""

Words = NDArray[np.uint64]
"""Any unsigned 64-bit words: random bits, or sums that are not reduced yet."""

_P = np.uint64(PRIME)
_BITS = np.uint64(61)

_LIMB = 21
_RUN = 1 << 11
"""Products of two limbs are below 2^42, so this many of them add up below 2^53: exactly, as floats."""


def fold(words: Words) -> Words:
    """The same numbers modulo p, each below 2^61 + 7."""
    return (words & _P) + (words >> _BITS)


def reduce(words: Words) -> Elements:
    """The same numbers modulo p, reduced; for any 64-bit words.

    Examples
    --------
    >>> reduce(np.array([PRIME - 1, PRIME, PRIME + 1, 2**64 - 1], np.uint64)).tolist()
    [2305843009213693950, 0, 1, 7]
    """
    folded = fold(words)
    # Below p the difference wraps around to a huge number, so the minimum is the reduced one.
    return np.minimum(folded, folded - _P)


def add(a: Elements, b: Elements) -> Elements:
    """The sum, reduced."""
    total = a + b
    return np.minimum(total, total - _P)


def negate(a: Elements) -> Elements:
    """The negative, reduced; p − 0 = p is the one difference that is not."""
    difference = _P - a
    return np.minimum(difference, difference - _P)


def multiply(a: Elements, b: Elements) -> Elements:
    """The product, reduced.

    With a = a₁2³¹ + a₀ and b alike, ab = a₁b₁2⁶² + m2³¹ + a₀b₀, m = a₁b₀ + a₀b₁ = m₁2³⁰ + m₀; then 2⁶² ≡ 2 and
    m2³¹ ≡ m₁ + m₀2³¹. The four terms are below 2⁶¹, 2³², 2⁶¹ and 2⁶²: their sum fits into a word.

    Examples
    --------
    >>> multiply(np.array([3, PRIME - 1], np.uint64), np.array([5, PRIME - 1], np.uint64)).tolist()
    [15, 1]
    """
    half, low, middle_low = np.uint64(31), np.uint64(2**31 - 1), np.uint64(2**30 - 1)
    a1, a0, b1, b0 = a >> half, a & low, b >> half, b & low
    middle = a1 * b0 + a0 * b1
    return reduce(
        np.uint64(2) * (a1 * b1) + (middle >> np.uint64(30)) + ((middle & middle_low) << half) + a0 * b0
    )


def from_blocks(blocks: Words) -> Words:
    """One number per block of two words (last axis): the sum of their lower 61 bits, at most 2p, not reduced.

    Guarantee: uniform blocks give numbers modulo p at a statistical distance of at most 2^-122 from uniform.
    The lower 61 bits of a word, modulo p, are uniform but for one outcome in 2^61 (p itself counts as 0); the sum
    is uniform if either half is. The upper three bits of each word are not used.
    """
    lower = blocks & _P
    total: Words = lower[..., 0] + lower[..., 1]
    return total


def uniform(randomness: Randomness, count: int) -> Elements:
    """Elements drawn from a source, at a distance of at most 2^-122 each from uniform."""
    return reduce(from_blocks(randomness.words(2 * count).reshape(count, 2)))


def weighted_sums(weights: Elements, values: Elements) -> Elements:
    """The matrix product of weights (w × n) and values (n × k), reduced.

    Exact: numbers are cut into limbs of 21 bits and multiplied as floats, in runs so short that no sum of
    products reaches 2^53; limb i times limb j then counts 2^{21(i+j)}, which modulo p is a rotation.

    Examples
    --------
    >>> weights, values = np.full((1, 2), PRIME - 1, np.uint64), np.array([[5], [7]], np.uint64)
    >>> int(weighted_sums(weights, values)[0, 0]) - PRIME
    -12
    """
    total = np.zeros((len(weights), values.shape[1]), np.uint64)
    for start in range(0, values.shape[0], _RUN):
        run = slice(start, start + _RUN)
        left = np.concatenate([_limb(weights[:, run], i) for i in range(3)])
        for j in range(3):
            products = (left @ _limb(values[run], j)).astype(np.uint64).reshape(3, *total.shape)
            for i in range(3):
                total = add(total, _times_power_of_two(products[i], _LIMB * (i + j)))
    return total


def _limb(elements: Elements, i: int) -> NDArray[np.float64]:
    return ((elements >> np.uint64(_LIMB * i)) & np.uint64((1 << _LIMB) - 1)).astype(np.float64)


def _times_power_of_two(words: Words, exponent: int) -> Elements:
    """Words · 2^exponent, for words of at most p: a rotation of 61 bits."""
    left = np.uint64(exponent % 61)
    return reduce(((words << left) & _P) + (words >> (_BITS - left)))
