"""Held-out evidence with calibrated scores: the same leaves and counts, other scores.

No row is read twice: each leaf's score is mapped, and its counts stay. The fit rows are different units, so
the map is a constant here and all intervals are those of new rows. Scores may repeat or change their order, so
the ROC AUC has a formula of its own, unlike the other metrics of `estimation`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np

from fedassay.estimation import ranking
from fedassay.estimation.count_noise import LevelReports, NodeNoise
from fedassay.estimation.evidence import Evidence, dot
from fedassay.estimation.intervals import bounded, unbounded
from fedassay.estimation.metric import LEVEL, Metric, estimator
from fedassay.estimation.ratios import Costs, Loss, mean_cost
from fedassay.protocol.arrays import Floats, Ints


@dataclass(frozen=True, kw_only=True, eq=False)
class Recalibrated(Evidence):
    """Evidence with a calibrated score per leaf; `own` has the scores of the model."""

    own: Evidence
    calibrator: Callable[[Floats], Floats]

    @classmethod
    def by(cls, evidence: Evidence, calibrator: Callable[[Floats], Floats]) -> Recalibrated:
        """Return the evidence with scores calibrated by this map."""
        same = {field.name: getattr(evidence, field.name) for field in fields(Evidence)}
        return cls(**same, own=evidence, calibrator=calibrator)

    @classmethod
    def untouched(cls, evidence: Evidence) -> Recalibrated:
        """Return the evidence with the model's own scores."""
        return cls.by(evidence, lambda scores: scores)

    @property
    def count_noise(self) -> NodeNoise | LevelReports:
        """See `Evidence`; computed once, for all maps."""
        return self.own.count_noise

    @cached_property
    def scores(self) -> Floats:
        """The calibrated score that stands for each leaf."""
        return self.calibrator(self.own.scores)

    @cached_property
    def ends(self) -> tuple[Floats, Floats]:
        """Values of the map at the two ends of each leaf, the upper end approached from inside."""
        lower, upper = self.own.ends
        return self.calibrator(lower), self.calibrator(upper)

    @cached_property
    def half_widths(self) -> Floats:
        """Largest distance of a row's calibrated score from the leaf's."""
        lower, upper = self.ends
        return np.maximum(np.abs(lower - self.scores), np.abs(upper - self.scores))

    @cached_property
    def ranks(self) -> Ints:
        """Rank of the score of each leaf: leaves with equal scores have equal ranks."""
        return np.asarray(np.unique(self.scores, return_inverse=True)[1], dtype=np.int64)

    @property
    def sides(self) -> tuple[Floats, Floats]:
        """The score at each rank, twice."""
        scores = np.unique(self.scores)
        return scores, scores

    @property
    def order_kept(self) -> bool:
        """True if higher scores stay higher, without new ties."""
        return bool(np.all(np.diff(self.scores) > 0))

    def by_rank(self, per_leaf: Floats) -> Floats:
        """Sum over leaves with equal scores, in the order of the scores."""
        return np.asarray(np.bincount(self.ranks, weights=per_leaf), dtype=np.float64)


@estimator
def roc_auc(seen: Recalibrated, *, level: float = LEVEL) -> Metric:
    """Estimate the probability that a positive row gets the higher calibrated score, ties counting half.

    Leaves with equal scores are compared as a single leaf. In leaves where all rows get the same score ties are real,
    so the binning bound counts the other leaves only. The noise is propagated to first order, which
    overstates its variance by the second-order term that `estimation.ranking` removes.
    """
    P, N = seen.require_classes()
    if seen.order_kept:
        return ranking.roc_auc(seen, level=level)
    p, n = seen.by_rank(seen.positives), seen.by_rank(seen.negatives)
    beaten, beating = np.cumsum(n) - n / 2, P - np.cumsum(p) + p / 2
    value = dot(p, beaten) / (P * N)
    lower, upper = seen.ends
    loose = np.where(lower == upper, 0.0, seen.positives)
    estimate = seen.estimate(
        value,
        (beaten[seen.ranks] / N - value) / P,
        (beating[seen.ranks] / P - value) / N,
        discretisation=max(0.0, dot(loose, seen.negatives) / (2 * P * N)),
    )
    return bounded(estimate, size=min(P, N), level=level)


@estimator
def difference(before: Recalibrated, after: Recalibrated, loss: Loss, *, level: float = LEVEL) -> Metric:
    """Estimate the mean over rows of (loss after - loss before): below 0 if calibration helps.

    A paired quantity: both losses are of the same row, so the difficulty of rows cancels, and the interval is
    much shorter than those of the two means. The binning bound is the largest change of the difference
    between the leaf's score and its two ends.
    """
    before.require_rows()

    def gap(old: Floats, new: Floats) -> Costs:
        (p, n), (q, m) = loss.of(old), loss.of(new)
        return q - p, m - n

    lower, upper = (gap(before.ends[side], after.ends[side]) for side in (0, 1))
    return unbounded(mean_cost(before, gap(before.scores, after.scores), (lower, upper)), level=level)
