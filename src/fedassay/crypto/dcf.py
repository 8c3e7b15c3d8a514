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

Security: the theorem there, for a pseudorandom generator G; ours and its assumptions are in `fedassay.crypto.prg`
(λ = 128). It uses seeds of all 128 bits: control bits come from bits that the numbers leave free. Numbers are the
61 lower bits of words, which puts a key of n bits at a statistical distance of at most (2n + 3)·2^-61 < 2^-54 from the
ideal (`from_bits`), however much is computed.

Assumption: nobody times this code. It has no branches on secrets, but numpy promises nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike

from fedassay.crypto.dcf_keys import LEFT, RIGHT, Keys, check_bits
from fedassay.crypto.dcf_tree import Points, Route, Walker, top_bit
from fedassay.crypto.field61 import (
    PRIME,
    Elements,
    P,
    Words,
    add,
    from_bits,
    multiply,
    negate,
    reduce,
    sums,
)
from fedassay.crypto.prg import Generator, Purpose, room
from fedassay.errors import UsageError
from fedassay.protocol import Randomness

T = TypeVar("T")

_ONE, _SEVEN = np.uint64(1), np.uint64(7)
_ONES = np.uint64(2**64 - 1)

_KEYS_AT_ONCE, _NODES_AT_ONCE = 1 << 14, 1 << 16
"""Measured: large enough that calls cost little, small enough that memory is used again while it is near."""

_KEPT_BYTES = (1 << 25) - (1 << 13)
"""glibc keeps freed memory up to the size of the largest block that was ever freed, if that was below 32 MiB."""


def generate(values: ArrayLike, *, bits: int, randomness: Randomness) -> tuple[Keys, Keys]:
    """The keys for party 0 and for party 1, one for each value.

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
    _in_threads(lambda: partial(_correct, first, x, seeds), len(x), _KEYS_AT_ONCE)
    return first, replace(first, party=1, seeds=seeds[1])


def evaluate(keys: Keys, points: ArrayLike) -> Elements:
    """This party's shares: a row for each key, a column for each point.

    Points that begin alike share the work, so give many of them in order. The result has a word for each key and
    point; where that is too much, `totals` and `in_blocks` keep less.
    """
    tau = whole_numbers(points, bits=keys.bits, what="points of comparison functions")
    shares = np.empty((len(keys), len(tau)), np.uint64)

    def keep(rows: slice, columns: slice, part: Elements) -> None:
        shares[rows, columns] = part.T

    in_blocks(keys, tau, keep)
    return shares


def totals(keys: Keys, points: ArrayLike) -> Elements:
    """The sum of this party's shares over all keys, at each point."""
    tau = whole_numbers(points, bits=keys.bits, what="points of comparison functions")
    total = np.zeros(len(tau), np.uint64)
    for columns, part in in_blocks(keys, tau, lambda _, columns, part: (columns, sums(part))):
        total[columns] = add(total[columns], part)
    return total


