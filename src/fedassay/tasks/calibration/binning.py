"""Buckets of equal depth, the effect of noise on them, and the result of fitting a calibrator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import log_ndtr

from fedassay.estimation.calibration_error import equi_depth, prefix_of
from fedassay.estimation.evidence import ENOUGH, Evidence
from fedassay.estimation.metric import Undefined
from fedassay.protocol.arrays import Floats, Ints
from fedassay.summaries.maps import EPSILON, Map

LARGEST_DISPERSION = 2.0
"""Dispersion up to which any number of buckets is allowed: privacy noise equals sampling error."""

FEWEST_BUCKETS = 5
"""Smallest number of buckets of a calibrator under noise."""

_PROBES = 8
"""Number of buckets of a binning whose noise is computed, to represent that of all."""


def posterior_counts(counts: Floats, variances: Floats) -> Floats:
    """Compute the mean of a count that is known to be at least 0, given a noisy estimate of it (flat prior).

    x + σ φ(x/σ)/Φ(x/σ): the estimate itself where it stands out from the noise, and about 0.8 σ where nothing
    does. Without noise it is the count. Use it after summing: it is biased where counts are small, and the sum of
    many such biases exceeds the rows.

    Examples
    --------
    >>> posterior_counts(np.array([50.0, 0.0, -3.0]), np.array([4.0, 4.0, 0.0])).round(3)
    array([50.   ,  1.596,  0.   ])
    """
    sigma = np.sqrt(np.maximum(variances, 0.0))
    z = np.divide(counts, sigma, out=np.zeros_like(counts), where=sigma > 0)
    # φ/Φ in log space: both vanish far below zero.
    ratio = np.exp(-(z**2) / 2 - np.log(2 * np.pi) / 2 - log_ndtr(z))
    return np.asarray(np.maximum(counts + sigma * ratio, 0.0))


@dataclass(frozen=True, kw_only=True, eq=False)
class Binning:
    """One binning of a release: positives and negatives per bucket, and the noise in them."""

    evidence: Evidence
    edges: Ints

    @property
    def number(self) -> int:
        """Number of buckets."""
        return len(self.edges) - 1

    @cached_property
    def positives(self) -> Floats:
        """Positive rows per bucket, as released: under noise they may be negative."""
        return np.asarray(np.add.reduceat(self.evidence.positives, self.edges[:-1]))

    @cached_property
    def negatives(self) -> Floats:
        """Negative rows per bucket, as released."""
        return np.asarray(np.add.reduceat(self.evidence.negatives, self.edges[:-1]))

    @cached_property
    def noise_variances(self) -> tuple[Floats, Floats]:
        """The privacy variance of each bucket's positives and negatives."""
        if self.evidence.exact:
            return np.zeros(self.number), np.zeros(self.number)
        variances = np.array([self._noise_of(bucket) for bucket in range(self.number)])
        return variances[:, 0], variances[:, 1]

    def _noise_of(self, bucket: int) -> tuple[float, float]:
        member = np.zeros(self.evidence.leaves)
        member[self.edges[bucket] : self.edges[bucket + 1]] = 1.0
        nobody = np.zeros_like(member)
        of = self.evidence.privacy_variance
        return of(member, nobody), of(nobody, member)

    @cached_property
    def counts(self) -> tuple[Floats, Floats]:
        """Posterior means of the positives and negatives per bucket: none is negative."""
        of_positives, of_negatives = self.noise_variances
        return posterior_counts(self.positives, of_positives), posterior_counts(self.negatives, of_negatives)

    @cached_property
    def dispersions(self) -> Floats:
        """Ratio of the variance of each bucket's fraction to the binomial variance; 1 without noise."""
        noise, binomial = _variances(*self.counts, *self.noise_variances)
        return np.asarray(1 + np.divide(noise, binomial, out=np.zeros_like(noise), where=noise > 0))

    @cached_property
    def _probes(self) -> tuple[Ints, Floats]:
        """Indices of a few buckets, and the privacy variances of their positives and negatives."""
        chosen = np.unique(np.linspace(0, self.number - 1, _PROBES).astype(np.int64))
        return chosen, np.array([self._noise_of(int(bucket)) for bucket in chosen])

    @cached_property
    def dispersion(self) -> float:
        """Dispersion of all buckets together, from a few of them: Σ noise / Σ binomial variance, plus 1."""
        if self.evidence.exact:
            return 1.0
        chosen, variances = self._probes
        m = posterior_counts(self.positives[chosen], variances[:, 0])
        n = posterior_counts(self.negatives[chosen], variances[:, 1])
        noise, binomial = _variances(m, n, *variances.T)
        return 1 + float(noise.sum() / binomial.sum())

    @cached_property
    def likely_counts(self) -> tuple[Floats, Floats]:
        """`counts` with the mean noise variance of a few buckets for all: for binnings of many buckets."""
        if self.evidence.exact:
            return self.positives, self.negatives
        typical = self._probes[1].mean(axis=0)
        return (
            posterior_counts(self.positives, np.full(self.number, typical[0])),
            posterior_counts(self.negatives, np.full(self.number, typical[1])),
        )

    @cached_property
    def centres(self) -> Floats:
        """The mean score of each bucket's rows, kept inside the bucket."""
        counts, ends = self.evidence.counts, self.evidence.edges[self.edges]
        rows = np.add.reduceat(counts, self.edges[:-1])
        sums = np.add.reduceat(counts * self.evidence.scores, self.edges[:-1])
        middle = (ends[1:] + ends[:-1]) / 2
        means = np.divide(sums, rows, out=middle.copy(), where=rows > 0)
        return np.asarray(np.clip(means, ends[:-1], ends[1:]))


