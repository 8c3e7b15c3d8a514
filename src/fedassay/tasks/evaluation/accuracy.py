"""Prediction of errors before any data: for planning, and for the choice of the levels of a histogram.

Two kinds of statements. `published_rate` and `balancing_buckets` are the orders of magnitude of the paper
(Table 1), without constants. `predict` is quantitative: it builds the histogram that a model of the scores
implies and asks the estimators themselves for their errors, so prediction and interval cannot
disagree.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import combinations_with_replacement
from typing import Any, Literal

import numpy as np
from scipy.special import logit, ndtr, ndtri

from fedassay.errors import UsageError
from fedassay.estimation.confusion import Confusion
from fedassay.estimation.evidence import Evidence
from fedassay.estimation.intervals import z_value
from fedassay.estimation.least_squares import least_squares, mean_prefix_variance, ranked_widths
from fedassay.estimation.metric import LEVEL, Metric
from fedassay.estimation.ranking import (
    auc_binning_bound,
    auc_influence,
    auc_noise_trace,
    expected_auc_noise_variance,
)
from fedassay.protocol.metrics import METRICS, MetricPlace, MetricRecord, planned, targets
from fedassay.protocol.vocabulary import NO_NOISE, Noise, Setting, Sum
from fedassay.summaries.score_histogram import LabelledHistogram, ScoreHistogram

PlannedQuantity = Literal["decision", "roc_auc", "calibration"]
"""Precision, recall and accuracy at a threshold; the AUC; the calibration error."""

Privacy = Literal["federated", "distributed", "local"]
"""The paper's three models: an exact secure sum, noise shared by the clients, noise in every message."""


PREVALENCE, AUC = 0.5, 0.8
"""Prevalence and AUC that resolutions are chosen for when nothing is known."""


def published_rate(
    quantity: PlannedQuantity,
    privacy: Privacy,
    *,
    rows: float,
    epsilon: float = 1.0,
    buckets: float = 100,
    height: float = 10,
) -> float:
    """Compute the order of the error in Table 1 of the paper, for balanced classes, without constants.

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
    """Compute the number of buckets that balances binning against noise or sampling, without constants.

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


