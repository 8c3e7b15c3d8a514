"""What each threshold from 0.01 to 0.99 would mean: for whoever looks for the one to use.

Intervals are for one threshold at a time. Whoever picks the best of 99 has looked at all of them: the curves with bands
for all thresholds at once are in `curves`.
"""

from __future__ import annotations

from typing import Any

from fedassay.estimation.confusion import Confusion
from fedassay.estimation.evidence import Evidence
from fedassay.estimation.metric import LEVEL, Metric
from fedassay.metrics import MetricRecord, of_part

THRESHOLDS = tuple(percent / 100 for percent in range(1, 100))


def operating_points(evidence: Evidence, *, level: float = LEVEL) -> dict[str, Any]:
    """Metrics of the decision ``score >= threshold`` at 99 thresholds, each with the interval it has by itself.

    Each threshold is applied at the nearest edge of the grid, which ``applied`` names; the numbers are those of
    `stored.threshold_entry` there. Each metric is a mapping of the lists ``value``, ``lower`` and ``upper``, None where
    it is undefined. ``predicted_positives`` is the share of the rows at or above the threshold.

    Free: computed from what has been released.

    Examples
    --------
    >>> import numpy as np
    >>> from fedassay.protocol import NO_NOISE
    >>> from fedassay.summaries.score_histogram import ScoreHistogram
    >>> summary = ScoreHistogram(transform="uniform", height=2)
    >>> evidence = summary.read(np.array([0, 1, 2, 3, 4, 0, 1, 0])).evidence(NO_NOISE)
    >>> points = operating_points(evidence)
    >>> points["thresholds"][49], points["applied"][49], round(points["precision"]["value"][49], 3)
    (0.5, 0.5, 0.833)
    """
    found = [Confusion.at(evidence, threshold) for threshold in THRESHOLDS]
    return {
        "thresholds": list(THRESHOLDS),
        "applied": [confusion.threshold for confusion in found],
        "level": level,
        "rows": evidence.rows,
        **{record.name: _lists(_metrics(record, found, level)) for record in of_part("operating-point")},
    }


def _metrics(record: MetricRecord, found: list[Confusion], level: float) -> list[Metric]:
    estimate = record.estimator
    return [estimate(confusion, level=level) for confusion in found]


def _lists(metrics: list[Metric]) -> dict[str, list[float | None]]:
    ends = [metric.interval or (None, None) for metric in metrics]
    return {
        "value": [metric.value for metric in metrics],
        "lower": [low for low, _ in ends],
        "upper": [high for _, high in ends],
    }
