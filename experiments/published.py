"""The estimators as published, from the release of a binary hierarchy (Cormode and Markov 2023).

Section 2.3: level k = 1..h of the hierarchy cuts [0, 1] into 2^k equal segments. A sum up to an edge is put together
from at most one segment per level; levels are not reconciled with each other. Where the paper is silent: counts of a
bucket that noise made negative are set to zero, after they were summed over the bucket.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from fedassay.estimation.calibration_error import Buckets, equi_depth, equi_depth_edges
from fedassay.estimation.evidence import Evidence
from fedassay.estimation.least_squares import LeastSquares
from fedassay.estimation.tree import Tree
from fedassay.protocol.vocabulary import NO_NOISE
from fedassay.summaries.maps import Steps
from fedassay.summaries.score_histogram import LabelledHistogram, ScoreHistogram
from fedassay.tasks.calibration.bbq import PRIOR_ROWS, beta_binomial_score, bucket_numbers
from fedassay.tasks.calibration.bbq import BinningBuckets as Binnings

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
    return Evidence(
        edges=histogram.grid.edges, fit=exact, positives=positives, negatives=negatives, noise=NO_NOISE
    )


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
    return list(range(0, evidence.leaves + 1, evidence.leaves // buckets))


# --- calibration (Sections 6 and 7.3) ---------------------------------------------------------------------------


def histogram_binning(evidence: Evidence, buckets: int) -> Steps:
    """The fraction of positives in each bucket of equal depth; without rows, the middle of the bucket."""
    edges = quantile_edges(evidence, buckets)
    table, ends = Buckets(evidence=evidence, edges=tuple(edges)), evidence.edges[edges]
    m, n = np.maximum(table.observed, 0.0), np.maximum(table.rows - table.observed, 0.0)
    fractions = np.divide(m, m + n, out=(ends[1:] + ends[:-1]) / 2, where=m + n > 0)
    return Steps.merged(ends[1:-1], fractions)


def bbq(evidence: Evidence) -> Steps:
    """Histogram binnings of M^{1/3}/10 to 10 M^{1/3} buckets, weighted by their marginal likelihoods."""
    numbers = bucket_numbers(max(1.0, evidence.rows), evidence.leaves)
    prefix, ends = np.concatenate([[0.0], np.cumsum(evidence.counts)]), evidence.edges
    all_of = Binnings.of(*equi_depth(prefix, numbers))
    m = np.maximum(all_of.between(evidence.positives_below), 0.0)
    n = np.maximum(all_of.between(evidence.negatives_below), 0.0)
    prior = np.repeat(PRIOR_ROWS / all_of.numbers, all_of.numbers)
    middles = (ends[all_of.lower] + ends[all_of.upper]) / 2
    scores = np.add.reduceat(beta_binomial_score(m, n, middles, prior), all_of.starts)
    weights = np.exp(scores - logsumexp(scores))
    means = (m + prior * middles) / (m + n + prior)
    values = np.zeros(evidence.leaves)
    for place in np.flatnonzero(weights > 1e-12):
        own = slice(all_of.starts[place], all_of.starts[place] + all_of.numbers[place])
        values += weights[place] * np.repeat(means[own], (all_of.upper - all_of.lower)[own])
    return Steps.merged(ends[1:-1], np.clip(values, 0.0, 1.0))
