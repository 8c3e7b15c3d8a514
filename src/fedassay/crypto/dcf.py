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

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedassay.crypto.dcf_keys import LEFT, RIGHT, Keys
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
    first = Keys.empty(len(x), party=0, bits=bits)
    second = replace(first, party=1, seeds=np.empty_like(first.seeds))
    seeds = randomness.words(4 * len(x)).reshape(2, -1, 2)
    first.seeds[:], second.seeds[:] = seeds
    in_blocks(lambda block: _fill_corrections(first, block, x[block], seeds[:, block]), len(x), _KEYS_AT_ONCE)
    return first, second


def _fill_corrections(keys: Keys, block: slice, x: Words, seeds: Words) -> None:
    """Write what both keys share: a word for the check, three for each level, one for the leaf x.

    On the path to x party 1's control bit t₁ is carried as a mask of zeros or ones (party 0's is its complement), and
    with it V_α, the sum of both parties' values so far.
    """
    generator = Generator()
    keys.square[block] = _square_correction(generator, seeds)
    t1, owed = np.full(len(x), _ONES), np.zeros(len(x), np.uint64)
    for level in range(keys.bits):
        right = _top_bit(x << np.uint64(64 - keys.bits + level))
        # Values: the word must bring whoever leaves the path to 1 if that is to the right of x, else to 0.
        gap_l, first_l, both_l = _gap(generator.expand(Purpose.LEFT_VALUE, seeds))
        gap_r, first_r, both_r = _gap(generator.expand(Purpose.RIGHT_VALUE, seeds))
        swap = (gap_l ^ gap_r) & right
        keep, lose, one = gap_l ^ swap, gap_r ^ swap, right + _ONE
        controls = ((both_l ^ right) & LEFT) ^ (((both_r ^ right) & LEFT) >> _ONE) ^ LEFT
        keys.value_words[level, block] = _signed(lose + owed + one, t1) | controls
        owed = fold(keep + (np.uint64(4 * PRIME) - lose) - one)
        # Seeds: beside the path they become equal; on it one party adds the word, the other does not.
        children, word = _next_seeds(generator, seeds, right, t1)
        keys.seed_words[level, block] = word
        seeds = children
        t1 = _top_bit(first_l ^ ((first_l ^ first_r) & right) ^ (t1 & (controls << (right & _ONE))))
    keys.leaf[block] = _signed(_gap(seeds)[0] + owed + _ONE, t1)


_SEEDS = (Purpose.LEFT_SEED, Purpose.RIGHT_SEED)
_VALUES = (Purpose.LEFT_VALUE, Purpose.RIGHT_VALUE)


def _top_bit(words):
    return (words.view(np.int64) >> 63).view(np.uint64)


def _next_seeds(generator: Generator, seeds: Words, right: Words, t1: Words) -> tuple[Words, Words]:
    keep, difference = (
        generator.encrypt(Purpose.LEFT_SEED, seeds),
        generator.encrypt(Purpose.RIGHT_SEED, seeds),
    )
    difference ^= keep
    keep ^= seeds
    keep ^= difference & _pairs(right)
    word = keep[0] ^ keep[1]
    word ^= difference[0]
    word ^= difference[1]
    added = _pairs(t1)
    added &= word
    keep[1] ^= added
    added ^= word
    keep[0] ^= added
    return keep, word


def _gap(blocks: Words) -> tuple[Words, Words, Words]:
    """Of both parties' blocks: party 1's number minus party 0's (plus 2p: at most 4p), and bits: party 1's, and xor."""
    first, both = blocks[1, :, 0].copy(), blocks[0, :, 0] ^ blocks[1, :, 0]
    blocks &= _P
    gap = _P - blocks[0]
    gap += blocks[1]
    return gap[:, 0] + gap[:, 1], first, both


def _signed(total: Words, t: Words) -> Elements:
    """(−1)^t total, reduced: flipping all bits of a word gives 2^64 − 1 − word ≡ 7 − word."""
    total = total ^ t
    total -= t & np.uint64(7)
    return reduce(total)


def _pairs(mask: Words) -> Words:
    """A mask per node as a mask for both words of a block; two strided copies beat numpy's repeat."""
    both = np.empty((*mask.shape, 2), np.uint64)
    both[..., 0] = mask
    both[..., 1] = mask
    return both


