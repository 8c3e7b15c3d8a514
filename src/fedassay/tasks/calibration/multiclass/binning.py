"""Binning calibrators of several classes, from counts: one step function for each class, and how far to believe it.

All is post-processing of counts, which can be noisy: below zero, and not whole. Bins are merged first and clamped at
zero afterwards; the other way round would turn the noise of many empty bins into rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from fedassay.summaries.multiclass.probability_histograms import ClassCounts
from fedassay.tasks.calibration.bbq import PRIOR_ROWS, beta_binomial_score

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Merged:
    """Counts in `bins` bins, none below zero: classes x bins."""

    positives: Floats
    negatives: Floats

    @classmethod
    def of(cls, counts: ClassCounts, bins: int) -> Merged:
        """From counts in a multiple of so many bins."""
        return cls(positives=_merged(counts.positives, bins), negatives=_merged(counts.negatives, bins))

    @property
    def midpoints(self) -> Floats:
        """Of the bins."""
        bins = self.positives.shape[1]
        return np.asarray((np.arange(bins) + 0.5) / bins)

    @property
    def values(self) -> Floats:
        """The share of positives in each bin; its midpoint if there is nothing in it."""
        rows = self.positives + self.negatives
        empty = rows <= 0
        return np.asarray(np.where(empty, self.midpoints, self.positives / np.where(empty, 1.0, rows)))

    @property
    def log_scores(self) -> Floats:
        """The log marginal likelihood of the labels, for each class."""
        prior = np.asarray(PRIOR_ROWS / self.positives.shape[1])
        return np.asarray(
            beta_binomial_score(self.positives, self.negatives, self.midpoints, prior).sum(axis=1)
        )


def _merged(counts: Floats, bins: int) -> Floats:
    return np.asarray(np.maximum(counts.reshape(len(counts), bins, -1).sum(axis=2), 0.0))


def fit_histogram(counts: ClassCounts) -> Floats:
    """For each class and bin the share of positives, classes x bins; the midpoint of a bin that has no rows.

    Reference: Private Federated Multiclass Post-Hoc Calibration, Appendix B.3 (FedBin).

    Examples
    --------
    >>> positives, negatives = np.array([[1.0, -0.5], [0.0, 3.0]]), np.array([[3.0, 2.0], [0.0, 1.0]])
    >>> fit_histogram(ClassCounts(positives=positives, negatives=negatives, unit_positive=1.0, unit_negative=1.0))
    array([[0.25, 0.  ],
           [0.25, 0.75]])
    """
    return Merged.of(counts, counts.bins).values


def fit_bbq(counts: ClassCounts) -> Floats:
    """For each class the average of its histograms of 2, 4, .., B bins, on the finest of them: classes x B.

    Each is weighted by the marginal likelihood of the labels under the prior of Naeini, Cooper and Hauskrecht 2015
    (`bbq.beta_binomial_score`, N' = 2), in log space. B is a power of two, at least 2.

    Reference: Private Federated Multiclass Post-Hoc Calibration, Appendix B.4 (FedBBQ).

    Examples
    --------
    >>> positives = np.array([[0.0, 0.0, 9.0, 9.0], [1.0, 0.0, 0.0, 9.0]])
    >>> negatives = np.array([[9.0, 9.0, 0.0, 0.0], [9.0, 0.0, 0.0, 1.0]])
    >>> counts = ClassCounts(positives=positives, negatives=negatives, unit_positive=1.0, unit_negative=1.0)
    >>> fit_bbq(counts).round(3)
    array([[0.   , 0.   , 1.   , 1.   ],
           [0.1  , 0.143, 0.857, 0.9  ]])
    """
    models = list(_models(counts))
    weights = softmax(np.stack([model.log_scores for model in models]), axis=0)
    values = np.zeros_like(counts.positives)
    for model, weight in zip(models, weights, strict=True):
        coarse = model.values
        values = values + weight[:, None] * np.repeat(coarse, counts.bins // coarse.shape[1], axis=1)
    return np.clip(values, 0.0, 1.0)


def _models(counts: ClassCounts) -> Iterator[Merged]:
    bins = 2
    while bins <= counts.bins:
        yield Merged.of(counts, bins)
        bins *= 2


BINNINGS: Mapping[str, Callable[[ClassCounts], Floats]] = MappingProxyType(
    {"histogram": fit_histogram, "bbq": fit_bbq}
)
"""The fits by the name of their method."""


# --- how far to believe it ------------------------------------------------------------------------------


def weights_of_rows(seen: Floats, every: Floats) -> Floats:
    """α_j = min(Ñ_j/N_j, 1), the part of the rows of class j that was seen; 0 for a class that has no rows.

    Reference: Private Federated Multiclass Post-Hoc Calibration, Appendix B.5.

    Examples
    --------
    >>> weights_of_rows(np.array([5.0, 30.0, 0.0]), np.array([10.0, 20.0, 0.0]))
    array([0.5, 1. , 0. ])
    """
    none = every <= 0
    return np.where(none, 0.0, np.minimum(seen / np.where(none, 1.0, every), 1.0))


def weights_of_noise(seen: Floats, deviation: float, bins: int) -> Floats:
    """α_j = Ñ_j/(√(2/π) σ B) within [0, 1]: the rows of class j against the mean absolute noise of its histogram.

    `deviation` is σ, the standard deviation of one noisy count of positives, over all releases, in rows.

    Reference: Private Federated Multiclass Post-Hoc Calibration, Appendix B.5, with the σ of all rounds.

    Examples
    --------
    >>> weights_of_noise(np.array([-3.0, 20.0, 900.0]), deviation=math.sqrt(math.pi / 2), bins=100).round(6)
    array([0. , 0.2, 1. ])
    """
    return np.clip(seen / (math.sqrt(2 / math.pi) * deviation * bins), 0.0, 1.0)
