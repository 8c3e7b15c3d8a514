"""Curves with simultaneous bands: ROC, precision-recall, net benefit, reliability.

A curve is a plain mapping of lists (its JSON), or has empty lists and a ``reason``. Thresholds are edges of
leaves, so every point is exact up to sampling and noise. How each band is made is said in the function.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedassay.estimation.bands import RateBand, rate_band
from fedassay.estimation.buckets import Buckets
from fedassay.estimation.confusion import Confusion, net_benefit
from fedassay.estimation.evidence import ENOUGH, Evidence, Floats
from fedassay.estimation.intervals import share_interval
from fedassay.estimation.metric import LEVEL, Undefined
from fedassay.estimation.ratios import prevalence

POINTS = 200
"""A curve has at most this many points."""

Curve = dict[str, Any]


def roc_curve(evidence: Evidence, *, level: float = LEVEL) -> Curve:
    """True against false positive rate, from (0, 0) to (1, 1).

    Band: each class's score distribution has a simultaneous band (see `bands`) at half the error. Together
    they confine the true curve's point at every threshold to a rectangle; `lower` and `upper` are what all
    rectangles together say about the true positive rate at each of the listed false positive rates,
    simultaneously.

    The threshold of (0, 0) is None: no finite threshold excludes every possible score.
    """
    try:
        evidence.require_classes()
    except Undefined as error:
        return _empty("fpr", "tpr", "thresholds", "lower", "upper", level=level, reason=error)
    tpr, fpr = (rate_band(evidence, label, error=(1 - level) / 2) for label in (1, 0))
    # The true curve R is non-decreasing and passes within the rectangles: R(x) is at most the upper end of
    # any point whose false positive rate is surely at least x, and at least the lower end of any surely at
    # most x.
    x = fpr.rates
    surely_right = np.searchsorted(-fpr.lower, -x, side="right") - 1  # the last edge with lower >= x
    upper = np.where(surely_right >= 0, tpr.upper[np.maximum(surely_right, 0)], 1.0)
    surely_left = np.searchsorted(-fpr.upper, -x, side="left")  # the first edge with upper <= x
    last = len(x) - 1
    lower = np.where(surely_left <= last, tpr.lower[np.minimum(surely_left, last)], 0.0)
    chosen = _spread_out(tpr, fpr)
    return {
        "fpr": _list(x[chosen]),
        "tpr": _list(tpr.rates[chosen]),
        "thresholds": _thresholds(evidence, chosen),
        "lower": _list(np.minimum(lower, tpr.rates)[chosen]),
        "upper": _list(np.maximum(upper, tpr.rates)[chosen]),
        "level": level,
    }


def precision_recall_curve(evidence: Evidence, *, level: float = LEVEL) -> Curve:
    """Precision against recall, from high thresholds to low ones.

    Band: a third of the error each to the distributions of positives and of negatives (simultaneous bands)
    and to the prevalence; precision is monotone in all three, so its worst corners bound it, simultaneously.
    """
    names = ("recall", "precision", "thresholds", "lower", "upper")
    share = (1 - level) / 3
    base = prevalence(evidence, level=1 - share)
    try:
        P, N = evidence.require_classes()
    except Undefined as error:
        return _empty(*names, level=level, reason=error)
    assert base.interval is not None
    tpr, fpr = (rate_band(evidence, label, error=share) for label in (1, 0))
    chosen = _spread_out(tpr, fpr)
    predicted = P * tpr.rates[chosen] + N * fpr.rates[chosen]
    chosen = chosen[predicted > 0]
    precision = _precision(P / (P + N), tpr.rates[chosen], fpr.rates[chosen])
    return {
        "recall": _list(tpr.rates[chosen]),
        "precision": _list(precision),
        "thresholds": _thresholds(evidence, chosen),
        "lower": _list(
            np.minimum(precision, _precision(base.interval[0], tpr.lower[chosen], fpr.upper[chosen]))
        ),
        "upper": _list(
            np.maximum(precision, _precision(base.interval[1], tpr.upper[chosen], fpr.lower[chosen]))
        ),
        "level": level,
    }


def net_benefit_curve(evidence: Evidence, *, level: float = LEVEL) -> Curve:
    """Net benefit at thresholds from 0.01 to 0.99 (the edges nearest to them), and that of treating everyone.

    Band: intervals at an error of (1 - level)/points each (Bonferroni), simultaneous.
    """
    names = ("thresholds", "net_benefit", "treat_all", "lower", "upper")
    try:
        n = evidence.require_rows()
    except Undefined as error:
        return _empty(*names, level=level, reason=error)
    edges = sorted({evidence.nearest_edge(percent / 100) for percent in range(1, 100)})
    edges = [edge for edge in edges if 0 < evidence.edges[edge] < 1]
    curve: dict[str, list[float]] = {name: [] for name in names}
    for edge in edges:
        confusion = Confusion.at_edge(evidence, edge)
        point = net_benefit(confusion, level=1 - (1 - level) / len(edges))
        assert point.value is not None
        assert point.interval is not None
        t = confusion.threshold
        all_treated = (evidence.positive_rows - evidence.negative_rows * t / (1 - t)) / n
        row = (t, point.value, all_treated, *point.interval)
        for name, number in zip(names, row, strict=True):
            curve[name].append(number)
    return {**curve, "level": level}


def reliability_curve(buckets: Buckets, *, level: float = LEVEL) -> Curve:
    """Observed frequency against mean score per bucket.

    Band: Clopper-Pearson intervals, widened for the noise, at an error of (1 - level)/buckets each
    (Bonferroni), simultaneous. Buckets whose rows drown in noise are left out.
    """
    evidence = buckets.evidence
    names = ("edges", "mean_score", "observed", "share", "lower", "upper")
    try:
        n = evidence.require_rows()
    except Undefined as error:
        return _empty(*names, level=level, reason=error)
    curve: dict[str, list[Any]] = {name: [] for name in names}
    for j in range(buckets.number):
        rows, noise = float(buckets.rows[j]), float(buckets.row_noise_variances[j])
        if rows <= 0 or rows < ENOUGH * math.sqrt(noise):
            continue
        v = float(buckets.observed[j]) / rows
        privacy_variance = buckets.rate_noise_variance(j)
        band = share_interval(v, rows, privacy_variance, level=1 - (1 - level) / buckets.number)
        ends = [float(evidence.edges[edge]) for edge in buckets.edges[j : j + 2]]
        mean = min(ends[1], max(ends[0], float(buckets.expected[j]) / rows))
        for name, item in zip(names, (ends, mean, min(1.0, max(0.0, v)), rows / n, *band), strict=True):
            curve[name].append(item)
    return {**curve, "level": level}


def _precision(share: float, tpr: Floats, fpr: Floats) -> Floats:
    true, false = share * tpr, (1 - share) * fpr
    return np.asarray(np.where(true + false > 0, true / np.maximum(true + false, 1e-300), 0.0))


def _spread_out(tpr: RateBand, fpr: RateBand) -> NDArray[np.int64]:
    """At most `POINTS` edges, evenly spread along the curve, from the highest edge to the lowest."""
    progress = (tpr.rates + fpr.rates)[::-1] / 2  # from 0 at the top edge to 1 at the lowest
    targets = np.linspace(0, 1, POINTS)
    places = np.searchsorted(progress, targets - 1e-12)
    places = np.unique(np.clip(np.concatenate([[0], places, [len(progress) - 1]]), 0, len(progress) - 1))
    return np.asarray(len(progress) - 1 - places[: POINTS + 1], dtype=np.int64)


def _thresholds(evidence: Evidence, edges: NDArray[np.int64]) -> list[float | None]:
    top, at = evidence.leaves, evidence.edges
    return [float(at[edge]) if edge < top and math.isfinite(at[edge]) else None for edge in edges]


def _list(values: Floats) -> list[float]:
    return [float(value) for value in values]


def _empty(*names: str, level: float, reason: Undefined) -> Curve:
    return {**{name: [] for name in names}, "level": level, "reason": str(reason)}