def _square_correction(generator: Generator, seeds: Words) -> Elements:
    """What is missing for the parties' pseudorandom shares of a and c to satisfy a² = c; see `sketch`."""
    a, c = (
        reduce(from_blocks(generator.expand(purpose, seeds))) for purpose in (Purpose.MASK, Purpose.SQUARE)
    )
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
    route = _Route.to(points, bits=keys.bits)
    at_once = min(_KEYS_AT_ONCE, max(1, _NODES_AT_ONCE // max(1, route.width)))

    def work(block):
        shares[block] = _walk(Generator(), keys, block, route)[route.places].T

    in_blocks(work, len(keys), at_once)
    return shares


def whole_domain(bits: int) -> Points:
    """All points, in order."""
    return np.arange(2**bits, dtype=np.uint64)


@dataclass(frozen=True, kw_only=True)
class _Route:
    """How to reach a set of points through the tree, expanding each node once.

    `parents` says for each level which nodes have a left child on the way, and which a right one; the children of
    the former come first. `places` says where each point ends up among the `width` leaves.
    """

    parents: tuple[tuple[Index, Index], ...]
    places: NDArray[np.intp]
    width: int

    @classmethod
    def to(cls, points: Points, *, bits: int) -> _Route:
        wanted, inverse = np.unique(points, return_inverse=True)
        levels = [wanted]
        for _ in range(bits):
            above = levels[-1] >> _ONE
            levels.append(above[np.flatnonzero(np.diff(above, prepend=_ONES))])
        parents, nodes = [], levels.pop()
        for prefixes in reversed(levels):
            children = nodes << _ONE, (nodes << _ONE) | _ONE
            if len(prefixes) == 2 * len(nodes):
                parents.append((slice(None), slice(None)))
                nodes = np.concatenate(children)
                continue
            chosen = [np.flatnonzero(np.isin(side, prefixes)) for side in children]
            parents.append(tuple(slice(None) if len(some) == len(nodes) else some for some in chosen))
            nodes = np.concatenate([side[some] for side, some in zip(children, chosen, strict=True)])
        return cls(parents=tuple(parents), places=np.argsort(nodes)[inverse], width=len(nodes))


def _walk(generator: Generator, keys: Keys, block: slice, route: _Route) -> Elements:
    """The shares of a block of keys at the leaves of a route: an array with a row per leaf, a column per key."""
    seeds = keys.seeds[None, block]
    t = np.full(seeds.shape[:2], _ONES if keys.party else np.uint64(0))
    value = np.zeros_like(t)
    for level, parents in enumerate(route.parents):
        word = t & keys.value_words[level, block]
        value += word & _P
        if level % 2:
            value = fold(value)
        seed_word = keys.seed_words[level, block]
        feed = np.empty_like(seeds)
        np.bitwise_and(t, seed_word[:, 0], out=feed[..., 0])
        np.bitwise_and(t, seed_word[:, 1], out=feed[..., 1])
        feed ^= seeds
        sides = []
        for side, some in enumerate(parents):
            parent = seeds[some]
            if len(parent) == 0:
                continue
            child = generator.encrypt(_SEEDS[side], parent)
            child ^= feed[some]
            drawn = generator.expand(_VALUES[side], parent)
            control = _top_bit(drawn[..., 0] ^ (word[some] << np.uint64(side) if side else word[some]))
            sides.append((child, control, value[some] + from_blocks(drawn)))
        seeds, t, value = sides[0] if len(sides) == 1 else map(np.concatenate, zip(*sides, strict=True))
    shares = reduce(value + from_blocks(seeds) + (t & keys.leaf[block]))
    return negate(shares) if keys.party else shares


def in_blocks(work, count, at_once):
    blocks = [slice(start, min(start + at_once, count)) for start in range(0, count, at_once)]
    with ThreadPoolExecutor(max_workers=int(os.environ.get("TH", "2"))) as pool:
        return list(pool.map(work, blocks))


def _whole_numbers(numbers: ArrayLike, *, bits: int, what: str) -> Points:
    """Whole numbers below 2^bits as words."""
    given = np.asarray(numbers)
    if given.ndim != 1 or (given.size and given.dtype.kind not in "iu"):
        raise UsageError(
            f"{what}: got {given.ndim} dimensions of type {given.dtype}, expected a list of whole numbers."
        )
    if given.size and not (int(given.min()) >= 0 and int(given.max()) < 2**bits):
        raise UsageError(
            f"{what}: got {given.min()} to {given.max()}, expected 0 to {2**bits - 1} ({bits} bits)."
        )
    return given.astype(np.uint64)
