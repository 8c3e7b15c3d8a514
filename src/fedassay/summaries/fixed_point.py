"""Numbers as whole ones that add up exactly: in fixed point, cut into limbs of 32 bits.

Each limb but the highest is in [0, 2^32), the highest is signed: every entry is at most 2^32, so that no total over up
to 2^27 clients wraps, and what such totals stand for is the exact sum of what clients wrote down.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from fedassay.protocol.arrays import Floats
from fedassay.protocol.vocabulary import Total, Vector

LIMB = 32


@dataclass(frozen=True, kw_only=True)
class FixedPoint:
    """Whole multiples of 2^-point, as so many limbs; numbers up to 2^(32 limbs - point - 1) can be written.

    Examples
    --------
    >>> fixed = FixedPoint(limbs=4, point=48)
    >>> fixed.write(np.array([-1.0]))
    array([         0, 4294901760, 4294967295,         -1])
    >>> fixed.read(fixed.write(np.array([0.75])) + fixed.write(np.array([-2.0])))
    array([-1.25])
    >>> fixed.read_exactly(fixed.write_exactly([Fraction(3, 4)]) + fixed.write_exactly([Fraction(1, 2)]))
    [Fraction(5, 4)]
    """

    limbs: int
    point: int

    @property
    def most(self) -> float:
        """The largest number that can be written."""
        return 2.0 ** (LIMB * self.limbs - self.point - 1)

    def write(self, numbers: Floats) -> Vector:
        """Round to 2^-point and cut into limbs, the lowest first.

        Every step is exact in floating point: a division by 2^32 only changes the exponent, and what `floor` leaves
        over has at most 32 bits.
        """
        assert numbers.size == 0 or np.abs(numbers).max() <= self.most
        rest = np.rint(numbers * 2.0**self.point)
        limbs = np.empty((len(numbers), self.limbs), dtype=np.int64)
        for place in range(self.limbs - 1):
            high = np.floor(rest / 2.0**LIMB)
            limbs[:, place] = rest - high * 2.0**LIMB
            rest = high
        limbs[:, -1] = rest
        return limbs.reshape(-1)

    def read(self, total: Total) -> Floats:
        """What totals of limbs stand for, to a few roundings."""
        carried = np.array(total, dtype=np.int64).reshape(-1, self.limbs)
        for place in range(self.limbs - 1):
            carried[:, place + 1] += carried[:, place] >> LIMB
            carried[:, place] &= (1 << LIMB) - 1
        # From the highest limb down: partial sums that are small are exact, so that nothing cancels after a rounding.
        numbers = carried[:, -1].astype(np.float64)
        for place in range(self.limbs - 2, -1, -1):
            numbers = numbers * 2.0**LIMB + carried[:, place]
        return np.asarray(numbers / 2.0**self.point)

    @property
    def largest(self) -> int:
        """Of an entry, in absolute value."""
        return 1 << LIMB

    def write_exactly(self, numbers: Sequence[Fraction]) -> Vector:
        """`write` of numbers with more digits than a float has."""
        entries: list[int] = []
        for number in numbers:
            whole = round(number * (1 << self.point))
            for _ in range(self.limbs - 1):
                entries.append(whole & ((1 << LIMB) - 1))
                whole >>= LIMB
            entries.append(whole)
        return np.array(entries, dtype=np.int64)

    def read_exactly(self, total: Total) -> list[Fraction]:
        """What totals of limbs stand for."""
        rows = np.asarray(total).reshape(-1, self.limbs)
        return [
            Fraction(sum(int(limb) << (LIMB * place) for place, limb in enumerate(row)), 1 << self.point)
            for row in rows
        ]


SUMS = FixedPoint(limbs=4, point=48)
"""For sums below 2^79 that are right to 2^-48."""
