"""Goodness of fit of integer noise: exact cumulative probabilities, bins, and p-values."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from fedassay.privacy.accounting import LAPLACE, SKELLAM
from fedassay.protocol.vocabulary import Noise, Vector

Reals = NDArray[np.float64]


@dataclass(frozen=True)
class Bins:
    """Intervals (.., e_0], (e_0, e_1], .., (e_k, ..) and their exact probabilities."""

    edges: NDArray[np.int64]
    probabilities: Reals

    def count(self, draws: Vector) -> NDArray[np.int64]:
        return np.bincount(np.searchsorted(self.edges, draws, side="left"), minlength=self.edges.size + 1)


@dataclass(frozen=True)
class Law:
    """P(X ≤ x) for whole x, and a width that tells where to look."""

    cumulative: Callable[[NDArray[np.int64]], Reals]
    spread: float


def law_of(noise: Noise, parts: float = 1.0) -> Law:
    """The law of so many parts of a noise: closed or summed where it is known, else from its transform."""
    if noise.law == SKELLAM:
        return skellam_law(parts * noise.scale**2)
    if noise.law == LAPLACE and parts != 1:
        return polya_law(noise.scale, parts)
    if noise.law == LAPLACE:
        a = math.exp(-1 / noise.scale)
        return Law(
            lambda x: np.where(
                x < 0, np.exp(x / noise.scale) / (1 + a), 1 - np.exp(-(x + 1) / noise.scale) / (1 + a)
            ),
            noise.scale,
        )
    if noise.scale > 1e5:  # smoothed: errs by 1e-11
        return Law(lambda x: stats.norm.cdf((x + 0.5) / noise.scale), noise.scale)
    reach = int(20 * noise.scale) + 20
    weights = np.exp(-(np.arange(-reach, reach + 1, dtype=np.float64) ** 2) / (2 * noise.scale**2))
    return _tabled(weights / weights.sum(), noise.scale)


def polya_law(scale: float, parts: float) -> Law:
    """X - Y of two negative binomials: the transform is |(1-α)/(1-α e^iθ)|^2r."""
    reach = int(60 * scale * max(1.0, parts)) + 60
    theta = _angles(reach)
    a = math.exp(-1 / scale)
    # 1 - 2a cos θ + a² = (1-a)² + 4a sin²(θ/2), without cancellation.
    log_transform = -parts * np.log1p(4 * a * np.sin(theta / 2) ** 2 / (1 - a) ** 2)
    return _tabled(_inverted(np.exp(log_transform), reach), scale * math.sqrt(max(1.0, parts)))


def skellam_law(variance: float) -> Law:
    """The transform is exp(-v(1 - cos θ)); beyond v = 1e8 smoothed, which errs by 1e-9."""
    sigma = math.sqrt(variance)
    if variance > 1e8:
        return Law(lambda x: stats.norm.cdf((x + 0.5) / sigma), sigma)
    reach = int(20 * sigma) + 60
    transform = np.exp(-2 * variance * np.sin(_angles(reach) / 2) ** 2)
    return _tabled(_inverted(transform, reach), max(sigma, 0.5))


def bins_of(law: Law, draws: int) -> Bins:
    """About a hundred bins: heavy values by themselves, the rest in groups, no group expected below ten."""
    near = np.arange(-20, 21)
    far = np.round(np.linspace(-12, 12, 61) * law.spread).astype(np.int64)
    edges = np.unique(np.concatenate([near, far]))
    kept = []
    below = 0.0
    for edge, value in zip(edges, law.cumulative(edges), strict=True):
        if value - below >= 10 / draws and 1 - value >= 10 / draws:
            kept.append(edge)
            below = value
    at = np.array(kept, dtype=np.int64)
    return Bins(at, np.diff(np.concatenate([[0.0], law.cumulative(at), [1.0]])))


def p_value(draws: Vector, law: Law) -> float:
    """The p-value of "these are draws from this law" (chi-square)."""
    bins = bins_of(law, draws.size)
    expected = draws.size * bins.probabilities
    statistic = float(((bins.count(draws) - expected) ** 2 / expected).sum())
    return float(stats.chi2.sf(statistic, bins.edges.size))


def p_value_of_independence(draws: Vector) -> float:
    """The p-value of "neighbours are uncorrelated", in value and in size."""
    smallest = 1.0
    for x in (draws.astype(np.float64), np.abs(draws).astype(np.float64)):
        x = (x - x.mean()) / x.std()
        z = float((x[1:] * x[:-1]).mean()) * math.sqrt(x.size)
        smallest = min(smallest, float(2 * stats.norm.sf(abs(z))))
    return 2 * smallest


def _angles(reach: int) -> Reals:
    points = 2 ** math.ceil(math.log2(2 * reach + 1))
    return 2 * np.pi * np.fft.rfftfreq(points)


def _inverted(transform: Reals, reach: int) -> Reals:
    """The probabilities of -reach .. reach of a symmetric law, from its transform."""
    half = np.maximum(np.fft.irfft(transform), 0)
    return np.concatenate([half[reach:0:-1], half[: reach + 1]])


def _tabled(probabilities: Reals, spread: float) -> Law:
    reach = probabilities.size // 2
    table = np.cumsum(probabilities)
    return Law(lambda x: table[np.clip(x + reach, 0, 2 * reach)], spread)
