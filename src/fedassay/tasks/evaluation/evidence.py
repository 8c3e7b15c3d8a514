"""What a released score histogram says: leaf counts of both classes and the law of their noise.

Every estimator of this package is a pure function of an `Evidence`. Smooth ones describe themselves by a
value and its derivative by each leaf count (their influence function); both variances of the error follow
from that, see `Evidence.estimate`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedassay.protocol import Noise
from fedassay.summaries.grid import Grid
from fedassay.summaries.score_histogram import LabelledHistogram
from fedassay.summaries.tree import LeastSquares, Tree
from fedassay.tasks.evaluation.intervals import Estimate
from fedassay.tasks.evaluation.metric import Undefined

Floats = NDArray[np.float64]

ENOUGH = 4.0
"""A count is evidence if it is at least this many of its noise standard deviations."""


def dot(a: Floats, b: Floats) -> float:
    """Σ a_i b_i without BLAS, whose threads wait for each other longer than such a sum takes."""
    return float(np.einsum("i,i->", a, b))


def least_squares(tree: Tree, multipliers: Sequence[int], noise: Noise) -> LeastSquares:
    """The fit of a release with this noise whose levels were multiplied by these numbers."""
    return LeastSquares(tree=tree, variances=tuple(noise.variance / m**2 for m in multipliers))


@dataclass(frozen=True, kw_only=True, eq=False)
class Evidence:
    """Leaf estimates of positives and negatives, after least squares over the tree.

    Under noise the estimates are unbiased but not whole and may be negative. They are never clipped: a sum of
    clipped counts is biased by the number of leaves times the noise, which at 500 rows exceeds the rows.

    Parameters
    ----------
    grid : the score bins.
    fit : the least-squares fit whose error covariance the leaf estimates have (each class, independently).
    positives, negatives : the leaf estimates.
    noise : the law of a node's noise.

    Examples
    --------
    >>> from fedassay.protocol import NO_NOISE
    >>> from fedassay.summaries.score_histogram import ScoreHistogram
    >>> summary = ScoreHistogram(transform="uniform", height=2)
    >>> evidence = Evidence.of(summary.read(np.array([0, 1, 2, 3, 4, 0, 1, 0])), NO_NOISE)
    >>> evidence.positive_rows, evidence.negative_rows
    (6.0, 5.0)
    """

    grid: Grid
    fit: LeastSquares
    positives: Floats
    negatives: Floats
    noise: Noise

    @classmethod
    def of(cls, histogram: LabelledHistogram, noise: Noise) -> Evidence:
        """The evidence in a release."""
        tree, multipliers = histogram.tree, histogram.multipliers
        fit = least_squares(tree, multipliers, noise)
        counted = np.stack([histogram.positives, histogram.negatives]) / np.repeat(
            multipliers, [tree.leaves // width for width in tree.widths]
        )
        positives, negatives = fit.estimate(counted)
        return cls(grid=histogram.grid, fit=fit, positives=positives, negatives=negatives, noise=noise)

    @property
    def exact(self) -> bool:
        """Whether the counts carry no noise."""
        return self.fit.exact

    @cached_property
    def positive_rows(self) -> float:
        """P, the number of positive rows."""
        return float(self.positives.sum())

    @cached_property
    def negative_rows(self) -> float:
        """N, the number of negative rows."""
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
        """P + N."""
        return self.positive_rows + self.negative_rows

    @cached_property
    def counts(self) -> Floats:
        """Rows per leaf, both classes."""
        return self.positives + self.negatives

    @cached_property
    def scores(self) -> Floats:
        """The score that stands for each leaf: its midpoint."""
        return (self.grid.edges[1:] + self.grid.edges[:-1]) / 2

    @cached_property
    def half_widths(self) -> Floats:
        """How far a row's score can be from the one that stands for it."""
        return (self.grid.edges[1:] - self.grid.edges[:-1]) / 2

    def total(self, of_positive: Floats, of_negative: Floats) -> float:
        """The sum over all rows of something that depends on the leaf and the label."""
        return dot(self.positives, of_positive) + dot(self.negatives, of_negative)

    # --- errors --------------------------------------------------------------------------------------------

    def sampling_variance(self, by_positive: Floats, by_negative: Floats) -> float:
        """Multinomial variance of a function with these derivatives: Σ c g² - (Σ c g)²/n.

        Under noise this is an estimate with an error of its own, of which it is never allowed to fall below
        one standard deviation. That is harmless: a variance so uncertain is far below the privacy variance.
        """
        if self.rows <= 0:
            return 0.0
        first, second = self.total(by_positive, by_negative), self.total(by_positive**2, by_negative**2)
        least = 0.0 if self.exact else math.sqrt(self.privacy_variance(by_positive**2, by_negative**2))
        return max(second - first**2 / self.rows, least)

    def privacy_variance(self, by_positive: Floats, by_negative: Floats) -> float:
        """Noise variance of a function with these derivatives; exact if the function is linear."""
        return self.fit.variance(by_positive) + self.fit.variance(by_negative)

    def estimate(
        self, value: float, by_positive: Floats, by_negative: Floats, *, discretisation: float = 0.0
    ) -> Estimate:
        """The estimate with this value and these derivatives by the leaf counts (delta method).

        The derivative by a count is the influence of one more row there, so the sampling variance is that of
        the influence function (for the AUC: DeLong's), and the noise passes through the same weights.
        """
        return Estimate(
            value=value,
            sampling_variance=self.sampling_variance(by_positive, by_negative),
            privacy_variance=self.privacy_variance(by_positive, by_negative),
            discretisation=discretisation,
        )

    # --- is there enough? -----------------------------------------------------------------------------------

    def require(self, what: str, amount: float, noise_variance: float) -> float:
        """The amount, if it can carry a ratio: above zero and above `ENOUGH` noise standard deviations."""
        if self.exact:
            if amount <= 0:
                raise Undefined(f"there are no {what}")
            return amount
        deviation = math.sqrt(noise_variance)
        if amount < ENOUGH * deviation or amount <= 0:
            raise Undefined(
                f"not enough evidence: about {amount:.0f} {what} under privacy noise with standard deviation "
                f"{deviation:.0f}; at least {ENOUGH:.0f} standard deviations are needed"
            )
        return amount

    def require_rows(self) -> float:
        """n, if there are enough rows for any statement."""
        return self.require("rows", self.rows, 2 * self.fit.total_variance)

    def require_classes(self) -> tuple[float, float]:
        """P and N, if there are enough rows of both classes."""
        variance = self.fit.total_variance
        P = self.require("positive rows", self.positive_rows, variance)
        return P, self.require("negative rows", self.negative_rows, variance)