def _variances(m: Floats, n: Floats, of_positives: Floats, of_negatives: Floats) -> tuple[Floats, Floats]:
    """Compute the variances of (1 - v) m - v n, with v = m/(m + n), due to privacy noise and to sampling."""
    v = m / (m + n)
    return (1 - v) ** 2 * of_positives + v**2 * of_negatives, m * n / (m + n)


def binning_of(evidence: Evidence, buckets: int, *, prefix: Floats | None = None) -> Binning:
    """Build the equi-depth binning with (at most) this number of buckets."""
    edges, _ = equi_depth(prefix_of(evidence) if prefix is None else prefix, [buckets])
    return Binning(evidence=evidence, edges=edges)


def finest_number(evidence: Evidence, most: int) -> int:
    """Find the largest number of buckets, up to `most`, that the noise allows; `most` without noise.

    B buckets are allowed if noise does not exceed the sampling error, r(B) <= 2, or if B <= (M/r(B))^{1/3}:
    noise divides the M rows by r, and M^{1/3} buckets balance the two errors of a bucket (Cormode and Markov
    2023, Theorems 7 and 8). Both fail from some B on, which is found by bisection.

    Raises `Undefined` if not even `FEWEST_BUCKETS` (or `most`, if less) are allowed.
    """
    if evidence.exact:
        return most
    prefix = prefix_of(evidence)

    def few_enough(buckets: int) -> bool:
        r = binning_of(evidence, buckets, prefix=prefix).dispersion
        return r <= LARGEST_DISPERSION or buckets**3 * r <= evidence.rows

    low, high = 1, most + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if few_enough(middle) else (low, middle)
    if low < min(FEWEST_BUCKETS, most):
        raise Undefined(
            f"not enough evidence: privacy noise leaves room for {low} "
            f"bucket{'s' if low > 1 else ''}, at least {FEWEST_BUCKETS} are needed"
        )
    return low


def supported_scores(evidence: Evidence) -> Floats:
    """Return the score of each leaf, away from 0 and 1, and under noise no further out than rows are seen.

    The outermost leaves hold noise but hardly a row. The noise would weigh on sums of logarithms in
    proportion to their logit. They get the score of the outermost leaf beyond which the rows stand out from
    the noise.
    """
    scores = np.clip(evidence.scores, EPSILON, 1 - EPSILON)
    if evidence.exact:
        return scores
    leaves, prefix = evidence.leaves, prefix_of(evidence)
    inside = (np.arange(leaves) < np.linspace(0, leaves, _PROBES + 2).astype(np.int64)[1:, None]) * 1.0
    least = ENOUGH * max(evidence.privacy_variance(one, one) for one in inside) ** 0.5
    low = int(np.searchsorted(prefix, least, side="right")) - 1
    high = int(np.searchsorted(prefix, prefix[-1] - least))
    if low >= high:
        return scores
    return np.clip(scores, scores[low], scores[high - 1])


# --- result of fitting a calibrator -------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """A map with the name of its method and the numbers that describe it.

    `optimism` is the amount by which the log-likelihood of the rows it was fitted to is expected to exceed that
    of as many new rows: the number of fitted parameters, each counted as often as noise adds to its variance
    (Akaike 1973; Takeuchi 1976 for models that are only approximately true).
    """

    method: str
    map: Map
    parameters: Mapping[str, Any]
    optimism: float = field(repr=False)

    def log_probabilities(self, evidence: Evidence) -> tuple[Floats, Floats] | None:
        """Return log c and log(1 - c) per leaf; None if rows get 0 or 1, which some row will contradict."""
        calibrated = self.map(supported_scores(evidence))
        claimed = calibrated[evidence.counts != 0]
        if claimed.min() <= 0 or claimed.max() >= 1:
            return None
        calibrated = np.clip(calibrated, EPSILON, 1 - EPSILON)
        return np.log(calibrated), np.log1p(-calibrated)
