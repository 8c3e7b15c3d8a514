"""How far noise can move T_i = C_i - (1-α)N, whatever the scores are: what the margin of `pooled` is made of.

Noise of its own in every draw has variances that are public. Where each client reports on one level (`unary`), the
variance depends on where the rows are, which is a secret, and the margin must not be chosen by looking: it is bounded
for the worst scores. Let leaves up to the point have variances of at most a per row, those after it b, and let the
share s of the rows be up to it. With ρ the reach of a report, Bernstein's exponent for lifting T from N(s-(1-α)) to t₀
is x²/(2(v(s) + ρx/3)) with x = t₀ + N(1-α-s) and v(s) = v₀ + N(b - s(b-a)). For b >= a, v(s) is at most v(1-α) + (b-a)x
where s <= 1-α, and at most v(1-α) beyond: v(1-α), and a reach of ρ + 3(b-a), hold for every s.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fedassay.estimation.coverage.noise_tail import Law, NoiseTail
from fedassay.estimation.least_squares import LeastSquares, bit_variances
from fedassay.protocol import Noise
from fedassay.tasks.distribution.curve import Curve

Floats = NDArray[np.float64]

MOST_REPORTED_POINTS = 1 << 12
"""The worst place of a row is looked for at every point, by trying all."""

_AT_ONCE = 1 << 20


def tail_at_points(curve: Curve, level: float, *, clients: int) -> NoiseTail:
    """A bound of P(noise of T_i >= x) for every point i."""
    if curve.reports is not None:
        variance, reach = reported_moments(curve.reports.fit, curve.noise, level, clients)
        return NoiseTail(law="unary", variance=variance, reach=reach)
    law = curve.law
    variances = np.maximum(0.0, law.below[1:] + level**2 * law.total - 2 * level * law.joint[1:])
    # T_i = (1-level)·C_i - level·(the rows above i), and no draw weighs more than `reach` in either of the two.
    return _drawn(curve.noise, float(variances.max()), float(variances.min()), curve.reach)


def tail_of_rows(curve: Curve, *, clients: int) -> NoiseTail:
    """The same for N."""
    if curve.reports is None:
        return _drawn(curve.noise, curve.law.total, curve.law.total, curve.reach)
    nodes = curve.reports.fit.node_weights(np.ones((1, curve.grid.points)))
    rows = _per_row(nodes, curve.noise, curve.grid.points)
    variance = _of_bits(nodes, curve.noise)[0] + clients * rows.max()
    return NoiseTail(law="unary", variance=float(variance), reach=_reach(curve.noise))


def reported_moments(fit: LeastSquares, noise: Noise, level: float, clients: int) -> tuple[float, float]:
    """Variance and reach for Bernstein's inequality at every point, for the worst place of each client's row."""
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
    return worst, _reach(noise) + 3 * difference


def _drawn(noise: Noise, variance: float, least: float, reach: float) -> NoiseTail:
    """The tail of sums of draws; shared by all parts of a release, which have the same noise."""
    assert noise.law in ("discrete-laplace", "discrete-gaussian", "skellam")
    return _shared(noise.law, noise.scale, variance, min(least, variance), reach)


@lru_cache(maxsize=8)
def _shared(law: Law, scale: float, variance: float, least: float, reach: float) -> NoiseTail:
    return NoiseTail(law=law, scale=scale, variance=variance, reach=reach, least_variance=least)


def _of_bits(nodes: tuple[Floats, ...], noise: Noise) -> Floats:
    """v₀: the variance from bits that know nothing, of each sum."""
    each = zip(nodes, bit_variances(noise), strict=True)
    return np.asarray(sum(bits * np.square(level).sum(axis=-1) for level, bits in each))


def _per_row(nodes: tuple[Floats, ...], noise: Noise, points: int) -> Floats:
    """What a row in each leaf adds to the variance of each sum: its own bit, and the level that it is asked about."""
    each = zip(nodes, noise.reporting, strict=True)
    return np.asarray(
        sum(
            2 / part * np.repeat(np.square(level), points // level.shape[-1], axis=-1) for level, part in each
        )
    )


def _reach(noise: Noise) -> float:
    """The largest change that a bit makes, since no node weighs more than 1 (see `report_half_width`)."""
    half_minus_q = math.tanh(1 / (2 * noise.scale)) / 2
    return 1 / (half_minus_q * min(noise.reporting))
