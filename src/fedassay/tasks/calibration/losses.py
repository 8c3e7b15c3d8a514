"""Brier score and log loss of calibrated scores, and by how much calibration changed them, row by row."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from fedassay.estimation.evidence import Evidence, Floats
from fedassay.estimation.intervals import Estimate, bounded, unbounded
from fedassay.estimation.metric import LEVEL, Metric, Undefined, estimator
from fedassay.estimation.ratios import CLEAR
from fedassay.summaries.maps import EPSILON
from fedassay.tasks.calibration.recalibrated import Recalibrated


@dataclass(frozen=True, kw_only=True)
class Loss:
    """What a score costs a positive and a negative row."""

    name: str
    of_positive: Callable[[Floats], Floats]
    of_negative: Callable[[Floats], Floats]

    def of(self, scores: Floats) -> tuple[Floats, Floats]:
        """Both, per leaf."""
        return self.of_positive(scores), self.of_negative(scores)


def _clipped(scores: Floats) -> Floats:
    return np.clip(scores, EPSILON, 1 - EPSILON)


BRIER = Loss(name="brier_score", of_positive=lambda s: (1 - s) ** 2, of_negative=lambda s: s**2)
LOG = Loss(
    name="log_loss",
    of_positive=lambda s: -np.log(_clipped(s)),
    of_negative=lambda s: -np.log1p(-_clipped(s)),
)
LOSSES: Mapping[str, Loss] = MappingProxyType({loss.name: loss for loss in (BRIER, LOG)})


@estimator
def brier_score(seen: Recalibrated, *, level: float = LEVEL) -> Metric:
    """The mean of (calibrated score - label)²."""
    n = seen.evidence.require_rows()
    return bounded(_mean(seen, BRIER), size=n, level=level)


@estimator
def log_loss(seen: Recalibrated, *, level: float = LEVEL) -> Metric:
    """The mean negative log-likelihood, clipped as scikit-learn clips; as in `evaluation.ratios`."""
    seen.evidence.require_rows()
    estimate = _mean(seen, LOG)
    if estimate.value < CLEAR * math.sqrt(estimate.privacy_variance):
        raise Undefined(
            f"not enough evidence: the estimate {estimate.value:.2g} is below {CLEAR:.0f} standard "
            f"deviations of the privacy noise ({math.sqrt(estimate.privacy_variance):.2g})"
        )
    return unbounded(estimate, level=level, lowest=0.0)


@estimator
def difference(before: Recalibrated, after: Recalibrated, loss: Loss, *, level: float = LEVEL) -> Metric:
    """The mean over rows of (loss after - loss before): below 0 if calibration helps.

    A paired quantity: both losses are of the same row, so what makes rows hard cancels, and the interval is
    much shorter than those of the two means. The binning bound is the largest change of the difference
    between the leaf's score and its two ends.
    """
    before.evidence.require_rows()
    here = _gap(loss, before.scores, after.scores)
    ends = (
        _gap(loss, before.at_lower, after.at_lower),
        _gap(loss, before.at_upper, after.at_upper),
    )
    return unbounded(_mean_of(before.evidence, here, ends), level=level)


Costs = tuple[Floats, Floats]
"""What a positive and a negative row cost, per leaf."""


def _gap(loss: Loss, before: Floats, after: Floats) -> Costs:
    (p, n), (q, m) = loss.of(before), loss.of(after)
    return q - p, m - n


def _mean(seen: Recalibrated, loss: Loss) -> Estimate:
    ends = (loss.of(seen.at_lower), loss.of(seen.at_upper))
    return _mean_of(seen.evidence, loss.of(seen.scores), ends)


def _mean_of(evidence: Evidence, here: Costs, ends: tuple[Costs, Costs]) -> Estimate:
    """The mean over rows of a cost, with its derivatives by the counts and the bound from the leaf's ends."""
    n = evidence.rows
    value = evidence.total(*here) / n
    spreads = (np.maximum(np.abs(ends[0][k] - here[k]), np.abs(ends[1][k] - here[k])) for k in (0, 1))
    # Linear in the counts, so unbiased under noise; a negative total says that the bound drowns in it.
    bound = max(0.0, evidence.total(*spreads) / n)
    return evidence.estimate(value, (here[0] - value) / n, (here[1] - value) / n, discretisation=bound)
