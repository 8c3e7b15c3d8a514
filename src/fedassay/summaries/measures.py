"""Common tools of summaries: columns within bounds, whole numbers that add up exactly, and two sensitivities.

Each limb but the highest is in [0, 2^32), the highest is signed: every entry is at most 2^32, so that no total over up
to 2^27 clients wraps. Such totals stand for the exact sum of the numbers that clients wrote down.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedassay.errors import DataError
from fedassay.protocol.arrays import Floats
from fedassay.protocol.vocabulary import (
    UNBOUNDED,
    Batch,
    Neighbours,
    Protection,
    Sensitivity,
    Total,
    Unit,
    Vector,
)

# --- columns of a site's rows, and sensitivities -------------------------------------------------------------


def column(batch: Batch, role: str) -> NDArray[Any]:
    """Return the column in this role, or raise an error that states what a site has to add.

    Examples
    --------
    >>> column({"group": [1]}, "versus")
    Traceback (most recent call last):
    fedassay.errors.DataError: columns: got none in the role 'versus', expected one; name it with the others.
    """
    if role not in batch:
        raise DataError(f"columns: got none in the role {role!r}, expected one; name it with the others.")
    return batch[role]


def checked_scores(values: ArrayLike) -> NDArray[np.float64]:
    """Return the values as numbers; raise if a value is NaN or outside [0, 1].

    Examples
    --------
    >>> checked_scores([0.5, float("nan")])
    Traceback (most recent call last):
    fedassay.errors.DataError: scores: got a value that is NaN or outside [0, 1], expected probabilities.
    """
    scores = np.asarray(values, dtype=np.float64)
    # Written so that NaN fails: every comparison with NaN is false.
    if scores.size and not (scores.min() >= 0 and scores.max() <= 1):
        raise DataError("scores: got a value that is NaN or outside [0, 1], expected probabilities.")
    return scores


def checked_labels(values: ArrayLike) -> NDArray[Any]:
    """Return the values as an array; raise if a value is neither 0 nor 1.

    Examples
    --------
    >>> checked_labels([0, 2])
    Traceback (most recent call last):
    fedassay.errors.DataError: labels: got a value other than 0 and 1, expected binary labels.
    """
    labels = np.asarray(values)
    if labels.dtype.kind not in "iub" or (labels.size and not (labels.min() >= 0 and labels.max() <= 1)):
        raise DataError("labels: got a value other than 0 and 1, expected binary labels.")
    return labels


class WithoutNoise:
    """Summary in which one row can move an entry as far as numbers go, so that it is never asked under noise."""

    additive: ClassVar[bool] = False

    def sensitivity(self, protection: Protection) -> Sensitivity:
        """Return no bound of any use."""
        return UNBOUNDED


def client_sensitivity(protection: Protection, *, norm: int, length: int) -> Sensitivity:
    """Return how far one unit moves a total of vectors, one from each client, of at most this L2 norm.

    A client without rows sends zeros. One row more or less can turn a client's vector round: unless whole clients come
    and go, it is as if the client were replaced, and vectors are at most twice the norm apart.

    Examples
    --------
    >>> client_sensitivity(Protection(), norm=3, length=4)
    Sensitivity(l1=12.0, l2=6.0)
    """
    alone = protection.unit is Unit.CLIENT and protection.neighbours is Neighbours.ADD_REMOVE
    l2 = float(norm if alone else 2 * norm)
    return Sensitivity(l1=l2 * math.sqrt(length), l2=l2)


# --- numbers as whole ones that add up exactly ---------------------------------------------------------------


LIMB = 32
"""Bits of a limb: no entry is beyond 2^32, which any summary may send (`Summary.largest`)."""


@dataclass(frozen=True, kw_only=True)
class FixedPoint:
    """Whole multiples of 2^-point, as `limbs` limbs; numbers up to 2^(32 limbs - point - 1) can be written.

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
        """Largest number that can be written."""
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
        """Return the numbers that totals of limbs stand for, to a few roundings."""
        carried = np.array(total, dtype=np.int64).reshape(-1, self.limbs)
        for place in range(self.limbs - 1):
            carried[:, place + 1] += carried[:, place] >> LIMB
            carried[:, place] &= (1 << LIMB) - 1
        # From the highest limb down: partial sums that are small are exact, so that nothing cancels after a rounding.
        numbers = carried[:, -1].astype(np.float64)
        for place in range(self.limbs - 2, -1, -1):
            numbers = numbers * 2.0**LIMB + carried[:, place]
        return np.asarray(numbers / 2.0**self.point)

    def write_exactly(self, numbers: Sequence[Fraction]) -> Vector:
        """Write numbers with more digits than a float has, as `write` does."""
        entries: list[int] = []
        for number in numbers:
            whole = round(number * (1 << self.point))
            for _ in range(self.limbs - 1):
                entries.append(whole & ((1 << LIMB) - 1))
                whole >>= LIMB
            entries.append(whole)
        return np.array(entries, dtype=np.int64)

    def read_exactly(self, total: Total) -> list[Fraction]:
        """Return the numbers that totals of limbs stand for."""
        rows = np.asarray(total).reshape(-1, self.limbs)
        return [
            Fraction(sum(int(limb) << (LIMB * place) for place, limb in enumerate(row)), 1 << self.point)
            for row in rows
        ]


SUMS = FixedPoint(limbs=4, point=48)
"""Fixed point for sums below 2^79 that are right to 2^-48."""


@dataclass(frozen=True, kw_only=True)
class Digits:
    """Signed digits, of `bits` bits each, of numbers in [-1, 1], the highest first; sums of each digit are exact.

    Examples
    --------
    >>> Digits(bits=2, digits=2).write(np.array([0.8, -0.3])).tolist()
    [[3.0, -1.0], [0.0, 0.0]]
    """

    bits: int
    digits: int

    def write(self, numbers: Floats) -> Floats:
        """Round toward zero to 2^-(bits·digits), and cut into digits: one line for each."""
        rest = np.trunc(numbers * 2.0 ** (self.bits * self.digits))
        written = np.empty((self.digits, *rest.shape))
        for place in range(self.digits):
            unit = 2.0 ** (self.bits * (self.digits - 1 - place))
            written[place] = np.trunc(rest / unit)
            rest = rest - written[place] * unit
        return written

    @property
    def scales(self) -> Floats:
        """Values that a unit of each digit stands for."""
        return np.asarray(2.0 ** (-self.bits * np.arange(1, self.digits + 1)))
