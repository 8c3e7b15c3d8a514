"""The levels of comparison keys: the generator that expands seeds, the walk of one path, and the walk of whole trees.

A pseudorandom generator for trees of seeds: AES with fixed keys, over all seeds at once.

Block j of the expansion of a 128-bit seed s is AES_j(s) ⊕ s: the compression function of Matyas, Meyer and Oseas, under
a key that is fixed for the purpose j. A cipher with a fixed key needs no key schedule per seed, so that one call to
OpenSSL expands the seeds of all clients.

What is needed (`fedassay.crypto.dcf` needs no more): the blocks of independent uniform seeds look uniform and
independent. In the trees there every secret seed is uniform given all else that the other server knows, and it is
expanded under each purpose once.

What is assumed: AES-128 under the fixed keys behaves like as many independent random permutations (the ideal-cipher
model). Then anyone who computes AES q times tells the blocks of D ≤ q seeds from random ones with a probability of at
most about 2·D·q/2^128: a difference shows only if a computation hits a seed, or the image of one. This is the
non-circular part of the *tweakable circular correlation robustness* that is usually assumed of fixed-key AES (C. Guo,
J. Katz, X. Wang, Y. Yu, Efficient and Secure Multiparty Computation from Fixed-Key Block Ciphers, IEEE S&P 2020; the
tweak is the purpose). The circular part matters where one secret offset is xored to inputs and outputs alike; here
none is, so no orthomorphism is put before the cipher.

Mind the D, as with every generator whose keys all clients share: with a million keys of 32 bits (D ≈ 2^25) it takes
about 2^102 AES calls, not 2^127, to find *any one* of the seeds. To find that of a given client takes 2^123.

The correction words of comparison functions: a walk of both parties down to the clients' values (see `dcf`).

Memory is allocated once and used again at every level, hence the many operations in place: the arithmetic is so little
that fresh arrays would take longer than it does.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import IntEnum
from math import prod

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from fedassay.crypto.dcf_keys import LEFT, RIGHT, Keys
from fedassay.crypto.field61 import (
    PRIME,
    Elements,
    P,
    add,
    fold_in_place,
    from_bits,
    multiply,
    negate,
    reduce,
    reduce_into,
)
from fedassay.protocol.arrays import Words


class Purpose(IntEnum):
    """Purpose of a block. Each has its own fixed key."""

    LEFT_SEED = 0
    RIGHT_SEED = 1
    VALUES = 2
    CHECK = 3


def fixed_key(purpose: Purpose) -> bytes:
    """Return the AES-128 key of a purpose: nothing up our sleeve but a hash of its name.

    Examples
    --------
    >>> fixed_key(Purpose.LEFT_SEED).hex()
    '733fbc2949f764931ceed7925794ce2f'
    """
    name = purpose.name.lower().replace("_", " ")
    return hashlib.sha256(f"fedassay comparison functions 1: {name}".encode()).digest()[:16]


def room(*shape: int) -> Words:
    """Return an array for blocks, with the room for one more behind it that the cipher library insists on."""
    return np.empty(prod(shape) + 2, "<u8")[:-2].reshape(shape)


class Generator:
    """Ciphers of all purposes, opened once. Not to be shared between threads."""

    def __init__(self) -> None:
        self._ciphers = [Cipher(algorithms.AES(fixed_key(j)), modes.ECB()).encryptor() for j in Purpose]

    def expand(self, purpose: Purpose, seeds: Words, *, out: Words) -> Words:
        """Write one block per seed into `out`, which must be the beginning of a `room`.

        Seeds and blocks are contiguous arrays whose last axis is two little-endian words. The cipher is called once.
        """
        self.encrypt(purpose, seeds, out=out)
        out ^= seeds
        return out

    def encrypt(self, purpose: Purpose, seeds: Words, *, out: Words) -> Words:
        """Apply AES alone, for callers that xor the seeds to it together with something else. Never use it without."""
        assert isinstance(out.base, np.ndarray)
        if seeds.size:
            self._ciphers[purpose].update_into(seeds.data.cast("B"), out.base.data.cast("B"))
        return out


# --- the correction words of comparison functions -----------------------------------------------------------

_ONE, _SEVEN = np.uint64(1), np.uint64(7)
_ONES = np.uint64(2**64 - 1)
_3P = np.uint64(3 * PRIME)


class ComparisonPath:
    """Position of both parties on their way to x, for some clients; `seeds` are the roots, 2 × K × 2 words.

    Party 1's control bit t₁ is a mask of zeros or ones; party 0 has the complement. `owed` is V_1 − V_0 so far,
    modulo p and at most 5p: what the next words must make up for.
    """

    def __init__(self, x: Words, seeds: Words, *, bits: int) -> None:
        self._generator, self._x, self._bits = Generator(), x, bits
        self._s, k = seeds.copy(), len(x)
        self._t1, self._owed = np.full(k, _ONES), np.zeros(k, np.uint64)
        self._right, self._t, self._controls, self._keep, self._lose, self._spare = np.empty(
            (6, k), np.uint64
        )
        self._blocks, self._others = room(2, k, 2), room(2, k, 2)
        self._pair = np.empty((k, 2), np.uint64)

    def fill(self, keys: Keys, rows: slice) -> None:
        """Write all that both keys share: words for the check, for each level and for the leaf."""
        keys.square[rows] = _square(self._generator.expand(Purpose.CHECK, self._s, out=self._blocks))
        for level in range(self._bits):
            np.left_shift(self._x, np.uint64(64 - self._bits + level), out=self._right)
            spread_top_bit(self._right)
            self._values(keys.value_words[level, rows])
            self._seeds(keys.seed_words[level, rows])
            # Party 1's bit where the path goes, corrected if it was 1 before.
            np.bitwise_and(self._right, _ONE, out=self._spare)
            self._controls <<= self._spare
            self._controls &= self._t1
            np.bitwise_xor(self._t, self._controls, out=self._t1)
            spread_top_bit(self._t1)
        numbers = self._s[:, :, 0] & P
        self._owed += numbers[1] + (P - numbers[0]) + _ONE
        keys.leaf[rows] = self._correction()

    def _values(self, word: Words) -> None:
        """Write the word for values and control bits, from both parties' blocks: left in column 0, right in 1."""
        v, pair, right, spare = self._blocks, self._pair, self._right, self._spare
        self._generator.expand(Purpose.VALUES, self._s, out=v)
        np.bitwise_xor(v[1, :, 0], v[1, :, 1], out=self._t)
        self._t &= right
        self._t ^= v[1, :, 0]
        # Off the path the bits of both parties must become equal, on it different.
        np.bitwise_xor(v[0], v[1], out=pair)
        np.bitwise_xor(pair[:, 1], right, out=self._controls)
        self._controls >>= _ONE
        self._controls &= RIGHT
        np.bitwise_xor(pair[:, 0], right, out=spare)
        spare &= LEFT
        self._controls ^= spare
        self._controls ^= LEFT
        # How much more party 1 adds than party 0: on the way, and off it, where 1 must come out on the right.
        v &= P
        np.subtract(P, v[0], out=pair)
        pair += v[1]
        np.bitwise_xor(pair[:, 0], pair[:, 1], out=spare)
        spare &= right
        np.bitwise_xor(pair[:, 0], spare, out=self._keep)
        np.bitwise_xor(pair[:, 1], spare, out=self._lose)
        np.add(right, _ONE, out=spare)
        self._lose += spare
        self._owed += self._lose
        np.bitwise_or(self._correction(), self._controls, out=word)
        np.subtract(_3P, self._lose, out=self._owed)
        self._owed += self._keep

    def _correction(self) -> Elements:
        """Compute (−1)^t₁ owed, reduced, for `owed` of at most 8p: flipping all bits of a word gives 8p + 7 − word."""
        total, spare = self._owed, self._spare
        total ^= self._t1
        np.bitwise_and(self._t1, _SEVEN, out=spare)
        total -= spare
        reduce_into(total, total, spare)
        return total

    def _seeds(self, word: Words) -> None:
        """Write the word for seeds, the xor of both parties' lost children; and step to the children on the way."""
        s, left, difference, mask = self._s, self._blocks, self._others, self._pair
        self._generator.encrypt(Purpose.LEFT_SEED, s, out=left)
        self._generator.encrypt(Purpose.RIGHT_SEED, s, out=difference)
        difference ^= left
        s ^= left
        # Now s is the left child, and s ⊕ difference the right one.
        np.bitwise_xor(difference[0], difference[1], out=word)
        mask[:, 0], mask[:, 1] = self._right, self._right
        difference &= mask
        s ^= difference
        word ^= s[0]
        word ^= s[1]
        mask[:, 0], mask[:, 1] = self._t1, self._t1
        mask &= word
        s[1] ^= mask
        mask ^= word
        s[0] ^= mask


