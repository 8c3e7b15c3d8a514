"""Groups of rows with neighbouring scores, and the published statistic: four noisy sums per group, two in denominators.

    H = Σ_j (O_1j - E_1j)²/E_1j + (O_0j - E_0j)²/E_0j           (Barczewski, Mawass and Ramon, Eq. 5)

Where an expected count is small against its noise, its term says nothing about the model. What H looks like if the
model is right has no closed form; it is simulated, from expected counts that come from the released distribution of
the scores. Their errors are independent of the noise in H, and small where it matters: the noise in a count of rows
enters E_1 times a score, and E_0 times one minus it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.optimize import isotonic_regression

from fedassay.estimation.metric import Undefined
from fedassay.protocol.arrays import Floats
from fedassay.protocol.vocabulary import Noise
from fedassay.summaries.bounded_sums import ONE, GroupTotals
from fedassay.tasks.distribution.calibration_groups import (
    DRAWS,
    CalibrationGroups,
    noise_like,
    simulated_tail,
    table,
)
from fedassay.tasks.distribution.search import inverse_by_search


@dataclass(frozen=True, kw_only=True, eq=False)
class ScoreCurve:
    """Number of rows with a score up to i/N, i = 1..N, as released: under noise it can go down.

    Examples
    --------
    >>> curve = ScoreCurve(counts=np.array([1.0, 3.0, 2.0, 4.0]))
    >>> curve.edges(2), curve.edges(4)
    ((0.0, 0.5, 1.0), (0.0, 0.25, 0.5, 1.0))
    """

    counts: Floats

    @property
    def monotone(self) -> ScoreCurve:
        """Closest curve that does not go down (least squares)."""
        return ScoreCurve(counts=np.asarray(isotonic_regression(self.counts).x))

    def edges(self, groups: int) -> tuple[float, ...]:
        """Return edges at the quantiles q/Q, q = 1..Q-1, of the released number of rows.

        Each quantile is found by the search of Algorithm 1 of Barczewski, Mawass and Ramon, down to one point of the
        grid: the upper end of the last interval, which a row can belong to. The larger of two quantiles is never
        found below the smaller one, whatever the curve looks like: wherever the searches part, the larger one goes
        right. Quantiles that coincide, or are found at the end, give fewer groups. Without rows there is one group.
        """
        N, rows = len(self.counts), float(self.counts[-1])
        if rows <= 0:
            return (0.0, 1.0)
        found = {
            inverse_by_search(lambda place: float(self.counts[place]), N, rows * q / groups)
            for q in range(1, groups)
        }
        # Behind the last row there is no group.
        inner = sorted(place for place in found if place < N - 1 and self.counts[place] < rows)
        return (0.0, *((place + 1) / N for place in inner), 1.0)

    def expected(self, edges: tuple[float, ...]) -> tuple[Floats, Floats]:
        """Return the positives and negatives that each group would have if each score were right, each in mid-bin.

        Examples
        --------
        >>> ScoreCurve(counts=np.array([4.0, 8.0])).expected((0.0, 0.5, 1.0))
        (array([1., 3.]), array([3., 1.]))
        """
        N = len(self.counts)
        rows, scores = np.diff(self.counts, prepend=0.0), (np.arange(N) + 0.5) / N
        starts = np.rint(np.array(edges[:-1]) * N).astype(np.int64)
        return np.add.reduceat(rows * scores, starts), np.add.reduceat(rows * (1 - scores), starts)


# --- the statistic of Algorithm 2 ---------------------------------------------------------------------------


TELLING = 2.0
"""Number of standard deviations of its noise that an expected count needs at least to be a denominator."""


@dataclass(frozen=True, kw_only=True, eq=False)
class PublishedGroups:
    """Release of (O_1, O_0, E_1, E_0) for each group, with E_1 and E_0 by the distribution of the scores."""

    totals: GroupTotals
    noise: Noise
    curve: ScoreCurve

    def __post_init__(self) -> None:
        if (self.expected == 0).any():
            raise Undefined("in some group nothing is expected, by its scores, in one of the classes")

    @cached_property
    def observed(self) -> Floats:
        """Observed O_1 and O_0, one row each."""
        return np.stack([self.totals.observed_positives, self.totals.observed_negatives])

    @cached_property
    def expected(self) -> Floats:
        """Expected E_1 and E_0, one row each."""
        assert self.totals.expected_negatives is not None
        return np.stack([self.totals.expected_positives, self.totals.expected_negatives])

    @property
    def number(self) -> int:
        """Number of groups, Q."""
        return len(self.totals.edges) - 1

    @property
    def exact(self) -> bool:
        """True if there is no noise."""
        return self.noise.variance == 0

    @property
    def deviation(self) -> float:
        """Noise standard deviation of each of the sums."""
        return float(np.sqrt(self.noise.variance)) / ONE

    @cached_property
    def statistic(self) -> float:
        """Statistic H, as published; under noise it can even be negative."""
        return float(((self.observed - self.expected) ** 2 / self.expected).sum())

    @cached_property
    def statistic_rounding(self) -> float:
        """First-order bound on how far the rounding of each score can have moved H."""
        ratio = (self.observed - self.expected) / self.expected
        return float((np.abs(2 * ratio + ratio**2) * self.observed.sum(axis=0) / (2 * ONE)).clip(0.0).sum())

    @cached_property
    def foreseen(self) -> Floats:
        """Values of E_1 and E_0 by the distribution of the scores, one row each; not below zero."""
        return np.maximum(0.0, np.stack(self.curve.expected(self.totals.edges)))

    @property
    def smallest(self) -> float:
        """Smallest of the foreseen counts, in standard deviations of the noise in a sum."""
        return float(self.foreseen.min()) / self.deviation

    def p_value(self, *, fitted: bool) -> float | None:
        """Return P(H at least as large) if the model is right, with the noise; None if too little can be said.

        Outcomes are drawn from binomials (for a model that was fitted to these rows, from normals without the two
        directions that a fit removes), and each sum gets noise of its own. Draws in which an expected count is not
        above zero are left out, as such releases are.
        """
        if self.smallest < TELLING or (self.expected <= 0).any():
            return None

        def draw(rng: np.random.Generator) -> Floats:
            shape = (DRAWS, *self.expected.shape)
            expected = self.foreseen + noise_like(self.noise, shape, rng) / ONE
            observed = self._outcomes(rng, fitted=fitted) + noise_like(self.noise, shape, rng) / ONE
            defined = (expected > 0).all(axis=(1, 2))
            safe = np.where(expected > 0, expected, 1.0)
            return np.where(defined, ((observed - expected) ** 2 / safe).sum(axis=(1, 2)), np.nan)

        return simulated_tail(self.statistic, draw)

    def _outcomes(self, rng: np.random.Generator, *, fitted: bool) -> Floats:
        """Draw the true O_1 and O_0."""
        positives, rows = self.foreseen[0], self.foreseen.sum(axis=0)
        if fitted:
            groups = self.foreseen_groups
            removed, size = groups.fitted(), (DRAWS, groups.number)
            free = rng.normal(size=size)
            drawn = positives + np.sqrt(groups.chance) * (free - free @ removed @ removed.T)
        else:
            whole = np.maximum(1, np.rint(rows)).astype(np.int64)
            drawn = rng.binomial(whole, positives / rows, (DRAWS, len(rows))) * (rows / whole)
        return np.stack([drawn, rows - drawn], axis=1)

    @cached_property
    def foreseen_groups(self) -> CalibrationGroups:
        """Groups as the distribution of scores foresees them: what chance and noise make of their gaps."""
        positives, rows = self.foreseen[0], self.foreseen.sum(axis=0)
        number = len(rows)
        return CalibrationGroups(
            edges=self.totals.edges,
            rows=rows,
            observed=self.observed[0],
            expected=positives,
            rounding=np.zeros(number),
            noise=2 * self.deviation**2 * np.eye(number),
            loads=np.zeros((number, 0)),
        )

    def to_json(self) -> list[dict[str, Any]]:
        """Return the table."""
        return table(self.totals.edges, self.observed.sum(axis=0), self.observed[0], self.expected[0])
