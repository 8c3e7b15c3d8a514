"""How far calibrated scores are from frequencies: calibration errors, reliability curve, intercept and slope.

The formulas are those of `evaluation`, with scores that may repeat or change their order.

Held-out evidence seen through a calibrator: the same leaves and counts, other scores.

No row is looked at twice: each leaf's score is mapped, its counts stay. The fit rows are different units, so
the map is a constant here and all intervals are those of new rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit

from fedassay.estimation import ranking
from fedassay.estimation.calibration_error import sum_of_absolute_values
from fedassay.estimation.evidence import ENOUGH, Evidence, dot
from fedassay.estimation.intervals import Estimate, bounded, share_interval, unbounded, z_value
from fedassay.estimation.metric import LEVEL, Metric, Undefined, estimator
from fedassay.protocol.arrays import Floats
from fedassay.summaries.maps import EPSILON, Map
from fedassay.tasks.calibration.binning import Indices, equi_depth, monotone_prefix
from fedassay.tasks.calibration.logistic import Logistic, require_overlap

# --- held-out evidence seen through a calibrator ------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class Recalibrated:
    """Evidence with a calibrated score per leaf.

    `at_lower` and `at_upper` are what the map says at the two ends of the leaf (the upper one approached from
    inside): how far a row's calibrated score can be from the leaf's.
    """

    evidence: Evidence
    scores: Floats
    at_lower: Floats
    at_upper: Floats

    @classmethod
    def by(cls, evidence: Evidence, calibrator: Map) -> Recalibrated:
        """The evidence through this map."""
        lower, upper = evidence.ends
        return cls(
            evidence=evidence,
            scores=calibrator(evidence.scores),
            at_lower=calibrator(lower),
            at_upper=calibrator(upper),
        )

    @classmethod
    def untouched(cls, evidence: Evidence) -> Recalibrated:
        """The evidence with the model's own scores."""
        lower, upper = evidence.ends
        return cls(evidence=evidence, scores=evidence.scores, at_lower=lower, at_upper=upper)

    @cached_property
    def spread(self) -> Floats:
        """How far a row's calibrated score can be from the leaf's."""
        return np.maximum(np.abs(self.at_lower - self.scores), np.abs(self.at_upper - self.scores))

    @cached_property
    def tied(self) -> NDArray[np.bool_]:
        """Leaves in which all rows get the same score."""
        return np.asarray(self.at_lower == self.at_upper)

    @cached_property
    def groups(self) -> Indices:
        """For each leaf the rank of its score: leaves with equal scores are one group."""
        return np.asarray(np.unique(self.scores, return_inverse=True)[1], dtype=np.int64)

    @property
    def order_kept(self) -> bool:
        """Whether higher scores stay higher, without new ties."""
        return bool(np.all(np.diff(self.scores) > 0))

    def by_group(self, per_leaf: Floats) -> Floats:
        """Sums over the groups, in the order of their scores."""
        return np.asarray(np.bincount(self.groups, weights=per_leaf), dtype=np.float64)

    def equi_depth_buckets(self, buckets: int) -> Indices:
        """The bucket of each leaf, if rows in the order of their score are cut into equal parts.

        Rows with equal scores stay together, so there may be fewer.
        """
        prefix = monotone_prefix(self.by_group(self.evidence.counts), exact=self.evidence.exact)
        edges, _ = equi_depth(prefix, [buckets])
        return np.asarray(np.searchsorted(edges, self.groups, side="right") - 1)

    def uniform_buckets(self, buckets: int) -> Indices:
        """The bucket of each leaf, [j/B, (j+1)/B) by its score; empty ones are left out."""
        places = np.minimum((self.scores * buckets).astype(np.int64), buckets - 1)
        return np.asarray(np.unique(places, return_inverse=True)[1], dtype=np.int64)

    @cached_property
    def logits(self) -> Floats:
        """The logit of each score, away from 0 and 1."""
        return _logits(self.scores)

    @cached_property
    def logit_spread(self) -> Floats:
        """How far the logit of a row's score can be from the leaf's."""
        ends = np.stack([_logits(self.at_lower), _logits(self.at_upper)])
        return np.asarray(np.abs(ends - self.logits).max(axis=0))


def _logits(scores: Floats) -> Floats:
    return np.asarray(logit(np.clip(scores, EPSILON, 1 - EPSILON)))


# --- the ROC AUC of calibrated scores -----------------------------------------------------------------------


@estimator
def roc_auc(seen: Recalibrated, *, level: float = LEVEL) -> Metric:
    """The probability that a positive row gets the higher calibrated score, ties counting half.

    Leaves with equal scores are compared as one. In leaves where all rows get the same score ties are real,
    so the binning bound counts the other leaves only. The noise is propagated to first order, which
    overstates its variance by the second-order term that `evaluation.ranking` removes.
    """
    evidence = seen.evidence
    P, N = evidence.require_classes()
    if seen.order_kept:
        return ranking.roc_auc(evidence, level=level)
    p, n = seen.by_group(evidence.positives), seen.by_group(evidence.negatives)
    beaten, beating = np.cumsum(n) - n / 2, P - np.cumsum(p) + p / 2
    value = dot(p, beaten) / (P * N)
    loose = np.where(seen.tied, 0.0, evidence.positives)
    estimate = evidence.estimate(
        value,
        (beaten[seen.groups] / N - value) / P,
        (beating[seen.groups] / P - value) / N,
        discretisation=max(0.0, dot(loose, evidence.negatives) / (2 * P * N)),
    )
    return bounded(estimate, size=min(P, N), level=level)


