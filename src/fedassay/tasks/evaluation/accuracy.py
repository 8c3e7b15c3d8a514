"""How large errors will be, before any data: for planning.

Two kinds of statements. `published_rate` and `balancing_buckets` are the orders of magnitude of the paper
(Table 1), without constants. `predict` is quantitative: it builds the histogram that a model of the scores
leads one to expect and asks the estimators themselves for their errors, so prediction and interval cannot
disagree.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Literal

import numpy as np
from scipy.special import logit, ndtr, ndtri

from fedassay.errors import UsageError
from fedassay.estimation.confusion import Confusion
from fedassay.estimation.evidence import Evidence
from fedassay.estimation.least_squares import least_squares
from fedassay.estimation.metric import LEVEL, Metric
from fedassay.estimation.ranking import auc_influence, auc_noise_trace, expected_auc_noise_variance
from fedassay.protocol.metrics import METRICS, MetricPlace, MetricRecord, planned, targets
from fedassay.protocol.vocabulary import NO_NOISE, Noise
from fedassay.summaries.score_histogram import ScoreHistogram

PlannedQuantity = Literal["decision", "roc_auc", "calibration"]
"""Precision, recall and accuracy at a threshold; the AUC; the calibration error."""

Privacy = Literal["federated", "distributed", "local"]
"""The paper's three models: an exact secure sum, noise shared by the clients, noise in every message."""


PREVALENCE, AUC = 0.5, 0.8
"""The data and the model that resolutions are chosen for when nothing is known."""


def published_rate(
    quantity: PlannedQuantity,
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
    rates: Mapping[tuple[PlannedQuantity, Privacy], float] = {
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


def balancing_buckets(
    quantity: PlannedQuantity, privacy: Privacy, *, rows: float, epsilon: float = 1.0
) -> float:
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
        edges=grid.edges,
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
        return math.sqrt(expected_auc_noise_variance(evidence, *auc_influence(evidence)))
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
    metrics: Sequence[str] | None = None,
) -> dict[str, Metric]:
    """The values, errors and intervals to expect of a release.

    Parameters
    ----------
    histogram : what would be released; `threshold` should be one of its thresholds.
    rows, prevalence, auc : what the data are expected to be (calibrated binormal scores).
    noise : of the release.
    threshold : of the metrics that need one.
    buckets : of the calibration error.
    level : of the intervals.
    metrics : names of metrics; by default those with a usual target.

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
    known = planned()
    for name in metrics or ():
        if name not in known:
            raise UsageError(f"metric: got {name!r}, expected one of {', '.join(known)}.")
    records = [METRICS[name] for name in (targets() if metrics is None else metrics)]

    def under(noise: Noise, records: Sequence[MetricRecord]) -> dict[str, Metric]:
        evidence = expected_evidence(histogram, noise=noise, rows=rows, prevalence=prevalence, auc=auc)
        # Only made where a metric needs it: the noise at an edge can take long.
        counts = {part: _counts(evidence, part, threshold) for part in {_part(record) for record in records}}
        return {
            record.name: record.of_expected(counts[_part(record)], buckets=buckets, level=level)
            for record in records
        }

    expected = under(noise, records)
    if noise.variance == 0:
        return expected
    # Estimators keep sampling variances that noise makes uncertain away from zero; expected counts are certain.
    uncertain = [
        record for record in records if record.expected is None and expected[record.name].value is not None
    ]
    exact = under(NO_NOISE, uncertain) if uncertain else {}
    return expected | {
        name: replace(expected[name], sampling=metric.sampling) for name, metric in exact.items()
    }


def _part(record: MetricRecord) -> MetricPlace:
    return "rows" if "rows" in record.parts else "threshold"


def _counts(evidence: Evidence, part: MetricPlace, threshold: float) -> Evidence | Confusion:
    return evidence if part == "rows" else Confusion.at(evidence, threshold)
