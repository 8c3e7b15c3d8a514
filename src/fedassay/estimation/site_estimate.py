"""What the rows of one site alone say about a model: an estimate and its variance, on the scale of pooling."""

from __future__ import annotations

import math
from typing import NamedTuple

from scipy.special import logit

from fedassay.estimation.evidence import Evidence
from fedassay.estimation.metric import Metric
from fedassay.metrics import METRICS, Scale

SMALLEST_CLASS = 10
"""A site with fewer rows of either class is left out: its variance would say nothing."""

LEAST_VARIANCE, LARGEST_VARIANCE, LARGEST_VALUE = 2.0**-38, 2.0**10, 2.0**6
"""What an estimate may be; beyond these bounds its site is left out. A smaller variance than the least is not one
of many rows (it would take more than 10^9 of them) but of rows that are all alike."""


class SiteEstimate(NamedTuple):
    """A value and its sampling variance."""

    value: float
    variance: float


def site_estimate(name: str, evidence: Evidence) -> SiteEstimate | None:
    """Estimate a metric from the exact counts of one site, on the scale of pooling; None if it cannot be.

    None: fewer than `SMALLEST_CLASS` rows of a class, a metric that does not exist on these rows (an AUC of 0 or
    1 has no logit, a slope needs classes that overlap), or numbers beyond the bounds above.

    Examples
    --------
    >>> import numpy as np
    >>> edges = np.array([0.0, 0.4, 1.0])
    >>> counts = {"positives": np.array([10.0, 30.0]), "negatives": np.array([30.0, 10.0])}
    >>> round(site_estimate("brier_score", Evidence.exactly(edges=edges, **counts)).value, 3)
    0.19
    >>> few = {"positives": np.array([0.0, 9.0]), "negatives": np.array([40.0, 0.0])}
    >>> site_estimate("roc_auc", Evidence.exactly(edges=edges, **few)) is None
    True
    """
    if min(evidence.positive_rows, evidence.negative_rows) < SMALLEST_CLASS:
        return None
    record = METRICS[name]
    metric: Metric = record.estimator(evidence)
    if metric.value is None or metric.sampling is None:
        return None
    estimate = _scaled(record.scale, metric.value, metric.sampling**2)
    if estimate is None or not all(math.isfinite(number) for number in estimate):
        return None
    if abs(estimate.value) > LARGEST_VALUE or not LEAST_VARIANCE <= estimate.variance <= LARGEST_VARIANCE:
        return None
    return estimate


def _scaled(scale: Scale | None, value: float, variance: float) -> SiteEstimate | None:
    """The estimate on another scale, its variance with the square of the derivative."""
    if scale == "logit":
        if not 0 < value < 1:
            return None
        return SiteEstimate(float(logit(value)), variance / (value * (1 - value)) ** 2)
    if scale == "log":
        if value <= 0:
            return None
        return SiteEstimate(math.log(value), variance / value**2)
    return SiteEstimate(value, variance)
