"""Noise that is drawn whole, by a server or by every client: how far it reaches, and what it adds up to."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from fedassay.errors import ProtocolError
from fedassay.privacy import accounting, samplers
from fedassay.privacy.accounting import GAUSSIAN, LAPLACE
from fedassay.protocol import Noise, Randomness, Summary, Vector

_LONGEST = 2**11
"""Draws are shorter than so many scales: the samplers stop below 1024 (Laplace) and 66 (Gaussian)."""


def reach(noise: Noise) -> int:
    """Every draw is smaller in absolute value.

    Examples
    --------
    >>> reach(Noise(law=LAPLACE, scale=1.5, variance=4.3))
    3072
    """
    return math.ceil(_LONGEST * noise.scale)


def room_beside(noise: Noise, summary: Summary[Any]) -> int:
    """Totals below this, in absolute value, are still int64 with their noise."""
    return 2**63 - summary.overlap * reach(noise)


def spread(summary: Summary[Any], draws: Vector) -> Vector:
    """What the draws add to a total of the summary, checked to be as long as it."""
    added = summary.spread(draws)
    if added.dtype != np.int64 or added.shape != (summary.length,):
        raise ProtocolError(f"{summary.name}: its noise is not {summary.length} whole numbers.")
    return added


def several(noise: Noise, messages: int) -> Noise:
    """The noise in the sum of so many messages.

    Examples
    --------
    >>> several(Noise(law=LAPLACE, scale=1.0, variance=1.84), 100).variance
    184.0
    """
    return replace(noise, variance=noise.variance * (messages / noise.copies), copies=float(messages))


def sum_of_draws(noise: Noise, size: int, randomness: Randomness) -> Vector:
    """Simulation: sums of `noise.copies` draws, by the law of such sums.

    Laplace: the difference of two negative binomial draws. Gaussian of σ >= 2: one draw of √copies·σ, which
    differs from the sum by a total variation of about copies·exp(-π²σ²) at most, under 1e-9 for 10^7 clients
    (Kairouz, Liu, Steinke 2021, on sums of discrete Gaussians); smaller σ: how often each value is drawn.
    """
    copies, rng = round(noise.copies), np.random.default_rng(randomness.words(4).tolist())
    if noise.law == LAPLACE:
        p = -math.expm1(-1 / noise.scale)
        return rng.negative_binomial(copies, p, size) - rng.negative_binomial(copies, p, size)
    assert noise.law == GAUSSIAN
    if noise.scale >= 2:
        scale = samplers.gaussian_scale(Fraction(noise.scale * math.sqrt(copies)))
        return accounting.draw(replace(noise, scale=float(scale)), size, randomness)
    values = np.arange(-24, 25)
    weights = np.exp(-(values**2) / (2 * noise.scale**2))
    return np.asarray(rng.multinomial(copies, weights / weights.sum(), size) @ values, dtype=np.int64)
