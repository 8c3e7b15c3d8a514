"""How large errors will be, before any data: for planning.

Two kinds of statements. `published_rate` and `balancing_buckets` are the orders of magnitude of the paper
(Table 1), without constants. `predict` is quantitative: it builds the histogram that a model of the scores
leads one to expect and asks the estimators themselves for their errors, so prediction and interval cannot
disagree.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Literal

import numpy as np
from scipy.special import logit, ndtr, ndtri

from fedassay.errors import UsageError
from fedassay.protocol import NO_NOISE, Noise
from fedassay.summaries.score_histogram import ScoreHistogram
from fedassay.tasks.evaluation.buckets import Buckets, equi_depth_edges
from fedassay.tasks.evaluation.calibration_error import sum_of_absolute_values
from fedassay.tasks.evaluation.confusion import RATIOS, Confusion, decision_metric
from fedassay.tasks.evaluation.evidence import Evidence, Floats, least_squares
from fedassay.tasks.evaluation.intervals import Estimate, bounded, z_value
from fedassay.tasks.evaluation.metric import LEVEL, Metric, estimator
from fedassay.tasks.evaluation.ranking import auc_binning_bound, auc_influence, auc_noise_trace
from fedassay.tasks.evaluation.ratios import brier_score, log_loss
from fedassay.tasks.evaluation.recalibration import calibration_intercept, calibration_slope

Quantity = Literal["decision", "roc_auc", "calibration"]
"""Precision, recall and accuracy at a threshold; the AUC; the calibration error."""

Privacy = Literal["federated", "distributed", "local"]
"""The paper's three models: an exact secure sum, noise shared by the clients, noise in every message."""


PREVALENCE, AUC = 0.5, 0.8
"""The data and the model that resolutions are chosen for when nothing is known."""


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
    prevalence: float = PREVALENCE,
    auc: float = AUC,
) -> float:
    """The standard deviation of the AUC from noise alone; its mean absolute error is √(2/π) of it.

    Examples
    --------
    >>> histogram = ScoreHistogram(transform="uniform", height=10, widths=(1, 16, 256))
    >>> noise = Noise(law="discrete-laplace", scale=3.0, variance=18.0)
    >>> f"{expected_auc_noise(histogram, noise) * math.sqrt(2 / math.pi):.1e}"
    '9.2e-05'
    """
    if noise.reporting:
        evidence = expected_evidence(histogram, rows=rows, prevalence=prevalence, auc=auc, noise=noise)
        return math.sqrt(_auc_noise_variance(evidence, *auc_influence(evidence)))
    first, second = _auc_noise_parts(histogram, prevalence, auc)
    size = noise.variance / rows**2
    return math.sqrt(first * size + second * size**2)


@lru_cache(maxsize=4096)
def _auc_noise_parts(histogram: ScoreHistogram, prevalence: float, auc: float) -> tuple[float, float]:
    """The variance of the AUC from noise of variance one, with one row: what is linear in the noise, and its square.

    Derivatives fall with the rows, and the trace with their fourth power: planning asks for the same bins and levels
    with many numbers of rows and scales of noise.
    """
    unit = Noise(law="unit", scale=1.0, variance=1.0)
    evidence = expected_evidence(histogram, rows=1.0, prevalence=prevalence, auc=auc, noise=unit)
    value, by_positive, by_negative = auc_influence(evidence)
    return evidence.privacy_variance(by_positive, by_negative), auc_noise_trace(evidence, value)


def _auc_noise_variance(evidence: Evidence, value: float, by_positive: Floats, by_negative: Floats) -> float:
    # The estimator subtracts the trace, because its counts are noisy; expected counts are not.
    return evidence.privacy_variance(by_positive, by_negative) + auc_noise_trace(evidence, value)


@estimator
def _expected_auc(evidence: Evidence, *, level: float) -> Metric:
    P, N = evidence.require_classes()
    value, by_positive, by_negative = auc_influence(evidence)
    estimate = Estimate(
        value=value,
        sampling_variance=evidence.sampling_variance(by_positive, by_negative),
        privacy_variance=_auc_noise_variance(evidence, value, by_positive, by_negative),
        discretisation=auc_binning_bound(evidence),
    )
    return bounded(estimate, size=min(P, N), level=level)


