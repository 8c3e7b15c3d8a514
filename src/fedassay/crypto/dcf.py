"""Distributed comparison functions: two keys that together count a client at every threshold from its value on.

A client with the value x makes two keys, one for each of two servers. At any point τ of the domain {0, .., 2^n − 1}
server b computes, alone, a share f_b(τ) modulo p = 2^61 − 1, and

    f_0(τ) + f_1(τ) ≡ 1[τ ≥ x]:   0 below x, 1 at x itself and above.

One key alone is, computationally, independent of x. So the servers can sum the shares of all clients and learn how
many values are at most τ, for any τ that they think of later, without the clients.

This is the optimised construction of E. Boyle, N. Chandran, N. Gilboa, D. Gupta, Y. Ishai, N. Kumar, M. Rathee,
Function Secret Sharing for Mixed-Mode and Fixed-Point Secure Computation (EUROCRYPT 2021; the DCF in the section on
key size), mirrored: there the payload lies on the points below α, here on the branches that leave the path to x on its
right, and on x itself.

A key describes a binary tree. At every node each party has a seed s, a control bit t and a value V that has been added
up since the root. Off the path to x both parties have the same seed and bit, so that all they add from there on
cancels; on it the seeds are independent and exactly one party has t = 1. G(s) gives each child a seed, a bit and a
number to add. That would break the rule where the path is left; the *correction words* of the level, which are in both
keys and are applied by the party with t = 1 only, restore it, and make V_0 − V_1 come out as 1 to the right of
the path, and 0 to the left.

Security: the theorem there, for a pseudorandom generator G; ours is in `fedassay.crypto.dcf_levels`
(λ = 128). It uses seeds of all 128 bits: control bits come from bits that the numbers leave free. Numbers are the
61 lower bits of words, which puts a key of n bits at a statistical distance of at most (2n + 3)·2^-61 < 2^-54 from the
ideal (`from_bits`), however much is computed.

Assumption: this code is not timed. It has no branches on secrets, but numpy promises nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from fedassay.crypto.dcf_keys import Keys, check_bits
from fedassay.crypto.dcf_levels import ComparisonPath, PathPoints, TreeRoute, Walker
from fedassay.crypto.field61 import Elements, add, sums
from fedassay.errors import UsageError
from fedassay.protocol.vocabulary import Randomness

LARGEST_WHOLE = 24

_KEYS_AT_ONCE, _NODES_AT_ONCE = 1 << 15, 1 << 16
"""Block sizes, measured: large enough that calls cost little, small enough that memory is used again while near.
(Threads do not help: they wait for each other between the many short calls.)
"""


def generate(values: ArrayLike, *, bits: int, randomness: Randomness) -> tuple[Keys, Keys]:
    """Generate the keys for party 0 and for party 1, one for each value.

    Guarantee: at every point the two shares of a value add up to 1[point ≥ value]. Either party's keys alone tell
    nothing about the values to anyone who cannot break the generator, provided that `randomness` is secure.

    Examples
    --------
    >>> from fedassay.privacy.randomness import SecureRandomness
    >>> keys = generate([3, 5], bits=3, randomness=SecureRandomness())
    >>> add(*(evaluate(party, [2, 3, 4, 5]) for party in keys)).tolist()
    [[0, 1, 1, 1], [0, 0, 0, 1]]
    """
    check_bits(bits)
    x = whole_numbers(values, bits=bits, what="values of comparison functions")
    seeds = randomness.words(4 * len(x)).reshape(2, len(x), 2)
    first = replace(Keys.empty(len(x), party=0, bits=bits), seeds=seeds[0])
    for rows in _blocks(len(x), _KEYS_AT_ONCE):
        ComparisonPath(x[rows], seeds[:, rows], bits=bits).fill(first, rows)
    return first, replace(first, party=1, seeds=seeds[1])


def evaluate(keys: Keys, points: ArrayLike) -> Elements:
    """Compute this party's shares: a row for each key, a column for each point.

    Points that begin alike share the work, so give many of them in order. The result has a word for each key and
    point; where that is too much, `totals` and `in_blocks` keep less.
    """
    tau = whole_numbers(points, bits=keys.bits, what="points of comparison functions")
    shares = np.empty((len(keys), len(tau)), np.uint64)
    for rows, columns, part in in_blocks(keys, tau):
        shares[rows, columns] = part.T
    return shares


def totals(keys: Keys, points: ArrayLike) -> Elements:
    """Compute the sum of this party's shares over all keys, at each point."""
    tau = whole_numbers(points, bits=keys.bits, what="points of comparison functions")
    total = np.zeros(len(tau), np.uint64)
    for _, columns, part in in_blocks(keys, tau):
        total[columns] = add(total[columns], sums(part))
    return total


def in_blocks(keys: Keys, points: PathPoints) -> Iterator[tuple[slice, slice, Elements]]:
    """Yield the shares of some keys at some points at a time, in bounded memory: which keys and points, and the shares.

    The shares have a row for each *point*. Over a whole domain each node of a tree is expanded once, but for those few
    above the subtrees of 2^16 leaves that large trees are cut into.
    """
    for columns in _blocks(len(points), _NODES_AT_ONCE):
        route = TreeRoute.to(points[columns], bits=keys.bits)
        at_once = min(len(keys), _KEYS_AT_ONCE, _NODES_AT_ONCE // route.width)
        walker = Walker(keys, route, at_once=at_once)
        for rows in _blocks(len(keys), max(1, at_once)):
            yield rows, columns, walker(rows)


def whole_domain(bits: int) -> PathPoints:
    """Return all points, in order; for domains of which all points can be held."""
    check_bits(bits)
    if bits > LARGEST_WHOLE:
        raise UsageError(
            f"whole domain: got {bits} bits, expected at most {LARGEST_WHOLE}; give some points instead."
        )
    return np.arange(2**bits, dtype=np.uint64)


def _blocks(count: int, at_once: int) -> Iterator[slice]:
    return (slice(start, min(start + at_once, count)) for start in range(0, count, at_once))


def whole_numbers(numbers: ArrayLike, *, bits: int, what: str) -> PathPoints:
    """Return whole numbers below 2^bits, as words."""
    given = np.asarray(numbers)
    if given.ndim != 1 or (given.size and given.dtype.kind not in "iu"):
        raise UsageError(
            f"{what}: got {given.dtype} in {given.ndim} dimensions, expected a list of whole numbers."
        )
    if given.size and not 0 <= int(given.min()) <= int(given.max()) < 2**bits:
        raise UsageError(
            f"{what}: got {given.min()} to {given.max()}, expected 0 to {2**bits - 1} ({bits} bits)."
        )
    return given.astype(np.uint64)
