"""The correction words of comparison functions: a walk of both parties down to the clients' values (see `dcf`).

Memory is allocated once and used again at every level, hence the many operations in place: the arithmetic is so little
that fresh arrays would take longer than it does.
"""

from __future__ import annotations

import numpy as np

from fedassay.crypto.dcf_keys import LEFT, RIGHT, Keys
from fedassay.crypto.field61 import PRIME, Elements, P, Words, add, from_bits, multiply, negate
from fedassay.crypto.prg import Generator, Purpose, room

_ONE, _SEVEN, _BITS = np.uint64(1), np.uint64(7), np.uint64(61)
_ONES = np.uint64(2**64 - 1)
_3P = np.uint64(3 * PRIME)


class Path:
    """Where both parties are on their way to x, for some clients; `seeds` are the roots, 2 × K × 2 words.

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
        """The word for values and control bits, from both parties' blocks: left in column 0, right in column 1."""
        v, pair, right, spare = self._blocks, self._pair, self._right, self._spare
        self._generator.expand(Purpose.VALUES, self._s, out=v)
        np.bitwise_xor(v[1, :, 0], v[1, :, 1], out=self._t)
        self._t &= right
        self._t ^= v[1, :, 0]
        # Beside the path the bits of both parties must become equal, on it different.
        np.bitwise_xor(v[0], v[1], out=pair)
        np.bitwise_xor(pair[:, 1], right, out=self._controls)
        self._controls >>= _ONE
        self._controls &= RIGHT
        np.bitwise_xor(pair[:, 0], right, out=spare)
        spare &= LEFT
        self._controls ^= spare
        self._controls ^= LEFT
        # How much more party 1 adds than party 0: on the way, and beside it, where 1 must come out on the right.
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
        """(−1)^t₁ owed, reduced, for `owed` of at most 8p: flipping all bits of a word gives 8p + 7 − word."""
        total, spare = self._owed, self._spare
        total ^= self._t1
        np.bitwise_and(self._t1, _SEVEN, out=spare)
        total -= spare
        fold_in_place(total, spare)
        np.subtract(total, P, out=spare)
        np.minimum(total, spare, out=total)
        return total

    def _seeds(self, word: Words) -> None:
        """The word for seeds, the xor of both parties' lost children; and the step to the children on the way."""
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


def fold_in_place(words: Words, spare: Words) -> None:
    """`fold`, without new arrays."""
    np.right_shift(words, _BITS, out=spare)
    words &= P
    words += spare


def _square(blocks: Words) -> Elements:
    """What is missing for the parties' pseudorandom shares of a and c to satisfy c = a²; see `sketch`."""
    shares = from_bits(blocks)
    a, c = (add(shares[0, :, i], shares[1, :, i]) for i in (0, 1))
    return add(multiply(a, a), negate(c))
