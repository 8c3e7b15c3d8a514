"""Which levels a tree should have: the widths whose least squares give sums up to an edge the least noise."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedassay.estimation.least_squares import LeastSquares


def mean_prefix_variance(fit: LeastSquares) -> float:
    """The variance of a prefix sum, averaged over the prefixes of 1..leaves leaves.

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
    """The widths with the smallest mean prefix variance; see `ranked_widths`.

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
    """The widths with the smallest mean prefix variances, best first, among all chains of powers of two.

    Parameters
    ----------
    leaves : the number of leaves, a power of two.
    noise_variance_for : the noise variance of a node if every row is counted on that many levels. It grows
        with the number of levels, which is what the choice trades against.
    keep : how many to return at most.

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
    """The mean of |Π_k 1_{<r}|² over r = 1..leaves."""
    # That over r = 0..leaves-1, plus the step from r = 0 to r = leaves.
    return (leaves - width) / 2 + (width - 1) * (2 * width - 1) / (6 * width) + 1
