"""Federated binning: clients count in one or several rounds; the server adds up, fits, and weights the classes.

Round t asks a cohort for its histograms. Counts add up over rounds, and so do the variances of their noise; everything
after that is post-processing. A client that is in several cohorts is counted as often.

Binning calibrators of several classes, from counts: one step function for each class, and its weight.

All is post-processing of counts, which can be noisy: below zero, and not whole. Bins are merged first and clamped at
zero afterwards; the other way round would turn the noise of many empty bins into rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
from scipy.special import softmax

from fedassay.errors import UsageError
from fedassay.protocol.arrays import Floats
from fedassay.protocol.vocabulary import All, Part, Sample, Setting, Step, Sum, Unit
from fedassay.summaries.multiclass.binned_map import TALLEST, Binned, BinnedChanged
from fedassay.summaries.multiclass.histograms import ClassCounts, ProbabilityHistograms
from fedassay.summaries.multiclass.scaling_maps import LogitMap
from fedassay.summaries.scored import whole
from fedassay.tasks.calibration.bbq import PRIOR_ROWS, beta_binomial_score
from fedassay.tasks.calibration.multiclass.exact import Fit

# --- binning calibrators of several classes -----------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class Merged:
    """Counts in `bins` bins, none below zero: classes x bins."""

    positives: Floats
    negatives: Floats

    @classmethod
    def of(cls, counts: ClassCounts, bins: int) -> Merged:
        """Merge counts in a multiple of this number of bins."""
        shape = (len(counts.positives), bins, -1)
        positives, negatives = (
            np.maximum(part.reshape(shape).sum(axis=2), 0.0) for part in (counts.positives, counts.negatives)
        )
        return cls(positives=positives, negatives=negatives)

    @property
    def midpoints(self) -> Floats:
        """Midpoints of the bins."""
        bins = self.positives.shape[1]
        return np.asarray((np.arange(bins) + 0.5) / bins)

    @property
    def values(self) -> Floats:
        """The share of positives in each bin; its midpoint if the bin is empty."""
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


def fit_histogram(counts: ClassCounts) -> Floats:
    """Compute the share of positives per class and bin, classes x bins; the midpoint of a bin without rows.

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
    """Average each class's histograms of 2, 4, .., B bins, on the finest of them: classes x B.

    Weights are the marginal likelihoods of the labels under the prior of Naeini, Cooper and Hauskrecht 2015
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
    models = [Merged.of(counts, 1 << height) for height in range(1, counts.bins.bit_length())]
    weights = softmax(np.stack([model.log_scores for model in models]), axis=0)
    values = np.zeros_like(counts.positives)
    for model, weight in zip(models, weights, strict=True):
        coarse = model.values
        values = values + weight[:, None] * np.repeat(coarse, counts.bins // coarse.shape[1], axis=1)
    return np.clip(values, 0.0, 1.0)


BINNINGS: Mapping[str, Callable[[ClassCounts], Floats]] = MappingProxyType(
    {"histogram": fit_histogram, "bbq": fit_bbq}
)
"""Fits by the name of their method."""


# --- weights of the classes -----------------------------------------------------------------------------


def weights_of_rows(seen: Floats, every: Floats) -> Floats:
    """Return α_j = min(Ñ_j/N_j, 1), the part of the rows of class j that was seen; 0 for a class without rows.

    Reference: Private Federated Multiclass Post-Hoc Calibration, Appendix B.5.

    Examples
    --------
    >>> weights_of_rows(np.array([5.0, 30.0, 0.0]), np.array([10.0, 20.0, 0.0]))
    array([0.5, 1. , 0. ])
    """
    none = every <= 0
    return np.where(none, 0.0, np.minimum(seen / np.where(none, 1.0, every), 1.0))


def weights_of_noise(seen: Floats, deviation: float, bins: int) -> Floats:
    """Return α_j = Ñ_j/(√(2/π) σ B) within [0, 1]: rows of class j against the mean absolute noise of its histogram.

    `deviation` is σ, the standard deviation of one noisy count of positives, over all releases, in rows.

    Reference: Private Federated Multiclass Post-Hoc Calibration, Appendix B.5, with the σ of all rounds.

    Examples
    --------
    >>> weights_of_noise(np.array([-3.0, 20.0, 900.0]), deviation=math.sqrt(math.pi / 2), bins=100).round(6)
    array([0. , 0.2, 1. ])
    """
    return np.clip(seen / (math.sqrt(2 / math.pi) * deviation * bins), 0.0, 1.0)


# --- federated binning --------------------------------------------------------------------------------------

WEIGHTINGS = ("none", "all", "changed")
"""Rows that the weights apply to: none, all, or those whose top class the calibrator would change."""

HEIGHT = 7
"""Height of a binning: 128 bins."""

POSITIVE_CLIP, NEGATIVE_CLIP = 10.0, 50.0
"""C₊ and C₋ as published (Section 5, RQ3)."""

MOST_ROUNDS = 10_000


@dataclass(frozen=True, kw_only=True)
class FederatedBinning:
    """A binning calibrator from the counts of all rounds.

    Guarantee: without noise and with all clients in one round, the map is that of the pooled rows, however they are
    spread over clients. Under noise, rounds spend equal shares.

    Edge cases: without noise and without rows, the model's own probabilities and a reason; without noise, a class
    without rows is left to the model by the weights.

    Parameters
    ----------
    method : ``histogram`` (FedBin) or ``bbq`` (FedBBQ).
    height : M, for 2^M bins.
    rounds, participation : number of rounds, and the share of the clients in each round, drawn at random.
    weighting : ``none``; ``all``, the weights α_j count for all rows; ``changed``, only for rows whose most probable
        class the calibrator would change. α_j is the part of the rows of class j that was seen (all rows of each class
        are counted once for it, together with the first round), or under noise rows against noise.
    positive_clip, negative_clip, joint : clips for the unit client under noise; see `ProbabilityHistograms`. Otherwise,
        or with clips of 0, counts are plain.

    Reference: Private Federated Multiclass Post-Hoc Calibration, Algorithm 1, Section 4.3 and Appendices B.3 to B.5;
    corrections are described in `ProbabilityHistograms` and in `binning`.
    """

    method: str
    classes: int
    height: int = HEIGHT
    rounds: int = 1
    participation: float = 1.0
    weighting: str = "all"
    positive_clip: float = POSITIVE_CLIP
    negative_clip: float = NEGATIVE_CLIP
    joint: bool = True
    part: Part = Part.FIT

    def __post_init__(self) -> None:
        if self.method not in BINNINGS:
            raise UsageError(f"method: got {self.method!r}, expected one of {', '.join(BINNINGS)}.")
        if self.weighting not in WEIGHTINGS:
            raise UsageError(f"weighting: got {self.weighting!r}, expected one of {', '.join(WEIGHTINGS)}.")
        whole(self.height, what="height", least=1, most=TALLEST)
        whole(self.rounds, what="rounds", least=1, most=MOST_ROUNDS)
        Sample(rate=self.participation)  # refuses a number that is no rate

    @property
    def cohort(self) -> All | Sample:
        """Clients that each round asks."""
        return Sample(rate=self.participation) if self.participation < 1 else All()

    def queries(self, setting: Setting) -> tuple[Sum[ClassCounts], Sum[ClassCounts] | None]:
        """Return the query of each round, and a single query of all clients if weights need the rows of each class.

        Clients clip where noise protects clients. Where there is noise, it determines the weights of counts.
        """
        plain = ProbabilityHistograms(classes=self.classes, height=self.height)
        bounded = replace(
            plain, positive_clip=self.positive_clip, negative_clip=self.negative_clip, joint=self.joint
        )
        of = bounded if setting.protection.unit is Unit.CLIENT else plain
        query = Sum(of=of, share=1 / self.rounds, cohort=self.cohort, part=self.part)
        if setting.noise(query).variance > 0:
            return query, None
        query = replace(query, of=plain)
        if self.weighting == "none" or isinstance(self.cohort, All):
            return query, None
        share = 1 / (self.rounds + 1)
        by_class = ProbabilityHistograms(classes=self.classes, height=0)
        return replace(query, share=share), Sum(of=by_class, share=share, part=self.part)

    def fit(self, setting: Setting) -> Generator[Step, Any, Fit]:
        """Run all rounds and return the map that they give. Tasks `yield from` it."""
        query, of_everybody = self.queries(setting)
        if of_everybody is None:
            first = yield query
        else:
            first, everybody = yield query, of_everybody
        counts, variance, clients = first.value, first.noise.variance, first.clients
        for _ in range(self.rounds - 1):
            released = yield query
            counts, variance = counts + released.value, variance + released.noise.variance
            clients = max(clients, released.clients)
        if of_everybody is not None:
            every, clients = everybody.value.by_class, everybody.clients
        else:
            known = variance == 0 and isinstance(self.cohort, All)
            every = counts.by_class / self.rounds if known else None
        return self._fitted(_Gathered(counts=counts, variance=variance, clients=clients, every=every))

    def _fitted(self, gathered: _Gathered) -> Fit:
        nothing = gathered.variance == 0 and not gathered.counts.by_class.any()
        values = BINNINGS[self.method](gathered.counts)
        # Without rows all weights are zero, for any weighting.
        weights = np.zeros(self.classes) if nothing else self._weights(gathered)
        kind: type[LogitMap] = BinnedChanged if self.weighting == "changed" and not nothing else Binned
        return Fit(
            map=kind.of(np.concatenate([values.reshape(-1), weights]), self.classes),
            rows=None if gathered.every is None else float(gathered.every.sum()),
            clients=gathered.clients,
            sums=self.rounds,
            reason=_why(gathered) if nothing else "",
            noise=gathered.noise,
        )

    def _weights(self, gathered: _Gathered) -> Floats:
        seen = gathered.counts.by_class
        if self.weighting == "none":
            return np.ones(self.classes)
        if gathered.variance > 0:
            return weights_of_noise(seen, gathered.noise["positives"], gathered.counts.bins)
        assert gathered.every is not None
        return weights_of_rows(seen, gathered.every)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Gathered:
    """Counts of all rounds, the variance of their noise in units of the vector, and the number of clients.

    `every` is the number of rows of each class over all clients, where known.
    """

    counts: ClassCounts
    variance: float
    clients: int
    every: Floats | None

    @property
    def noise(self) -> dict[str, float]:
        """Standard deviations of one count, in rows; empty where there is no noise."""
        if self.variance == 0:
            return {}
        root = math.sqrt(self.variance)
        return {"positives": self.counts.unit_positive * root, "negatives": self.counts.unit_negative * root}


def _why(gathered: _Gathered) -> str:
    others = gathered.every is not None and gathered.every.any()
    return "none of the clients that took part had rows" if others else "there are no rows"
