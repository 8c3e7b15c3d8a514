"""Arrays of integers modulo the Mersenne prime p = 2^61 − 1.

An element is an unsigned 64-bit word. *Reduced* means below p: everything that is stored, sent or compared is
reduced. Sums may wait with it, since eight numbers of at most p fit into a word. All functions are plain array
arithmetic (2^61 ≡ 1, so that a reduction is a shift and an addition), and none changes its arguments.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedassay.errors import ProtocolError
from fedassay.protocol.arrays import Words

PRIME = 2**61 - 1

Elements = NDArray[np.uint64]
"""Integers modulo p, reduced."""


P = np.uint64(PRIME)
"""p as a word: also the mask of the lower 61 bits."""

_BITS = np.uint64(61)
_LIMB = 21
_RUN = 1 << 11
"""Number of products of two limbs, each below 2^42, that add up below 2^53: exactly, as floats."""

_ENTRIES_AT_ONCE = 1 << 14
"""Entries at a time: few enough that the allocator has them at hand and a core's cache holds them."""


def fold(words: Words) -> Words:
    """Return numbers congruent to `words` modulo p, each at most p + 7."""
    folded = words >> _BITS
    folded += words & P
    return folded


def reduce(words: Words) -> Elements:
    """Reduce any 64-bit words modulo p.

    Examples
    --------
    >>> reduce(np.array([PRIME - 1, PRIME, PRIME + 1, 2**64 - 1], np.uint64)).tolist()
    [2305843009213693950, 0, 1, 7]
    """
    return _reduce_once(fold(words))


def fold_in_place(words: Words, spare: Words) -> None:
    """Apply `fold`, without new arrays."""
    np.right_shift(words, _BITS, out=spare)
    words &= P
    words += spare


def reduce_into(out: Elements, words: Words, spare: Words) -> None:
    """Apply `reduce`, without new arrays; `words` and `spare` are used up, and may be `out`."""
    fold_in_place(words, spare)
    np.subtract(words, P, out=spare)
    np.minimum(words, spare, out=out)


def from_bits(words: Words) -> Elements:
    """Return the lower 61 bits of each word as an element.

    Guarantee: uniform bits give an element at a statistical distance of 2^-61 from uniform: of the 2^61 outcomes,
    two (0 and p) stand for 0, and one for every other element.
    """
    return _reduce_once(words & P)


def add(a: Elements, b: Elements) -> Elements:
    """Return the sum, reduced."""
    return _reduce_once(a + b)


def negate(a: Elements) -> Elements:
    """Return the negative, reduced."""
    return _reduce_once(P - a)


def multiply(a: Elements, b: Elements) -> Elements:
    """Return the product, reduced.

    With a = a₁2³¹ + a₀ and b alike, ab = a₁b₁2⁶² + m2³¹ + a₀b₀, m = a₁b₀ + a₀b₁ = m₁2³⁰ + m₀; then 2⁶² ≡ 2 and
    m2³¹ ≡ m₁ + m₀2³¹. The four terms are below 2⁶¹, 2³², 2⁶¹ and 2⁶²: their sum fits into a word.

    Examples
    --------
    >>> multiply(np.array([3, PRIME - 1], np.uint64), np.array([5, PRIME - 1], np.uint64)).tolist()
    [15, 1]
    """
    half, low = np.uint64(31), np.uint64(2**31 - 1)
    a1, a0, b1, b0 = a >> half, a & low, b >> half, b & low
    m = a1 * b0 + a0 * b1
    m1, m0 = m >> np.uint64(30), m & np.uint64(2**30 - 1)
    return reduce(np.uint64(2) * (a1 * b1) + m1 + (m0 << half) + a0 * b0)


def sums(elements: Elements) -> Elements:
    """Return the sums over the last axis, of at most 2^32 elements each.

    Examples
    --------
    >>> int(sums(np.full(10, PRIME - 1, np.uint64))) - PRIME
    -10
    """
    # Upper and lower halves apart: 2^32 of them fit into a word.
    upper = (elements >> np.uint64(32)).sum(axis=-1, keepdims=True, dtype=np.uint64)
    lower = (elements & np.uint64(2**32 - 1)).sum(axis=-1, keepdims=True, dtype=np.uint64)
    total: Elements = add(_times_power_of_two(reduce(upper), 32), reduce(lower))[..., 0]
    return total


def limbs(weights: Elements) -> NDArray[np.float64]:
    """Cut weights (w × n) into three limbs of 21 bits, the lowest first, as `weighted_sums` takes them (3w × n)."""
    return np.concatenate([_limb(weights, i) for i in range(3)])


def weighted_sums(weights: NDArray[np.float64], values: Elements) -> Elements:
    """Compute the matrix product of weights (w × n, as limbs) and values (n × k, n at most 2^20), reduced.

    Exact: limbs are multiplied as floats, in runs so short that no sum of products reaches 2^53. Limb i times limb j
    counts 2^{21(i+j)}, which modulo p is a rotation; up to it, 3·2^9 runs add up below 2^64.

    Examples
    --------
    >>> weights, values = np.full((1, 2), PRIME - 1, np.uint64), np.array([[5], [7]], np.uint64)
    >>> int(weighted_sums(limbs(weights), values)[0, 0]) - PRIME
    -12
    """
    (n, k), w = values.shape, len(weights) // 3
    assert n <= _RUN << 9
    by_power = np.zeros((5, w, k), np.uint64)
    at_once = max(1, min(_RUN, _ENTRIES_AT_ONCE // max(1, k)))
    for start in range(0, n, at_once):
        run = slice(start, start + at_once)
        for j in range(3):
            products = weights[:, run] @ _limb(values[run], j)
            by_power[j : j + 3] += products.astype(np.uint64).reshape(3, w, k)
    total = np.zeros((w, k), np.uint64)
    for power, part in enumerate(by_power):
        total = add(total, _times_power_of_two(reduce(part), _LIMB * power))
    return total


def require_reduced(array: object, *, shape: tuple[int, ...], what: str) -> Elements:
    """Return an array from a stranger, if it holds reduced elements in this shape; otherwise raise `ProtocolError`."""
    if not isinstance(array, np.ndarray) or array.dtype != np.uint64 or array.shape != shape:
        got = (
            f"{array.dtype} in the shape {array.shape}"
            if isinstance(array, np.ndarray)
            else type(array).__name__
        )
        raise ProtocolError(f"{what}: got {got}, expected uint64 in the shape {shape}.")
    if array.size and array.max() >= P:
        raise ProtocolError(f"{what}: got a number of at least 2^61 - 1, expected numbers modulo that prime.")
    return array


def _reduce_once(words: Words) -> Elements:
    """Reduce words below 2p: below p the difference wraps around to a huge number, so the minimum is right."""
    reduced: Elements = np.minimum(words, words - P)
    return reduced


def _limb(elements: Elements, i: int) -> NDArray[np.float64]:
    return ((elements >> np.uint64(_LIMB * i)) & np.uint64((1 << _LIMB) - 1)).astype(np.float64)


def _times_power_of_two(words: Words, exponent: int) -> Elements:
    """Return the product with 2^exponent, for words of at most p: a rotation of 61 bits."""
    left = np.uint64(exponent % 61)
    return reduce(((words << left) & P) + (words >> (_BITS - left)))
