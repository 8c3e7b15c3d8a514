"""How far a fitted calibrator will be from the truth, before any data: for planning.

For scores that are calibrated already (binormal, as in `evaluation.accuracy`), so that the true map is the
identity and everything a fit does to a score is error. Two kinds of calibrators are predicted: Platt scaling,
which is right if a model is wrong by a shift and a stretch of its logits, and histogram binning, which assumes
nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from fedassay.estimation.evidence import Evidence
from fedassay.estimation.recalibration import Logistic
from fedassay.protocol.arrays import Floats, Ints
from fedassay.protocol.vocabulary import NO_NOISE, Noise
from fedassay.summaries.score_histogram import ScoreHistogram
from fedassay.tasks.calibration.binning import binning_of, finest_number, supported_scores
from fedassay.tasks.evaluation.accuracy import expected_evidence


@dataclass(frozen=True, kw_only=True)
class MapError:
    """What to expect of a fitted map f̂ where the truth is q.

    Parameters
    ----------
    calibration_error : E|E[y|f̂] - f̂|, the calibration error that fitting leaves.
    sampling, privacy, binning : the three parts of the mean of (f̂ - q)², by which the Brier score of new rows
        exceeds the best possible. Binning is the loss of telling apart rows of one bucket; it does not
        miscalibrate.
    buckets : of the map, if it has buckets.
    """

    calibration_error: float
    sampling: float
    privacy: float
    binning: float
    buckets: int | None = None

    @property
    def brier_excess(self) -> float:
        """The mean of (f̂ - q)²."""
        return self.sampling + self.privacy + self.binning


def predict_map(
    histogram: ScoreHistogram,
    *,
    method: str,
    rows: float,
    prevalence: float,
    auc: float,
    noise: Noise = NO_NOISE,
    buckets: int | None = None,
) -> MapError:
    """The error of a map fitted to a release of so many rows; `Undefined` where it could not be fitted.

    Examples
    --------
    >>> histogram = ScoreHistogram(transform="mixed", height=12)
    >>> platt = predict_map(histogram, method="platt", rows=10_000, prevalence=0.3, auc=0.8)
    >>> binned = predict_map(histogram, method="histogram", rows=10_000, prevalence=0.3, auc=0.8)
    >>> f"{platt.calibration_error:.4f} {binned.calibration_error:.4f} {binned.buckets}"
    '0.0043 0.0144 22'
    """
    noisy, exact = (
        expected_evidence(histogram, rows=rows, prevalence=prevalence, auc=auc, noise=law)
        for law in (noise, NO_NOISE)
    )
    return PREDICTED[method](noisy, exact, buckets)


def _platt(noisy: Evidence, exact: Evidence, _: int | None) -> MapError:
    """To first order, f̂ - q = μ(1-μ) x^T (β̂ - β) with x = (1, logit s) and β = (0, 1).

    The coefficients have the sandwich covariance of `Logistic.influence`, and a map that is one to one has
    E[y|f̂] = q. Bins move rows to their midpoints, which matters to second order only and is left out.
    """
    noisy.require_classes()
    s = supported_scores(noisy)
    x = np.stack([np.ones_like(s), np.log(s) - np.log1p(-s)])

    identity = Logistic(evidence=noisy, design=x, coefficients=np.array([0.0, 1.0]))
    by_positive, by_negative = identity.require_little_noise().influence
    of_noise = noisy.noise_covariance(by_positive, by_negative)
    of_sampling = _row_covariance(exact, by_positive, by_negative)
    share, slope = exact.counts / exact.rows, s * (1 - s)

    def at_leaves(covariance: Floats) -> Floats:
        return np.asarray(slope**2 * np.einsum("ib,ij,jb->b", x, covariance, x))

    sampling, privacy = at_leaves(of_sampling), at_leaves(of_noise)
    return MapError(
        calibration_error=float(share @ _mean_absolute(sampling + privacy)),
        sampling=float(share @ sampling),
        privacy=float(share @ privacy),
        binning=0.0,
    )


def _histogram(noisy: Evidence, exact: Evidence, buckets: int | None) -> MapError:
    """Each bucket says its fraction v̂: sampling variance v(1-v)/n_j, and the noise of a ratio of counts."""
    noisy.require_classes()
    if buckets is None:
        buckets = finest_number(noisy, max(1, round(noisy.rows ** (1 / 3))))
    table = binning_of(noisy, buckets)
    m, n = table.positives, table.negatives
    rows, v = m + n, m / (m + n)
    of_positives, of_negatives = table.noise_variances
    sampling = v * (1 - v) / rows
    privacy = ((1 - v) ** 2 * of_positives + v**2 * of_negatives) / rows**2
    share = rows / noisy.rows
    return MapError(
        calibration_error=float(share @ _mean_absolute(sampling + privacy)),
        sampling=float(share @ sampling),
        privacy=float(share @ privacy),
        binning=_spread_within(exact, table.edges, v),
        buckets=table.number,
    )


def _spread_within(evidence: Evidence, edges: Ints, fractions: Floats) -> float:
    """The mean squared distance of a row's probability from its bucket's."""
    own = np.repeat(fractions, np.diff(edges))
    widths = np.diff(evidence.edges)
    squared = (evidence.scores - own) ** 2 + widths**2 / 12
    return float(evidence.counts @ squared / evidence.rows)


def _row_covariance(evidence: Evidence, by_positive: Floats, by_negative: Floats) -> Floats:
    """The sampling covariance of several functions: Σ c g g^T - (Σ c g)(Σ c g)^T/n."""
    p, n = evidence.positives, evidence.negatives
    second = (by_positive * p) @ by_positive.T + (by_negative * n) @ by_negative.T
    first = by_positive @ p + by_negative @ n
    return np.asarray(second - np.outer(first, first) / evidence.rows)


def _mean_absolute(variances: Floats) -> Floats:
    """E|e| of centred normal errors."""
    return np.sqrt(2 / math.pi * np.maximum(variances, 0.0))


PREDICTED: Mapping[str, Callable[[Evidence, Evidence, int | None], MapError]] = MappingProxyType(
    {"platt": _platt, "histogram": _histogram}
)
"""The methods that can be predicted."""


def best_buckets(
    histogram: ScoreHistogram, *, rows: float, prevalence: float, auc: float, noise: Noise = NO_NOISE
) -> int:
    """The number of buckets of histogram binning with the least Brier excess, among about forty.

    Raises `Undefined` if there are not enough rows for any.

    Examples
    --------
    >>> histogram = ScoreHistogram(transform="mixed", height=12)
    >>> best_buckets(histogram, rows=10_000, prevalence=0.3, auc=0.8)
    24
    """
    most = min(1 << histogram.height, max(2, round(10 * rows ** (1 / 3))))
    numbers = sorted({int(b) for b in np.round(np.geomspace(1, most, 40))})

    def excess(buckets: int) -> float:
        return predict_map(
            histogram,
            method="histogram",
            rows=rows,
            prevalence=prevalence,
            auc=auc,
            noise=noise,
            buckets=buckets,
        ).brier_excess

    return min(numbers, key=excess)