# --- how far calibrated scores are from frequencies ---------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class ReliabilityBuckets:
    """Sums over buckets of leaves: `places` is the bucket of each leaf."""

    seen: Recalibrated
    places: Indices

    @property
    def evidence(self) -> Evidence:
        """The counts behind it."""
        return self.seen.evidence

    @cached_property
    def number(self) -> int:
        """How many buckets there are."""
        return int(self.places.max()) + 1

    def sum(self, per_leaf: Floats) -> Floats:
        """Sums per bucket."""
        return np.asarray(np.bincount(self.places, weights=per_leaf, minlength=self.number), dtype=np.float64)

    @cached_property
    def rows(self) -> Floats:
        """Rows per bucket."""
        return self.sum(self.evidence.counts)

    @cached_property
    def members(self) -> Floats:
        """One row per bucket, one in its leaves."""
        return np.asarray(self.places == np.arange(self.number)[:, None], dtype=np.float64)

    @cached_property
    def row_noise_variances(self) -> Floats:
        """The privacy variance of the rows per bucket."""
        return np.array([self.evidence.privacy_variance(member, member) for member in self.members])

    @cached_property
    def shares(self) -> Floats:
        """S_j: the sum of (label - score) over the bucket, as a share of all rows."""
        p, n, s = self.evidence.positives, self.evidence.negatives, self.seen.scores
        return self.sum(p * (1 - s) - n * s) / self.evidence.rows

    @cached_property
    def sampling_covariance(self) -> Floats:
        """Of the shares: each is a mean over rows."""
        e, s, n = self.evidence, self.seen.scores, self.evidence.rows
        second = self.sum(e.positives * (1 - s) ** 2 + e.negatives * s**2) / n
        # Noise can make a second moment too small; the squared mean is its least possible value.
        second = np.maximum(second, self.shares**2)
        return (np.diag(second) - np.outer(self.shares, self.shares)) / n

    @cached_property
    def privacy_covariance(self) -> Floats:
        """Of the shares, the noise in the number of rows included."""
        if self.evidence.exact:
            return np.zeros((self.number, self.number))
        s, n = self.seen.scores, self.evidence.rows
        return self.evidence.noise_covariance(
            (self.members * (1 - s) - self.shares[:, None]) / n,
            (-self.members * s - self.shares[:, None]) / n,
        )


@estimator
def expected_calibration_error(seen: Recalibrated, *, buckets: int = 10, level: float = LEVEL) -> Metric:
    """The weighted mean gap between frequency and mean calibrated score, over buckets of equal depth."""
    seen.evidence.require_rows()
    return _calibration_error(
        ReliabilityBuckets(seen=seen, places=seen.equi_depth_buckets(buckets)), level=level
    )


@estimator
def expected_calibration_error_uniform(
    seen: Recalibrated, *, buckets: int = 10, level: float = LEVEL
) -> Metric:
    """The same over buckets of equal width; a leaf belongs to the bucket of its calibrated score."""
    seen.evidence.require_rows()
    return _calibration_error(
        ReliabilityBuckets(seen=seen, places=seen.uniform_buckets(buckets)), level=level
    )


def _calibration_error(buckets: ReliabilityBuckets, *, level: float) -> Metric:
    """Σ_j |S_j| with the interval of `evaluation.calibration_error`: linear where signs are certain."""
    shares, sampling, noise = buckets.shares, buckets.sampling_covariance, buckets.privacy_covariance
    both = sampling + noise
    band = z_value(1 - (1 - level) / buckets.number) * np.sqrt(np.maximum(np.diag(both), 0.0))
    signs = np.where(np.abs(shares) > band, np.sign(shares), 0.0)
    uncertain = np.ix_(signs == 0, signs == 0)
    centre, spread = sum_of_absolute_values(both[uncertain])
    from_noise = float(np.trace(noise[uncertain]) / np.trace(both[uncertain])) if spread > 0 else 0.0
    evidence = buckets.evidence
    bound = dot(evidence.counts, buckets.seen.spread) / evidence.rows
    estimate = Estimate(
        value=min(1.0, float(np.abs(shares).sum())),
        sampling_variance=float(signs @ sampling @ signs) + spread * (1 - from_noise),
        privacy_variance=float(signs @ noise @ signs) + spread * from_noise,
        discretisation=max(0.0, bound),
    )
    half = centre + z_value(level) * estimate.standard_error + estimate.discretisation
    interval = max(0.0, estimate.value - half), min(1.0, estimate.value + half)
    metric = estimate.metric(estimate.value, interval, level=level)
    return replace(metric, details={"debiased_squared": _debiased_squared_error(buckets, both)})


