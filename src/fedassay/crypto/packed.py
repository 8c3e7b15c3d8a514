"""Packed secret sharing over 2^61 − 1: a polynomial for each column of l entries, a share for each of k members.

A column's entries are the values of a polynomial of degree below t + l at the points 1..l; member j's share is its
value at l + j, for j = 1..k. Any t shares reveal nothing about the entries, and any r = t + l give all of them
(M. Franklin and M. Yung, Communication complexity of secure computation, STOC 1992).

Shares are not dealt but *completed*: the first t members' shares are pads that each shares with the client already.
They fix the polynomial; the client publishes, for every other member, its share minus that member's pad. These are the
*corrections*. Sums of shares are shares of the sums, so that members only ever add up pads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedassay.crypto import field61
from fedassay.crypto.field61 import PRIME, Elements, P
from fedassay.protocol.arrays import Words

_BYTES = 1 << 21
"""Bytes of pads, values and products that are there at once; measured: a fast cache holds most of them."""

_HALF = 32
"""Bits of half a word, in which values are multiplied."""


@dataclass(frozen=True, kw_only=True)
class Packing:
    """Number of members (k), number of shares that reveal nothing (t), and number of entries in a column (l).

    Examples
    --------
    >>> packing = Packing(members=4, threshold=2, packed=1)
    >>> pads = np.arange(8, dtype=np.uint64).reshape(4, 2)
    >>> corrections = packing.corrections(packing.rows(np.array([10, -20])), [(slice(2), pads)])
    >>> shares = {j: packing.share(j, pads[j], corrections) for j in (0, 2, 3)}
    >>> packing.read(packing.open(shares), 2)
    array([ 10, -20])
    """

    members: int
    threshold: int
    packed: int

    @property
    def needed(self) -> int:
        """Number of shares that open a column."""
        return self.threshold + self.packed

    @property
    def corrected(self) -> int:
        """Number of members that have a correction."""
        return self.members - self.threshold

    def columns(self, length: int) -> int:
        """Return the number of columns of a vector: that of the elements of a pad, a share and an answer."""
        return -(-length // self.packed)

    def rows(self, vector: NDArray[np.int64]) -> NDArray[np.int64]:
        """Cut the vector into columns of l entries, the last ones filled up with zeros."""
        zeros = np.zeros(self.packed * self.columns(len(vector)) - len(vector), np.int64)
        return (np.concatenate([vector, zeros]) if len(zeros) else vector).reshape(self.packed, -1)

    @property
    def at_once(self) -> int:
        """Number of columns of pads that `corrections` takes at a time."""
        return self._completing.at_once(also=self.members)

    def corrections(self, rows: NDArray[np.int64], pads: Iterable[tuple[slice, Words]]) -> Elements | None:
        """Return what a client publishes for the members t + 1..k: their shares of its rows, less their pads.

        Entries must be below 2^60 in absolute value; what is shared are their residues.
        `pads` has some columns at a time (k × `at_once` at most). Uniform words below p hide what they are added to.
        None if one is p, which stands for no element: then the pads must be drawn again.
        """
        found = np.empty((self.corrected, rows.shape[1]), np.uint64)
        multiply = Product(self._completing, min(self.at_once, rows.shape[1]))
        for part, words in pads:
            if words.max(initial=0) == P:
                return None
            entries = (rows[:, part] + (rows[:, part] >> 63 & PRIME)).view(np.uint64)
            multiply(found[:, part], entries, words[: self.threshold], less=words[self.threshold :])
        return found

    def share(self, place: int, pads: Elements, corrections: Elements) -> Elements:
        """Return the share of the member at this place (from 0), from (the sum of) its pads and all corrections."""
        return pads if place < self.threshold else field61.add(pads, corrections[place - self.threshold])

    def open(self, shares: Mapping[int, Elements]) -> Elements:
        """Open the entries, one row for each place in a column, from the shares of any r members, by place from 0."""
        places = sorted(shares)[: self.needed]
        assert len(places) == self.needed
        known = tuple(self._point(place) for place in places)
        weights = interpolation(known, tuple(range(1, self.packed + 1)))
        return product(weights, np.stack([shares[place] for place in places]))

    def consistent(self, shares: Mapping[int, Elements], key_of_check: Elements) -> bool:
        """Return whether all shares lie on one polynomial in each column, with an error of at most 2^-60 if not.

        `key_of_check` is a uniform vector, as long as a share, drawn after the shares were fixed: each share is
        compressed to its inner product with it. With exactly r shares there is nothing to check.
        """
        places = sorted(shares)
        points = tuple(map(self._point, places))
        if len(points) == self.needed:
            return True
        compressed = np.array([[field61.sums(field61.multiply(key_of_check, shares[j]))] for j in places])
        weights = interpolation(points[: self.needed], points[self.needed :])
        return bool((product(weights, compressed[: self.needed]) == compressed[self.needed :]).all())

    def read(self, entries: Elements, length: int) -> NDArray[np.int64]:
        """Return the opened entries as signed numbers, one behind the other."""
        flat = entries.reshape(-1)[:length].astype(np.int64)
        return np.where(flat > PRIME // 2, flat - PRIME, flat)

    @property
    def _completing(self) -> LimbMatrix:
        fixed = (*range(1, self.packed + 1), *map(self._point, range(self.threshold)))
        return interpolation(fixed, tuple(map(self._point, range(self.threshold, self.members))))

    def _point(self, place: int) -> int:
        return self.packed + 1 + place


# --- products with interpolation weights ------------------------------------------------------------------


class LimbMatrix(NamedTuple):
    """A matrix modulo p, cut into signed limbs of `bits` bits: products with halves of values are exact as floats.

    `limbs` has the rows of the lowest limb, then those of the next one, and so on.
    """

    limbs: NDArray[np.float64]
    rows: int
    bits: int

    def at_once(self, also: int) -> int:
        """Return the number of columns with which a product, and `also` rows of other words, stay in a cache."""
        limbs, known = self.limbs.shape
        bytes_of_a_column: int = 16 * known + 40 * limbs + 8 * also
        return max(1 << 9, _BYTES // bytes_of_a_column)


@lru_cache(maxsize=64)
def interpolation(known: tuple[int, ...], targets: tuple[int, ...]) -> LimbMatrix:
    """Return the Lagrange weights that give a polynomial's values at `targets` from as many known ones as it needs."""
    denominators = [prod(point - other for other in known if other != point) % PRIME for point in known]
    matrix = []
    for target in targets:
        full = prod(target - point for point in known) % PRIME
        row = [
            full * pow((target - point) * denominator, -1, PRIME) % PRIME
            for point, denominator in zip(known, denominators, strict=True)
        ]
        matrix.append([weight - PRIME if weight > PRIME // 2 else weight for weight in row])
    bits = 54 - _HALF - max(1, (len(known) - 1).bit_length())
    half, left, limbs = 1 << (bits - 1), np.array(matrix, object), []
    while left.any():
        limb = (left + half) % (2 * half) - half
        limbs.append(limb.astype(np.float64))
        left = (left - limb) >> bits
    return LimbMatrix(np.concatenate(limbs), len(targets), bits)


class Product:
    """Products of the same weights with a limited number of columns at a time.

    Memory is taken once: to take it anew each time would cost as much as the product.
    """

    def __init__(self, weights: LimbMatrix, columns: int) -> None:
        limbs, known = weights.limbs.shape
        self._weights = weights
        self._halves, self._sums = np.empty((known, 2 * columns)), np.empty((limbs, 2 * columns))
        self._whole, self._words = (
            np.empty((limbs, 2 * columns), np.int64),
            np.empty((limbs, columns), np.int64),
        )
        self._spare = np.empty((weights.rows, columns), np.uint64)

    def __call__(self, out: Elements, *values: Words, less: Words | None = None) -> None:
        """Write the product with all values, one below the other, minus `less` (of at most p).

        Exact: a limb of a weight is at most 2^(w−1) in absolute value, half of a value below 2^32, and n products of
        them add up to at most 2^53 (`interpolation` chooses w so). Upper halves count 2^32, so that what lies above the
        lower 29 bits of their sum counts 2^61 ≡ 1. Limbs are put together from the highest: a product with 2^w is a
        rotation.
        """
        columns = out.shape[1]
        halves, sums, whole = (
            self._halves[:, : 2 * columns],
            self._sums[:, : 2 * columns],
            self._whole[:, : 2 * columns],
        )
        np.concatenate([part.view("<u4") for part in values], out=halves, casting="unsafe")
        np.matmul(self._weights.limbs, halves, out=sums)
        whole[...] = sums
        lower, upper = whole[:, ::2], whole[:, 1::2]
        words = np.left_shift(upper, _HALF, out=self._words[:, :columns])
        words &= PRIME
        upper >>= 61 - _HALF
        words += upper
        words += lower
        words += 2 * PRIME  # the sums may be negative, and `less` is taken off
        highest: Words
        highest, *others = words.view(np.uint64).reshape(-1, self._weights.rows, columns)[::-1]
        left, right = np.uint64(self._weights.bits), np.uint64(61 - self._weights.bits)
        for limb in others:
            limb += highest << left & P
            limb += highest >> right
            highest = limb
        if less is not None:
            highest -= less
        field61.reduce_into(out, highest, self._spare[:, :columns])


def product(weights: LimbMatrix, values: Elements) -> Elements:
    """Return the matrix product of weights and values (n × columns), reduced."""
    result, at_once = np.empty((weights.rows, values.shape[1]), np.uint64), weights.at_once(also=0)
    multiply = Product(weights, min(at_once, values.shape[1]))
    for start in range(0, values.shape[1], at_once):
        part = slice(start, start + at_once)
        multiply(result[:, part], values[:, part])
    return result