def in_blocks(keys: Keys, points: Points, use: Callable[[slice, slice, Elements], T]) -> list[T]:
    """What `use` makes of the shares of some keys at some points, for all of both, in bounded memory.

    It is given which keys, which points, and the shares with a row for each *point*; and it is called from several
    threads: numpy and OpenSSL let go of the interpreter while they work. Over a whole domain each node of a tree is
    expanded once, but for those above the subtrees of 2^16 leaves that large trees are cut into.
    """
    results = []
    for first in range(0, len(points), _NODES_AT_ONCE):
        columns = slice(first, min(first + _NODES_AT_ONCE, len(points)))
        route = Route.to(points[columns], bits=keys.bits)
        at_once = min(_KEYS_AT_ONCE, _NODES_AT_ONCE // route.width)
        results += _in_threads(partial(_walk_and, use, keys, columns, route, at_once), len(keys), at_once)
    return results


def _walk_and(
    use: Callable[[slice, slice, Elements], T], keys: Keys, columns: slice, route: Route, at_once: int
) -> Callable[[slice], T]:
    walker = Walker(keys, route, at_once=at_once)
    return lambda rows: use(rows, columns, walker(rows))


def whole_domain(bits: int) -> Points:
    """All points, in order."""
    return np.arange(2**bits, dtype=np.uint64)


def _correct(keys: Keys, x: Words, seeds: Words, rows: slice) -> None:
    """Fill in what both keys share: three words for each level, one for the leaf, one for the check.

    `seeds` has both parties' roots. On the path to x party 1's control bit is carried as a mask t₁ of zeros or ones
    (party 0 has the complement), and `owed` is V_1 − V_0 so far, which the next words must make up for.
    """
    generator, x, s = Generator(), x[rows], seeds[:, rows].copy()
    first, second = room(2, len(x), 2), room(2, len(x), 2)
    keys.square[rows] = _square_correction(generator.expand(Purpose.CHECK, s, out=first))
    t1, owed = np.full(len(x), _ONES), np.zeros(len(x), np.uint64)
    for level in range(keys.bits):
        right = top_bit(x << np.uint64(64 - keys.bits + level))
        value, owed, controls, t = _value_words(generator.expand(Purpose.VALUES, s, out=first), right, owed)
        np.bitwise_or(_signed(value, t1), controls, out=keys.value_words[level, rows])
        _step(generator, s, right, t1, keys.seed_words[level, rows], (first, second))
        controls <<= right & _ONE
        t1 = top_bit(t ^ (controls & t1))
    leaf = (P - (s[0, :, 0] & P)) + (s[1, :, 0] & P) + owed + _ONE
    keys.leaf[rows] = _signed(leaf, t1)


def _value_words(blocks: Words, right: Words, owed: Words) -> tuple[Words, Words, Words, Words]:
    """From both parties' value blocks: the correction without its sign, the next `owed`, and the control bits.

    The last are the correction's two and, where the path goes, party 1's before correction, each in the top bits.
    """
    flips = blocks[0] ^ blocks[1]
    t = (blocks[1, :, 0] ^ blocks[1, :, 1]) & right
    t ^= blocks[1, :, 0]
    # Beside the path the bits must become equal, on it different.
    controls = ((flips[:, 0] ^ right) & LEFT) ^ (((flips[:, 1] ^ right) >> _ONE) & RIGHT) ^ LEFT
    blocks &= P
    gap = P - blocks[0]
    gap += blocks[1]
    swap = (gap[:, 0] ^ gap[:, 1]) & right
    keep, lose = gap[:, 0] ^ swap, gap[:, 1] ^ swap
    lose += right + _ONE  # 1 if the path goes left, so that whoever leaves it goes right
    # Not reduced: a gap is at most 2p, `owed` at most 5p, and the sum at most 7p + 1.
    return owed + lose, keep + (np.uint64(3 * PRIME) - lose), controls, t


def _step(
    generator: Generator, s: Words, right: Words, t1: Words, word: Words, rooms: tuple[Words, Words]
) -> None:
    """Replace both parties' seeds by those of the next node on the path; fill in the level's correction `word`."""
    left, difference = rooms
    generator.encrypt(Purpose.LEFT_SEED, s, out=left)
    difference = generator.encrypt(Purpose.RIGHT_SEED, s, out=difference)
    difference ^= left
    s ^= left
    # Now s is the left child and s ⊕ difference the right one; the word is the xor of both parties' lost children.
    np.bitwise_xor(difference[0], difference[1], out=word)
    mask = np.empty_like(word)
    mask[:, 0], mask[:, 1] = right, right
    difference &= mask
    s ^= difference
    word ^= s[0]
    word ^= s[1]
    mask[:, 0], mask[:, 1] = t1, t1
    mask &= word
    s[1] ^= mask
    mask ^= word
    s[0] ^= mask


def _signed(total: Words, t: Words) -> Elements:
    """(−1)^t total, reduced, for totals of at most 8p: flipping all bits of a word gives 8p + 7 − word."""
    flipped = total ^ t
    flipped -= t & _SEVEN
    return reduce(flipped)


def _square_correction(blocks: Words) -> Elements:
    """What is missing for the parties' pseudorandom shares of a and c to satisfy c = a²; see `sketch`."""
    shares = from_bits(blocks)
    a, c = (add(shares[0, :, i], shares[1, :, i]) for i in (0, 1))
    return add(multiply(a, a), negate(c))


def _in_threads(worker: Callable[[], Callable[[slice], T]], count: int, at_once: int) -> list[T]:
    """What the work on each block of rows gives, in order; each thread makes its own worker and keeps it."""
    # Make and free an array: otherwise the arrays of each level may be given back to the system and be mapped and
    # cleared again, which takes longer than the arithmetic.
    np.empty(_KEPT_BYTES, np.uint8)
    blocks = [slice(start, min(start + at_once, count)) for start in range(0, count, at_once)]
    threads = min(len(blocks), os.cpu_count() or 1)

    def run(share: int) -> list[T]:
        work = worker()
        return [work(rows) for rows in blocks[share::threads]]

    if threads <= 1:
        return run(0) if blocks else []
    with ThreadPoolExecutor(max_workers=threads) as pool:
        parts = list(pool.map(run, range(threads)))
    return [parts[i % threads][i // threads] for i in range(len(blocks))]


def whole_numbers(numbers: ArrayLike, *, bits: int, what: str) -> Points:
    """Whole numbers below 2^bits, as words."""
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