def _debiased_squared_error(buckets: ReliabilityBuckets, covariance: Floats) -> float:
    """The squared calibration error without the part that errors alone would give; may be negative near 0."""
    n, rows = buckets.evidence.rows, buckets.rows
    used = (rows > 0) & (rows >= ENOUGH * np.sqrt(buckets.row_noise_variances))
    return float(((buckets.shares**2 - np.diag(covariance))[used] * n / rows[used]).sum())


def reliability_curve(seen: Recalibrated, *, buckets: int = 10, level: float = LEVEL) -> dict[str, Any]:
    """Observed frequency against mean calibrated score per bucket; bands as in `evaluation.curves`."""
    names = ("edges", "mean_score", "observed", "share", "lower", "upper")
    curve: dict[str, Any] = {name: [] for name in names}
    evidence = seen.evidence
    try:
        n = evidence.require_rows()
    except Undefined as error:
        return {**curve, "level": level, "reason": str(error)}
    table = ReliabilityBuckets(seen=seen, places=seen.equi_depth_buckets(buckets))
    observed, expected = table.sum(evidence.positives), table.sum(evidence.counts * seen.scores)
    for j, member in enumerate(table.members):
        rows, noise = float(table.rows[j]), float(table.row_noise_variances[j])
        if rows <= 0 or rows < ENOUGH * math.sqrt(noise):
            continue
        v = float(observed[j]) / rows
        variance = evidence.privacy_variance((1 - v) * member / rows, -v * member / rows)
        band = share_interval(v, rows, variance, level=1 - (1 - level) / table.number)
        inside = seen.scores[table.places == j]
        ends = [float(inside.min()), float(inside.max())]
        mean = min(ends[1], max(ends[0], float(expected[j]) / rows))
        for name, item in zip(names, (ends, mean, min(1.0, max(0.0, v)), rows / n, *band), strict=True):
            curve[name].append(item)
    return {**curve, "level": level}


@estimator
def calibration_intercept(seen: Recalibrated, *, level: float = LEVEL) -> Metric:
    """The intercept of the label's logit with the calibrated logit as offset: 0 if calibrated in the large."""
    seen.evidence.require_classes()
    fit = Logistic.fit(seen.evidence, np.ones((1, len(seen.scores))), seen.logits)
    return _coefficient(seen, fit, level=level)


@estimator
def calibration_slope(seen: Recalibrated, *, level: float = LEVEL) -> Metric:
    """The slope of the label's logit on the calibrated logit: 1 if calibrated, below 1 if too extreme."""
    evidence, x = seen.evidence, seen.logits
    evidence.require_classes()
    require_overlap(evidence)
    if np.all(seen.groups == seen.groups[0]):
        raise Undefined("all rows get the same calibrated score, so no slope can be fitted")
    design = np.stack([np.ones_like(x), x])
    if not evidence.exact:
        # Noise in the outermost bins can flatten the fit, and a flat fit looks precise: judge it at slope 1.
        shift = Logistic.fit(evidence, design[:1], x).coefficients[0]
        at_one = Logistic(
            evidence=evidence,
            design=design,
            offset=np.zeros_like(x),
            coefficients=np.array([float(shift), 1.0]),
        )
        _require_little_noise(at_one)
    return _coefficient(seen, Logistic.fit(evidence, design), level=level)


def _require_little_noise(fit: Logistic) -> None:
    by_positive, by_negative = fit.influence
    deviation = math.sqrt(fit.evidence.privacy_variance(by_positive[-1], by_negative[-1]))
    if ENOUGH * deviation > 1:
        raise Undefined(
            f"not enough evidence: privacy noise with standard deviation {deviation:.2g} could turn a 1 into "
            "a 0"
        )


def _coefficient(seen: Recalibrated, fit: Logistic, *, level: float) -> Metric:
    """The last coefficient, with its interval."""
    _require_little_noise(fit)
    by_positive, by_negative = fit.influence
    estimate = seen.evidence.estimate(
        float(fit.coefficients[-1]),
        by_positive[-1],
        by_negative[-1],
        discretisation=_binning_bound(seen, fit),
    )
    return unbounded(estimate, level=level)


def _binning_bound(seen: Recalibrated, fit: Logistic) -> float:
    """How far the coefficient moves, to first order, if every row moves to the worst place in its bin."""
    inverse = np.linalg.inv(fit.information)[-1]
    slope = fit.coefficients[-1] if len(fit.design) > 1 else 1.0
    through_mean = inverse @ fit.design * fit.means * (1 - fit.means) * slope
    total = 0.0
    for label, counts in ((1.0, seen.evidence.positives), (0.0, seen.evidence.negatives)):
        own = inverse[-1] * (label - fit.means) if len(fit.design) > 1 else 0.0
        total += dot(counts, np.abs(own - through_mean) * seen.logit_spread)
    return max(0.0, total)
