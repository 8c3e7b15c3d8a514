"""How large errors will be, before any data: for planning.

Two kinds of statements. `published_rate` and `balancing_buckets` are the orders of magnitude of the paper
(Table 1), without constants. `predict` is quantitative: it builds the histogram that a model of the scores
leads one to expect and asks the estimators themselves for their errors, so prediction and interval cannot
disagree.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

import numpy as np
from scipy.special import logit, ndtr, ndtri

from fedassay.errors import UsageError
from fedassay.protocol import NO_NOISE, Noise
from fedassay.summaries.score_histogram import ScoreHistogram
from fedassay.tasks.evaluation.confusion import RATIOS, Confusion, decision_metric
from fedassay.tasks.evaluation.evidence import Evidence, least_squares
from fedassay.tasks.evaluation.metric import LEVEL, Metric
from fedassay.tasks.evaluation.ranking import auc_influence, auc_noise_trace, roc_auc

Quantity = Literal["decision", "roc_auc", "calibration"]
"""Precision, recall and accuracy at a threshold; the AUC; the calibration error."""

Privacy = Literal["federated", "distributed", "local"]
"""The paper's three models: an exact secure sum, noise shared by the clients, noise in every message."""


def published_rate(
    quantity: Quantity,
    privacy: Privacy,
    *,
    rows: float,
    epsilon: float = 1.0,
    buckets: float = 100,
    height: float = 10,
) -> float:
    """The order of the error in Table 1 of the paper, for balanced classes, without constants.

    Examples
    --------
    >>> published_rate("roc_auc", "federated", rows=10**5, buckets=100)
    0.0001
    >>> round(published_rate("decision", "distributed", rows=10**6), 6)
    0.0001
    """
    M, e, B, h = float(rows), float(epsilon), float(buckets), float(height)
    rates: Mapping[tuple[Quantity, Privacy], float] = {
        ("decision", "federated"): 1 / B,
        ("decision", "distributed"): math.pow(e * M, -2 / 3),
        ("decision", "local"): math.pow(e, -2 / 3) * math.pow(M, -1 / 3),
        ("roc_auc", "federated"): 1 / B**2,
        ("roc_auc", "distributed"): (1 / e + 1 / B) / M,
        ("roc_auc", "local"): h / (e * math.sqrt(M)),
        ("calibration", "federated"): math.pow(M, -1 / 3),
        ("calibration", "distributed"): math.pow(M, -1 / 3) + 1 / (e * math.pow(M, 2 / 3)),
        ("calibration", "local"): 1 / (math.sqrt(e) * math.pow(M, 1 / 4)),
    }
    return rates[quantity, privacy]


def balancing_buckets(quantity: Quantity, privacy: Privacy, *, rows: float, epsilon: float = 1.0) -> float:
    """The number of buckets that balances binning against noise or sampling, without constants.

    Theorems 2 and 5 to 8. Edge case: infinity where more buckets never hurt, that is for exact sums and for
    the AUC under distributed noise.

    Examples
    --------
    >>> round(balancing_buckets("decision", "distributed", rows=10**5))
    2154
    """
    M, e = float(rows), float(epsilon)
    if quantity == "calibration":
        return math.sqrt(e * math.sqrt(M)) if privacy == "local" else math.pow(M, 1 / 3)
    if privacy == "federated" or (quantity, privacy) == ("roc_auc", "distributed"):
        return math.inf
    if quantity == "decision":
        return math.pow(e * M, 2 / 3) if privacy == "distributed" else math.pow(e * e * M, 1 / 3)
    # sqrt(M/V) with V = e^ε/(e^ε - 1)² for one level (Theorem 6).
    return 2 * math.sqrt(M) * math.sinh(e / 2)


def balancing_height(buckets: float, *, smoothness: float = 1.0) -> int:
    """The height that finds B equi-depth buckets to a quarter of their weight: h > 2 + log2(B·ℓ) (2.3).

    Examples
    --------
    >>> balancing_height(100)
    9
    """
    return math.floor(2 + math.log2(buckets * smoothness)) + 1


