"""Metrics of the decision ``score >= threshold``: exact at the edges of leaves, however wide these are.

All are smooth functions of the confusion counts x = (TP, FN, FP, TN), so a value and its derivatives by the four counts
give both variances (delta method). Most are shares (a·x)/(b·x), with the derivatives (a - v b)/(b·x).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedassay.estimation.evidence import Evidence
from fedassay.estimation.intervals import Estimate, bounded, combined, quotient, within
from fedassay.estimation.metric import LEVEL, Metric, Undefined, estimator
from fedassay.estimation.shares import ROWS, Ratio, Weights
from fedassay.protocol.arrays import Floats
from fedassay.protocol.metrics import of_part


class Share(NamedTuple):
    """Estimate of a share, its derivatives by the four counts, and the rows that it is a share of."""

    estimate: Estimate
    gradient: Floats
    size: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Confusion:
    """Confusion counts at an edge, and their noise covariance.

    Guarantee: rows with a score at or above `threshold` are the predicted positives, exactly, in double
    precision; noise variances are exact.

    Examples
    --------
    >>> positives, negatives = np.array([0.0, 1.0, 2.0, 3.0]), np.array([4.0, 0.0, 1.0, 0.0])
    >>> evidence = Evidence.exactly(edges=np.linspace(0, 1, 5), positives=positives, negatives=negatives)
    >>> Confusion.at(evidence, 0.6).counts  # applied at the nearest edge, 0.5
    array([5., 1., 1., 4.])
    """

    evidence: Evidence
    threshold: float
    counts: Floats
    covariance: Floats

    @classmethod
    def at(cls, evidence: Evidence, threshold: float) -> Confusion:
        """Return the counts at the edge nearest to `threshold`."""
        return cls.at_edge(evidence, evidence.nearest_edge(threshold))

    @classmethod
    def at_edge(cls, evidence: Evidence, edge: int) -> Confusion:
        """Return the counts at an edge."""
        FN, TN = evidence.positives_below[edge], evidence.negatives_below[edge]
        return cls(
            evidence=evidence,
            threshold=float(evidence.edges[edge]),
            counts=np.array([evidence.positive_rows - FN, FN, evidence.negative_rows - TN, TN]),
            covariance=evidence.count_noise.confusion(edge),
        )

    def require(self, counted: str, weights: Weights) -> float:
        """Return the sum of the counts with these weights, if it can carry a ratio (`Evidence.require`)."""
        b = np.array(weights)
        return self.evidence.require(counted, float(b @ self.counts), float(b @ self.covariance @ b))

    def estimate(self, value: float, gradient: Floats) -> Estimate:
        """Return the estimate with this value and these derivatives by the four counts.

        As `Evidence.sampling_variance` and `Evidence.privacy_variance`, for functions of four counts.
        """
        x, g = self.counts, gradient
        least = float(np.sqrt(g**2 @ self.covariance @ g**2))
        return Estimate(
            value=value,
            sampling_variance=max(float(x @ g**2 - (x @ g) ** 2 / self.evidence.rows), least),
            privacy_variance=max(0.0, float(g @ self.covariance @ g)),
        )

    def share(self, ratio: Ratio) -> Share:
        """Return a share with its variances."""
        a, b = np.array(ratio.numerator), np.array(ratio.denominator)
        size = self.require(ratio.counted, ratio.denominator)
        value = float(a @ self.counts) / size
        gradient = (a - value * b) / size
        return Share(self.estimate(value, gradient), gradient, size)

    def metric(self, ratio: Ratio, *, level: float) -> Metric:
        """Return a share with Wilson's interval."""
        share = self.share(ratio)
        return bounded(share.estimate, size=share.size, level=level)

    def mean(self, first: Ratio, second: Ratio, *, level: float) -> Metric:
        """Estimate the mean of two shares of different rows; the interval is from both (`intervals.combined`)."""
        one, two = self.share(first), self.share(second)
        value = (one.estimate.value + two.estimate.value) / 2
        whole = self.estimate(value, (one.gradient + two.gradient) / 2)
        below, above = combined(
            (0.5, one.estimate, one.size),
            (0.5, two.estimate, two.size),
            correlation=self._correlation(one, two),
            level=level,
        )
        value, low, high = (min(1.0, max(0.0, end)) for end in (value, value - below, value + above))
        return whole.metric(value, (low, high), level=level)

    def quotient(self, upper: Ratio, lower: Ratio, *, counted: str, level: float) -> Metric:
        """Return the quotient of two shares of different rows, with an interval from those of both
        (`intervals.quotient`).

        `counted` names what the numerator of the lower share counts: without enough of it there is no quotient.
        """
        self.require(counted, lower.numerator)
        one, two = self.share(upper), self.share(lower)
        value = one.estimate.value / two.estimate.value
        whole = self.estimate(value, (one.gradient - value * two.gradient) / two.estimate.value)
        low, high = quotient(
            (one.estimate, one.size),
            (two.estimate, two.size),
            correlation=self._correlation(one, two),
            level=level,
        )
        value = max(0.0, value)
        return whole.metric(value, (min(low, value), max(high, value)), level=level)

    def _correlation(self, one: Share, two: Share) -> float:
        """Return the correlation of the errors of two shares: rows are drawn independently, but noise may be shared."""
        errors = one.estimate.standard_error * two.estimate.standard_error
        shared = float(one.gradient @ self.covariance @ two.gradient)
        return max(-1.0, min(1.0, shared / errors)) if errors > 0 else 0.0

    def within(
        self, value: float, gradient: Weights, *, ends: tuple[float, float], size: float, level: float
    ) -> Metric:
        """Estimate a smooth function of the counts with values between these ends; see `intervals.within`."""
        return within(self.estimate(value, np.array(gradient)), ends=ends, size=size, level=level)


@estimator
def net_benefit(confusion: Confusion, *, level: float = LEVEL) -> Metric:
    """Estimate (TP - FP·t/(1-t))/n at the applied threshold t (Vickers and Elkin 2006).

    At high thresholds a few false positives weigh much, or none were seen. So the interval is put together
    from Wilson's intervals for TP/n and FP/n and their correlation (`intervals.combined`).
    """
    t = confusion.threshold
    if t >= 1:
        raise Undefined("net benefit needs a threshold below 1: its weight t/(1-t) is infinite there")
    odds = t / (1 - t)
    whole, _, n = confusion.share(_of_rows(1, -odds))
    true, false = confusion.share(_of_rows(1, 0)).estimate, confusion.share(_of_rows(0, 1)).estimate
    p, q = (min(1.0, max(0.0, share.value)) for share in (true, false))
    correlation = -math.sqrt(p * q / ((1 - p) * (1 - q))) if p < 1 and q < 1 else -1.0
    below, above = combined((1.0, true, n), (-odds, false, n), correlation=correlation, level=level)
    return whole.metric(whole.value, (whole.value - below, whole.value + above), level=level)


def _of_rows(of_true: float, of_false: float) -> Ratio:
    """Return a combination of true and false positives, as a share of all rows."""
    return Ratio(numerator=(of_true, 0, of_false, 0), denominator=ROWS, counted="rows")


def decision_metrics(confusion: Confusion, *, level: float = LEVEL) -> dict[str, Metric]:
    """Return all metrics of the decision at this threshold, by name."""
    return {record.name: record.estimator(confusion, level=level) for record in of_part("threshold")}
