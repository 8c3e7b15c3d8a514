"""Distributed comparison functions: two keys that together count a client at every threshold from its value on.

A client with value x makes two keys, one for each of two servers. At any point τ of the domain {0, .., 2^n − 1} each
server computes, alone, a share f_b(τ) modulo p = 2^61 − 1, and

    f_0(τ) + f_1(τ) = 1[τ ≥ x]  (mod p):   0 below x, 1 at x itself and above.

One key alone is, computationally, independent of x. So the servers can sum the shares of all clients and learn how
many values are at most τ, for any τ that they think of later, without the clients.

This is the construction of E. Boyle, N. Chandran, N. Gilboa, D. Gupta, Y. Ishai, N. Kumar, M. Rathee, Function Secret
Sharing for Mixed-Mode and Fixed-Point Secure Computation (EUROCRYPT 2021, Section 3, Figure 1), mirrored: there the
payload sits on the points *below* α, here on the branches to the *right* of x and on x. Notation, as there: a key
describes a binary tree; every node has a seed s, a control bit t and a running value V for each party. Off the path to
x the two parties' seeds and bits agree, so that their values cancel from there on; on it the seeds are independent
and the bits differ. The *correction words* of a level, which both keys contain, restore this after each step; one of
them makes the values that have been added up come out as 1 where the path is left to the right, 0 where to the left.

Security: Theorem 1 there, for a pseudorandom generator G(s) = (s_L, s_R, v_L, v_R); ours and what it assumes are in
`fedassay.crypto.prg` (λ = 128). Each secret seed is expanded once. The control bits of the children are the lowest
bits of the value blocks, which the values do not use, so that seeds keep all their 128 bits.

Assumption: nobody times this code. There are no branches on secrets, but numpy makes no promise.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedassay.crypto.dcf_keys import (
    HEADER,
    LEAF,
    LEVELS,
    SEED,
    SQUARE,
    VALUE_SHIFT,
    WORDS_PER_LEVEL,
    Keys,
    header,
    key_bytes,
)
from fedassay.crypto.field61 import PRIME, Elements, Words, add, fold, from_blocks, multiply, negate, reduce
from fedassay.crypto.prg import Generator, Purpose
from fedassay.errors import UsageError
from fedassay.protocol import Randomness

Points = NDArray[np.uint64]
Index = slice | NDArray[np.intp]

_P = np.uint64(PRIME)
_ONE = np.uint64(1)
_ONES = np.uint64(2**64 - 1)

_KEYS_AT_ONCE = 1 << 13
_NODES_AT_ONCE = 1 << 16


# --- making keys --------------------------------------------------------------------------------------------


def generate(values: ArrayLike, *, bits: int, randomness: Randomness) -> tuple[Keys, Keys]:
    """The keys for party 0 and for party 1, a row per value.

    Guarantee: at every point the shares of a row add up to 1[point ≥ value]. Either array alone tells nothing about
    the values to anyone who cannot break the generator, if `randomness` is secure.

    Examples
    --------
    >>> from fedassay.privacy.randomness import SecureRandomness
    >>> keys = generate([3, 5], bits=3, randomness=SecureRandomness())
    >>> shares = [evaluate(party, [2, 3, 4, 5]) for party in keys]
    >>> add(*shares).tolist()
    [[0, 1, 1, 1], [0, 0, 0, 1]]
    """
    x = _whole_numbers(values, bits=bits, what="values of comparison functions")
    pair = np.empty((2, len(x), key_bytes(bits) // 8), "<u8")
    for block in _blocks(len(x), _KEYS_AT_ONCE):
        seeds = randomness.words(4 * len(x[block])).reshape(2, -1, 2)
        _fill_corrections(pair[0, block], x[block], seeds, bits=bits)
        pair[1, block] = pair[0, block]
        for party in (0, 1):
            pair[party, block, HEADER] = header(party=party, bits=bits).view("<u8")
            pair[party, block, SEED] = seeds[party]
    first, second = (Keys(data=pair[party].view(np.uint8), party=party, bits=bits) for party in (0, 1))
    return first, second


def _fill_corrections(rows: Words, x: Words, seeds: Words, *, bits: int) -> None:
    """Write what both keys share into `rows`: a word for the check, one for each level, one for the leaf x.

    On the path to x party 1's control bit t₁ is carried as a mask of zeros or ones (party 0's is its complement), and
    with it V_α, the sum of both parties' values so far.
    """
    generator = Generator()
    rows[:, SQUARE] = _square_correction(generator, seeds)
    t1, total = np.full(len(x), _ONES), np.zeros(len(x), np.uint64)
    for level in range(bits):
        bit = (x >> np.uint64(bits - 1 - level)) & _ONE
        keep, lose = _choose(*_expand(generator, _SEEDS, seeds), bit)
        left, right = _expand(generator, _VALUES, seeds)
        value_keep, value_lose = _choose(left, right, bit)
        # Exactly one party adds the word, with its sign (−1)^t₁; whoever leaves the path must end with 1 or 0.
        value = reduce(_difference(value_lose[1], value_lose[0]) + (_P - total) + (bit ^ _ONE))
        total = reduce(total + _difference(value_keep[0], value_keep[1]) + value)
        controls = (left[0, :, 0] ^ left[1, :, 0] ^ bit ^ _ONE) & _ONE
        controls |= ((right[0, :, 0] ^ right[1, :, 0] ^ bit) & _ONE) << _ONE
        seed = lose[0] ^ lose[1]
        at = LEVELS + WORDS_PER_LEVEL * level
        rows[:, at : at + 2] = seed
        rows[:, at + 2] = (_signed(value, t1) << VALUE_SHIFT) | controls
        mask = _pairs(t1)
        seeds = np.stack([keep[0] ^ (seed & ~mask), keep[1] ^ (seed & mask)])
        t1 = np.negative((value_keep[1, :, 0] ^ (t1 & (controls >> bit))) & _ONE)
    value = reduce(_difference(seeds[1], seeds[0]) + (_P - total) + _ONE)
    rows[:, LEAF] = _signed(value, t1)


_SEEDS = (Purpose.LEFT_SEED, Purpose.RIGHT_SEED)
_VALUES = (Purpose.LEFT_VALUE, Purpose.RIGHT_VALUE)


def _expand(generator: Generator, purposes: tuple[Purpose, Purpose], seeds: Words) -> tuple[Words, Words]:
    left, right = purposes
    return generator.expand(left, seeds), generator.expand(right, seeds)


def _choose(left: Words, right: Words, bit: Words) -> tuple[Words, Words]:
    """What lies on the path and what lies beside it."""
    swap = (left ^ right) & _pairs(np.negative(bit))
    return left ^ swap, right ^ swap


def _difference(a: Words, b: Words) -> Words:
    """from_blocks(a) − from_blocks(b), plus a multiple of p that makes it positive: at most 4p."""
    return from_blocks(a) + (np.uint64(2 * PRIME) - from_blocks(b))


def _signed(value: Elements, t: Words) -> Elements:
    """(−1)^t value: p has 61 ones, so p − value flips the bits of value."""
    flipped = value ^ (t & _P)
    return np.minimum(flipped, flipped - _P)


def _pairs(mask: Words) -> Words:
    """A mask per node as a mask for both words of a block; two strided copies beat numpy's repeat."""
    both = np.empty((*mask.shape, 2), np.uint64)
    both[..., 0] = mask
    both[..., 1] = mask
    return both