def hanley_mcneil_variance(auc: float, *, positives: float, negatives: float) -> float:
    """The sampling variance of an AUC from its value and the class sizes alone (Hanley and McNeil 1982).

    Assumes negative-exponential scores; `predict` uses the binormal model and the exact influence function
    instead.

    Examples
    --------
    >>> round(hanley_mcneil_variance(0.8, positives=1000, negatives=1000) ** 0.5, 4)
    0.0099
    """
    first, second = auc / (2 - auc), 2 * auc**2 / (1 + auc)
    spread = (positives - 1) * (first - auc**2) + (negatives - 1) * (second - auc**2)
    return (auc * (1 - auc) + spread) / (positives * negatives)


def expected_evidence(
    histogram: ScoreHistogram, *, rows: float, prevalence: float, auc: float, noise: Noise = NO_NOISE
) -> Evidence:
    """The histogram one expects from calibrated binormal scores with this AUC.

    A latent x is N(0, 1) for negatives and N(δ, 1) for positives, δ = √2 Φ^{-1}(AUC); the score is the
    probability of being positive given x, so its logit is logit(prevalence) + δx - δ²/2.
    """
    if not 0 < prevalence < 1 or not 0.5 < auc < 1 or rows <= 0:
        raise UsageError(
            f"expected data: got {rows} rows, prevalence {prevalence}, AUC {auc}; expected rows above 0, a "
            "prevalence between 0 and 1, an AUC between 0.5 and 1."
        )
    grid = histogram.grid
    delta = math.sqrt(2) * float(ndtri(auc))
    x = (logit(grid.edges) - float(logit(prevalence)) + delta**2 / 2) / delta
    return Evidence(
        grid=grid,
        fit=least_squares(histogram.tree, histogram.multipliers, noise),
        positives=rows * prevalence * np.diff(ndtr(x - delta)),
        negatives=rows * (1 - prevalence) * np.diff(ndtr(x)),
        noise=noise,
    )


def expected_auc_noise(
    histogram: ScoreHistogram,
    noise: Noise,
    *,
    rows: float = 1e5,
    prevalence: float = 0.5,
    auc: float = 0.8,
) -> float:
    """The standard deviation of the AUC from noise alone; its mean absolute error is √(2/π) of it.

    Examples
    --------
    >>> histogram = ScoreHistogram(transform="uniform", height=10, widths=(1, 16, 256))
    >>> noise = Noise(law="discrete-laplace", scale=3.0, variance=18.0)
    >>> f"{expected_auc_noise(histogram, noise) * math.sqrt(2 / math.pi):.1e}"
    '9.2e-05'
    """
    evidence = expected_evidence(histogram, rows=rows, prevalence=prevalence, auc=auc, noise=noise)
    value, by_positive, by_negative = auc_influence(evidence)
    # The estimator subtracts the trace, because its counts are noisy; expected counts are not.
    return math.sqrt(evidence.privacy_variance(by_positive, by_negative) + auc_noise_trace(evidence, value))


def predict(
    histogram: ScoreHistogram,
    *,
    rows: float,
    prevalence: float,
    auc: float,
    noise: Noise = NO_NOISE,
    threshold: float = 0.5,
    level: float = LEVEL,
) -> dict[str, Metric]:
    """The values and errors to expect of the AUC and of the decision at a threshold.

    Parameters
    ----------
    histogram : what would be released; `threshold` should be one of its thresholds.
    rows, prevalence, auc : what the data are expected to be (calibrated binormal scores).
    noise : of the release.
    threshold : of precision, recall, accuracy, specificity and f1.
    level : of the intervals.

    A metric without a value says why there will not be enough evidence.

    Examples
    --------
    >>> histogram = ScoreHistogram(transform="uniform", height=10, thresholds=(0.5,), widths=(1, 16, 256))
    >>> noise = Noise(law="discrete-laplace", scale=3.0, variance=18.0)
    >>> expected = predict(histogram, rows=10**5, prevalence=0.5, auc=0.8, noise=noise)
    >>> f"{expected['roc_auc'].privacy:.1e}", f"{expected['roc_auc'].sampling:.1e}"
    ('1.2e-04', '1.4e-03')
    """
    model = {"rows": rows, "prevalence": prevalence, "auc": auc}
    evidence = expected_evidence(histogram, noise=noise, **model)
    metrics = {"roc_auc": roc_auc(evidence, level=level)}
    if metrics["roc_auc"].value is not None:
        metrics["roc_auc"] = replace(
            metrics["roc_auc"], privacy=expected_auc_noise(histogram, noise, **model)
        )
    confusion = Confusion.at(evidence, threshold)
    return metrics | {name: decision_metric(confusion, name, level=level) for name in RATIOS}
