"""Metrics of a multiclass model from released sums: pure functions of totals and the law of their noise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedassay.estimation import ranking
from fedassay.estimation.curves import ReliabilityLists
from fedassay.estimation.evidence import ENOUGH, Evidence, enough
from fedassay.estimation.intervals import Estimate, bounded, unbounded, z_value
from fedassay.estimation.metric import LEVEL, Metric, Undefined, estimator, undefined
from fedassay.estimation.ratios import CLEAR
from fedassay.protocol.arrays import Floats
from fedassay.protocol.vocabulary import Noise
from fedassay.summaries.multiclass.class_statistics import (
    LARGEST_BRIER,
    LARGEST_LOSS,
    ClassTotals,
    ScaledTotals,
)

# --- calibration errors of a multiclass model ---------------------------------------------------------------


SHARED_ROWS = 2.0
"""Largest factor by which dependence between classes enlarges the variance of the sum of their errors.

Errors of different classes come from the same rows.

Let s be the signs with which a row's classes count, Y the class of the row, drawn with the true probabilities q, and Y'
an independent copy. Then Var(s_Y) = ½ E(s_Y - s_Y')² <= E[(s_Y² + s_Y'²) 1(Y ≠ Y')] = 2 Σ_j s_j² q_j(1 - q_j): at most
twice the sum of the variances of the single classes. With two classes, which are redundant, it is reached.
"""


@dataclass(frozen=True, kw_only=True, eq=False)
class Gaps:
    """Sums of p - 1[y = j] over the rows of each bin; one line per class, or a single one.

    Parameters
    ----------
    gaps, squares : the sums, and those of the squares.
    noise : the variance that privacy adds to each gap.
    rows, noise_of_rows : n and its privacy variance.
    resolution : largest change that rounding can make to the number of a row.
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
    """Estimate the mean over classes of Σ_m |S_m|, with an interval that keeps its level near zero.

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


# --- metrics of a multiclass model from released sums -------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class ClassEvidence:
    """Totals over all rows, exact or noisy. Noisy totals are unbiased, never clipped, and may be negative.

    `rankings` has the histogram of each class against the rest, and `aucs` the AUCs from it; None and empty if these
    were not requested.
    """

    totals: ClassTotals
    noise: Noise
    rankings: Sequence[Evidence] | None = None
    aucs: Sequence[Metric] = ()

    @property
    def rows(self) -> float:
        """Number of rows."""
        return float(self.totals.sums["rows"].value)

    @property
    def noise_of_rows(self) -> float:
        """The privacy variance of n."""
        return self.variance(self.totals.sums["rows"])

    def variance(self, part: ScaledTotals) -> float:
        """Return the privacy variance of a total."""
        return part.factor * self.noise.variance

    def require_rows(self) -> float:
        """Return n, if there are enough rows for any statement."""
        return enough("rows", self.rows, self.noise_of_rows)

    def mean(self, name: str, squares: str) -> Estimate:
        """Estimate the mean of a number in [0, 1] over rows."""
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
        """Estimate the share of all rows that this amount of rows is."""
        n = self.require_rows()
        v = amount / n
        return Estimate(
            value=v,
            sampling_variance=v * (1 - v) / n,
            privacy_variance=(noise_variance + v * v * self.noise_of_rows) / n**2,
        )

    def class_rows(self, place: int) -> float:
        """Return the number of rows of this class."""
        return float(self.totals.cells["positives"].value[place].sum())


@estimator
def accuracy(evidence: ClassEvidence, *, level: float = LEVEL) -> Metric:
    """Estimate the share of rows whose top class is the true one; Wilson's interval, widened for noise."""
    correct = evidence.totals.sums["correct"]
    estimate = evidence.share(float(correct.value), evidence.variance(correct))
    return bounded(estimate, size=evidence.rows, level=level)


@estimator
def brier_score(evidence: ClassEvidence, *, level: float = LEVEL) -> Metric:
    """Estimate the mean of Σ_j (p_j - 1[y=j])², from 0 to 2."""
    half = bounded(evidence.mean("brier", "brier_squared"), size=evidence.require_rows(), level=level)
    return half.times(LARGEST_BRIER)


@estimator
def log_loss(evidence: ClassEvidence, *, level: float = LEVEL) -> Metric:
    """Estimate the mean negative log-likelihood, with probabilities clipped as scikit-learn clips them.

    A row can weigh up to 36, and the noise weighs as much. An estimate that does not stand out from the noise has no
    value.
    """
    estimate = evidence.mean("loss", "loss_squared")
    deviation = math.sqrt(estimate.privacy_variance)
    if estimate.value < CLEAR * deviation:
        raise Undefined(
            f"not enough evidence: the estimate {LARGEST_LOSS * estimate.value:.2g} is below {CLEAR:.0f} standard "
            f"deviations of the privacy noise ({LARGEST_LOSS * deviation:.2g})"
        )
    return unbounded(estimate, level=level, lowest=0.0).times(LARGEST_LOSS)


@estimator
def prevalence(evidence: ClassEvidence, place: int, *, level: float = LEVEL) -> Metric:
    """Estimate the share of the rows that are of this class."""
    noise = evidence.totals.bins * evidence.variance(evidence.totals.cells["positives"])
    return bounded(evidence.share(evidence.class_rows(place), noise), size=evidence.rows, level=level)


@estimator
def expected_calibration_error(evidence: ClassEvidence, *, level: float = LEVEL) -> Metric:
    """Estimate Σ_m |Σ (confidence - correct)|/n of the most probable class (Guo et al. 2017).

    Bins have equal width.
    """
    top = evidence.totals.top
    return calibration_error(_gaps(evidence, top, "confidence", "correct"), level=level)


@estimator
def classwise_calibration_error(evidence: ClassEvidence, *, level: float = LEVEL) -> Metric:
    """Estimate the mean over classes of their calibration errors (Definition 3.3 of the paper).

    Every class counts alike.
    """
    return calibration_error(_gaps(evidence, evidence.totals.cells, "probability", "positives"), level=level)


@estimator
def class_calibration_error(evidence: ClassEvidence, place: int, *, level: float = LEVEL) -> Metric:
    """Estimate Σ_m |B_m|/n |mean p_j - share of class j| of one class."""
    every = _gaps(evidence, evidence.totals.cells, "probability", "positives")
    own = slice(place, place + 1)
    return calibration_error(replace(every, gaps=every.gaps[own], squares=every.squares[own]), level=level)


def _gaps(evidence: ClassEvidence, parts: Any, expected: str, observed: str) -> Gaps:
    """Return the gaps of all classes, with the larger of the squares from rows and from the probabilities.

    Where a bin has hardly a row of the class, rows alone would show no variance at all.
    """
    wanted, seen = parts[expected], parts[observed]
    squares = np.maximum(parts["squared"].value, parts["spread"].value)
    return Gaps(
        gaps=np.atleast_2d(wanted.value - seen.value),
        squares=np.atleast_2d(squares),
        noise=evidence.variance(wanted) + evidence.variance(seen),
        rows=evidence.require_rows(),
        noise_of_rows=evidence.noise_of_rows,
        resolution=wanted.resolution,
    )


def reliability_curve(evidence: ClassEvidence, *, level: float = LEVEL) -> dict[str, Any]:
    """Return the share of correct rows against the mean confidence, per bin of the confidence.

    Band: Clopper-Pearson intervals, widened for the noise, at an error of (1 - level)/bins each (Bonferroni). Bins
    without rows, or whose rows do not stand out from the noise, are left out.
    """
    top, bins = evidence.totals.top, evidence.totals.bins
    lists = ReliabilityLists(bins=bins, level=level)
    try:
        n = evidence.require_rows()
    except Undefined as error:
        return lists.to_json(reason=str(error))
    noise_of_rows, noise = evidence.variance(top["rows"]), evidence.variance(top["correct"])
    for place in range(bins):
        rows, correct, confidence = (
            float(top[name].value[place]) for name in ("rows", "correct", "confidence")
        )
        if rows > 0 and rows >= ENOUGH * math.sqrt(noise_of_rows):
            v, ends = min(1.0, max(0.0, correct / rows)), (place / bins, (place + 1) / bins)
            lists.add(ends, confidence / rows, v, rows, n, (noise + v * v * noise_of_rows) / rows**2)
    drowned = "not enough evidence: in every bin the rows drown in the privacy noise"
    return lists.to_json(reason="" if lists.points else drowned)


# --- one-vs-rest ranking of a multiclass model --------------------------------------------------------------

NO_RANKINGS = "rankings were not asked for"


def class_auc(evidence: Evidence, *, level: float = LEVEL) -> Metric:
    """Estimate the AUC of one class against all others."""
    if evidence.exact and evidence.rows > 0 and evidence.positive_rows == 0:
        return undefined("no row is of this class", level=level)
    if evidence.exact and evidence.rows > 0 and evidence.negative_rows == 0:
        return undefined("every row is of this class", level=level)
    return ranking.roc_auc(evidence, level=level)


@estimator
def roc_auc(evidence: ClassEvidence, *, level: float = LEVEL) -> Metric:
    """Estimate the mean of the AUCs of the classes that have an AUC.

    * privacy: classes have independent noise.
    * sampling: a row of class j is a positive for j and a negative for all others. The positives of different classes
      are different rows, so their variances V⁺ add up; the placements of a row as a negative of several classes are not
      measured together, so their deviations √V⁻ are added, and so are the two parts: √ΣV⁺ + Σ√V⁻. This holds for any
      dependence (Minkowski's inequality); the interval can be up to about twice as wide as necessary.
    """
    if evidence.rankings is None:
        raise Undefined(NO_RANKINGS)
    used = [(e, m) for e, m in zip(evidence.rankings, evidence.aucs, strict=True) if m.value is not None]
    if not used:
        raise Undefined("no class has an AUC: see the reasons with the classes")
    as_positive, as_negative = 0.0, 0.0
    for one, _ in used:
        _, by_positive, by_negative = ranking.auc_influence(one)
        none = np.zeros_like(by_positive)
        as_positive += max(0.0, one.sampling_variance(by_positive, none))
        as_negative += math.sqrt(max(0.0, one.sampling_variance(none, by_negative)))
    c = len(used)
    estimate = Estimate(
        value=sum(m.value or 0.0 for _, m in used) / c,
        sampling_variance=((math.sqrt(as_positive) + as_negative) / c) ** 2,
        privacy_variance=sum((m.privacy or 0.0) ** 2 for _, m in used) / c**2,
        discretisation=sum(m.discretisation or 0.0 for _, m in used) / c,
    )
    smallest = [min(e.positive_rows, e.negative_rows) for e, _ in used]
    return bounded(estimate, size=c / sum(1 / size for size in smallest), level=level)
