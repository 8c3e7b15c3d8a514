"""What a released distribution says: sums up to each point, the law of their noise, and bands.

Three mechanisms, one reading: each gives unbiased sums F_0 = 0, F_1, .., F_N of the first leaves and the exact
covariance of their noise. Nothing here is smoothed; smoothing is for what is shown (see `shown`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedassay.estimation.bands import NOISE_SHARE, dkw_half_width, half_width_of, report_half_width
from fedassay.estimation.count_noise import LeafCovariance, LevelReports, NodeNoise, PrefixNoise
from fedassay.estimation.evidence import enough, plausible
from fedassay.estimation.intervals import z_value
from fedassay.estimation.least_squares import LeastSquares, bit_variances, reporting_clients
from fedassay.protocol import Noise
from fedassay.summaries.value_grid import ValueGrid
from fedassay.tasks.distribution.smoothing import isotonic

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_STEPS = 40
"""Half-widths are computed for so many variances, and each point takes the next larger one."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Curve:
    """How many rows have a value up to each point, as released, and what is known about the error.

    Parameters
    ----------
    grid : the points.
    sums : F_0 = 0, F_1, .., F_N; F_r is the number of rows up to the r-th point, unbiased.
    law : the noise of these sums.
    noise : the law of a draw.
    reach : the largest weight of a draw in a sum.
    reports : where each client reports on one level, the law of which `law` is a part.
    label : the class of `reports` that this curve is: 1 for the first, 0 for the second.
    """

    grid: ValueGrid
    sums: Floats
    law: PrefixNoise
    noise: Noise
    reach: float = 1.0
    reports: LevelReports | None = None
    label: int = 1

    @property
    def exact(self) -> bool:
        """Whether there is no noise."""
        return self.noise.variance == 0

    @property
    def rows(self) -> float:
        """F_N."""
        return float(self.sums[-1])

    def require_rows(self) -> float:
        """F_N, if it stands out from the noise; else `Undefined`."""
        return enough("rows", self.rows, 0.0 if self.exact else self.law.total)

    @cached_property
    def shares(self) -> Floats:
        """F_r/F_N for r = 1..N, as released: under noise neither monotone nor within [0, 1]."""
        return self.sums[1:] / self.require_rows()

    @cached_property
    def monotone(self) -> Floats:
        """The closest non-decreasing shares in [0, 1]."""
        rows = self.require_rows()
        return isotonic(self.sums[1:], top=rows).curve / rows

    def share_variances(self, shares: Floats | float, places: Ints | slice = slice(None)) -> Floats:
        """The noise variance of F_r/F_N where the true shares are these, at places r-1 from 0; all by default.

        F̂_r/F̂_N - s = (e_r - s·e_N)/F̂_N for the errors e of the two sums and s = F_r/F_N: exact, given F̂_N.
        """
        law = self.law
        variances = law.below[1:][places] - 2 * shares * law.joint[1:][places] + np.square(shares) * law.total
        # A difference of sums: where it vanishes, rounding can leave it below zero.
        return np.asarray(np.maximum(variances, 0.0) / self.require_rows() ** 2)

    def band(self, *, level: float) -> tuple[Floats, Floats]:
        """Lower and upper ends that hold the distribution function at all points at once, with this probability.

        Sampling: Dvoretzky, Kiefer and Wolfowitz with Massart's constant. Noise: a Chernoff bound at each point, with
        a union over all of them. The function is known not to decrease, so that a lower end holds for all points
        to the right, and an upper end for all to the left. Where clients report on one level each, Bernstein's
        inequality bounds both errors together (`report_half_width`).
        """
        half = self._half_widths(level)
        lower = np.maximum.accumulate(self.shares - half)
        upper = np.minimum.accumulate((self.shares + half)[::-1])[::-1]
        return np.clip(lower, 0.0, 1.0), np.clip(upper, 0.0, 1.0)

    def _half_widths(self, level: float) -> Floats | float:
        error, rows = 1 - level, self.require_rows()
        if self.exact:
            return dkw_half_width(rows, error)
        if self.reports is not None:
            variances = self.reports.rate_variances(self.label, 1 - np.concatenate([[0.0], self._inside]))
            return report_half_width(self.noise, float(variances.max()), len(self.shares), error) / rows
        fewest = max(1.0, rows - z_value(level) * math.sqrt(self.law.total))
        return dkw_half_width(fewest, (1 - NOISE_SHARE) * error) + self.noise_half_widths(level=level)

    def noise_half_widths(self, *, level: float) -> Floats:
        """The part of the band's half-width that is for the noise, at each point."""
        variances = self.share_variances(self._inside)

        def half_width(variance: float) -> float:
            return half_width_of(
                self.noise,
                variance * self.rows**2,
                points=len(variances),
                error=NOISE_SHARE * (1 - level),
                reach=self.reach,
            )

        return _stepwise(half_width, variances) / self.rows

    @property
    def _inside(self) -> Floats:
        return np.clip(self.shares, 0.0, 1.0)


def _stepwise(function: Callable[[float], float], variances: Floats) -> Floats:
    """An increasing function at many places, from above: each is rounded up to one of a few."""
    largest = float(variances.max())
    if largest == 0:
        return np.zeros(len(variances))
    steps = np.geomspace(largest * 1e-2, largest, _STEPS)
    values = np.array([function(float(step)) for step in steps])
    return np.asarray(values[np.minimum(np.searchsorted(steps, variances), _STEPS - 1)])


def curve_of(grid: ValueGrid, sums: Floats, fit: LeafCovariance, noise: Noise, *, times: int = 1) -> Curve:
    """The curve of the rows of one class, or of several together.

    Parameters
    ----------
    sums : of all of these classes.
    fit : the covariance of the leaves of one class.
    times : how many classes there are.
    """
    if fit.exact or not noise.reporting:
        one = NodeNoise(fit=fit).positives
        law = PrefixNoise(below=times * one.below, joint=times * one.joint, total=times * one.total)
        return Curve(grid=grid, sums=sums, law=law, noise=noise, reach=fit.reach)
    assert isinstance(fit, LeastSquares)
    counts = plausible(sums)
    # As many bits for each node as there are classes, and one class that holds all rows.
    reports = LevelReports(
        fit=fit,
        bits=tuple(times * bits for bits in bit_variances(noise)),
        reporting=noise.reporting,
        clients=max(reporting_clients(noise), float(counts.sum())),
        counts=np.stack([counts, np.zeros_like(counts)]),
    )
    return Curve(grid=grid, sums=sums, law=reports.positives, noise=noise, reports=reports)
