"""The threshold from the distribution of all scores together: what pooling would give, but for noise and bins.

Without noise it is the score of rank ⌈(1-α)(N+1)⌉ (or (N+K) for `weighted`), rounded up to a point of the grid. With
noise, let T_i = C_i - (1-α)N, where C_i counts the rows up to point i. The threshold is the point after the *last* one
at which the released T_i is below a margin t₀. If it is smaller than the ℓ-th smallest score then T at one single
point, that before this score, was released too large: the noise of one point decides, and not the largest of all. The
margin is worked out from the law of that noise (`coverage.pooled`); docs/explanation/private-conformal.md has the proof.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from fedassay.coverage.pooled import NoiseTail, PooledLaw, fewest_rows, pooled_margin

from fedassay.coverage import CoverageLaw, best_pair
from fedassay.coverage.law import largest_miss
from fedassay.errors import DataError, UsageError
from fedassay.summaries.value_grid import ValueGrid, power_of_two
from fedassay.summaries.value_tree import ValueTree
from fedassay.tasks.conformal.found import IDENTICAL, PARTIAL, Found
from fedassay.tasks.conformal.request import Request
from fedassay.tasks.distribution.curve import Curve, curve_of
from fedassay.tasks.distribution.stored import Release

EXACT_POINTS, NOISY_POINTS = 1 << 14, 1 << 10
"""Points of the grid unless they are asked for."""

UNSURE = 1e-6
"""Under noise the number of rows is taken to be at least what it is but for this probability, which counts as a miss."""

BEYOND = "the scores of so many rows are above the range; widen it (--score-range)"
TOO_FEW = "there are too few rows for this level, or too much noise: more rows or a larger epsilon would do"


def stretched(lower: float, upper: float, points: int) -> float:
    """The upper end of a uniform grid whose last point but one is `upper`: the last leaf holds what is above it."""
    return lower + (upper - lower) * points / (points - 1)


def leaves_of(
    lower: float,
    upper: float,
    points: int,
    *,
    quantity: str,
    parameters: tuple[float, ...],
    by: str,
    groups: tuple[str, ...],
) -> ValueTree:
    """Counts on such a grid."""
    points = power_of_two(points)
    return ValueTree(
        lower=lower,
        upper=stretched(lower, upper, points),
        points=points,
        quantity=quantity,
        parameters=parameters,
        by=by,
        groups=groups,
    )


@dataclass(frozen=True, kw_only=True)
class Pooled:
    """How a released distribution is read: `test_points` is 1, or for `weighted` the number of clients."""

    request: Request
    test_points: int = 1
    clients: int | None = None

    def __post_init__(self) -> None:
        if self.test_points > 1 and self.request.confidence is not None:
            raise UsageError(
                "guarantee: weighted promises coverage on average over the calibration rows only; use pooled for "
                "training-conditional, or leave it out."
            )

    def found(self, release: Release, place: int) -> Found:
        """The threshold of one class of the release."""
        curve = curve_of(release.summary.grid, release.sums[place], release.fit, release.noise)
        return self._without_noise(curve) if curve.exact else self._with_noise(curve)

    def _without_noise(self, curve: Curve) -> Found:
        rows = round(curve.rows)
        rank = self._rank(rows)
        law = None
        if 1 <= rank <= rows:
            law = CoverageLaw(clients=1, rows=rows, local_rank=rank, server_rank=1)
        place = int(np.searchsorted(curve.sums[1:], rank)) if rank <= rows else curve.grid.points
        return self._at(curve, place, rank=rank, law=law, promised=rank / (rows + self.test_points))

    def _rank(self, rows: int) -> int:
        """The rank among so many rows; more than there are if they are too few."""
        if self.request.confidence is not None:
            try:
                return best_pair(
                    1, max(1, rows), self.request.level, confidence=self.request.confidence
                ).local_rank
            except DataError:
                return rows + 1
        n = rows + self.test_points
        return n - math.floor(n * largest_miss(self.request.level))

    def _with_noise(self, curve: Curve) -> Found:
        level, law = self.request.level, curve.law
        variances = law.below[1:] + level**2 * law.total - 2 * level * law.joint[1:]
        tail = NoiseTail.of(curve.noise, variance=float(variances.max()), reach=curve.reach)
        total = NoiseTail.of(curve.noise, variance=law.total, reach=curve.reach)
        least = fewest_rows(curve.rows, total, UNSURE)
        try:
            margin = pooled_margin(
                level,
                tail,
                least,
                test_points=self.test_points,
                confidence=self.request.confidence,
                unsure=UNSURE,
            )
        except DataError as error:
            return self._nothing(curve, str(error))
        below = np.flatnonzero(curve.sums[1:] - level * curve.rows < margin)
        place = int(below[-1]) + 1 if below.size else 0
        rank = level * least + margin
        found = PooledLaw(rows=least, rank=rank, tail=tail)
        return self._at(curve, place, rank=rank, law=found, promised=found.mean, margin=margin)

    def _at(
        self,
        curve: Curve,
        place: int,
        *,
        rank: float,
        law: CoverageLaw | PooledLaw | None,
        promised: float,
        margin: float | None = None,
    ) -> Found:
        grid: ValueGrid = curve.grid
        outside = place >= grid.points - 1
        alike = self.test_points == 1
        too_few = law is None
        return Found(
            threshold=math.inf if outside else float(grid.thresholds[place]),
            law=law if alike else None,
            promised=None if alike or too_few else promised,
            exact=False,
            rows=curve.rows,
            clients=self.clients,
            assumption=IDENTICAL if alike else PARTIAL,
            reason=(TOO_FEW if too_few else BEYOND) if outside else None,
            details={"rank": rank, "margin": margin, "step": float(grid.thresholds[1] - grid.thresholds[0])},
        )

    def _nothing(self, curve: Curve, reason: str) -> Found:
        return Found(
            threshold=math.inf,
            promised=1.0,
            exact=False,
            rows=curve.rows,
            clients=self.clients,
            reason=reason,
        )