def _square_correction(generator: Generator, seeds: Words) -> Elements:
    """What is missing for the parties' pseudorandom shares of a and c to satisfy a² = c; see `sketch`."""
    a, c = (reduce(from_blocks(generator.expand(purpose, seeds))) for purpose in (Purpose.MASK, Purpose.SQUARE))
    mask = add(a[0], a[1])
    return add(multiply(mask, mask), negate(add(c[0], c[1])))


# --- evaluating them ----------------------------------------------------------------------------------------


def evaluate(keys: Keys, points: ArrayLike) -> Elements:
    """This party's shares at the points: a row per key, a column per point, reduced.

    Points that share a prefix share the work; the whole domain is `whole_domain(bits)`. The result has a word for
    each key and point: for many of both use `blocks` or `totals`.
    """
    points = _whole_numbers(points, bits=keys.bits, what="points of comparison functions")
    shares = np.empty((len(keys), len(points)), np.uint64)
    for block, part in blocks(keys, points):
        shares[block] = part.T
    return shares


def totals(keys: Keys, points: ArrayLike) -> Elements:
    """The sum of this party's shares over all keys, at each point."""
    points = _whole_numbers(points, bits=keys.bits, what="points of comparison functions")
    total = np.zeros(len(points), np.uint64)
    for _, part in blocks(keys, points):
        # Upper and lower halves apart: 2^32 of them fit into a word.
        low, high = (part & np.uint64(2**32 - 1)).sum(axis=1), (part >> np.uint64(32)).sum(axis=1)
        total = add(total, add(reduce(low), multiply(reduce(high), np.uint64(2**32))))
    return total


