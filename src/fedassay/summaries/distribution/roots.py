"""Distribution of a scalar by the square root of summation: the mechanism ``factorised``.

Sums up to each point are a lower triangular matrix of ones, A, times the leaf counts. A = C·C with the Toeplitz matrix
C of the power series (1-t)^{-1/2} = Σ c_k t^k, c_k = (2k choose k)/4^k. Clients sum C·counts, noise is added there, and
C is applied once more after the release: noise of one scale for all sums, of nearly the least mean variance that any
matrix mechanism has (Fichtenberger, Henzinger and Upadhyay 2023; Dvijotham et al. 2024, on the Toeplitz square root).

Everything that is summed is whole: instead of c_k clients use ⌊S·c_k + ½⌋. The server then divides by exactly that
series, so that rounding costs a little optimality and no bias.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.fft import irfft, rfft

from fedassay.estimation.covariances import RootCovariance
from fedassay.protocol.arrays import Floats, Ints
from fedassay.protocol.vocabulary import LARGEST_ROWS_PER_CLIENT, Noise, Protection, Sensitivity, Total
from fedassay.summaries.distribution.tree import ValueSummary

_LIMB = 12
"""Bits of the pieces that are convolved in floating point, so that the sums can be rounded to the true ones."""


@dataclass(frozen=True, kw_only=True)
class ValueRoots(ValueSummary):
    """C·counts, in units of 1/`scale`.

    Examples
    --------
    >>> roots = ValueRoots(lower=0, upper=1, points=4)
    >>> roots.of_counts(np.array([1, 0, 0, 0]))
    array([256, 128,  96,  80])
    >>> roots.sums(roots.of_counts(np.array([5, 1, 0, 2]))).round(9)
    array([5., 6., 6., 8.])
    """

    name: ClassVar[str] = "value-roots"

    @property
    def scale(self) -> int:
        """Scale S: 2^8 for up to 2^10 points, rising to 2^10 for 2^20."""
        return 1 << (8 + max(0, self.height - 10) // 5)

    @property
    def largest(self) -> int:
        """Largest entry: all rows of a client in the first leaf."""
        return LARGEST_ROWS_PER_CLIENT * self.scale

    def of_counts(self, counts: Ints) -> Ints:
        """Compute C·counts, exactly."""
        series, total, shift = _rounded_root(self.points, self.scale), np.zeros_like(counts), 0
        while counts.any():
            whole = (counts >= -(1 << _LIMB)).all() and (counts < 1 << _LIMB).all()
            piece = counts if whole else counts & ((1 << _LIMB) - 1)
            product = np.rint(_convolved(piece.astype(np.float64), series)).astype(np.int64)
            total = total + (product << shift)
            counts = np.zeros_like(counts) if whole else counts >> _LIMB
            shift += _LIMB
        return total

    def sums(self, roots: NDArray[np.int64 | np.float64]) -> Floats:
        """Compute sums up to each point from (noisy) roots, along the last axis."""
        return _convolved(np.asarray(roots, dtype=np.float64), self.response)

    def leaf_covariance(self, noise: Noise) -> RootCovariance:
        """Return the covariance of draws that all later points share."""
        return RootCovariance(response=self.response, draw_variance=noise.variance)

    def estimated_sums(self, classes: Total, noise: Noise) -> Floats:
        """Apply the other half of the summation."""
        return self.sums(classes)

    @property
    def response(self) -> Floats:
        """Response g: a unit of noise at one point adds g_k to the sum k points further on."""
        return _response(self.points, self.scale)

    def sensitivity(self, protection: Protection) -> Sensitivity:
        """Return the sensitivity: the longest column of C, or the longest difference of two columns."""
        rows, times = protection.rows_per_unit, 1
        l1, squared = column_norms(self.points, self.scale)
        if protection.moves_both_ways:
            if self.labels_stay(protection):
                l1, squared = difference_norms(self.points, self.scale)
            else:
                times = 2
        return Sensitivity(l1=float(rows * times * l1), l2=float(rows * np.sqrt(times * squared)))


@lru_cache(maxsize=16)
def _rounded_root(points: int, scale: int) -> Ints:
    """Return ⌊S·c_k + ½⌋ for k below `points`, from the recurrence c_k = c_{k-1}·(2k-1)/2k."""
    k = np.arange(1, points, dtype=np.float64)
    root = np.concatenate([[1.0], np.cumprod((2 * k - 1) / (2 * k))])
    series = np.floor(scale * root + 0.5).astype(np.int64)
    series.flags.writeable = False
    return series


@lru_cache(maxsize=16)
def column_norms(points: int, scale: int) -> tuple[int, int]:
    """Return L1 and squared L2 norm of the first column, which is the longest: others are cut off.

    Examples
    --------
    >>> column_norms(1024, 256)[1] / 256**2 < 3.3
    True
    """
    series = _rounded_root(points, scale)
    return int(series.sum()), int((series * series).sum())


@lru_cache(maxsize=16)
def difference_norms(points: int, scale: int) -> tuple[int, int]:
    """Return the largest L1 and squared L2 norm of a difference of two columns; exact.

    Of columns that begin d apart, those of which one is the first differ most: others are cut off. The coefficients
    do not increase, so absolute differences are differences.
    """
    series = _rounded_root(points, scale)
    sums = np.concatenate([[0], np.cumsum(series)])
    squares = np.concatenate([[0], np.cumsum(series * series)])
    d = np.arange(1, points)
    l1 = sums[d] + sums[points - d] - (sums[points] - sums[d])
    products = np.rint(_correlated(series.astype(np.float64))).astype(np.int64)[1:points]
    squared = squares[points] + squares[points - d] - 2 * products
    return int(l1.max()), int(squared.max())


@lru_cache(maxsize=16)
def _response(points: int, scale: int) -> Floats:
    """Return the series 1/((1-t)·r(t)), r the rounded root: Newton's iteration h ← h·(2 - r·h), doubling each time."""
    series = _rounded_root(points, scale).astype(np.float64)
    inverse = np.array([1 / series[0]])
    while len(inverse) < points:
        count = min(points, 2 * len(inverse))
        wider = np.concatenate([inverse, np.zeros(count - len(inverse))])
        rest = -_convolved(series[:count], wider)
        rest[0] += 2
        inverse = _convolved(wider, rest)
    response = np.cumsum(inverse)
    response.flags.writeable = False
    return response


def _convolved(a: NDArray[np.int64 | np.float64], b: NDArray[np.int64 | np.float64]) -> Floats:
    """Return the first entries of the convolution along the last axis, as many as each has."""
    count = a.shape[-1]
    return np.asarray(irfft(rfft(a, 2 * count) * rfft(b, 2 * count), 2 * count)[..., :count])


def _correlated(a: Floats) -> Floats:
    """Return Σ_k a_k a_{k+d} for d = 0, 1, .."""
    count = len(a)
    spectrum = rfft(a, 2 * count)
    return np.asarray(irfft(spectrum * spectrum.conj(), 2 * count)[:count])
