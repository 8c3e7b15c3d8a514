"""The paper's orders of magnitude (Table 1) beside what is predicted."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from fedassay.estimation.metric import Metric
from fedassay.planning.expectation import Study
from fedassay.protocol import Noise
from fedassay.summaries.score_histogram import ScoreHistogram
from fedassay.tasks.evaluation.accuracy import Privacy, Quantity, balancing_buckets, published_rate

_SHOWN: Mapping[Quantity, str] = {
    "roc_auc": "roc_auc",
    "decision": "accuracy",
    "calibration": "expected_calibration_error",
}


def model_of(noise: Noise, clients: int) -> Privacy:
    """Which of the paper's three models has this kind of noise.

    Examples
    --------
    >>> model_of(Noise(law="discrete-laplace", scale=1.0, variance=184.0, copies=100.0), 100)
    'local'
    """
    if noise.variance == 0:
        return "federated"
    return "local" if noise.reporting or noise.copies >= clients > 1 else "distributed"


def beside_published(
    study: Study, histogram: ScoreHistogram, noise: Noise, predicted: Mapping[str, Metric]
) -> dict[str, dict[str, Any]]:
    """For each quantity of Table 1, its rate, the number of buckets that the paper advises, and our error.

    Rates have no constants and assume balanced classes. Both are errors against exact counts of the same
    rows, so without sampling, except for the calibration error, to which the paper counts it.
    """
    model = model_of(noise, study.expectation.clients)
    epsilon = study.budget.epsilon if study.budget is not None else 1.0
    shown: dict[str, dict[str, Any]] = {}
    for quantity, name in _SHOWN.items():
        buckets = balancing_buckets(quantity, model, rows=study.rows, epsilon=epsilon)
        shown[quantity] = {
            "model": model,
            "rate": published_rate(
                quantity,
                model,
                rows=study.rows,
                epsilon=epsilon,
                buckets=1 << histogram.height,
                height=histogram.height,
            ),
            "balancing_buckets": None if math.isinf(buckets) else buckets,
            "metric": name,
            "predicted": _error(predicted.get(name), with_sampling=quantity == "calibration"),
        }
    return shown


def _error(metric: Metric | None, *, with_sampling: bool) -> float | None:
    if metric is None or metric.value is None:
        return None
    variance = (metric.privacy or 0.0) ** 2 + (metric.sampling or 0.0) ** 2 * with_sampling
    return math.sqrt(variance) + (metric.discretisation or 0.0)
