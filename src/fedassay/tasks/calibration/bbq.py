"""Bayesian binning into quantiles: an average over many binnings (Naeini, Cooper and Hauskrecht 2015).

Each number of buckets B from M^{1/3}/10 to 10 M^{1/3} is a model; its weight is the marginal likelihood of
the labels when bucket b has a Beta(α_b, β_b) prior, α_b = (N'/B) p_b, β_b = (N'/B)(1 - p_b), N' = 2 and p_b
the bucket's midpoint:

    log Score = Σ_b lnΓ(N'/B) - lnΓ(N_b + N'/B) + lnΓ(m_b + α_b) - lnΓ(α_b) + lnΓ(n_b + β_b) - lnΓ(β_b)

All in log space: weights differ by factors such as e^500.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import gammaln, logsumexp

from fedassay.estimation.calibration_error import equi_depth, prefix_of
from fedassay.estimation.evidence import Evidence
from fedassay.protocol.arrays import Floats, Ints
from fedassay.summaries.maps import Steps
from fedassay.tasks.calibration.binning import Binning, Fitted, binning_of, finest_number

PRIOR_ROWS = 2.0
"""N': the weight of the prior of a whole binning, in rows."""

_NEGLIGIBLE = 1e-12
"""Smallest weight of a binning: those that weigh less are left out; together they move no probability by
more than a thousand times that."""

_AT_ONCE = 2**20
"""Number of buckets that are scored at a time."""


def bucket_numbers(rows: float, most: int) -> Ints:
    """Return each B from M^{1/3}/10 to 10 M^{1/3}, at most `most` (and at most M/5, as its authors do).

    Examples
    --------
    >>> numbers = bucket_numbers(10**5, most=32768)
    >>> int(numbers[0]), int(numbers[-1])
    (4, 465)
    """
    root = rows ** (1 / 3)
    last = min(int(np.ceil(10 * root)), max(1, int(np.ceil(rows / 5))), most)
    return np.arange(min(max(1, int(root / 10)), last), last + 1)


@dataclass(frozen=True, kw_only=True, eq=False)
class BinningBuckets:
    """The buckets of several binnings, one binning after the other."""

    lower: Ints
    """The index of each bucket's lower edge."""
    upper: Ints
    """The index of its upper edge."""
    starts: Ints
    """Index of the first bucket of each binning."""
    numbers: Ints
    """Number of buckets of each binning."""

    @classmethod
    def of(cls, edges: Ints, starts: Ints) -> BinningBuckets:
        """Build the buckets from the edges of several binnings; see `equi_depth`."""
        numbers = np.diff(np.append(starts, len(edges))) - 1
        inside = np.ones(len(edges) - 1, dtype=np.bool_)
        inside[starts[1:] - 1] = False  # between the last edge of a binning and the first of the next
        return cls(
            lower=edges[:-1][inside],
            upper=edges[1:][inside],
            starts=np.concatenate([[0], np.cumsum(numbers)])[:-1],
            numbers=numbers,
        )

    def between(self, below: Floats) -> Floats:
        """Compute the amount in each bucket from the amounts below each edge."""
        return below[self.upper] - below[self.lower]


Score = Callable[[Floats, Floats, Floats, Floats], Floats]
"""The log score of a bucket from its positives, its negatives, its midpoint and the prior rows N'/B."""


def beta_binomial_score(m: Floats, n: Floats, midpoint: Floats, prior: Floats) -> Floats:
    """Compute the published score: the log marginal likelihood of a bucket's labels."""
    alpha, beta = prior * midpoint, prior * (1 - midpoint)
    return np.asarray(
        gammaln(prior)
        - gammaln(m + n + prior)
        + gammaln(m + alpha)
        - gammaln(alpha)
        + gammaln(n + beta)
        - gammaln(beta)
    )


def bbq(evidence: Evidence, *, score: Score = beta_binomial_score) -> Fitted:
    """Average histogram binnings, weighted by their marginal likelihoods, into a step function.

    The value of a bucket is (m_b + α_b)/(N_b + N'/B), the posterior mean under the prior of its score, so never 0 or 1.

    Under noise the score would mistake noise for structure and favour many buckets (Cormode and Markov 2023,
    Section 7.3). Two things prevent it: numbers of buckets that the noise does not allow (`finest_number`) are
    left out, and all counts are divided by r before scoring, r the factor by which noise raises the variance of a
    fraction in the finest binning that remains (a quasi-likelihood with known dispersion; the same r for all,
    so that scores stay comparable). Without noise r = 1 and this is BBQ as published.
    """
    evidence.require_classes()
    numbers = bucket_numbers(evidence.rows, evidence.leaves)
    numbers = numbers[numbers <= max(numbers[0], finest_number(evidence, int(numbers[-1])))]
    prefix, below = prefix_of(evidence), _below(evidence)
    dispersion = binning_of(evidence, int(numbers[-1]), prefix=prefix).dispersion
    scores = np.concatenate(
        [
            _log_scores(evidence, BinningBuckets.of(*equi_depth(prefix, some)), below, dispersion, score)
            for some in _portions(numbers)
        ]
    )
    weights = np.exp(scores - logsumexp(scores))
    kept = weights > _NEGLIGIBLE
    weights = weights[kept] / weights[kept].sum()
    chosen = numbers[kept]
    values, optimism = np.zeros(evidence.leaves), 0.0
    for number, weight in zip(chosen, weights, strict=True):
        binning = binning_of(evidence, int(number), prefix=prefix)
        values += weight * np.repeat(_posterior_means(binning), np.diff(binning.edges))
        optimism += float(weight) * binning.number * binning.dispersion
    return Fitted(
        method="bbq",
        map=Steps.merged(evidence.edges[1:-1], np.clip(values, 0.0, 1.0)),
        parameters=_parameters(numbers, chosen, weights),
        optimism=optimism,
    )


def _below(evidence: Evidence) -> tuple[Floats, Floats]:
    p, n = (np.concatenate([[0.0], np.cumsum(counts)]) for counts in (evidence.positives, evidence.negatives))
    return p, n


def _portions(numbers: Ints) -> Iterator[Ints]:
    """Yield the numbers of buckets in portions that fit into memory."""
    portion = np.cumsum(numbers) // _AT_ONCE
    for part in np.unique(portion):
        yield numbers[portion == part]


def _log_scores(
    evidence: Evidence, buckets: BinningBuckets, below: tuple[Floats, Floats], dispersion: float, score: Score
) -> Floats:
    """Compute the log score of each binning."""
    m, n = (np.maximum(buckets.between(one), 0.0) / dispersion for one in below)
    ends = evidence.edges
    prior = np.repeat(PRIOR_ROWS / buckets.numbers, buckets.numbers)
    midpoints = (ends[buckets.lower] + ends[buckets.upper]) / 2
    return np.asarray(np.add.reduceat(score(m, n, midpoints, prior), buckets.starts))


def _posterior_means(binning: Binning) -> Floats:
    ends, prior = binning.evidence.edges[binning.edges], PRIOR_ROWS / binning.number
    m, n = binning.likely_counts
    return np.asarray((m + prior * (ends[1:] + ends[:-1]) / 2) / (m + n + prior))


def _parameters(numbers: Ints, chosen: Ints, weights: Floats) -> dict[str, Any]:
    return {
        "smallest": int(numbers[0]),
        "largest": int(numbers[-1]),
        "buckets": [int(number) for number in chosen],
        "weights": [float(weight) for weight in weights],
    }