def hanley_mcneil_variance(auc: float, *, positives: float, negatives: float) -> float:
    """Compute the sampling variance of an AUC from its value and the class sizes alone (Hanley and McNeil 1982).

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
    """Build the expected histogram of calibrated binormal scores with this AUC.

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
    """Compute the standard deviation of the AUC from noise alone; its mean absolute error is √(2/π) of it.

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
    """Compute the AUC variance from noise of variance one, with one row: linear part, and quadratic part.

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
    """Predict the values, errors and intervals of a release.

    Parameters
    ----------
    histogram : histogram that would be released; `threshold` should be one of its thresholds.
    rows, prevalence, auc : assumed properties of the data (calibrated binormal scores).
    noise : noise of the release.
    threshold : decision threshold of the metrics that need a threshold.
    buckets : number of buckets of the calibration error.
    level : confidence level of the intervals.
    metrics : names of metrics; by default those with a usual target.

    `sampling` and `privacy` are the expected standard deviations, and `interval` is that of a typical
    release. A metric without a value gives the reason why there will not be enough evidence.

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


# --- which levels a histogram should have under noise -------------------------------------------------------

_CANDIDATES = 20
"""Fan-outs that are compared by the expected error of the AUC, out of the best for sums up to an edge."""

TYPICAL_ROWS = 1e5

_LOWEST = 5
"""Smallest height that is tried."""

_FEW = 4
"""Number of levels up to which all small multipliers are tried; beyond, those on a line between two."""

_SLOPES = ((1, 1), (1, 2), (2, 3), (1, 3), (3, 5))
"""Multipliers of the finest and of the coarsest level."""


def expected_rows(setting: Setting) -> float | None:
    """Return the number of rows if all clients reach their bound; None if clients have no bound."""
    per_client = setting.protection.rows_per_client
    return None if per_client is None else max(2.0, setting.clients * per_client)


def level_noise(setting: Setting, query: Callable[[tuple[int, ...]], Sum[Any]]) -> Callable[[int], float]:
    """Return a function from the number of levels to the noise variance of a query about such levels."""
    return lambda levels: setting.noise(query(tuple(1 << level for level in range(levels)))).variance


def least_noisy(histogram: ScoreHistogram, setting: Setting) -> ScoreHistogram:
    """Choose the levels of these bins, and the division of the budget among them, that serve the metrics best.

    Chosen is, among the fan-outs with the smallest mean variance of a sum up to an edge, and multipliers that give
    coarser levels more of the budget, the pair with the smallest product of two errors: the noise of the AUC
    that a typical model would have (balanced classes, AUC 0.8), which counts twice, and that of a sum up to an
    edge, on which decisions and calibration rest. The AUC alone would take budget from the finest level until
    sums had three times the variance.
    """

    def with_levels(widths: tuple[int, ...], multipliers: tuple[int, ...]) -> ScoreHistogram:
        return replace(histogram, widths=widths, multipliers=multipliers)

    def equal(widths: tuple[int, ...]) -> Sum[LabelledHistogram]:
        return Sum(of=with_levels(widths, ()))

    divisible = not setting.noise(Sum(of=histogram)).reporting  # a report on one level counts as it is
    rows = expected_rows(setting) or TYPICAL_ROWS

    def expected_error(candidate: ScoreHistogram) -> float:
        noise = setting.noise(Sum(of=candidate))
        sums = mean_prefix_variance(least_squares(candidate.tree, candidate.multipliers, noise))
        return expected_auc_noise(candidate, noise, rows=rows) ** 2 * math.sqrt(sums)

    candidates = [
        with_levels(widths, multipliers)
        for widths in ranked_widths(histogram.grid.leaves, level_noise(setting, equal), keep=_CANDIDATES)
        for multipliers in (slopes(len(widths)) if divisible else [(1,) * len(widths)])
    ]
    return min(candidates, key=expected_error)


def most_telling(finest: ScoreHistogram, setting: Setting) -> ScoreHistogram:
    """Choose these or coarser bins: those with the shortest interval for the AUC of a typical model.

    The fewer rows there are, the more noise weighs against binning. The number of rows is not public; where
    clients have a bound, they are taken to have reached it, else the finest bins are taken.
    """
    rows = expected_rows(setting)
    if rows is None:
        return least_noisy(finest, setting)

    def half_width(histogram: ScoreHistogram) -> float:
        noise = setting.noise(Sum(of=histogram))
        expected = {"rows": rows, "prevalence": PREVALENCE, "auc": AUC}
        binning = auc_binning_bound(expected_evidence(histogram, noise=NO_NOISE, **expected))
        sampling = hanley_mcneil_variance(AUC, positives=rows * PREVALENCE, negatives=rows * (1 - PREVALENCE))
        privacy = expected_auc_noise(histogram, noise, **expected) ** 2
        return z_value(LEVEL) * math.sqrt(sampling + privacy) + binning

    lowest = max(_LOWEST, (len(finest.thresholds) + 1).bit_length())
    candidates = [replace(finest, height=height) for height in range(lowest, finest.height + 1)]
    return min((least_noisy(candidate, setting) for candidate in candidates or [finest]), key=half_width)


def slopes(levels: int) -> Iterator[tuple[int, ...]]:
    """Yield multipliers for this number of levels: equal multipliers, and those that rise towards the coarser levels.

    Examples
    --------
    >>> list(slopes(2))
    [(1, 1), (1, 2), (1, 3), (2, 3)]
    """
    if levels <= _FEW:
        for rising in combinations_with_replacement((1, 2, 3), levels):
            if math.gcd(*rising) == 1:
                yield rising
        return
    for low, high in _SLOPES:
        yield tuple(int(m) for m in np.round(np.linspace(low, high, levels)))
