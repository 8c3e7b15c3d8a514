"""Two models on the same rows: the difference of their AUC and of their Brier score, with paired intervals.

Two steps. First the histograms of both models, counted on the same rows. Then, with both distributions public, four
small sums over the rows (`PairedMoments`): how differently each row is ranked, and by how much its squared
errors differ. Neither can be read from two histograms, because they do not say which rows they share.

Reference: DeLong, DeLong and Clarke-Pearson (1988), Biometrics 44, 837-845.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.optimize import isotonic_regression

from fedassay.estimation.evidence import Evidence
from fedassay.estimation.intervals import Estimate, z_value
from fedassay.estimation.metric import LEVEL, Metric, Undefined, estimator
from fedassay.estimation.ranking import auc_binning_bound, auc_influence, auc_privacy_variance
from fedassay.estimation.ratios import brier_score
from fedassay.protocol.arrays import Floats
from fedassay.protocol.vocabulary import Released, Setting, Step, Sum
from fedassay.summaries.paired_models import (
    ONE,
    Both,
    PairedHistograms,
    PairedMoments,
    PairedSums,
    VersusHistogram,
    capacity_for,
    packed,
)
from fedassay.summaries.score_histogram import LabelledHistogram, ScoreHistogram
from fedassay.tasks.evaluation.lockstep import Flow

if TYPE_CHECKING:
    from fedassay.tasks.evaluation.evaluate import Evaluate

HISTOGRAMS_SHARE, MOMENTS_SHARE = 0.8, 0.2
"""Parts of the budget: both histograms, and the sums.

The noise of the AUC difference goes with 1/HISTOGRAMS_SHARE, that of the Brier difference with 1/MOMENTS_SHARE. With
these parts both are the same multiple of the sampling error of their difference, for a typical pair of models (AUC
0.8, balanced classes, placements that differ by 0.15 and squared errors by 0.1) and any number of rows."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ReleasedPair:
    """What has been released about two models on the same rows."""

    first: Evidence
    second: Evidence
    moments: Released[PairedSums]

    @property
    def exact(self) -> bool:
        """Whether there is no noise."""
        return self.first.exact

    @property
    def noise(self) -> float:
        """The variance of the noise in a sum of squares; a sum of b has a quarter of it."""
        return self.moments.noise.variance / ONE**2


def against(task: Evaluate, setting: Setting, *, share: float) -> Flow:
    """The results of an evaluation, with the second model's in ``versus`` and the ``difference`` of the two."""
    histogram = task.histogram(setting)
    # What cannot be answered is refused before the first row is read, not after half the budget is spent.
    nothing = np.zeros(histogram.grid.leaves)
    moments_share = share * MOMENTS_SHARE
    setting.noise(Sum(of=_moments(histogram, setting, *[nothing] * 4), share=moments_share))
    released = yield from _histograms(histogram, setting, share=share * HISTOGRAMS_SHARE)
    first, second = (one.value.evidence(one.noise) for one in released)
    tables = (*placements(first), *placements(second))
    moments: Released[PairedSums] = yield Sum(of=_moments(histogram, setting, *tables), share=moments_share)
    pair = ReleasedPair(first=first, second=second, moments=moments)
    return {
        **task.results(released[0]),
        "versus": task.entry(second),
        "difference": {
            "roc_auc": auc_difference(pair, level=task.level).to_json(),
            "brier_score": brier_difference(pair, level=task.level).to_json(),
        },
    }


def _histograms(
    histogram: ScoreHistogram, setting: Setting, *, share: float
) -> Generator[Step, Any, tuple[Released[LabelledHistogram], ...]]:
    """The histograms of both models, each with its noise."""
    if setting.noise(Sum(of=histogram)).reporting:
        # A client that reports on one cell of one histogram is asked for each of them.
        queries = (
            Sum(of=histogram, share=share / 2),
            Sum(of=VersusHistogram.like(histogram), share=share / 2),
        )
        released: tuple[Released[LabelledHistogram], ...] = yield queries
        return released
    both: Released[Both] = yield Sum(of=PairedHistograms.like(histogram), share=share)
    return tuple(both.with_value(one) for one in both.value)


def _moments(histogram: ScoreHistogram, setting: Setting, *tables: Floats) -> PairedMoments:
    return PairedMoments(
        transform=histogram.transform,
        height=histogram.height,
        thresholds=histogram.thresholds,
        reach=histogram.reach,
        placements=packed(*tables),
        capacity=capacity_for(setting.clients),
    )


