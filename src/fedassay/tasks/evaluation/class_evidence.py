"""What released sums say about a multiclass model: pure functions of totals and the law of their noise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedassay.estimation.evidence import ENOUGH, Evidence, enough
from fedassay.estimation.intervals import Estimate, bounded, share_interval, unbounded, z_value
from fedassay.estimation.metric import LEVEL, Metric, Undefined, estimator
from fedassay.estimation.ratios import CLEAR
from fedassay.protocol.arrays import Floats
from fedassay.protocol.vocabulary import Noise
from fedassay.summaries.multiclass.class_statistics import (
    LARGEST_BRIER,
    LARGEST_LOSS,
    ClassTotals,
    ScaledTotals,
)

# --- how far the probabilities of a multiclass model are from frequencies -----------------------------------


SHARED_ROWS = 2.0
"""By how much errors of different classes, which come from the same rows, can enlarge the variance of their sum.

Let s be the signs with which a row's classes count, Y the class of the row, drawn with the true probabilities q, and Y'
an independent copy. Then Var(s_Y) = ½ E(s_Y - s_Y')² <= E[(s_Y² + s_Y'²) 1(Y ≠ Y')] = 2 Σ_j s_j² q_j(1 - q_j): at most
twice the sum of the variances of the single classes. With two classes, which say the same, it is reached.
"""


@dataclass(frozen=True, kw_only=True, eq=False)
class Gaps:
    """Sums of p - 1[y = j] over the rows of each bin; one line per class, or a single one.

    Parameters
    ----------
    gaps, squares : the sums, and those of the squares.
    noise : the variance that privacy adds to each gap.
    rows, noise_of_rows : n and its privacy variance.
    resolution : how far rounding can move the number of a row.
    """

    gaps: Floats
    squares: Floats
    noise: float
    rows: float
    noise_of_rows: float
    resolution: float

    @property
    def shares(self) -> Floats:
        """S = gaps/n."""
        return self.gaps / self.rows

    @property
    def second_moments(self) -> Floats:
        """The mean squares; under noise at least what the shares imply."""
        return np.maximum(self.squares / self.rows, self.shares**2)


def calibration_error(gaps: Gaps, *, level: float) -> Metric:
    """The mean over classes of Σ_m |S_m|, with an interval that stays honest near zero.

    The estimate is Σ |S + e| with errors e of mean zero, so that on average it is never too small, and too large by at
    most Σ E|e| = √(2/π) Σ σ; where the sign of a gap is certain (|S| above a simultaneous band), not at all. The lower
    end therefore allows for this `excess` (a field of the metric: what errors alone would show) and the upper end need
    not. Var|S + e| <= Var e, whatever S is. Errors of different classes are combined with `SHARED_ROWS`.
    """
    S, A, n = gaps.shares, gaps.second_moments, gaps.rows
    classes, shared = len(S), SHARED_ROWS if len(S) > 1 else 1.0
    sampling = (A - S**2) / n
    noise = (gaps.noise + S**2 * gaps.noise_of_rows) / n**2
    certain = np.abs(S) > z_value(1 - (1 - level) / S.size) * np.sqrt(sampling + noise)
    linear = np.where(certain, np.abs(S), 0.0).sum(axis=1)
    of_linear = float((np.where(certain, A, 0.0).sum(axis=1) - linear**2).sum()) / n
    noise_of_linear = (np.count_nonzero(certain) * gaps.noise + linear.sum() ** 2 * gaps.noise_of_rows) / n**2
    estimate = Estimate(
        value=float(np.abs(S).sum()) / classes,
        sampling_variance=shared * (of_linear + float(sampling[~certain].sum())) / classes**2,
        privacy_variance=(noise_of_linear + float(noise[~certain].sum())) / classes**2,
        discretisation=gaps.resolution,
    )
    excess = math.sqrt(2 / math.pi) * float(np.sqrt(sampling + noise)[~certain].sum()) / classes
    half = z_value(level) * estimate.standard_error + estimate.discretisation
    value = min(1.0, estimate.value)
    metric = estimate.metric(value, (max(0.0, value - excess - half), min(1.0, value + half)), level=level)
    return replace(metric, details={"excess": excess})


# --- what released sums say about a multiclass model --------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class ClassEvidence:
    """Totals over all rows, exact or noisy. Noisy ones are unbiased, never clipped, and may be negative.

    `rankings` has the histogram of each class against the rest, `aucs` what it says; None and empty where these were
    not asked for.
    """

    totals: ClassTotals
    noise: Noise
    rankings: Sequence[Evidence] | None = None
    aucs: Sequence[Metric] = ()

    @property
    def rows(self) -> float:
        """How many rows there are."""
        return float(self.totals.sums["rows"].value)

    @property
    def noise_of_rows(self) -> float:
        """The privacy variance of n."""
        return self.variance(self.totals.sums["rows"])

    def variance(self, part: ScaledTotals) -> float:
        """The privacy variance of a total."""
        return part.factor * self.noise.variance

    def require_rows(self) -> float:
        """n, if there are enough rows for any statement."""
        return enough("rows", self.rows, self.noise_of_rows)

    def mean(self, name: str, squares: str) -> Estimate:
        """The mean of a number in [0, 1] over rows."""
        n, total, second = self.require_rows(), self.totals.sums[name], self.totals.sums[squares]
        v = float(total.value) / n
        # Under noise the second moment has an error of its own, smaller than the noise of the mean: where it makes a
        # variance negative, sampling is the lesser part.
        return Estimate(
            value=v,
            sampling_variance=(float(second.value) / n - v * v) / n,
            privacy_variance=(self.variance(total) + v * v * self.noise_of_rows) / n**2,
            discretisation=total.resolution,
        )

    def share(self, amount: float, noise_variance: float) -> Estimate:
        """The share of rows that are so many."""
        n = self.require_rows()
        v = amount / n
        return Estimate(
            value=v,
            sampling_variance=v * (1 - v) / n,
            privacy_variance=(noise_variance + v * v * self.noise_of_rows) / n**2,
        )

    def class_rows(self, place: int) -> float:
        """How many rows are of this class."""
        return float(self.totals.cells["positives"].value[place].sum())


@estimator
def accuracy(evidence: ClassEvidence, *, level: float = LEVEL) -> Metric:
    """The share of rows whose most probable class is the true one; Wilson's interval, widened for the noise."""
    correct = evidence.totals.sums["correct"]
    estimate = evidence.share(float(correct.value), evidence.variance(correct))
    return bounded(estimate, size=evidence.rows, level=level)


@estimator
def brier_score(evidence: ClassEvidence, *, level: float = LEVEL) -> Metric:
    """The mean of Σ_j (p_j - 1[y=j])², from 0 to 2."""
    half = bounded(evidence.mean("brier", "brier_squared"), size=evidence.require_rows(), level=level)
    return _times(half, LARGEST_BRIER)


@estimator
def log_loss(evidence: ClassEvidence, *, level: float = LEVEL) -> Metric:
    """The mean negative log-likelihood, with probabilities clipped as scikit-learn clips them.

    A row can weigh up to 36, and the noise weighs as much. An estimate that is not clear of it has no value.
    """
    estimate = evidence.mean("loss", "loss_squared")
    deviation = math.sqrt(estimate.privacy_variance)
    if estimate.value < CLEAR * deviation:
        raise Undefined(
            f"not enough evidence: the estimate {LARGEST_LOSS * estimate.value:.2g} is below {CLEAR:.0f} standard "
            f"deviations of the privacy noise ({LARGEST_LOSS * deviation:.2g})"
        )
    return _times(unbounded(estimate, level=level, lowest=0.0), LARGEST_LOSS)


@estimator
def prevalence(evidence: ClassEvidence, place: int, *, level: float = LEVEL) -> Metric:
    """The share of the rows that are of this class."""
    noise = evidence.totals.bins * evidence.variance(evidence.totals.cells["positives"])
    return bounded(evidence.share(evidence.class_rows(place), noise), size=evidence.rows, level=level)


@estimator
def expected_calibration_error(evidence: ClassEvidence, *, level: float = LEVEL) -> Metric:
    """Of the most probable class: Σ_m |Σ (confidence - correct)|/n over bins of equal width (Guo et al. 2017)."""
    top = evidence.totals.top
    return calibration_error(_gaps(evidence, top, "confidence", "correct", slice(None)), level=level)


@estimator
def classwise_calibration_error(evidence: ClassEvidence, *, level: float = LEVEL) -> Metric:
    """The mean over classes of their calibration errors (Definition 3.3 of the paper; every class counts alike)."""
    cells = evidence.totals.cells
    return calibration_error(_gaps(evidence, cells, "probability", "positives", slice(None)), level=level)


@estimator
def class_calibration_error(evidence: ClassEvidence, place: int, *, level: float = LEVEL) -> Metric:
    """Σ_m |B_m|/n |mean p_j - share of class j| of one class."""
    cells = evidence.totals.cells
    one = slice(place, place + 1)
    return calibration_error(_gaps(evidence, cells, "probability", "positives", one), level=level)


def _gaps(evidence: ClassEvidence, parts: Any, expected: str, observed: str, chosen: slice) -> Gaps:
    """Gaps of these classes. The squares are the larger of what rows show and what the probabilities say.

    Where a bin has hardly a row of the class, rows alone would show no variance at all.
    """
    wanted, seen = parts[expected], parts[observed]
    squares = np.maximum(parts["squared"].value, parts["spread"].value)
    return Gaps(
        gaps=np.atleast_2d(wanted.value - seen.value)[chosen],
        squares=np.atleast_2d(squares)[chosen],
        noise=evidence.variance(wanted) + evidence.variance(seen),
        rows=evidence.require_rows(),
        noise_of_rows=evidence.noise_of_rows,
        resolution=wanted.resolution,
    )


def reliability_curve(evidence: ClassEvidence, *, level: float = LEVEL) -> dict[str, Any]:
    """The share of rows that are right against the mean confidence, per bin of the confidence.

    Band: Clopper-Pearson intervals, widened for the noise, at an error of (1 - level)/bins each (Bonferroni). Bins
    without rows, or whose rows drown in noise, are left out.
    """
    names = ("edges", "mean_score", "observed", "share", "lower", "upper")
    curve: dict[str, Any] = {name: [] for name in names}
    top, bins = evidence.totals.top, evidence.totals.bins
    try:
        n = evidence.require_rows()
    except Undefined as error:
        return {**curve, "level": level, "reason": str(error)}
    noise_of_rows, noise = evidence.variance(top["rows"]), evidence.variance(top["correct"])
    for place in range(bins):
        rows, correct, confidence = (
            float(top[name].value[place]) for name in ("rows", "correct", "confidence")
        )
        if rows <= 0 or rows < ENOUGH * math.sqrt(noise_of_rows):
            continue
        v, ends = min(1.0, max(0.0, correct / rows)), (place / bins, (place + 1) / bins)
        privacy_variance = (noise + v * v * noise_of_rows) / rows**2
        band = share_interval(v, rows, privacy_variance, level=1 - (1 - level) / bins)
        mean = min(ends[1], max(ends[0], confidence / rows))
        for name, item in zip(names, (list(ends), mean, v, rows / n, *band), strict=True):
            curve[name].append(item)
    curve["level"] = level
    if not curve["edges"]:
        curve["reason"] = "not enough evidence: in every bin the rows drown in the privacy noise"
    return curve


def _times(metric: Metric, factor: float) -> Metric:
    """The metric in other units."""
    assert metric.value is not None
    assert metric.interval is not None
    low, high = metric.interval
    return replace(
        metric,
        value=metric.value * factor,
        interval=(low * factor, high * factor),
        sampling=(metric.sampling or 0.0) * factor,
        privacy=(metric.privacy or 0.0) * factor,
        discretisation=(metric.discretisation or 0.0) * factor,
    )