def spread_top_bit(words: Words) -> None:
    """Replace words by masks: all ones where the highest bit is set, zeros elsewhere."""
    signed = words.view(np.int64)
    signed >>= 63


def _square(blocks: Words) -> Elements:
    """Compute what the parties' pseudorandom shares of a and c lack to satisfy c = a²; see `sketch`."""
    shares = from_bits(blocks)
    a, c = (add(shares[0, :, i], shares[1, :, i]) for i in (0, 1))
    return add(multiply(a, a), negate(c))


# --- walking down the trees of comparison functions ---------------------------------------------------------

PathPoints = NDArray[np.uint64]

Index = slice | NDArray[np.intp]

_TREE_ONE, _TREE_ONES = np.uint64(1), np.uint64(2**64 - 1)
_ALL, _NONE = slice(None), slice(0)


@dataclass(frozen=True, kw_only=True)
class TreeRoute:
    """Route to a set of points on which every node is expanded once.

    `parents` says for each level which nodes have a left child on the way and which a right one; the former children
    come first. `places` says where each point is among the `width` leaves in the end.
    """

    parents: tuple[tuple[Index, Index], ...]
    places: NDArray[np.intp]
    width: int

    @classmethod
    def to(cls, points: PathPoints, *, bits: int) -> TreeRoute:
        """Find the route to these points (at least one), in any order; a point may come twice."""
        prefixes, places = np.unique(points, return_inverse=True)
        levels = []
        for _ in range(bits):
            levels.append(prefixes)
            above = prefixes >> _TREE_ONE
            prefixes = above[np.flatnonzero(np.diff(above, prepend=_TREE_ONES))]
        parents, nodes = [], prefixes
        for wanted in reversed(levels):
            left, right = nodes << _TREE_ONE, (nodes << _TREE_ONE) | _TREE_ONE
            some_left, some_right = _among(left, wanted), _among(right, wanted)
            nodes = np.concatenate([left[some_left], right[some_right]])
            parents.append((some_left, some_right))
        return cls(parents=tuple(parents), places=np.argsort(nodes)[places], width=len(nodes))


