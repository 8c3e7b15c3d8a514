"""Calibration errors of scores: expected calibration error and the Hosmer-Lemeshow test.

Buckets of neighbouring leaves: equi-depth ones from quantiles of the release, or of equal width.

`Buckets` holds what calibration needs from them: the number of rows and of positives, the sum of scores, and
the joint error covariance of the gaps between the two.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
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
from fedassay.protocol.arrays import Floats, Ints

# --- buckets of neighbouring leaves -------------------------------------------------------------------------


def prefix_of(evidence: Evidence) -> Floats:
    """Return the rows below each edge, in the order of scores; under noise made non-decreasing (least squares)."""
    prefix = np.concatenate([[0.0], np.cumsum(np.bincount(evidence.ranks, weights=evidence.counts))])
    return prefix if evidence.exact else np.asarray(isotonic_regression(prefix).x)


def equi_depth(prefix: Floats, buckets: Sequence[int] | Ints) -> tuple[Ints, Ints]:
    """Return the edges that cut the rows into equal parts, for each number of buckets, in one pass.

    Returns the indices of edges of all binnings, one binning after the other, each from 0 to the last edge,
    and where each binning starts. A boundary is the edge whose prefix is nearest to its target (Cormode and
    Markov 2023, Section 2.3), the lower one if two are equally near; where many rows share a leaf, boundaries
    coincide and buckets are fewer.

    Examples
    --------
    >>> edges, starts = equi_depth(np.array([0.0, 0, 1, 2, 6, 6, 6, 7, 8]), [2, 4])
    >>> edges, starts
    (array([0, 3, 8, 0, 3, 4, 8]), array([0, 3]))
    """
    last, total = len(prefix) - 1, float(prefix[-1])
    numbers = np.asarray(buckets, dtype=np.int64)
    if last == 1:  # one leaf cannot be cut
        numbers = np.ones_like(numbers)
    owner = np.repeat(np.arange(len(numbers)), numbers - 1)
    before = np.concatenate([[0], np.cumsum(numbers - 1)])[:-1]
    targets = total * (np.arange(len(owner)) - before[owner] + 1) / numbers[owner]
    interior = prefix[1:-1]
    right = np.clip(np.searchsorted(interior, targets), 0, len(interior) - 1)
    left = np.maximum(right - 1, 0)
    nearest = np.where(targets - interior[left] <= interior[right] - targets, left, right) + 1
    heights = prefix[nearest]
    previous = np.concatenate([[0.0], heights[:-1]])
    previous[before[numbers > 1]] = prefix[0]
    # An edge counts only if rows lie between it and the last one: no empty buckets.
    keep = (heights > previous) & (heights < total)
    kept, owner = nearest[keep], owner[keep]
    inside = np.bincount(owner, minlength=len(numbers))
    starts = np.concatenate([[0], np.cumsum(inside + 2)])[:-1]
    edges = np.zeros(len(kept) + 2 * len(numbers), dtype=np.int64)
    edges[np.arange(len(kept)) + 2 * owner + 1] = kept
    edges[starts + inside + 1] = last
    return edges, starts


def equi_depth_edges(evidence: Evidence, buckets: int) -> list[int]:
    """Cut the rows into (at most) `buckets` parts of equal size; see `equi_depth`."""
    _check(buckets)
    edges: list[int] = equi_depth(prefix_of(evidence), [buckets])[0].tolist()
    return edges


def uniform_edges(evidence: Evidence, buckets: int) -> list[int]:
    """Cut the scores at 1/B, 2/B, ..; exact if these are edges, else each leaf belongs where its score is."""
    _check(buckets)
    lower, upper = evidence.sides
    scores = (lower + upper) / 2
    cuts = np.searchsorted(scores, [j / buckets for j in range(1, buckets)])
    return sorted({0, *cuts.tolist(), len(scores)})


def _check(buckets: int) -> None:
    if buckets < 1:
        raise UsageError(f"buckets: got {buckets}, expected at least 1.")


@dataclass(frozen=True, kw_only=True, eq=False)
class Buckets:
    """Sums over buckets of leaves; `edges` are indices into the leaves in the order of their scores."""

    evidence: Evidence
    edges: tuple[int, ...]

    @classmethod
    def equi_depth(cls, evidence: Evidence, buckets: int) -> Buckets:
        """Build buckets of equal size, see `equi_depth_edges`."""
        return cls(evidence=evidence, edges=tuple(equi_depth_edges(evidence, buckets)))

    @property
    def number(self) -> int:
        """Number of buckets."""
        return len(self.edges) - 1

    @property
    def ends(self) -> tuple[Floats, Floats]:
        """Lowest and the highest score of each bucket."""
        lower, upper = self.evidence.sides
        return lower[list(self.edges[:-1])], upper[np.array(self.edges[1:]) - 1]

    @cached_property
    def places(self) -> Ints:
        """Bucket of each leaf."""
        return np.asarray(np.searchsorted(self.edges, self.evidence.ranks, side="right") - 1)

    @cached_property
    def members(self) -> Floats:
        """Indicator matrix of the leaves of each bucket: one row per bucket, 1 in its leaves."""
        return np.asarray(self.places == np.arange(self.number)[:, None], dtype=np.float64)

    def _sum(self, values: Floats) -> Floats:
        return np.asarray(np.bincount(self.places, weights=values, minlength=self.number), dtype=np.float64)

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
        """Sum of scores per bucket."""
        return self._sum(self.evidence.counts * self.evidence.scores)

    @cached_property
    def expected_bound(self) -> Floats:
        """Largest change of the sum of scores of each bucket that binning can cause."""
        return np.maximum(0.0, self._sum(self.evidence.counts * self.evidence.half_widths))

    @cached_property
    def gaps(self) -> Floats:
        """Observed minus expected positives per bucket: D_j = Σ (y - s)."""
        return self.observed - self.expected

    @cached_property
    def gap_noise_covariance(self) -> Floats:
        """Privacy covariance of the gaps; exact, they are linear in the counts."""
        if self.evidence.exact:
            return np.zeros((self.number, self.number))
        s = self.evidence.scores
        return self.evidence.noise_covariance(self.members * (1 - s), -self.members * s)

    @cached_property
    def row_noise_variances(self) -> Floats:
        """Privacy variance of the rows per bucket."""
        if self.evidence.exact:
            return np.zeros(self.number)
        return np.diag(self.evidence.noise_covariance(self.members, self.members))

    def rate_noise_variance(self, bucket: int) -> float:
        """Return the privacy variance of the share of positive rows in a bucket."""
        if self.evidence.exact:
            return 0.0
        rows = float(self.rows[bucket])
        v = float(self.observed[bucket]) / rows
        if isinstance(self.evidence.count_noise, NodeNoise):  # alike in both classes
            return ((1 - v) ** 2 + v**2) * float(self.row_noise_variances[bucket]) / 2 / rows**2
        members = self.members[bucket]
        return self.evidence.privacy_variance((1 - v) * members, -v * members) / rows**2

    @cached_property
    def shares(self) -> Floats:
        """S_j = D_j/n: the gaps as shares of all rows."""
        return self.gaps / self.evidence.rows

    @cached_property
    def share_sampling_covariance(self) -> Floats:
        """Sampling covariance of the shares (each is a mean over rows)."""
        s, n = self.evidence.scores, self.evidence.rows
        second = self._sum(self.evidence.positives * (1 - s) ** 2 + self.evidence.negatives * s**2) / n
        # Noise can make a second moment too small; the squared mean is its least possible value.
        second = np.maximum(second, self.shares**2)
        return (np.diag(second) - np.outer(self.shares, self.shares)) / n

    @cached_property
    def share_noise_covariance(self) -> Floats:
        """Privacy covariance of the shares, the noise in the number of rows included."""
        if self.evidence.exact:
            return np.zeros((self.number, self.number))
        s, n = self.evidence.scores, self.evidence.rows
        of_positive = (self.members * (1 - s) - self.shares[:, None]) / n
        of_negative = (-self.members * s - self.shares[:, None]) / n
        return self.evidence.noise_covariance(of_positive, of_negative)

    def to_json(self) -> dict[str, list[float]]:
        """Return boundaries and counts: the B-bucket score histogram of the paper."""
        return {
            "edges": [*self.ends[0].tolist(), float(self.ends[1][-1])],
            "positives": self.observed.tolist(),
            "negatives": (self.rows - self.observed).tolist(),
        }


# --- calibration errors -------------------------------------------------------------------------------------


@estimator
def expected_calibration_error(evidence: Evidence, *, buckets: int = 10, level: float = LEVEL) -> Metric:
    """Estimate the weighted mean gap between frequency and mean score over equi-depth buckets (Naeini et al. 2015)."""
    evidence.require_rows()
    return _calibration_error(Buckets.equi_depth(evidence, buckets), level=level)


@estimator
def expected_calibration_error_uniform(
    evidence: Evidence, *, buckets: int = 10, level: float = LEVEL
) -> Metric:
    """Estimate the calibration error of `expected_calibration_error` over buckets of equal width, [j/B, (j+1)/B)."""
    evidence.require_rows()
    return _calibration_error(
        Buckets(evidence=evidence, edges=tuple(uniform_edges(evidence, buckets))), level=level
    )


@estimator
def expected_error_of_calibrated(evidence: Evidence, *, buckets: int = 10, level: float = LEVEL) -> Metric:
    """Predict the result of `expected_calibration_error` for a calibrated model where these counts are expected.

    There is no gap, so the estimate is the mean of Σ|e_j|, all of it error. The interval is the usual one, around this
    value.
    """
    evidence.require_rows()
    table = Buckets.equi_depth(evidence, buckets)
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
    """Compute ECE = Σ_j |S_j| with S_j = D_j/n, and an interval that stays honest near zero.

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
    """Return mean and variance of Σ|e_j| for centred normal e with this covariance.

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
    """Return Σ_j w_j (d_j² - v_j): the squared calibration error without the part that errors alone would give.

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
    """Test the calibration of a frozen model on new rows (Hosmer-Lemeshow), with the p-value of the null *with* the
    noise.

    X² = D^T V^{-1} D, where D_j = Σ(y - s) over an equi-depth, half-open group and V = diag(n_j π_j (1-π_j))
    plus the privacy covariance of D. Under calibration X² is χ² with one degree of freedom per group; the
    classical "minus two" is for the rows the model was fitted on. Without noise X² is the classical
    statistic. A value but no interval: it is a test.
    """
    evidence.require_rows()
    table = Buckets.equi_depth(evidence, groups)
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
