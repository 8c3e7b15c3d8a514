"""Buckets of neighbouring leaves: equi-depth ones from quantiles of the release, or of equal width.

`Buckets` holds what calibration needs from them: how many rows, how many positives, the sum of scores, and
the joint error covariance of the gaps between the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.optimize import isotonic_regression

from fedassay.errors import UsageError
from fedassay.estimation.count_noise import NodeNoise
from fedassay.estimation.evidence import Evidence, Floats


def equi_depth_edges(evidence: Evidence, buckets: int) -> list[int]:
    """Indices of leaf edges that cut the rows into (at most) `buckets` parts of equal size.

    The j-th boundary is the edge whose prefix is nearest to j/B of the rows (Cormode and Markov 2023, Section
    2.3). Under noise the prefixes are made non-decreasing first. Where many rows share a leaf, boundaries
    coincide and buckets are fewer.

    Examples
    --------
    >>> positives = np.array([0.0, 1.0, 1.0, 4.0, 0.0, 0.0, 1.0, 1.0])
    >>> evidence = Evidence.exactly(edges=np.linspace(0, 1, 9), positives=positives, negatives=np.zeros(8))
    >>> equi_depth_edges(evidence, 2), equi_depth_edges(evidence, 4)
    ([0, 3, 8], [0, 3, 4, 8])
    """
    _check(buckets)
    prefix = np.concatenate([[0.0], np.cumsum(evidence.counts)])
    if not evidence.exact:
        prefix = np.asarray(isotonic_regression(prefix).x)
    interior = prefix[1:-1]
    targets = prefix[-1] * np.arange(1, buckets) / buckets
    right = np.clip(np.searchsorted(interior, targets), 0, len(interior) - 1)
    left = np.maximum(right - 1, 0)
    nearest = np.where(targets - interior[left] <= interior[right] - targets, left, right) + 1
    # An edge counts only if rows lie between it and the last one: no empty buckets.
    edges = [0]
    for edge in nearest:
        if prefix[edge] > prefix[edges[-1]] and prefix[edge] < prefix[-1]:
            edges.append(int(edge))
    return [*edges, evidence.leaves]


def uniform_edges(evidence: Evidence, buckets: int) -> list[int]:
    """Indices of the leaf edges nearest to 0, 1/B, 2/B, .., 1; exact if these are edges."""
    _check(buckets)
    edges = [evidence.nearest_edge(j / buckets) for j in range(1, buckets)]
    return sorted({0, *edges, evidence.leaves})


def _check(buckets: int) -> None:
    if buckets < 1:
        raise UsageError(f"buckets: got {buckets}, expected at least 1.")


@dataclass(frozen=True, kw_only=True, eq=False)
class Buckets:
    """Sums over the buckets between consecutive `edges` (indices of leaf edges)."""

    evidence: Evidence
    edges: tuple[int, ...]

    @property
    def number(self) -> int:
        """How many buckets there are."""
        return len(self.edges) - 1

    def _sum(self, values: Floats) -> Floats:
        return np.asarray(np.add.reduceat(values, self.edges[:-1]))

    @cached_property
    def rows(self) -> Floats:
        """Rows per bucket."""
        return self._sum(self.evidence.counts)

    @cached_property
    def observed(self) -> Floats:
        """Positive rows per bucket."""
        return self._sum(self.evidence.positives)

    @cached_property
    def expected(self) -> Floats:
        """The sum of scores per bucket."""
        return self._sum(self.evidence.counts * self.evidence.scores)

    @cached_property
    def expected_bound(self) -> Floats:
        """How far binning can move the sum of scores of each bucket."""
        return np.maximum(0.0, self._sum(self.evidence.counts * self.evidence.half_widths))

    @cached_property
    def gaps(self) -> Floats:
        """Observed minus expected positives per bucket: D_j = Σ (y - s)."""
        return self.observed - self.expected

    @cached_property
    def _members(self) -> Floats:
        """One row per bucket, one in its leaves."""
        leaves = np.arange(self.evidence.leaves)
        lower, upper = np.array(self.edges[:-1])[:, None], np.array(self.edges[1:])[:, None]
        return ((leaves >= lower) & (leaves < upper)).astype(np.float64)

    @cached_property
    def gap_noise_covariance(self) -> Floats:
        """The privacy covariance of the gaps; exact, they are linear in the counts."""
        if self.evidence.exact:
            return np.zeros((self.number, self.number))
        s = self.evidence.scores
        return self.evidence.noise_covariance(self._members * (1 - s), -self._members * s)

    @cached_property
    def row_noise_variances(self) -> Floats:
        """The privacy variance of the rows per bucket."""
        if self.evidence.exact:
            return np.zeros(self.number)
        return np.diag(self.evidence.noise_covariance(self._members, self._members))

    def rate_noise_variance(self, bucket: int) -> float:
        """The privacy variance of the share of positive rows in a bucket."""
        if self.evidence.exact:
            return 0.0
        rows = float(self.rows[bucket])
        v = float(self.observed[bucket]) / rows
        if isinstance(self.evidence.count_noise, NodeNoise):  # alike in both classes
            return ((1 - v) ** 2 + v**2) * float(self.row_noise_variances[bucket]) / 2 / rows**2
        members = self._members[bucket]
        return self.evidence.privacy_variance((1 - v) * members, -v * members) / rows**2

    @cached_property
    def shares(self) -> Floats:
        """S_j = D_j/n: the gaps as shares of all rows."""
        return self.gaps / self.evidence.rows

    @cached_property
    def share_sampling_covariance(self) -> Floats:
        """The sampling covariance of the shares (each is a mean over rows)."""
        s, n = self.evidence.scores, self.evidence.rows
        second = self._sum(self.evidence.positives * (1 - s) ** 2 + self.evidence.negatives * s**2) / n
        # Noise can make a second moment too small; the squared mean is its least possible value.
        second = np.maximum(second, self.shares**2)
        return (np.diag(second) - np.outer(self.shares, self.shares)) / n

    @cached_property
    def share_noise_covariance(self) -> Floats:
        """The privacy covariance of the shares, the noise in the number of rows included."""
        if self.evidence.exact:
            return np.zeros((self.number, self.number))
        s, n = self.evidence.scores, self.evidence.rows
        of_positive = (self._members * (1 - s) - self.shares[:, None]) / n
        of_negative = (-self._members * s - self.shares[:, None]) / n
        return self.evidence.noise_covariance(of_positive, of_negative)

    def to_json(self) -> dict[str, list[float]]:
        """Boundaries and counts: the B-bucket score histogram of the paper."""
        return {
            "edges": [float(self.evidence.edges[edge]) for edge in self.edges],
            "positives": [float(count) for count in self.observed],
            "negatives": [float(count) for count in self.rows - self.observed],
        }
