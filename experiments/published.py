"""The estimator as published, from the release of a binary hierarchy (Cormode and Markov 2023, Section 2.3).

Level k = 1..h of the hierarchy cuts [0, 1] into 2^k equal segments. A sum up to an edge is put together from at most
one segment per level; levels are not reconciled with each other.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedassay.protocol import NO_NOISE
from fedassay.summaries.score_histogram import LabelledHistogram, ScoreHistogram
from fedassay.summaries.tree import LeastSquares, Tree
from fedassay.tasks.evaluation.buckets import Buckets, equi_depth_edges
from fedassay.tasks.evaluation.evidence import Evidence

Floats = NDArray[np.float64]


def binary_histogram(height: int) -> ScoreHistogram:
    """2^height uniform bins with all levels of a binary tree, and equal parts of the budget."""
    return ScoreHistogram(
        transform="uniform", height=height, widths=tuple(1 << level for level in range(height))
    )


def dyadic_prefixes(tree: Tree, nodes: Floats) -> Floats:
    """Sums up to each of the edges 0..leaves, each from the fewest nodes of a binary tree.

    From the top: an edge that is new on a level lies in the middle of a segment of the level above, so its sum is that
    of the segment's start plus the segment's left half.

    Examples
    --------
    >>> dyadic_prefixes(Tree(leaves=4, widths=(1, 2)), np.array([5.0, 1.0, 0.0, 2.0, 9.0, 2.0]))
    array([ 0.,  5.,  9.,  9., 11.])
    """
    *below, top = tree.split(nodes)
    prefixes = np.concatenate([[0.0], np.cumsum(top)])
    for level in reversed(below):
        finer = np.empty(len(level) + 1)
        finer[::2] = prefixes
        finer[1::2] = prefixes[:-1] + level[::2]
        prefixes = finer
    return prefixes


def dyadic_evidence(histogram: LabelledHistogram) -> Evidence:
    """Leaf counts whose sums up to an edge are the dyadic ones.

    It claims to be exact, because the published estimators ignore the noise: all that this package computes from it
    are values, never intervals. The library's search for equi-depth edges then is the published binary search.
    """
    tree = histogram.tree
    positives, negatives = (
        np.diff(dyadic_prefixes(tree, np.asarray(nodes, dtype=np.float64)))
        for nodes in (histogram.positives, histogram.negatives)
    )
    exact = LeastSquares(tree=tree, variances=(0.0,) * tree.levels)
    return Evidence(grid=histogram.grid, fit=exact, positives=positives, negatives=negatives, noise=NO_NOISE)


def bucket_auc(evidence: Evidence, edges: list[int]) -> float:
    """The AUC from the buckets between these edges (Eq. 5)."""
    table = Buckets(evidence=evidence, edges=tuple(edges))
    p, n = table.observed, table.rows - table.observed
    return float(p @ (np.cumsum(n) - n / 2) / (p.sum() * n.sum()))


def quantile_edges(evidence: Evidence, buckets: int) -> list[int]:
    """Edges of buckets of equal depth, by binary search among the sums up to an edge."""
    return equi_depth_edges(evidence, buckets)


def uniform_edges(evidence: Evidence, buckets: int) -> list[int]:
    """Edges of buckets of equal width; both numbers are powers of two."""
    return list(range(0, evidence.grid.leaves + 1, evidence.grid.leaves // buckets))
