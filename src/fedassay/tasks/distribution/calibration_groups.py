"""Observed against expected outcomes, group by group, and how far apart they are if a model is right.

| symbol | meaning |
|---|---|
| n_j, O_j, E_j | rows, positive rows and sum of scores of group j, with noise |
| D = O - E | the gaps |
| B = diag(E_j (1 - E_j/n_j)) | what chance makes of them, as in the classical test |
| N | what noise makes of them |
| V = B + N | both |
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.linalg import orth
from scipy.special import gammaincc, logit

from fedassay.estimation.calibration_error import Buckets, equi_depth_edges
from fedassay.estimation.evidence import ENOUGH, Evidence
from fedassay.estimation.least_squares import LeastSquares
from fedassay.estimation.metric import Undefined
from fedassay.protocol.arrays import Floats
from fedassay.protocol.vocabulary import Noise
from fedassay.summaries.bounded_sums import ONE, GroupTotals

# --- what a test statistic looks like if a model is right and there is --------------------------------------


DRAWS = 4_999
"""Number of simulated statistics per p-value: none is below 1/5,000."""

_SEED = 20_250_101
"""Constant seed: the same release always gives the same p-value."""


def fourth_cumulant(noise: Noise) -> float:
    """Return κ_4 of the noise in a coordinate: what it has beyond a normal law of the same variance.

    Discrete Laplace noise is the difference of two geometric draws of variance v/2, κ_4 = v(1 + 3v); a Skellam draw has
    κ_4 = v. Cumulants of independent draws (`Noise.copies`) add up. Others count as normal: the discrete Gaussian,
    and sums over clients that randomise their bits.

    Examples
    --------
    >>> fourth_cumulant(Noise(law="discrete-laplace", scale=1.0, variance=2.0))
    14.0
    >>> fourth_cumulant(Noise(law="discrete-laplace", scale=1.0, variance=20.0, copies=10.0))
    140.0
    """
    if noise.law == "discrete-laplace":
        one = noise.variance / noise.copies
        return noise.copies * one * (1 + 3 * one)
    return noise.variance if noise.law == "skellam" else 0.0


def upper_tail(statistic: float, *, mean: float, variance: float) -> float:
    """Return P(T >= statistic) for a gamma law with this mean and variance.

    With variance = 2·mean it is the χ² law with `mean` degrees of freedom. For sums of squares whose terms have
    heavier tails than normal ones, it is closer than that: see docs/explanation/hosmer-lemeshow.md.

    Examples
    --------
    >>> round(upper_tail(18.307, mean=10, variance=20), 5), round(upper_tail(18.307, mean=10, variance=35), 3)
    (0.05, 0.093)
    """
    return float(gammaincc(mean**2 / variance, max(0.0, statistic) * mean / variance))


def noise_like(noise: Noise, shape: tuple[int, ...], rng: np.random.Generator) -> Floats:
    """Draw from this law; whole numbers become real ones, which for a scale of many units makes no difference."""
    if noise.law == "discrete-laplace" and noise.copies == 1:
        return rng.laplace(0.0, noise.scale, shape)
    if noise.law == "discrete-laplace":
        return rng.gamma(noise.copies, noise.scale, shape) - rng.gamma(noise.copies, noise.scale, shape)
    return rng.normal(0.0, np.sqrt(noise.variance), shape)


def simulated_tail(statistic: float, draw: Callable[[np.random.Generator], Floats]) -> float:
    """Return the p-value of a statistic among draws of its null: (1 + those not below it)/(1 + all of them).

    `draw` gets a generator with a constant seed and returns statistics; NaN are those that are not defined, and left
    out.
    """
    drawn = draw(np.random.default_rng(_SEED))
    defined = drawn[~np.isnan(drawn)]
    return float((1 + np.count_nonzero(defined >= statistic)) / (1 + len(defined)))


# --- observed against expected outcomes ---------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class CalibrationGroups:
    """Groups with enough rows each.

    Parameters
    ----------
    edges : one more than there are groups.
    rows, observed, expected : n, O and E.
    rounding : how far binning, or fixed point, can have moved each E.
    noise : N, the covariance of the gaps that the noise makes.
    loads : the gaps as sums over independent draws of noise, one column for each, in units in which the fourth
        cumulant of each draw is 1; no columns if the noise counts as normal.
    """

    edges: tuple[float, ...]
    rows: Floats
    observed: Floats
    expected: Floats
    rounding: Floats
    noise: Floats
    loads: Floats

    def __post_init__(self) -> None:
        if not self.exact:
            return
        if (self.rows <= 0).any():
            raise Undefined("there are no rows in a group")
        if (self.chance <= 0).any():
            raise Undefined(
                "in some group all scores are 0 or all are 1, so that no outcome is left to chance"
            )

    @property
    def number(self) -> int:
        """Number of groups, Q."""
        return len(self.rows)

    @property
    def exact(self) -> bool:
        """True if there is no noise."""
        return not self.noise.any()

    @cached_property
    def chance(self) -> Floats:
        """Diagonal of B; noise can make a variance negative, which then counts as zero."""
        share: Floats = self.expected / np.where(self.rows > 0, self.rows, np.inf)
        return np.maximum(0.0, self.expected * (1 - share))

    @cached_property
    def _inverse(self) -> Floats:
        return np.asarray(np.linalg.inv(np.diag(self.chance) + self.noise), dtype=np.float64)

    @property
    def gaps(self) -> Floats:
        """Gaps D."""
        return self.observed - self.expected

    @cached_property
    def statistic(self) -> float:
        """Statistic X² = D^T V^{-1} D; without noise the classical statistic."""
        return float(self.gaps @ self._inverse @ self.gaps)

    @cached_property
    def statistic_rounding(self) -> float:
        """First-order bound on how far the rounding of E can have moved the statistic, by D and by V."""
        weights = self._inverse @ self.gaps
        by_expected = 2 * np.abs(weights) + weights**2 * np.abs(1 - 2 * self.expected / self.rows)
        return float(by_expected @ self.rounding)

    def moments(self, removed: Floats) -> tuple[float, float]:
        """Return the mean and the variance of X² if the model is right and V is as estimated.

        With the covariance Σ of the gaps, E X² = tr(V^{-1}Σ) and

            Var X² = 2 tr((V^{-1}Σ)²) + Σ_d κ_4(d) (w_d^T V^{-1} w_d)²,

        where draw d of the noise enters the gaps as w_d: the last sum is what tails heavier than normal ones add.
        Chance counts as normal. Σ is V without what is `removed` (orthonormal directions in units of √B) by fitting.
        """
        root = np.sqrt(self.chance)
        chance = np.diag(self.chance) - np.outer(root, root) * (removed @ removed.T)
        relative = self._inverse @ (chance + self.noise)
        heavy = np.einsum("jd,ji,id->d", self.loads, self._inverse, self.loads)
        return float(np.trace(relative)), float(2 * np.trace(relative @ relative) + (heavy**2).sum())

    @property
    def nothing_removed(self) -> Floats:
        """Directions that a frozen model leaves no gaps in: none."""
        return np.zeros((self.number, 0))

    def fitted(self) -> Floats:
        """Return both directions in which a logistic fit to these rows leaves no gaps: Σ(y-s) = Σ(y-s)·logit s = 0."""
        if self.number < 3:
            raise Undefined(
                f"there are {self.number} groups, and a model fitted to the rows needs at least 3"
            )
        half = 0.5 / np.maximum(1.0, self.rows)
        slopes = logit(np.clip(self.expected / self.rows, half, 1 - half))
        return np.asarray(
            orth(np.sqrt(self.chance)[:, None] * np.stack([np.ones_like(slopes), slopes], axis=1))
        )

    @property
    def drowned(self) -> int:
        """Number of groups in which noise makes up more than half of the variance of the gap, the other gaps given.

        1/(V^{-1})_jj is the variance of D_j given the other gaps. It matters where their noise has much in common, as
        that of neighbours in a histogram.
        """
        return int(np.count_nonzero(2 * self.chance * np.diag(self._inverse) < 1))

    def to_json(self) -> list[dict[str, Any]]:
        """Return the table."""
        return table(self.edges, self.rows, self.observed, self.expected)


def table(edges: tuple[float, ...], rows: Floats, observed: Floats, expected: Floats) -> list[dict[str, Any]]:
    """Return one entry per group, with the scores between which it lies."""
    names = ("lower", "upper", "rows", "observed", "expected")
    columns = (edges[:-1], edges[1:], rows, observed, expected)
    return [
        {name: float(value) for name, value in zip(names, values, strict=True)}
        for values in zip(*columns, strict=True)
    ]


def enough_rows(rows: Floats, deviation: Callable[[int, int], float]) -> list[int]:
    """Return where to cut a row of groups so that each part has enough rows: more than none, and than noise can feign.

    Parameters
    ----------
    rows : of each group, as released.
    deviation : the noise standard deviation of the rows of the groups from i up to but not j.

    Each part ends as soon as it has `ENOUGH` noise standard deviations of rows; what is left over at the end joins the
    part before it, and so on until that has enough. If there are not enough rows in all, the answer has no part.

    Examples
    --------
    >>> enough_rows(np.array([100.0, 3.0, 50.0, 2.0]), lambda i, j: 5.0)
    [0, 1, 4]
    """

    def enough(start: int, end: int) -> bool:
        total = float(rows[start:end].sum())
        return total > 0 and total >= ENOUGH * deviation(start, end)

    starts = [0]
    for end in range(1, len(rows)):
        if enough(starts[-1], end):
            starts.append(end)
    while starts and not enough(starts[-1], len(rows)):
        starts.pop()
    return [*starts, len(rows)] if starts else [0]


def from_totals(totals: GroupTotals, noise: Noise) -> CalibrationGroups:
    """Return the groups of a release of (O_1, O_0, E_1), neighbours joined where a group has too few rows."""
    v = noise.variance / ONE**2
    rows = totals.observed_positives + totals.observed_negatives
    cuts = enough_rows(rows, lambda i, j: float(np.sqrt(2 * v * (j - i))))
    _require_parts(cuts, rows, np.sqrt(2 * v * len(rows)))
    joins = np.zeros((len(cuts) - 1, len(rows)))
    for part, (i, j) in enumerate(pairwise(cuts)):
        joins[part, i:j] = 1.0
    size = joins.sum(axis=1)
    heavy = fourth_cumulant(noise) ** 0.25 / ONE
    return CalibrationGroups(
        edges=tuple(totals.edges[cut] for cut in cuts),
        rows=joins @ rows,
        observed=joins @ totals.observed_positives,
        expected=joins @ totals.expected_positives,
        rounding=np.maximum(0.0, joins @ rows) / (2 * ONE),
        noise=np.diag(2 * v * size),
        loads=heavy * np.concatenate([joins, -joins], axis=1),
    )


def from_evidence(evidence: Evidence, groups: int) -> CalibrationGroups:
    """Return equi-depth groups of a released score histogram, neighbours joined where a group has too few rows.

    The scores of a bin count as its middle. Groups here hold the scores from `lower` up to but not `upper`.
    """
    edges = equi_depth_edges(evidence, groups)
    leaves = np.arange(evidence.leaves)

    def members(i: int, j: int) -> Floats:
        return ((leaves >= edges[i]) & (leaves < edges[j])).astype(np.float64)

    def deviation(i: int, j: int) -> float:
        return float(np.sqrt(evidence.privacy_variance(members(i, j), members(i, j))))

    rows = np.add.reduceat(evidence.counts, edges[:-1])
    cuts = enough_rows(rows, deviation)
    _require_parts(cuts, rows, deviation(0, len(rows)))
    buckets = Buckets(evidence=evidence, edges=tuple(edges[cut] for cut in cuts))
    within = np.stack([members(i, j) for i, j in pairwise(cuts)])
    return CalibrationGroups(
        edges=tuple(float(evidence.edges[edge]) for edge in buckets.edges),
        rows=buckets.rows,
        observed=buckets.observed,
        expected=buckets.expected,
        rounding=buckets.expected_bound,
        noise=buckets.gap_noise_covariance,
        loads=_loads(evidence, within * (1 - evidence.scores), -within * evidence.scores),
    )


def _loads(evidence: Evidence, of_positive: Floats, of_negative: Floats) -> Floats:
    """Return how the noise of each node enters sums over leaves, in units of its fourth cumulant."""
    fit, noise = evidence.fit, evidence.noise
    fourth = fourth_cumulant(noise)
    if fourth == 0 or not isinstance(fit, LeastSquares):
        return np.zeros((len(of_positive), 0))
    # The counts of a level were divided by its multiplier, and so was the noise in them.
    divided = np.sqrt(np.array(fit.variances) / noise.variance)
    return np.concatenate(
        [
            weights * (by * fourth**0.25)
            for side in (of_positive, of_negative)
            for weights, by in zip(fit.node_weights(side), divided, strict=True)
        ],
        axis=1,
    )


def _require_parts(cuts: list[int], rows: Floats, deviation: float) -> None:
    if len(cuts) > 1:
        return
    if deviation == 0:
        raise Undefined("there are no rows")
    raise Undefined(
        f"not enough evidence: about {rows.sum():.0f} rows under privacy noise with standard deviation "
        f"{deviation:.0f}"
    )
