"""Threshold from the distribution of all scores together: that of pooling, except for noise and bins.

Without noise it is the score of rank ⌈(1-α)(N+1)⌉ (or (N+K) for `weighted`), rounded up to a point of the grid. With
noise, let T_i = C_i - (1-α)N, where C_i counts the rows up to point i. The threshold is the point after the *last* one
at which the released T_i is below a margin t₀. If it is smaller than the ℓ-th smallest score then T at one single
point, that before this score, was released too large: the noise of one point decides, and not the largest of all. The
margin is worked out from the law of that noise (`coverage.pooled_margin`); docs/explanation/private-conformal.md has
the proofs.

Bounds on how far noise can move T_i = C_i - (1-α)N, whatever the scores are: the basis of the margin of `pooled`.

Noise of its own in every draw has variances that are public. Where each client reports on one level (`unary`), the
variance depends on where the rows are, which is a secret, and the margin must not be chosen by looking: it is bounded
for the worst scores. Let leaves up to the point have variances of at most a per row, those after it b, and let the
share s of the rows be up to it. With ρ the reach of a report, Bernstein's exponent for lifting T from N(s-(1-α)) to t₀
is x²/(2(v(s) + ρx/3)) with x = t₀ + N(1-α-s) and v(s) = v₀ + N(b - s(b-a)). For b >= a, v(s) is at most v(1-α) + (b-a)x
where s <= 1-α, and at most v(1-α) beyond: v(1-α), and a reach of ρ + 3(b-a), hold for every s.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from fedassay.errors import DataError
from fedassay.estimation.coverage import CoverageLaw, best_pair
from fedassay.estimation.coverage.law import largest_miss
from fedassay.estimation.coverage.noise_tail import NoiseLaw, NoiseTail
from fedassay.estimation.coverage.pooled import PooledLaw, fewest_rows, pooled_margin
from fedassay.estimation.least_squares import LeastSquares, bit_variances, report_reach
from fedassay.protocol.arrays import Floats
from fedassay.protocol.vocabulary import Noise
from fedassay.summaries.distribution.grid import ValueGrid, power_of_two
from fedassay.tasks.conformal.threshold import IDENTICAL, PARTIAL, CoverageRequest, Found
from fedassay.tasks.distribution.curve import ReleasedCurve, curve_of
from fedassay.tasks.distribution.stored import Release

# --- how far noise can move T_i = C_i - (1-α)N --------------------------------------------------------------


MOST_REPORTED_POINTS = 1 << 12
"""Largest number of points where clients report on one level: the worst place of a row is found by trying all."""

_AT_ONCE = 1 << 20


def tail_at_points(curve: ReleasedCurve, level: float, *, clients: int) -> NoiseTail:
    """Return a bound of P(noise of T_i >= x) for every point i."""
    if curve.reports is not None:
        variance, reach = reported_moments(curve.reports.fit, curve.noise, level, clients)
        return NoiseTail(law="unary", variance=variance, reach=reach)
    law = curve.law
    variances = np.maximum(0.0, law.below[1:] + level**2 * law.total - 2 * level * law.joint[1:])
    # T_i = (1-level)·C_i - level·(the rows above i), and no draw weighs more than `reach` in either of the two.
    return _drawn(curve.noise, float(variances.max()), float(variances.min()), curve.reach)


def tail_of_rows(curve: ReleasedCurve, *, clients: int) -> NoiseTail:
    """Return a bound of P(noise of N >= x)."""
    if curve.reports is None:
        return _drawn(curve.noise, curve.law.total, curve.law.total, curve.reach)
    nodes = curve.reports.fit.node_weights(np.ones((1, curve.grid.points)))
    rows = _per_row(nodes, curve.noise, curve.grid.points)
    variance = _of_bits(nodes, curve.noise)[0] + clients * rows.max()
    return NoiseTail(law="unary", variance=float(variance), reach=report_reach(curve.noise))


def reported_moments(fit: LeastSquares, noise: Noise, level: float, clients: int) -> tuple[float, float]:
    """Return variance and reach for Bernstein's inequality at every point, for the worst place of each client's row."""
    points = fit.tree.leaves
    assert points <= MOST_REPORTED_POINTS
    worst, difference = 0.0, 0.0
    for first in range(0, points, step := max(1, _AT_ONCE // points)):
        up_to = np.arange(points) <= np.arange(first, min(points, first + step))[:, None]
        nodes = fit.node_weights(np.where(up_to, 1 - level, -level))
        rows = _per_row(nodes, noise, points)
        a = np.where(up_to, rows, 0.0).max(axis=1)
        b = np.where(up_to, 0.0, rows).max(axis=1)
        b = np.maximum(a, b)  # more than needed where levels are below one half
        variances = _of_bits(nodes, noise) + clients * (level * a + (1 - level) * b)
        worst, difference = max(worst, float(variances.max())), max(difference, float((b - a).max()))
    return worst, report_reach(noise) + 3 * difference


def _drawn(noise: Noise, variance: float, least: float, reach: float) -> NoiseTail:
    """Return the tail of sums of draws; shared by all parts of a release, which have the same noise."""
    assert noise.law in ("discrete-laplace", "discrete-gaussian", "skellam")
    return _shared(noise.law, noise.scale, variance, min(least, variance), reach)


@lru_cache(maxsize=8)
def _shared(law: NoiseLaw, scale: float, variance: float, least: float, reach: float) -> NoiseTail:
    return NoiseTail(law=law, scale=scale, variance=variance, reach=reach, least_variance=least)


def _of_bits(nodes: tuple[Floats, ...], noise: Noise) -> Floats:
    """Return v₀, the variance of each sum from bits that carry no information."""
    each = zip(nodes, bit_variances(noise), strict=True)
    return np.asarray(sum(bits * np.square(level).sum(axis=-1) for level, bits in each))


def _per_row(nodes: tuple[Floats, ...], noise: Noise, points: int) -> Floats:
    """Return what a row in each leaf adds to the variance of each sum: its own bit, and the level it is asked about."""
    each = zip(nodes, noise.reporting, strict=True)
    return np.asarray(
        sum(
            2 / part * np.repeat(np.square(level), points // level.shape[-1], axis=-1) for level, part in each
        )
    )


# --- the threshold from the distribution of all scores together ---------------------------------------------

EXACT_POINTS, NOISY_POINTS, REPORTED_POINTS = 1 << 14, 1 << 10, 1 << 7
"""Default numbers of grid points: without noise, with it, and where each client reports on one level."""

UNSURE = 1e-6
"""Part of the allowed misses that is kept for a number of rows that noise makes look too large or too small."""

MOST_CELLS = 1 << 20
"""Largest number of points of all parts of the rows together, unless a number is requested."""

BEYOND = "too many rows have scores above the range; widen it (--score-range)"
TOO_FEW = "there are too few rows for this level, or too much noise: more rows or a larger epsilon would do"


def exact_points(parts: int) -> int:
    """Return the number of points for each of `parts` parts, where there is no noise.

    Examples
    --------
    >>> exact_points(1), exact_points(100)
    (16384, 8192)
    """
    return min(EXACT_POINTS, 1 << (MOST_CELLS // parts).bit_length() - 1)


def stretched(lower: float, upper: float, points: int) -> float:
    """Return the upper end of a uniform grid whose last point but one is `upper`: the last leaf holds what is above."""
    end = lower + (upper - lower) * points / (points - 1)
    before = np.array([points - 2])
    # Rounding may put the last point but one just below.
    while ValueGrid(lower=lower, upper=end, points=points).threshold(before)[0] < upper:
        end = math.nextafter(end, math.inf) + 1e-15 * (end - lower)
    return end


def grid_fields(lower: float, upper: float, points: int) -> dict[str, Any]:
    """Return the fields of a summary on such a grid, of a power of two points."""
    points = power_of_two(points)
    return {"lower": lower, "upper": stretched(lower, upper, points), "points": points}


def point_after_last(sums: Floats, level: float, margin: float) -> int:
    """Return the place of the point after the last at which T_i is below the margin; `sums` are C_0 = 0, C_1, .., N."""
    below = np.flatnonzero(sums[1:] - level * sums[-1] < margin)
    return int(below[-1]) + 1 if below.size else 0


@dataclass(frozen=True, kw_only=True)
class Pooled:
    """Reader of a released distribution: `test_points` is 1, or for `weighted` the number of clients."""

    request: CoverageRequest
    clients: int
    test_points: int = 1

    def found(self, release: Release, place: int) -> Found:
        """Return the threshold of one class of the release."""
        curve = curve_of(release.summary.grid, release.sums[place], release.fit, release.noise)
        found = self._without_noise(curve) if curve.exact else self._with_noise(curve)
        return replace(found, rows=curve.rows, clients=self.clients)

    # --- without noise --------------------------------------------------------------------------------------

    def _without_noise(self, curve: ReleasedCurve) -> Found:
        rows = round(curve.rows)
        rank = self._rank(rows)
        if rank > rows:
            return Found.everything(TOO_FEW)
        law = CoverageLaw(clients=1, rows=rows, local_rank=rank, server_rank=1)
        place = int(np.searchsorted(curve.sums[1:], rank))
        return self._at(
            curve, place, law=law, promised=rank / (rows + self.test_points), details={"rank": rank}
        )

    def _rank(self, rows: int) -> int:
        """Return the rank among `rows` rows; more than there are if they are too few."""
        level, confidence = self.request.level, self.request.confidence
        if confidence is None:
            n = rows + self.test_points
            return n - math.floor(n * largest_miss(level))
        try:
            return best_pair(1, max(1, rows), level, confidence=confidence).local_rank
        except DataError:
            return rows + 1

    # --- with noise -----------------------------------------------------------------------------------------

    def _with_noise(self, curve: ReleasedCurve) -> Found:
        level, confidence, unsure = self._raised()
        tail = tail_at_points(curve, level, clients=self.clients)
        total = tail_of_rows(curve, clients=self.clients)
        least = fewest_rows(curve.rows, total, unsure)
        if least < 1:
            return Found.everything(TOO_FEW)
        most = math.ceil(curve.rows + total.reach_of(unsure)) if tail.symmetric else max(least, self.clients)
        margin = pooled_margin(
            level, tail, least, test_points=self.test_points, confidence=confidence, most_rows=most
        )
        place = point_after_last(curve.sums, level, margin)
        if place >= curve.grid.points:
            return Found.everything(TOO_FEW)
        # The law is that of the released number of rows; what is promised holds for all numbers that are possible.
        rows = max(1, round(curve.rows))
        return self._at(
            curve,
            place,
            law=PooledLaw(rows=rows, level=level, margin=margin, tail=tail, test_points=self.test_points),
            promised=self.request.level,
            reached=self.request.confidence,
            details={"rank": level * curve.rows + margin, "margin": margin},
        )

    def _raised(self) -> tuple[float, float | None, float]:
        """Return level and confidence with room for a wrong number of rows, and the probability of error of an end."""
        level, confidence = self.request.level, self.request.confidence
        if confidence is None:
            unsure = UNSURE * (1 - level)
            return level + unsure, None, unsure
        unsure = UNSURE * min(1 - level, 1 - confidence)
        return level + unsure, confidence + unsure, unsure / 2

    def _at(
        self,
        curve: ReleasedCurve,
        place: int,
        *,
        law: CoverageLaw | PooledLaw,
        promised: float,
        details: dict[str, float],
        reached: float | None = None,
    ) -> Found:
        points, alike = curve.grid.thresholds, self.test_points == 1
        outside = place >= len(points) - 1
        return Found(
            threshold=math.inf if outside else float(points[place]),
            law=law if alike else None,
            promised=promised,
            reached=reached,
            exact=False,
            assumption=IDENTICAL if alike else PARTIAL,
            reason=BEYOND if outside else None,
            details={**details, "step": float(points[1] - points[0])},
        )
