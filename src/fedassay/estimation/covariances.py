"""Covariance of sums up to each point, for mechanisms that are not counts on a tree: ``path`` and ``factorised``.

Both classes are a `LeafCovariance`, as `LeastSquares` is for the mechanism ``tree``, so that every estimator works for
all of them. F_r is the sum of the first r of N leaves, F_0 = 0; weights a of
leaves are weights of F by parts, Σ_i a_i (F_{i+1} - F_i) = Σ_r (a_{r-1} - a_r) F_r with a_N = 0.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.fft import irfft, rfft

from fedassay.protocol.arrays import Floats

_LARGEST_SQUARE = 1 << 11
"""Size beyond which the trace of `RootCovariance` is taken to grow in proportion."""


@dataclass(frozen=True, kw_only=True, eq=False)
class DrawnCovariance(ABC):
    """Covariance of a mechanism whose draws all have one variance."""

    draw_variance: float

    @property
    def exact(self) -> bool:
        """True if there is no noise."""
        return self.draw_variance == 0

    @abstractmethod
    def covariance(self, weights: Floats) -> Floats:
        """Return the joint covariance of several sums of leaf estimates, from one row of weights for each."""

    def variance(self, weights: Floats) -> float:
        """Return the variance of a weighted sum of leaf estimates."""
        return float(self.covariance(weights[None])[0, 0])


@dataclass(frozen=True, kw_only=True, eq=False)
class PathCovariance(DrawnCovariance):
    """Mechanism ``path``: F_r gets the draws of all nodes over leaf r-1, from the leaf to the root.

    Parameters
    ----------
    points : N = 2^L.
    draw_variance : the variance of a draw, in units of squared counts.
    multiplier : the factor by which counts were multiplied.

    Guarantee: exact. The covariance of F_1..F_N is σ² Σ_l J_l, J_l the blocks of ones of width 2^l, and σ² the
    variance of a draw in units of squared rows.

    Examples
    --------
    >>> path = PathCovariance(points=4, draw_variance=1.0)
    >>> path.prefix_variances
    array([0., 3., 3., 3., 3.])
    >>> path.prefix_total_covariances  # the nodes that a leaf shares with the last one
    array([0., 1., 1., 2., 3.])
    """

    points: int
    multiplier: int = 1

    @property
    def reach(self) -> float:
        """Upper bound of the weight of a draw: every node counts once."""
        return 1 / self.multiplier

    @property
    def _levels(self) -> int:
        return self.points.bit_length()

    @property
    def _unit(self) -> float:
        """Variance of a draw in units of squared rows, σ²."""
        return self.draw_variance / self.multiplier**2

    @property
    def total_variance(self) -> float:
        """Variance of the sum of all leaves: the nodes over the last leaf."""
        return self._unit * self._levels

    @property
    def leaf_variance(self) -> float:
        """Mean over the leaves: leaf i has the 2(z+1) nodes that differ from those of leaf i-1, z the number of zeros
        at the end of i in binary digits; leaf 0 has all over it.
        """
        N, L = self.points, self._levels - 1
        return self._unit * (L + 1 + 2 * (2 * (N - 1) - L)) / N

    @cached_property
    def prefix_variances(self) -> Floats:
        """Variances of the prefix sums, equal at all points."""
        return np.concatenate([[0.0], np.full(self.points, self.total_variance)])

    @cached_property
    def prefix_total_covariances(self) -> Floats:
        """Covariances with the sum of all leaves: the nodes over both leaves."""
        places = np.arange(self.points)
        shared = sum((places >> k) == ((self.points - 1) >> k) for k in range(self._levels))
        return np.concatenate([[0.0], self._unit * np.asarray(shared, dtype=np.float64)])

    def covariance(self, weights: Floats) -> Floats:
        """Return the joint covariance of several sums: Σ_l, over blocks, of products of their sums of weights of F."""
        sums = _by_parts(weights)
        result = np.zeros((len(weights), len(weights)))
        for level in range(self._levels):
            if level:
                sums = sums[:, ::2] + sums[:, 1::2]
            result += np.einsum("ib,jb->ij", sums, sums)
        return np.asarray(self._unit * result)

    @property
    def sign_trace(self) -> float:
        """tr(S^T C S C) with S_ij = sign(i - j).

        By parts S becomes the matrix with 1 below and -1 above the diagonal. Its sum over a pair of blocks is ±1 if
        they are neighbours, or if one is at one end of the other, else 0: the trace counts such pairs.
        """
        pairs = 0
        for level in range(self._levels):
            blocks = self.points >> level
            pairs += 2 * blocks - 2
            # With each of the narrower levels, in both orders: two neighbours, and one inside at each end.
            pairs += 2 * level * (4 * blocks - 2)
        return self._unit**2 * pairs


@dataclass(frozen=True, kw_only=True, eq=False)
class RootCovariance(DrawnCovariance):
    """Mechanism ``factorised``: F_r = Σ_{k<r} g_{r-1-k} x_k, with one draw in each x_k.

    Parameters
    ----------
    response : g_0, .., g_{N-1}, what a draw adds to the sums from its point on (`ValueRoots.response`).
    draw_variance : the variance of a draw.

    Guarantee: exact up to rounding, `sign_trace` for up to 2^11 points. Beyond, it is taken to be proportional to N,
    which is off by less than one in a thousand.

    Examples
    --------
    >>> root = RootCovariance(response=np.array([1.0, 0.5]), draw_variance=4.0)
    >>> root.prefix_variances
    array([0., 4., 5.])
    >>> root.prefix_total_covariances
    array([0., 2., 5.])
    """

    response: Floats

    @cached_property
    def reach(self) -> float:
        """Largest of g, for sums from the first leaf and for sums up to the last one: g is not negative."""
        return float(np.abs(self.response).max())

    @property
    def total_variance(self) -> float:
        """Variance of the last sum."""
        return float(self.prefix_variances[-1])

    @cached_property
    def leaf_variance(self) -> float:
        """Mean over the leaves; leaf i is a sum with the weights h_k = g_k - g_{k-1}, k = 0..i."""
        h = np.diff(self.response, prepend=0.0)
        return self.draw_variance * float(np.cumsum(h * h).mean())

    @cached_property
    def prefix_variances(self) -> Floats:
        """Variances of the prefix sums: σ² Σ_{k<r} g_k²."""
        return self.draw_variance * np.concatenate([[0.0], np.cumsum(self.response**2)])

    @cached_property
    def prefix_total_covariances(self) -> Floats:
        """Covariances with the last sum: σ² Σ_k g_k g_{k+N-r}, the correlation of g with itself."""
        g, N = self.response, len(self.response)
        spectrum = rfft(g, 2 * N)
        correlation = irfft(spectrum * spectrum.conj(), 2 * N)[:N]
        return np.asarray(self.draw_variance * np.concatenate([[0.0], correlation[::-1]]))

    def covariance(self, weights: Floats) -> Floats:
        """Return the joint covariance of several sums, from their weights of the draws, Σ_r g_{r-k} c_r."""
        N = len(self.response)
        spectrum = rfft(_by_parts(weights), 2 * N, axis=-1) * rfft(self.response, 2 * N).conj()
        of_draws = irfft(spectrum, 2 * N, axis=-1)[:, :N]
        return np.asarray(self.draw_variance * np.einsum("ik,jk->ij", of_draws, of_draws))

    @cached_property
    def sign_trace(self) -> float:
        """tr(S^T C S C) with S_ij = sign(i - j): σ⁴ |G^T M G|², M as in `PathCovariance.sign_trace`.

        Counted from the last point, (G^T M G)_{xy} = U(x, y-1) - U(x-1, y) with U(x, y) = U(x-1, y-1) + g_x g_y.
        """
        N = len(self.response)
        g = self.response[:_LARGEST_SQUARE]
        above, total = np.zeros(len(g)), 0.0
        for x in range(len(g)):
            here = g[x] * g
            here[1:] += above[:-1]
            entries = np.concatenate([[0.0], here[:x]]) - above[: x + 1]
            total += 2 * float(
                np.einsum("y,y->", entries, entries)
            )  # antisymmetric, so that y <= x is half of it
            above = here
        return self.draw_variance**2 * total * (N / len(g))


def _by_parts(weights: Floats) -> Floats:
    """Return the weights of F_1..F_N that belong to weights of leaves, along the last axis."""
    return np.asarray(
        weights - np.concatenate([weights[..., 1:], np.zeros((*weights.shape[:-1], 1))], axis=-1)
    )