def placements(evidence: Evidence) -> tuple[Floats, Floats]:
    """For each leaf, the share of negatives that a positive there beats, and of positives that beat a negative.

    Ties count half. Under noise both are made monotone first; they only ever enter a variance.
    """
    beaten = _share_below(evidence.negatives, exact=evidence.exact)
    return beaten, 1 - _share_below(evidence.positives, exact=evidence.exact)


def _share_below(counts: Floats, *, exact: bool) -> Floats:
    below = np.concatenate([[0.0], np.cumsum(counts)])
    if below[-1] <= 0:
        return np.zeros(len(counts))
    shares = below / below[-1] if exact else np.asarray(isotonic_regression(below / below[-1]).x)
    shares = np.clip(shares, 0.0, 1.0)
    return np.asarray((shares[1:] + shares[:-1]) / 2)


@estimator
def auc_difference(pair: ReleasedPair, *, level: float = LEVEL) -> Metric:
    """The first model's AUC minus the second's, from their histograms.

    * sampling: DeLong's variance of a paired difference, S10/P + S01/N, where S are the variances of the
      differences of placements in each class (their means are the difference itself).
    * privacy: the noise of the two histograms is independent, so the variances add.
    * discretisation: the two bounds add.
    """
    sizes = [evidence.require_classes() for evidence in (pair.first, pair.second)]
    P, N = ((sizes[0][label] + sizes[1][label]) / 2 for label in (0, 1))
    if P <= 1 or N <= 1:
        raise Undefined("a variance needs at least two rows of each class")
    parts = [auc_influence(evidence) for evidence in (pair.first, pair.second)]
    value = parts[0][0] - parts[1][0]
    moments = pair.moments.value
    sampling = (moments.positive_squares - P * value**2) / (P * (P - 1)) + (
        moments.negative_squares - N * value**2
    ) / (N * (N - 1))
    single = [
        math.sqrt(evidence.sampling_variance(*part[1:]))
        for evidence, part in zip((pair.first, pair.second), parts, strict=True)
    ]
    deviation = math.sqrt(pair.noise * (1 / (P * (P - 1)) ** 2 + 1 / (N * (N - 1)) ** 2))
    estimate = Estimate(
        value=value,
        sampling_variance=_sensible(sampling, deviation, sum(single) ** 2),
        privacy_variance=sum(
            auc_privacy_variance(evidence, *part)
            for evidence, part in zip((pair.first, pair.second), parts, strict=True)
        ),
        discretisation=auc_binning_bound(pair.first) + auc_binning_bound(pair.second),
    )
    return _metric(estimate, level=level)


@estimator
def brier_difference(pair: ReleasedPair, *, level: float = LEVEL) -> Metric:
    """The first model's Brier score minus the second's: a mean over rows, from their scores and not from bins.

    The number of rows is that of the histograms, both averaged, with their noise; `discretisation` is what the
    rounding of each row to fixed point can amount to.
    """
    n = (pair.first.require_rows() + pair.second.require_rows()) / 2
    if n <= 1:
        raise Undefined("a variance needs at least two rows")
    moments = pair.moments.value
    value = min(1.0, max(-1.0, moments.losses / n))
    sampling = (moments.loss_squares - n * value**2) / (n * (n - 1))
    single = [brier_score(evidence, level=level).sampling or 0.0 for evidence in (pair.first, pair.second)]
    rows_variance = (pair.first.count_noise.rows + pair.second.count_noise.rows) / 4  # of their average
    estimate = Estimate(
        value=value,
        sampling_variance=_sensible(sampling, math.sqrt(pair.noise) / (n * (n - 1)), sum(single) ** 2),
        privacy_variance=(pair.noise / 4 + value**2 * rows_variance) / n**2,
        discretisation=1 / (4 * ONE),
    )
    return _metric(estimate, level=level)


def _sensible(variance: float, deviation: float, most: float) -> float:
    """A sampling variance from noisy sums: not below what its noise could hide, nor above what any pair can have.

    `deviation` is that of its noise (0 without), `most` the square of the sum of the single standard errors: the
    variance of a difference whose parts err in opposite directions.
    """
    return variance if deviation == 0 else min(max(variance, deviation), max(most, 0.0))


def _metric(estimate: Estimate, *, level: float) -> Metric:
    half = z_value(level) * estimate.standard_error + estimate.discretisation
    low, value, high = (min(1.0, max(-1.0, estimate.value + move)) for move in (-half, 0.0, half))
    return estimate.metric(value, (low, high), level=level)
