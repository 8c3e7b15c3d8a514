"""Metrics of the decision ``score >= threshold``: exact at the edges of the grid, whatever the bins.

All six are ratios (a·x)/(b·x) of linear functions of the confusion counts x = (TP, FN, FP, TN), so one
formula gives value, derivative (a - v b)/(b·x) and both variances.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fedassay.tasks.evaluation.evidence import Evidence, Floats
from fedassay.tasks.evaluation.intervals import Estimate, bounded, score_roots
from fedassay.tasks.evaluation.metric import LEVEL, Metric, Undefined, estimator


@dataclass(frozen=True, kw_only=True)
class _Ratio:
    """(a·x)/(b·x) over (TP, FN, FP, TN), and what the denominator counts."""

    numerator: tuple[float, float, float, float]
    denominator: tuple[float, float, float, float]
    counted: str


RATIOS: Mapping[str, _Ratio] = {
    "accuracy": _Ratio(numerator=(1, 0, 0, 1), denominator=(1, 1, 1, 1), counted="rows"),
    "precision": _Ratio(numerator=(1, 0, 0, 0), denominator=(1, 0, 1, 0), counted="rows predicted positive"),
    "recall": _Ratio(numerator=(1, 0, 0, 0), denominator=(1, 1, 0, 0), counted="positive rows"),
    "specificity": _Ratio(numerator=(0, 0, 0, 1), denominator=(0, 0, 1, 1), counted="negative rows"),
    "f1": _Ratio(
        numerator=(2, 0, 0, 0), denominator=(2, 1, 1, 0), counted="rows positive or predicted positive"
    ),
}

PREDICTED_POSITIVES = _Ratio(numerator=(1, 0, 1, 0), denominator=(1, 1, 1, 1), counted="rows")
"""The share of the rows at or above the threshold: how many would be acted upon."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Confusion:
    """The confusion counts at an edge, and their noise covariance.

    Guarantee: rows with a score at or above `threshold` are the predicted positives, exactly, in double
    precision; noise variances are exact.

    Examples
    --------
    >>> from fedassay.protocol import NO_NOISE
    >>> from fedassay.summaries.score_histogram import ScoreHistogram
    >>> summary = ScoreHistogram(transform="uniform", height=2)
    >>> evidence = Evidence.of(summary.read(np.array([0, 1, 2, 3, 4, 0, 1, 0])), NO_NOISE)
    >>> Confusion.at(evidence, 0.6).counts  # applied at the nearest edge, 0.5
    array([5., 1., 1., 4.])
    """

    evidence: Evidence
    threshold: float
    counts: Floats
    covariance: Floats

    @classmethod
    def at(cls, evidence: Evidence, threshold: float) -> Confusion:
        """The counts at the edge nearest to `threshold`."""
        return cls.at_edge(evidence, evidence.grid.nearest_edge(threshold))

    @classmethod
    def at_edge(cls, evidence: Evidence, edge: int) -> Confusion:
        """The counts at an edge of the grid."""
        FN, TN = evidence.positives_below[edge], evidence.negatives_below[edge]
        return cls(
            evidence=evidence,
            threshold=float(evidence.grid.edges[edge]),
            counts=np.array([evidence.positive_rows - FN, FN, evidence.negative_rows - TN, TN]),
            covariance=evidence.count_noise.confusion(edge),
        )

    def estimate(self, ratio: _Ratio) -> tuple[Estimate, float]:
        """The ratio with its variances, and its denominator."""
        a, b, x = np.array(ratio.numerator), np.array(ratio.denominator), self.counts
        D = self.evidence.require(ratio.counted, float(b @ x), float(b @ self.covariance @ b))
        v = float(a @ x) / D
        g = (a - v * b) / D
        # As `Evidence.sampling_variance` and `Evidence.privacy_variance`, for functions of four counts.
        least = float(np.sqrt(g**2 @ self.covariance @ g**2))
        estimate = Estimate(
            value=v,
            sampling_variance=max(float(x @ g**2 - (x @ g) ** 2 / self.evidence.rows), least),
            privacy_variance=max(0.0, float(g @ self.covariance @ g)),
        )
        return estimate, D


@estimator
def ratio_metric(confusion: Confusion, ratio: _Ratio, *, level: float = LEVEL) -> Metric:
    """A ratio of counts, in [0, 1]."""
    estimate, D = confusion.estimate(ratio)
    return bounded(estimate, size=D, level=level)


def decision_metric(confusion: Confusion, name: str, *, level: float = LEVEL) -> Metric:
    """One of accuracy, precision, recall, specificity and f1."""
    return ratio_metric(confusion, RATIOS[name], level=level)


@estimator
def net_benefit(confusion: Confusion, *, level: float = LEVEL) -> Metric:
    """(TP - FP·t/(1-t))/n at the applied threshold t (Vickers and Elkin 2006).

    At high thresholds a few false positives weigh much, or none were seen. So the interval is put together
    from Wilson's intervals for TP/n and FP/n and their correlation (MOVER; Zou and Donner 2008).
    """
    t = confusion.threshold
    if t >= 1:
        raise Undefined("net benefit needs a threshold below 1: its weight t/(1-t) is infinite there")
    odds = t / (1 - t)
    whole, n = confusion.estimate(_of_rows(1, -odds))
    true, false = confusion.estimate(_of_rows(1, 0))[0], confusion.estimate(_of_rows(0, 1))[0]
    p, q = (min(1.0, max(0.0, share.value)) for share in (true, false))
    correlation = -math.sqrt(p * q / ((1 - p) * (1 - q))) if p < 1 and q < 1 else -1.0
    low_true, high_true = score_roots(true, size=n, level=level)
    low_false, high_false = score_roots(false, size=n, level=level)

    def reach(of_true: float, of_false: float) -> float:
        return math.sqrt(max(0.0, of_true**2 + of_false**2 - 2 * correlation * of_true * of_false))

    down = reach(max(0.0, true.value - low_true), odds * max(0.0, high_false - false.value))
    up = reach(max(0.0, high_true - true.value), odds * max(0.0, false.value - low_false))
    return whole.metric(whole.value, (whole.value - down, whole.value + up), level=level)


def _of_rows(of_true: float, of_false: float) -> _Ratio:
    """A combination of true and false positives, as a share of all rows."""
    return _Ratio(numerator=(of_true, 0, of_false, 0), denominator=(1, 1, 1, 1), counted="rows")


def decision_metrics(confusion: Confusion, *, level: float = LEVEL) -> dict[str, Metric]:
    """All metrics of the decision at this threshold, by name."""
    metrics = {name: decision_metric(confusion, name, level=level) for name in RATIOS}
    return {**metrics, "net_benefit": net_benefit(confusion, level=level)}
