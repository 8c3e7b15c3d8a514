"""Least-squares estimates of the leaves of a tree from the counts on all its levels.

Every level cuts the leaves into blocks of equal width, and the noise has one variance per level. So all matrices here
are spanned by the nested block-averaging projections Π_0 = I ≥ Π_1 ≥ .. ≥ Π_{K-1}, Π_K = 0:

    H^T W H = Σ_k λ_k (Π_k - Π_{k+1}),   λ_k = Σ_{m<=k} w_m / σ_m²       (w_m widths, σ_m² variances)
    C = (H^T W H)^{-1} = Σ_k (Π_k - Π_{k+1}) / λ_k

with H the 0/1 matrix of all nodes and W the inverse variances. The least-squares estimate C H^T W y, the
covariance C of the leaf estimates applied to any vector, and the traces below are therefore exact, in linear
time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from fedassay.errors import UsageError
from fedassay.estimation.tree import Tree
from fedassay.protocol.arrays import Floats
from fedassay.protocol.vocabulary import Noise


@dataclass(frozen=True, kw_only=True)
class LeastSquares:
    """Best linear unbiased estimate of the leaves from noisy nodes, and its exact covariance.

    Parameters
    ----------
    tree : the nodes.
    variances : the noise variance of a node, per level. Independent noise; all zero means no noise, and then
        the leaves are what they are.

    Guarantee: `estimate` is generalised least squares over all levels (Gauss-Markov); `covariance_times`,
    `variance` and the traces are those of its error, without approximation.

    Examples
    --------
    >>> fit = LeastSquares(tree=Tree(leaves=4, widths=(1, 2)), variances=(1.0, 1.0))
    >>> fit.estimate(np.array([5.0, 1.0, 0.0, 2.0, 9.0, 2.0]))
    array([6., 2., 0., 2.])
    >>> round(fit.variance(np.array([1.0, 1.0, 0.0, 0.0])), 6)  # two leaves and their own node
    0.666667
    """

    tree: Tree
    variances: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.variances) != self.tree.levels or not all(v >= 0 for v in self.variances):
            raise UsageError(f"variances: got {self.variances}, expected one per level, none negative.")
        if any(self.variances) and not all(self.variances):
            raise UsageError(f"variances: got {self.variances}, expected all zero or none.")

    @property
    def exact(self) -> bool:
        """True if there is no noise."""
        return not any(self.variances)

    @cached_property
    def band_variances(self) -> Floats:
        """1/λ_k: the variance of an estimate in the k-th band of resolution; zeros without noise."""
        if self.exact:
            return np.zeros(self.tree.levels)
        return np.asarray(1 / np.cumsum(np.array(self.tree.widths) / np.array(self.variances)))

    @cached_property
    def _coefficients(self) -> Floats:
        """Coefficients of C = Σ_k b_k Π_k, regrouped by projection: b_k = 1/λ_k - 1/λ_{k-1}."""
        return np.diff(self.band_variances, prepend=0.0)

    def estimate(self, nodes: ArrayLike) -> Floats:
        """Return the leaves that fit all nodes best, along the last axis."""
        levels = self.tree.split(np.asarray(nodes, dtype=np.float64))
        if self.exact:
            return levels[0]
        weighted = sum(
            np.repeat(level / variance, width, axis=-1)
            for level, variance, width in zip(levels, self.variances, self.tree.widths, strict=True)
        )
        return self.covariance_times(np.asarray(weighted))

    def covariance_times(self, weights: Floats) -> Floats:
        """Return C·g for a vector g of leaf weights (or each row of a matrix)."""
        total = np.zeros_like(weights)
        for coefficient, width in zip(self._coefficients, self.tree.widths, strict=True):
            means = weights.reshape(*weights.shape[:-1], -1, width).mean(-1)
            total = total + coefficient * (means if width == 1 else np.repeat(means, width, axis=-1))
        return total

    def variance(self, weights: Floats) -> float:
        """Return the variance of Σ_b g_b û_b, where û are the leaf estimates."""
        if self.exact:
            return 0.0
        # Without BLAS, whose threads wait for each other longer than such a sum takes.
        return float(np.einsum("i,i->", weights, self.covariance_times(weights)))

    def covariance(self, weights: Floats) -> Floats:
        """Return the joint covariance of several sums, one per row of `weights`."""
        return np.asarray(weights @ self.covariance_times(weights).T)

    def node_weights(self, weights: Floats) -> tuple[Floats, ...]:
        """Return the weight of each node in Σ_b g_b û_b, per level, along the last axis: w_k = H_k C g/σ_k².

        Unbiased, so that the weights of the nodes over a leaf add up to that of the leaf.
        """
        if self.exact:
            above = (self.tree.leaves // width for width in self.tree.widths[1:])
            return weights, *(np.zeros((*weights.shape[:-1], nodes)) for nodes in above)
        spread = self.covariance_times(weights)
        return tuple(
            spread.reshape(*spread.shape[:-1], -1, width).sum(-1) / variance
            for width, variance in zip(self.tree.widths, self.variances, strict=True)
        )

    def prefix_moments(self, below: Floats) -> tuple[tuple[Floats, Floats], ...]:
        """Return Σ_j n_j w_j and Σ_j n_j w_j² over the nodes of each level, for the sum of the first r leaves.

        Parameters
        ----------
        below : the number of rows in the first r leaves, for r = 0..leaves; n_j are the rows of a node.

        w are the `node_weights` of that sum, for all r = 0..leaves at once and in linear time: with q = ⌊r/w_l⌋
        a node counts alike with all nodes that are left (right) of block q of level l within the same block
        of the level above, so that each level has two weights per level above it, and one for its block q.
        """
        assert not self.exact
        tree, r = self.tree, np.arange(self.tree.leaves + 1)
        starts = [r // w * w for w in tree.widths] + [np.zeros_like(r)]
        ends = [np.minimum(start + w, tree.leaves) for start, w in zip(starts, tree.widths, strict=False)]
        ends.append(np.full_like(r, tree.leaves))
        # What the blocks of the levels from l on, each only partly below r, add to all leaves in them.
        partial = [np.zeros(len(r))]
        for b, w, start in reversed([*zip(self._coefficients, tree.widths, starts, strict=False)]):
            partial.insert(0, partial[0] + b / w * (r - start))
        moments = []
        for k, (w, variance) in enumerate(zip(tree.widths, self.variances, strict=True)):
            # Node q of this level, then the nodes left and right of block q of each level from here up.
            own = ((r - starts[k]) * self.band_variances[k] + w * partial[k + 1]) / variance
            regions = [(own, below[ends[k]] - below[starts[k]])]
            for level in range(k, tree.levels):
                right = w * partial[level + 1] / variance
                left = right + w * self.band_variances[level] / variance
                regions.append((left, below[starts[level]] - below[starts[level + 1]]))
                regions.append((right, below[ends[level + 1]] - below[ends[level]]))
            first = np.sum([weight * rows for weight, rows in regions], axis=0)
            second = np.sum([weight**2 * rows for weight, rows in regions], axis=0)
            moments.append((first, second))
        return tuple(moments)

    @property
    def reach(self) -> float:
        """Upper bound of a node's weight in the sum of the first leaves, and in that of the others."""
        return 1.0

    @cached_property
    def total_variance(self) -> float:
        """Variance of the sum of all leaves."""
        return float(self.tree.leaves * self.band_variances[-1])

    @cached_property
    def leaf_variance(self) -> float:
        """Variance of one leaf estimate."""
        kept = 1 / np.array([*self.tree.widths, np.inf])
        return float(self.band_variances @ (kept[:-1] - kept[1:]))

    @cached_property
    def prefix_variances(self) -> Floats:
        """Variance of the sum of the first r leaves, for r = 0..leaves."""
        # |Π_k 1_{<r}|² = q·w + ρ²/w for r = q·w + ρ.
        r = np.arange(self.tree.leaves + 1)
        norms = [(r // w) * w + (r % w) ** 2 / w for w in self.tree.widths]
        norms.append(np.zeros(len(r)))
        bands = [scale * (norms[k] - norms[k + 1]) for k, scale in enumerate(self.band_variances)]
        return np.asarray(np.sum(bands, axis=0), dtype=np.float64)

    @cached_property
    def prefix_total_covariances(self) -> Floats:
        """Covariance of the sum of the first r leaves with the sum of all, for r = 0..leaves."""
        # C·1 = 1/λ_{K-1}, because every Π_k keeps constants.
        return np.arange(self.tree.leaves + 1, dtype=np.float64) * float(self.band_variances[-1])

    @cached_property
    def sign_trace(self) -> float:
        """tr(S^T C S C) with S_ij = sign(i - j): the second-order noise of a comparison of two histograms."""
        # C = Σ_k c_k J_k with J_k = w_k Π_k, the block matrix of ones.
        blocks = [(float(b) / w, w) for b, w in zip(self._coefficients, self.tree.widths, strict=True)]
        return sum(
            c * d * _sign_trace_of_blocks(self.tree.leaves, min(w, v), max(w, v))
            for c, w in blocks
            for d, v in blocks
        )


def least_squares(tree: Tree, multipliers: Sequence[int], noise: Noise, *, classes: int = 2) -> LeastSquares:
    """Return the fit of a release with this noise whose levels were multiplied by these numbers.

    Where each client reported on one level, the variance of a node also depends on the rows in it (see
    `LevelReports`): the fit assumes that they are spread evenly. Any assumption gives an unbiased fit.
    """
    if not noise.reporting:
        return LeastSquares(tree=tree, variances=tuple(noise.variance / m**2 for m in multipliers))
    rows_per_leaf = reporting_clients(noise) / (classes * tree.leaves)
    return LeastSquares(
        tree=tree,
        variances=tuple(
            bits + 2 * rows_per_leaf * width / part
            for bits, width, part in zip(bit_variances(noise), tree.widths, noise.reporting, strict=True)
        ),
    )


def bit_variances(noise: Noise) -> tuple[float, ...]:
    """Return the variance of a node that no row is in, per level, where each client reported on one level."""
    return tuple(noise.variance / (len(noise.reporting) * part) for part in noise.reporting)


def report_reach(noise: Noise) -> float:
    """Return the largest change that a bit makes, 1/((½ - q) min f_k), where no node weighs more than 1."""
    half_minus_q = math.tanh(1 / (2 * noise.scale)) / 2  # ½ - 1/(e^ε + 1)
    return 1 / (half_minus_q * min(noise.reporting))


def reporting_clients(noise: Noise) -> float:
    """Return the number of clients that reported, those without a row included, where each reports on one partition.

    A cell that no row falls into has the variance M·h·V, with h partitions and V = q(1-q)/(½-q)² =
    1/sinh²(ε/2) for q = 1/(e^ε+1): `Noise` has all but M.

    Examples
    --------
    >>> V = 4 * math.e / (math.e - 1) ** 2
    >>> noise = Noise(law="unary", scale=1.0, variance=300 * 2 * V, reporting=(0.4, 0.6))
    >>> round(reporting_clients(noise), 9)
    300.0
    """
    return noise.variance / noise.copies * math.sinh(1 / (2 * noise.scale)) ** 2 / len(noise.reporting)


def _sign_trace_of_blocks(leaves: int, narrow: int, wide: int) -> float:
    """Return tr(S^T J S J') for blocks of two widths: Σ over pairs of blocks of (Σ of S over the pair)²."""
    blocks = leaves / narrow
    apart = blocks * (leaves / wide - 1) * (narrow * wide) ** 2
    before = np.arange(0, wide, narrow, dtype=np.float64)  # leaves of the wide block before the narrow one
    inside = ((narrow * (2 * before + narrow - wide)) ** 2).sum() * (leaves / wide)
    return float(apart + inside)


# --- the choice of levels -----------------------------------------------------------------------------------


def mean_prefix_variance(fit: LeastSquares) -> float:
    """Return the variance of a prefix sum, averaged over the prefixes of 1..leaves leaves.

    Examples
    --------
    The values of a Laplace release with ε = 1, where a row touches one node per level:

    >>> from fedassay.estimation.tree import Tree
    >>> def laplace(widths):
    ...     tree = Tree(leaves=1024, widths=widths)
    ...     return LeastSquares(tree=tree, variances=(2.0 * len(widths) ** 2,) * len(widths))
    >>> round(mean_prefix_variance(laplace((1, 16, 256))), 1)
    121.2
    >>> round(mean_prefix_variance(laplace(tuple(2**k for k in range(10)))), 1)
    280.5
    """
    # Band by band, as in `prefix_variances`.
    norms = np.array([*(_mean_prefix_norm(fit.tree.leaves, width) for width in fit.tree.widths), 0.0])
    return float(fit.band_variances @ (norms[:-1] - norms[1:]))


def best_widths(leaves: int, noise_variance_for: Callable[[int], float]) -> tuple[int, ...]:
    """Return the widths with the smallest mean prefix variance; see `ranked_widths`.

    Examples
    --------
    >>> best_widths(1024, lambda levels: 2.0 * levels**2)
    (1, 16, 256)
    >>> best_widths(1024, lambda levels: 2.0 * levels)  # Gaussian noise: the L2 sensitivity grows slower
    (1, 2, 4, 16, 32, 128, 256, 512)
    """
    return ranked_widths(leaves, noise_variance_for, keep=1)[0]


def ranked_widths(
    leaves: int, noise_variance_for: Callable[[int], float], *, keep: int
) -> list[tuple[int, ...]]:
    """Return the widths with the smallest mean prefix variances, best first, among all chains of powers of two.

    Parameters
    ----------
    leaves : the number of leaves, a power of two.
    noise_variance_for : the noise variance of a node if every row is counted on that many levels. It grows
        with the number of levels, which is what the choice trades against.
    keep : the largest number of chains to return.

    Guarantee: exact; there are 2^19 chains for 2^20 leaves, and all of them are compared. Edge case: without noise
    the only answer is ``(1,)``.
    """
    powers = [1 << k for k in range(leaves.bit_length() - 1)]
    variances = np.array([noise_variance_for(k + 1) for k in range(len(powers))])
    if variances[0] == 0:
        return [(1,)]
    # All chains at once: chain j has the width 2^k (k >= 1) if bit k-1 of j is set. With rates Σ w_m up to a level,
    # Σ_k (norm_k - norm_{k+1})/rate_k = norm_0/rate_0 + Σ_{k>0} norm_k (1/rate_k - 1/rate_{k-1}).
    rates, levels = np.ones(1), np.zeros(1, dtype=np.int64)
    factors = np.array([_mean_prefix_norm(leaves, 1)])
    for width in powers[1:]:
        with_it = rates + width
        gains = _mean_prefix_norm(leaves, width) * (1 / with_it - 1 / rates)
        rates = np.concatenate([rates, with_it])
        factors = np.concatenate([factors, factors + gains])
        levels = np.concatenate([levels, levels + 1])
    means = variances[levels] * factors
    best = np.lexsort((levels, means))[:keep]
    return [(1, *(width for bit, width in enumerate(powers[1:]) if chain >> bit & 1)) for chain in best]


def _mean_prefix_norm(leaves: int, width: int) -> float:
    """Return the mean of |Π_k 1_{<r}|² over r = 1..leaves."""
    # That over r = 0..leaves-1, plus the step from r = 0 to r = leaves.
    return (leaves - width) / 2 + (width - 1) * (2 * width - 1) / (6 * width) + 1