@estimator
def _expected_calibration_error(evidence: Evidence, *, buckets: int, level: float) -> Metric:
    """What a calibrated model will show: no gap, so the estimate is the mean of Σ|e_j|, all of it error.

    The interval is that of `calibration_error`, around this value.
    """
    evidence.require_rows()
    table = Buckets(evidence=evidence, edges=tuple(equi_depth_edges(evidence, buckets)))
    sampling, noise = table.share_sampling_covariance, table.share_noise_covariance
    centre, spread = sum_of_absolute_values(sampling + noise)
    from_noise = float(np.trace(noise) / np.trace(sampling + noise))
    estimate = Estimate(
        value=centre,
        sampling_variance=spread * (1 - from_noise),
        privacy_variance=spread * from_noise,
        discretisation=float(table.expected_bound.sum() / evidence.rows),
    )
    half = centre + z_value(level) * estimate.standard_error + estimate.discretisation
    value = min(1.0, centre)
    return estimate.metric(value, (max(0.0, value - half), min(1.0, value + half)), level=level)


METRICS = (
    *("roc_auc", *RATIOS, "brier_score", "log_loss", "expected_calibration_error"),
    *("calibration_intercept", "calibration_slope"),
)
"""What `predict` predicts."""


def predict(
    histogram: ScoreHistogram,
    *,
    rows: float,
    prevalence: float,
    auc: float,
    noise: Noise = NO_NOISE,
    threshold: float = 0.5,
    buckets: int = 10,
    level: float = LEVEL,
    metrics: Sequence[str] = METRICS,
) -> dict[str, Metric]:
    """The values, errors and intervals to expect of a release.

    Parameters
    ----------
    histogram : what would be released; `threshold` should be one of its thresholds.
    rows, prevalence, auc : what the data are expected to be (calibrated binormal scores).
    noise : of the release.
    threshold : of precision, recall, accuracy, specificity and f1.
    buckets : of the calibration error.
    level : of the intervals.
    metrics : which ones.

    `sampling` and `privacy` are the standard deviations to expect, `interval` is what a typical release will
    say. A metric without a value says why there will not be enough evidence.

    Assumptions: scores are calibrated. A model that is not has other errors, but not of another order, except
    for the calibration error, whose interval is the widest near zero.

    Examples
    --------
    >>> histogram = ScoreHistogram(transform="uniform", height=10, thresholds=(0.5,), widths=(1, 16, 256))
    >>> noise = Noise(law="discrete-laplace", scale=3.0, variance=18.0)
    >>> expected = predict(histogram, rows=10**5, prevalence=0.5, auc=0.8, noise=noise)
    >>> f"{expected['roc_auc'].privacy:.1e}", f"{expected['roc_auc'].sampling:.1e}"
    ('1.2e-04', '1.4e-03')
    """
    unknown = sorted(set(metrics) - set(METRICS))
    if unknown:
        raise UsageError(f"metric: got {unknown[0]!r}, expected one of {', '.join(METRICS)}.")

    def under(noise: Noise, names: Sequence[str]) -> dict[str, Metric]:
        evidence = expected_evidence(histogram, noise=noise, rows=rows, prevalence=prevalence, auc=auc)
        return {
            name: _predicted(evidence, name, threshold=threshold, buckets=buckets, level=level)
            for name in names
        }

    expected = under(noise, metrics)
    if noise.variance == 0:
        return expected
    # Estimators keep sampling variances that noise makes uncertain away from zero; expected counts are certain.
    exact = under(NO_NOISE, [name for name, metric in expected.items() if metric.value is not None])
    return expected | {
        name: replace(expected[name], sampling=metric.sampling)
        for name, metric in exact.items()
        if name != "expected_calibration_error"  # its parts are those of one sum
    }


def _predicted(evidence: Evidence, name: str, *, threshold: float, buckets: int, level: float) -> Metric:
    if name == "roc_auc":
        return _expected_auc(evidence, level=level)
    if name == "expected_calibration_error":
        return _expected_calibration_error(evidence, buckets=buckets, level=level)
    if name in RATIOS:
        return decision_metric(Confusion.at(evidence, threshold), name, level=level)
    return _ESTIMATORS[name](evidence, level=level)


_ESTIMATORS: Mapping[str, Callable[..., Metric]] = {
    estimate.__name__: estimate
    for estimate in (brier_score, log_loss, calibration_intercept, calibration_slope)
}