def _among(children: PathPoints, wanted: PathPoints) -> Index:
    """Return which of the children are wanted; all and none are slices, which spare a copy."""
    if len(wanted) == 2 * len(children):
        return _ALL
    chosen = np.flatnonzero(np.isin(children, wanted))
    return _NONE if len(chosen) == 0 else _ALL if len(chosen) == len(children) else chosen


class Walker:
    """Walk of some keys at a time down a route, in memory that is used again. Not to be shared between threads."""

    def __init__(self, keys: Keys, route: TreeRoute, *, at_once: int) -> None:
        self._keys, self._route, self._generator = keys, route, Generator()
        self._wide = [room(route.width * at_once * 2) for _ in range(5)]
        self._narrow = np.empty((6, route.width * at_once), np.uint64)

    def __call__(self, rows: slice) -> Elements:
        """Compute the shares of these keys (`at_once` of them at most): a row for each point, a column for each key.

        Numbers of at most p are added to `value`, which is folded at every third level: after that it is at most
        p + 7, and seven more fit into a word (8p + 7).
        """
        keys, count = self._keys, len(self._keys.seeds[rows])
        size = self._route.width * count
        here, there, child, drawn, feed = (memory[: 2 * size].reshape(-1, count, 2) for memory in self._wide)
        t, next_t, value, next_value, word, spare = (m[:size].reshape(-1, count) for m in self._narrow)
        here[0], t[0], value[0], nodes = keys.seeds[rows], _TREE_ONES if keys.party else 0, 0, slice(1)
        for level, parents in enumerate(self._route.parents):
            np.bitwise_and(t[nodes], keys.value_words[level, rows], out=word[nodes])
            np.bitwise_and(word[nodes], P, out=spare[nodes])
            value[nodes] += spare[nodes]
            if level % 3 == 2:
                fold_in_place(value[nodes], spare[nodes])
            # A child's seed is AES(s) ⊕ s, and ⊕ the correction where t = 1: the last two in one pass.
            for half in (0, 1):
                np.bitwise_and(t[nodes], keys.seed_words[level, rows, half], out=feed[nodes, :, half])
            feed[nodes] ^= here[nodes]
            self._generator.expand(Purpose.VALUES, here[nodes], out=drawn[nodes])
            first = 0
            for side, some in enumerate(parents):
                if side:
                    word[nodes] <<= _TREE_ONE  # the right control bit comes to the top
                if some is _NONE:
                    continue
                seeds, block = here[nodes][some], drawn[nodes][some, :, side]
                children = slice(first, first := first + len(seeds))
                self._generator.encrypt(Purpose(side), seeds, out=child[: len(seeds)])
                np.bitwise_xor(child[: len(seeds)], feed[nodes][some], out=there[children])
                np.bitwise_xor(block, word[nodes][some], out=next_t[children])
                np.bitwise_and(block, P, out=next_value[children])
                next_value[children] += value[nodes][some]
            nodes = slice(first)
            spread_top_bit(next_t[nodes])
            here, there, t, next_t, value, next_value = there, here, next_t, t, next_value, value
        shares = reduce(value[nodes] + (here[nodes, :, 0] & P) + (t[nodes] & keys.leaf[rows]))
        return (negate(shares) if keys.party else shares)[self._route.places]
