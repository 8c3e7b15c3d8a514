"""Packed secret sharing over 2^61 − 1: a polynomial for each column of l entries, a share for each of k members.

A column's entries are the values of a polynomial of degree below t + l at the points 1..l; member j's share is its
value at l + j, for j = 1..k. Any t shares say nothing about the entries, and any r = t + l give all of them
(M. Franklin and M. Yung, Communication complexity of secure computation, STOC 1992).

Shares are not dealt but *completed*: the first t members' shares are pads that each shares with the client already.
They fix the polynomial; the client publishes, for every other member, its share minus that member's pad. These are the
*corrections*. Sums of shares are shares of the sums, so that members only ever add up pads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedassay.crypto import field61
from fedassay.crypto.field61 import PRIME, Elements, P

_COLUMNS_AT_ONCE = 1 << 12
_HALF = 32
"""Bits of half a word."""


@dataclass(frozen=True, kw_only=True)
class Packing:
    """How many members there are (k), how many shares say nothing (t), and how many entries a column has (l).

    Examples
    --------
    >>> packing = Packing(members=4, threshold=2, packed=1)
    >>> pads = np.arange(8, dtype=np.uint64).reshape(4, 2)
    >>> corrections = packing.corrections(np.array([10, -20]), pads)
    >>> shares = dict(enumerate(packing.shares(pads, corrections)))
    >>> packing.read(packing.open({j: shares[j] for j in (0, 2, 3)}), 2)
    array([ 10, -20])
    """

    members: int
    threshold: int
    packed: int

    @property
    def needed(self) -> int:
        """How many shares open a column."""
        return self.threshold + self.packed

    def columns(self, length: int) -> int:
        """The columns of a vector: what a pad, a share and an answer have elements."""
        return -(-length // self.packed)

    def corrections(self, vector: NDArray[np.int64], pads: Elements) -> Elements:
        """What a client publishes for the members t + 1..k: their shares of the vector, less their pads (k × columns).

        Entries must be below 2^60 in absolute value; a negative one is its residue.
        """
        entries = np.zeros(self.packed * pads.shape[1], np.int64)
        entries[: len(vector)] = vector
        columns = entries.reshape(self.packed, -1)
        weights, found = self._completing, np.empty((self.members - self.threshold, pads.shape[1]), np.uint64)
        # Some columns at a time, so that what is in between stays in a core's cache.
        for start in range(0, pads.shape[1], _COLUMNS_AT_ONCE):
            part = slice(start, start + _COLUMNS_AT_ONCE)
            column, pad = columns[:, part], pads[:, part]
            known = [(column + (column >> 63 & PRIME)).view(np.uint64), pad[: self.threshold]]
            shares = _product(weights, np.concatenate(known))
            found[:, part] = field61.reduce(shares + (P - pad[self.threshold :]))
        return found

    def shares(self, pads: Elements, corrections: Elements) -> Elements:
        """The members' shares, from (sums of) their pads and (the sum of) the corrections."""
        return np.concatenate([pads[: self.threshold], field61.add(pads[self.threshold :], corrections)])

    def open(self, shares: Mapping[int, Elements]) -> Elements:
        """The entries, one row for each place in a column, from the shares of any r members, by place from 0."""
        places = sorted(shares)[: self.needed]
        assert len(places) == self.needed
        known = tuple(self._point(place) for place in places)
        weights = interpolation(known, tuple(range(1, self.packed + 1)))
        return product(weights, np.stack([shares[place] for place in places]))

    def consistent(self, shares: Mapping[int, Elements], key_of_check: Elements) -> bool:
        """Whether all shares lie on one polynomial in each column, with an error of at most 2^-61 if they do not.

        `key_of_check` is a uniform vector, as long as a share, drawn after the shares were fixed: each share is
        compressed to its inner product with it. With exactly r shares there is nothing to check.
        """
        places = sorted(shares)
        compressed = {j: field61.sums(field61.multiply(key_of_check, shares[j]))[None] for j in places}
        known, rest = places[: self.needed], places[self.needed :]
        if not rest:
            return True
        weights = interpolation(tuple(map(self._point, known)), tuple(map(self._point, rest)))
        expected = product(weights, np.stack([compressed[j] for j in known]))
        return bool((expected == np.stack([compressed[j] for j in rest])).all())

    def read(self, entries: Elements, length: int) -> NDArray[np.int64]:
        """The opened entries as signed numbers, one behind the other."""
        flat = entries.reshape(-1)[:length]
        signed = flat.astype(np.int64)
        signed[flat > P // np.uint64(2)] -= PRIME
        return signed

    @property
    def _completing(self) -> Weights:
        fixed = (*range(1, self.packed + 1), *map(self._point, range(self.threshold)))
        return interpolation(fixed, tuple(map(self._point, range(self.threshold, self.members))))

    def _point(self, place: int) -> int:
        return self.packed + 1 + place


# --- products with interpolation weights ------------------------------------------------------------------


class Weights(NamedTuple):
    """A matrix modulo p, cut into signed limbs so that products with cut values are exact as floats.

    `limbs` has the rows of limb 0, then those of limb 1, and so on; a limb has `weight_bits` bits, and values are
    multiplied in limbs of `value_bits` bits.
    """

    limbs: NDArray[np.float64]
    rows: int
    weight_bits: int
    value_bits: int


@lru_cache(maxsize=64)
def interpolation(known: tuple[int, ...], targets: tuple[int, ...]) -> Weights:
    """The Lagrange weights that give a polynomial's values at `targets` from those at as many points as it needs."""
    denominators = []
    for point in known:
        denominator = 1
        for other in known:
            if other != point:
                denominator = denominator * (point - other) % PRIME
        denominators.append(denominator)
    matrix = []
    for target in targets:
        full = 1
        for point in known:
            full = full * (target - point) % PRIME
        row = [
            full * pow((target - point) * denominator, -1, PRIME) % PRIME
            for point, denominator in zip(known, denominators, strict=True)
        ]
        matrix.append([weight - PRIME if weight > PRIME // 2 else weight for weight in row])
    return _cut(matrix)


def product(weights: Weights, values: Elements) -> Elements:
    """The matrix product of weights and values (n × columns), reduced.

    Exact: a limb of a weight is at most 2^(w−1) in absolute value, a limb of a value below 2^v, and n products of them
    add up to at most 2^53 (`_cut` chooses w so). Limb i of a weight times limb j of a value counts 2^(w·i + v·j), which
    modulo p is a rotation.
    """
    result = np.empty((weights.rows, values.shape[1]), np.uint64)
    for start in range(0, values.shape[1], _COLUMNS_AT_ONCE):
        part = slice(start, start + _COLUMNS_AT_ONCE)
        result[:, part] = _product(weights, values[:, part])
    return result


def _product(weights: Weights, values: Elements) -> Elements:
    v, w = weights.value_bits, weights.weight_bits
    total = np.zeros((weights.rows, values.shape[1]), np.uint64)
    mask, waiting = np.uint64((1 << v) - 1), 0
    if v == _HALF:  # the limbs lie side by side in memory already
        halves = (weights.limbs @ values.view("<u4").astype(np.float64)).astype(np.int64)
    for j in range(-(-61 // v)):
        if v == _HALF:
            signed = halves[:, j::2]
        else:
            limb = ((values >> np.uint64(v * j)) & mask).astype(np.float64)
            signed = (weights.limbs @ limb).astype(np.int64)
        for i in range(len(weights.limbs) // weights.rows):
            part = signed[i * weights.rows : (i + 1) * weights.rows]
            total += _rotated((part + (part >> 63 & PRIME)).view(np.uint64), v * j + w * i)
            waiting += 1
            if waiting == 6:  # with the folded sum, seven numbers of little more than p fit into a word
                total, waiting = field61.fold(total), 0
    return field61.reduce(total)


def _rotated(words: Elements, exponent: int) -> Elements:
    """The product with 2^exponent, not reduced, for words of at most p."""
    left = np.uint64(exponent % 61)
    return words if not left else ((words << left) & P) + (words >> (np.uint64(61) - left))


def _cut(matrix: list[list[int]]) -> Weights:
    """The matrix in limbs: those sizes of limbs that need the fewest products."""
    largest = max(abs(weight) for row in matrix for weight in row)
    columns = len(matrix[0])
    choices = []
    for value_bits in (_HALF, 21, 16):
        weight_bits = 54 - value_bits - max(1, (columns - 1).bit_length())
        count = 1
        while largest >= 1 << (weight_bits * count - 1):
            count += 1
        of_values = -(-61 // value_bits)
        choices.append((count * of_values, of_values, count, weight_bits, value_bits))
    _, _, count, weight_bits, value_bits = min(
        choices
    )  # of equal ones, that which cuts values into fewer limbs
    half, limbs = 1 << (weight_bits - 1), np.zeros((count, len(matrix), columns))
    for r, row in enumerate(matrix):
        for c, weight in enumerate(row):
            left = weight
            for i in range(count):
                low = ((left + half) & (2 * half - 1)) - half if i < count - 1 else left
                limbs[i, r, c] = low
                left = (left - low) >> weight_bits
            assert left == 0
    return Weights(limbs.reshape(-1, columns), len(matrix), weight_bits, value_bits)
