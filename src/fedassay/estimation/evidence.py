"""Evidence in released counts: leaf counts of both classes and the law of their noise.

Every estimator of this package is a pure function of an `Evidence`. Smooth ones describe themselves by a
value and its derivative by each leaf count (their influence function); both variances of the error follow
from that, see `Evidence.estimate`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.optimize import isotonic_regression

from fedassay.errors import UsageError
from fedassay.estimation.count_noise import LeafCovariance, LevelReports, NodeNoise
from fedassay.estimation.intervals import Estimate
from fedassay.estimation.least_squares import LeastSquares, bit_variances, reporting_clients
from fedassay.estimation.metric import Undefined
from fedassay.estimation.tree import Tree
from fedassay.protocol.arrays import Floats, Ints
from fedassay.protocol.vocabulary import NO_NOISE, Noise

ENOUGH = 4.0
"""Least count that is evidence, in its noise standard deviations."""


def dot(a: Floats, b: Floats) -> float:
    """Return Σ a_i b_i without BLAS, whose threads wait for each other longer than such a sum takes."""
    return float(np.einsum("i,i->", a, b))


@dataclass(frozen=True, kw_only=True, eq=False)
class Evidence:
    """Estimated counts of positives and of negatives per leaf, and the law of their errors.

    Leaves are intervals of the score. Under noise the estimates are unbiased but not whole and may be negative. They
    are never clipped: a sum of clipped counts is biased by the number of leaves times the noise, which at 500 rows
    exceeds the rows.

    Parameters
    ----------
    edges : the edges of the leaves, increasing, one more than there are leaves.
    positives, negatives : the estimates, one per leaf.
    fit : the covariance of the estimates of one class: of the least-squares fit that they come from, or of another
        mechanism.
    noise : the law of the noise in one released count.

    Examples
    --------
    >>> positives, negatives = np.array([0.0, 1.0, 2.0, 3.0]), np.array([4.0, 0.0, 1.0, 0.0])
    >>> evidence = Evidence.exactly(edges=np.linspace(0, 1, 5), positives=positives, negatives=negatives)
    >>> evidence.positive_rows, evidence.negative_rows
    (6.0, 5.0)
    """

    edges: Floats
    positives: Floats
    negatives: Floats
    fit: LeafCovariance
    noise: Noise

    def __post_init__(self) -> None:
        assert len(self.edges) - 1 == len(self.positives) == len(self.negatives)

    @classmethod
    def exactly(cls, *, edges: Floats, positives: Floats, negatives: Floats) -> Evidence:
        """Return the evidence of counts without noise."""
        fit = LeastSquares(tree=Tree(leaves=len(positives)), variances=(0.0,))
        return cls(edges=edges, positives=positives, negatives=negatives, fit=fit, noise=NO_NOISE)

    @property
    def exact(self) -> bool:
        """True if the counts carry no noise."""
        return self.fit.exact

    @cached_property
    def count_noise(self) -> NodeNoise | LevelReports:
        """Law of the error that privacy adds to sums over leaves."""
        if self.exact or not self.noise.reporting:
            return NodeNoise(fit=self.fit)
        assert isinstance(self.fit, LeastSquares)  # only counts on a tree can be reported level by level
        counts = np.stack([plausible(self.positives_below), plausible(self.negatives_below)])
        return LevelReports(
            fit=self.fit,
            bits=bit_variances(self.noise),
            reporting=self.noise.reporting,
            clients=max(reporting_clients(self.noise), float(counts.sum())),
            counts=counts,
        )

    @cached_property
    def positive_rows(self) -> float:
        """Number of positive rows, P."""
        return float(self.positives.sum())

    @cached_property
    def negative_rows(self) -> float:
        """Number of negative rows, N."""
        return float(self.negatives.sum())

    @cached_property
    def positives_below(self) -> Floats:
        """Positive rows below each edge."""
        return np.concatenate([[0.0], np.cumsum(self.positives)])

    @cached_property
    def negatives_below(self) -> Floats:
        """Negative rows below each edge."""
        return np.concatenate([[0.0], np.cumsum(self.negatives)])

    @property
    def rows(self) -> float:
        """Number of rows, P + N."""
        return self.positive_rows + self.negative_rows

    @cached_property
    def counts(self) -> Floats:
        """Rows per leaf, both classes."""
        return self.positives + self.negatives

    @property
    def leaves(self) -> int:
        """Number of leaves."""
        return len(self.positives)

    def nearest_edge(self, threshold: float) -> int:
        """Return the index of the edge nearest to a threshold: where ``score >= threshold`` is applied.

        Never the last edge: scores that equal it share the last leaf with lower ones, unless it is an edge twice.

        Examples
        --------
        >>> nothing = np.zeros(4)
        >>> edges = np.array([0.0, 0.3, 0.5, 0.75, 1.0])
        >>> evidence = Evidence.exactly(edges=edges, positives=nothing, negatives=nothing)
        >>> [evidence.nearest_edge(t) for t in (0.0, 0.3, 0.6, 1.0)]
        [0, 1, 2, 3]
        """
        lowest, highest = self.edges[0], self.edges[-1]
        if not lowest <= threshold <= highest:
            raise UsageError(
                f"threshold: got {threshold}, expected a number in [{lowest:g}, {highest:g}], like the scores."
            )
        return int(np.argmin(np.abs(self.edges[:-1] - threshold)))

    @cached_property
    def scores(self) -> Floats:
        """Score that stands for each leaf: its midpoint."""
        return (self.edges[1:] + self.edges[:-1]) / 2

    @cached_property
    def ends(self) -> tuple[Floats, Floats]:
        """Lowest and the highest score that a row of each leaf can have; the upper edge is outside.

        Under noise the outermost bins are not resolved: a score of 0 or 1 counts as the middle of its bin. Else
        a few rows of noise, times the logarithm of 0, would make every bound meaningless.
        """
        lower, upper = self.edges[:-1].copy(), np.nextafter(self.edges[1:], 0.0)
        upper[-1] = self.edges[-1]  # the last leaf is closed
        if not self.exact:
            lower[0], upper[-1] = self.scores[0], self.scores[-1]
        return lower, upper

    @property
    def ranks(self) -> Ints:
        """Place of each leaf among all in the order of their scores."""
        return np.arange(self.leaves)

    @property
    def sides(self) -> tuple[Floats, Floats]:
        """Lower and the upper edge of the scores at each rank."""
        return self.edges[:-1], self.edges[1:]

    @cached_property
    def half_widths(self) -> Floats:
        """Largest distance of a row's score from the score that stands for it."""
        return (self.edges[1:] - self.edges[:-1]) / 2

    def total(self, of_positive: Floats, of_negative: Floats) -> float:
        """Return the sum over all rows of something that depends on the leaf and the label."""
        return dot(self.positives, of_positive) + dot(self.negatives, of_negative)

    # --- errors --------------------------------------------------------------------------------------------

    def sampling_variance(self, by_positive: Floats, by_negative: Floats) -> float:
        """Return the multinomial variance of a function with these derivatives: Σ c g² - (Σ c g)²/n.

        Under noise this is an estimate with an error of its own, of which it is never allowed to fall below
        one standard deviation. That is harmless: a variance so uncertain is far below the privacy variance.
        """
        if self.rows <= 0:
            return 0.0
        first, second = self.total(by_positive, by_negative), self.total(by_positive**2, by_negative**2)
        least = 0.0 if self.exact else math.sqrt(self.privacy_variance(by_positive**2, by_negative**2))
        return max(second - first**2 / self.rows, least)

    def privacy_variance(self, by_positive: Floats, by_negative: Floats) -> float:
        """Return the noise variance of a function with these derivatives; exact if the function is linear."""
        return self.count_noise.variance(by_positive, by_negative)

    def noise_covariance(self, by_positive: Floats, by_negative: Floats) -> Floats:
        """Return the joint noise covariance of several functions, their derivatives in the rows of two matrices."""
        return self.count_noise.covariance(by_positive, by_negative)

    def estimate(
        self, value: float, by_positive: Floats, by_negative: Floats, *, discretisation: float = 0.0
    ) -> Estimate:
        """Return the estimate with this value and these derivatives by the leaf counts (delta method).

        The derivative by a count is the influence of one more row there. So the sampling variance is that of the
        influence function (for the AUC: DeLong's). The noise passes through the same weights.
        """
        return Estimate(
            value=value,
            sampling_variance=self.sampling_variance(by_positive, by_negative),
            privacy_variance=self.privacy_variance(by_positive, by_negative),
            discretisation=discretisation,
        )

    # --- enough rows ----------------------------------------------------------------------------------------

    def require(self, what: str, amount: float, noise_variance: float) -> float:
        """Return the amount, if it can carry a ratio; see `enough`."""
        return enough(what, amount, 0.0 if self.exact else noise_variance)

    def require_rows(self) -> float:
        """Return n, if there are enough rows for any statement."""
        return self.require("rows", self.rows, self.count_noise.rows)

    def require_classes(self) -> tuple[float, float]:
        """Return P and N, if there are enough rows of both classes."""
        noise = self.count_noise
        P = self.require("positive rows", self.positive_rows, noise.positives.total)
        return P, self.require("negative rows", self.negative_rows, noise.negatives.total)


def enough(what: str, amount: float, noise_variance: float) -> float:
    """Return the amount, if it can carry a ratio: above zero and above `ENOUGH` noise standard deviations.

    Edge case: no variance is no noise.
    """
    if noise_variance == 0:
        if amount <= 0:
            raise Undefined(f"there are no {what}")
        return amount
    deviation = math.sqrt(noise_variance)
    if amount < ENOUGH * deviation or amount <= 0:
        raise Undefined(
            f"not enough evidence: about {max(0.0, amount):.0f} {what} under privacy noise with standard deviation "
            f"{deviation:.0f}; at least {ENOUGH:.0f} standard deviations are needed"
        )
    return amount


def plausible(below: Floats) -> Floats:
    """Return leaf counts that are not negative and have the same total, from noisy counts below each edge.

    They are for variances only. Clipping each count at zero would multiply the rows under strong noise;
    sums up to an edge, made monotone, stay near where they are.
    """
    total = max(0.0, float(below[-1]))
    inner = np.clip(isotonic_regression(below[1:-1]).x, 0.0, total)
    return np.diff(inner, prepend=0.0, append=total)
