"""How far scores are from frequencies: expected calibration error and the Hosmer-Lemeshow test.

Buckets of neighbouring leaves: equi-depth ones from quantiles of the release, or of equal width.

`Buckets` holds what calibration needs from them: how many rows, how many positives, the sum of scores, and
the joint error covariance of the gaps between the two.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.optimize import isotonic_regression
from scipy.special import chdtrc

from fedassay.errors import UsageError
from fedassay.estimation.count_noise import NodeNoise
from fedassay.estimation.evidence import ENOUGH, Evidence
from fedassay.estimation.intervals import Estimate, z_value
from fedassay.estimation.metric import LEVEL, Metric, Undefined, estimator
from fedassay.protocol.arrays import Floats

# --- buckets of neighbouring leaves -------------------------------------------------------------------------


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


# --- how far scores are from frequencies --------------------------------------------------------------------


@estimator
def expected_calibration_error(evidence: Evidence, *, buckets: int = 10, level: float = LEVEL) -> Metric:
    """The weighted mean gap between frequency and mean score over equi-depth buckets (Naeini et al. 2015)."""
    evidence.require_rows()
    edges = tuple(equi_depth_edges(evidence, buckets))
    return _calibration_error(Buckets(evidence=evidence, edges=edges), level=level)


@estimator
def expected_calibration_error_uniform(
    evidence: Evidence, *, buckets: int = 10, level: float = LEVEL
) -> Metric:
    """The same over buckets of equal width, [j/B, (j+1)/B)."""
    evidence.require_rows()
    return _calibration_error(
        Buckets(evidence=evidence, edges=tuple(uniform_edges(evidence, buckets))), level=level
    )


@estimator
def expected_error_of_calibrated(evidence: Evidence, *, buckets: int = 10, level: float = LEVEL) -> Metric:
    """What `expected_calibration_error` will show of a calibrated model where these counts are expected.

    There is no gap, so the estimate is the mean of Σ|e_j|, all of it error. The interval is the usual one, around this
    value.
    """
    evidence.require_rows()
    table = Buckets(evidence=evidence, edges=tuple(equi_depth_edges(evidence, buckets)))
    sampling, noise = table.share_sampling_covariance, table.share_noise_covariance
    centre, spread = sum_of_absolute_values(sampling + noise)
    from_noise = float(np.trace(noise) / np.trace(sampling + noise))
    estimate = Estimate(
        value=centre,
        sampling_variance=spread * (1 - from_noise),
        privacy_variance=spread * from_noise,
        discretisation=float(table.expected_bound.sum() / evidence.rows),
    )
    half = centre + z_value(level) * estimate.standard_error + estimate.discretisation
    value = min(1.0, centre)
    return estimate.metric(value, (max(0.0, value - half), min(1.0, value + half)), level=level)


def _calibration_error(buckets: Buckets, *, level: float) -> Metric:
    """ECE = Σ_j |S_j| with S_j = D_j/n, and an interval that stays honest near zero.

    The estimate is Σ |S_j + e_j|. Where a gap's sign is certain (|S_j| above a simultaneous band) the error
    is linear in e_j; elsewhere it is at most |e_j|. So the error is at most |Z + Σ_uncertain |e_j||, Z the
    linear part, and the half-width is the mean plus z standard deviations of that sum. With all signs
    certain this is the ordinary delta interval; near zero, where the delta method covers 3 % of the time, it
    is conservative.
    """
    sampling, noise = buckets.share_sampling_covariance, buckets.share_noise_covariance
    shares, both = buckets.shares, sampling + noise
    band = z_value(1 - (1 - level) / buckets.number) * np.sqrt(np.maximum(np.diag(both), 0.0))
    signs = np.where(np.abs(shares) > band, np.sign(shares), 0.0)
    uncertain = np.ix_(signs == 0, signs == 0)
    centre, spread = sum_of_absolute_values(both[uncertain])
    from_noise = float(np.trace(noise[uncertain]) / np.trace(both[uncertain])) if spread > 0 else 0.0
    estimate = Estimate(
        value=float(np.abs(shares).sum()),
        sampling_variance=float(signs @ sampling @ signs) + spread * (1 - from_noise),
        privacy_variance=float(signs @ noise @ signs) + spread * from_noise,
        discretisation=float(buckets.expected_bound.sum() / buckets.evidence.rows),
    )
    half = centre + z_value(level) * estimate.standard_error + estimate.discretisation
    value = min(1.0, estimate.value)
    interval = max(0.0, value - half), min(1.0, value + half)
    metric = estimate.metric(value, interval, level=level)
    return replace(metric, details={"debiased_squared": debiased_squared_error(buckets)})


def sum_of_absolute_values(covariance: Floats) -> tuple[float, float]:
    """Mean and variance of Σ|e_j| for centred normal e with this covariance.

    E|e_j| = σ_j √(2/π), and Cov(|e_i|, |e_j|) = (2/π) σ_i σ_j (√(1-ρ²) + ρ arcsin ρ - 1) at correlation ρ.

    Examples
    --------
    >>> mean, variance = sum_of_absolute_values(np.array([[4.0]]))
    >>> round(mean, 4), round(variance, 4)
    (1.5958, 1.4535)
    """
    deviations = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    scale = np.outer(deviations, deviations)
    rho = np.clip(covariance / np.where(scale > 0, scale, 1.0), -1.0, 1.0)
    joint = scale * (np.sqrt(1 - rho**2) + rho * np.arcsin(rho) - 1)
    return math.sqrt(2 / math.pi) * float(deviations.sum()), 2 / math.pi * float(joint.sum())


def debiased_squared_error(buckets: Buckets) -> float:
    """Σ_j w_j (d_j² - v_j): the squared calibration error without the part that errors alone would give.

    w_j is a bucket's share of rows, d_j its gap, v_j the error variance of d_j (sampling and privacy). Its
    expectation is the true value, so it may be negative near zero. Buckets whose rows drown in noise are
    left out.
    """
    n, rows = buckets.evidence.rows, buckets.rows
    variances = np.diag(buckets.share_sampling_covariance) + np.diag(buckets.share_noise_covariance)
    used = (rows > 0) & (rows >= ENOUGH * np.sqrt(buckets.row_noise_variances))
    return float(((buckets.shares**2 - variances)[used] * n / rows[used]).sum())


@estimator
def hosmer_lemeshow(evidence: Evidence, *, groups: int = 10, level: float = LEVEL) -> Metric:
    """The Hosmer-Lemeshow test of a frozen model on new rows, with the p-value of the null *with* the noise.

    X² = D^T V^{-1} D, where D_j = Σ(y - s) over an equi-depth, half-open group and V = diag(n_j π_j (1-π_j))
    plus the privacy covariance of D. Under calibration X² is χ² with one degree of freedom per group; the
    classical "minus two" is for the rows the model was fitted on. Without noise X² is the classical
    statistic. A value but no interval: it is a test.
    """
    evidence.require_rows()
    table = Buckets(evidence=evidence, edges=tuple(equi_depth_edges(evidence, groups)))
    for rows, variance in zip(table.rows, table.row_noise_variances, strict=True):
        evidence.require("rows in a group", float(rows), float(variance))
    binomial = table.expected * (1 - table.expected / table.rows)
    if np.any(binomial <= 0):
        raise Undefined("not enough evidence: under privacy noise a group has no variance")
    V = np.diag(binomial) + table.gap_noise_covariance
    weights = np.linalg.solve(V, table.gaps)
    statistic = float(table.gaps @ weights)
    # To first order, an expected count moves the statistic through its gap and through its variance.
    by_expected = 2 * np.abs(weights) + weights**2 * np.abs(1 - 2 * table.expected / table.rows)
    return Metric(
        value=statistic,
        interval=None,
        level=level,
        discretisation=float(by_expected @ table.expected_bound),
        details={
            "degrees_of_freedom": table.number,
            "p_value": float(chdtrc(table.number, statistic)),
            "groups": table.number,
        },
    )
