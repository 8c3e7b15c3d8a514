"""What the scores and labels look like, in one pass and bounded memory."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

BINS = 1024
"""The uniform bins in which concentration is measured: as many as a score histogram of height 10 has."""

_SMALLEST_KEPT = 2**15


class Distinct:
    """Counts different values: exactly up to 32767 of them, then estimated within about 0.6 %.

    Keeps the k smallest hashes of the values seen. If the k-th smallest of n uniform hashes in [0, 1] is h,
    (k-1)/h is an unbiased estimate of n with relative standard error about 1/√(k-2) (Beyer et al. 2007,
    "On synopses for distinct-value estimation"). The hash is a bijection of 64 bits, so it never confuses
    two values.

    Examples
    --------
    >>> seen = Distinct()
    >>> seen.add(np.array([0.5, 0.25, 0.5]))
    >>> seen.count()
    2
    """

    def __init__(self) -> None:
        self._hashes: NDArray[np.uint64] = np.empty(0, dtype=np.uint64)

    def add(self, values: NDArray[np.float64]) -> None:
        """Take account of some more values."""
        fresh = _mixed(np.ascontiguousarray(values).view(np.uint64))
        if len(self._hashes) == _SMALLEST_KEPT:
            fresh = fresh[fresh < self._hashes[-1]]
        self._hashes = np.unique(np.concatenate([self._hashes, fresh]))[:_SMALLEST_KEPT]

    def count(self) -> int:
        """How many different values there were."""
        if len(self._hashes) < _SMALLEST_KEPT:
            return len(self._hashes)
        return round((_SMALLEST_KEPT - 1) * 2**64 / (int(self._hashes[-1]) + 1))


def _mixed(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    # The finaliser of splitmix64: xor-shifts and odd factors, each invertible.
    mixed = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


class ScoreProfile:
    """How many scores, how many different ones, how many at the ends, how crowded the fullest bin."""

    def __init__(self) -> None:
        self._distinct = Distinct()
        self._bins = np.zeros(BINS, dtype=np.int64)
        self.count = self.at_zero = self.at_one = 0

    def add(self, scores: NDArray[np.float64]) -> None:
        """Take account of some more valid scores."""
        self.count += len(scores)
        self.at_zero += int(np.count_nonzero(scores == 0.0))
        self.at_one += int(np.count_nonzero(scores == 1.0))
        self._bins += np.bincount(np.minimum((scores * BINS).astype(np.int64), BINS - 1), minlength=BINS)
        self._distinct.add(scores)

    @property
    def distinct(self) -> int:
        """The number of different scores, see `Distinct`; never more than there are scores."""
        return min(self._distinct.count(), self.count)

    @property
    def densest_bin(self) -> float:
        """The share of the scores in the fullest of the uniform bins."""
        return float(self._bins.max() / self.count)


class ValueProfile:
    """How many values, how many different ones, and how far they reach: what a range has to hold."""

    def __init__(self) -> None:
        self._distinct = Distinct()
        self.count = 0
        self.smallest, self.largest = np.inf, -np.inf

    def add(self, values: NDArray[np.float64]) -> None:
        """Take account of some more valid values."""
        if not len(values):
            return
        self.count += len(values)
        self.smallest = min(self.smallest, float(values.min()))
        self.largest = max(self.largest, float(values.max()))
        self._distinct.add(values)

    @property
    def distinct(self) -> int:
        """The number of different values, see `Distinct`; never more than there are values."""
        return min(self._distinct.count(), self.count)


class LabelProfile:
    """How many labels, and how many of them positive."""

    def __init__(self) -> None:
        self.count = self.positives = 0

    def add(self, labels: NDArray[np.int8]) -> None:
        """Take account of some more valid labels."""
        self.count += len(labels)
        self.positives += int(np.count_nonzero(labels))