def blocks(keys: Keys, points: Points) -> Iterator[tuple[slice, Elements]]:
    """The shares for some keys at a time (which, and an array with a row per *point*), in bounded memory."""
    route = _Route.to(points, bits=keys.bits)
    at_once = min(_KEYS_AT_ONCE, max(1, _NODES_AT_ONCE // max(1, route.width)))
    generator = Generator()
    for block in _blocks(len(keys), at_once):
        shares = _walk(generator, keys.words[block], party=keys.party, route=route)
        yield block, shares[route.places]


def whole_domain(bits: int) -> Points:
    """All points, in order."""
    return np.arange(2**bits, dtype=np.uint64)


@dataclass(frozen=True, kw_only=True)
class _Route:
    """How to reach a set of points through the tree with each node expanded once.

    `parents` says for each level which nodes have a left child on the way and which a right one; the children of
    the former come first. `places` says where each point ends up.
    """

    parents: tuple[tuple[Index, Index], ...]
    places: NDArray[np.intp]
    width: int

    @classmethod
    def to(cls, points: Points, *, bits: int) -> _Route:
        parents, nodes = [], np.zeros(min(1, len(points)), np.uint64)
        for level in range(bits):
            wanted = np.unique(points >> np.uint64(bits - 1 - level))
            children = nodes << _ONE, (nodes << _ONE) | _ONE
            found = [np.flatnonzero(np.isin(side, wanted)) for side in children]
            nodes = np.concatenate([side[chosen] for side, chosen in zip(children, found, strict=True)])
            left, right = (slice(None) if len(chosen) == len(children[0]) else chosen for chosen in found)
            parents.append((left, right))
        order = np.argsort(nodes)
        return cls(parents=tuple(parents), places=order[np.searchsorted(nodes[order], points)], width=len(nodes))


def _walk(generator: Generator, words: Words, *, party: int, route: _Route) -> Elements:
    """The shares of some keys at the leaves of a route: an array with a row per leaf, a column per key."""
    k = len(words)
    seeds = words[None, :, SEED].copy()
    t, value = np.full((1, k), _ONES if party else np.uint64(0)), np.zeros((1, k), np.uint64)
    for level, parents in enumerate(route.parents):
        at = LEVELS + WORDS_PER_LEVEL * level
        nodes = len(seeds)
        seed_word = _pairs(t) & _spread(words[:, at : at + 2], nodes)
        value_word = t & _spread(words[:, at + 2], nodes)
        base = value + (value_word >> VALUE_SHIFT)
        sides = []
        for side, chosen in enumerate(parents):
            parent = seeds[chosen]
            if len(parent) == 0:
                continue
            child = generator.expand(_SEEDS[side], parent)
            np.bitwise_xor(child, seed_word[chosen], out=child)
            block = generator.expand(_VALUES[side], parent)
            control = np.negative((block[..., 0] ^ (value_word[chosen] >> np.uint64(side))) & _ONE)
            sides.append((child, control, fold(base[chosen] + from_blocks(block))))
        seeds, t, value = sides[0] if len(sides) == 1 else tuple(map(np.concatenate, zip(*sides)))
    shares = reduce(value + from_blocks(seeds) + (t & _spread(words[:, LEAF], len(seeds))))
    return negate(shares) if party else shares


def _spread(words: Words, nodes: int) -> Words:
    """A word (or block) per key, repeated for each node."""
    return np.repeat(np.ascontiguousarray(words)[None], nodes, axis=0)


def _blocks(count: int, at_once: int) -> Iterator[slice]:
    return (slice(start, min(start + at_once, count)) for start in range(0, count, at_once))


def _whole_numbers(numbers: ArrayLike, *, bits: int, what: str) -> Points:
    """Whole numbers below 2^bits as words."""
    given = np.asarray(numbers)
    if given.ndim != 1 or (given.size and given.dtype.kind not in "iu"):
        raise UsageError(f"{what}: got {given.ndim} dimensions of type {given.dtype}, expected a list of whole numbers.")
    if given.size and not (0 <= int(given.min()) and int(given.max()) < 2**bits):
        raise UsageError(f"{what}: got {given.min()} to {given.max()}, expected 0 to {2**bits - 1} ({bits} bits).")
    return given.astype(np.uint64)
