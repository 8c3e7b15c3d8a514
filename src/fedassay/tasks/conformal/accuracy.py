"""What sets will cover in fact, before any data, where the guarantee is a lower bound or there is none.

A guarantee under noise holds for the worst scores. What one gets with ordinary ones is more, and is what makes sets
wider than they need to be; planning wants to know by how much. Everything here is for scores that are spread evenly
over their range; the distribution of scores matters through ties and bins only, but for the mean of quantiles.

Not guarantees: numbers to expect, some from a small simulation with a fixed seed, so that a plan is always the same.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc

from fedassay.estimation.coverage.law import CoverageLaw, split_rank
from fedassay.protocol import Noise
from fedassay.summaries.quantile_losses import QuantileLosses
from fedassay.summaries.values import ValueSummary

Floats = NDArray[np.float64]

CHOICE_DRAWS = 1000
"""Simulated clients; their probabilities are averaged, so that no choice has to be drawn."""

POOLED_DRAWS = 200
"""Simulated releases."""

_AT_ONCE = 1 << 20


class Expected(NamedTuple):
    """Mean and standard deviation of the coverage over calibration rows and noise."""

    mean: float
    standard_deviation: float


def average_coverage(clients: int, rows: int, level: float) -> Expected | None:
    """Of the mean of the clients' split quantiles, whose coverages are independent; None if they have too few rows.

    For scores that are not spread evenly the mean of quantiles is not the quantile of the mean: nothing is guaranteed.

    Examples
    --------
    >>> average_coverage(10, 99, 0.9)
    Expected(mean=0.9, standard_deviation=0.00943975163291329)
    """
    rank = split_rank(rows, level)
    if rank > rows:
        return None
    mean = rank / (rows + 1)
    return Expected(mean, math.sqrt(mean * (1 - mean) / (rows + 2) / clients))


def choice_coverage(
    losses: QuantileLosses, noise: Noise, *, clients: int, server_rank: int, seed: int = 0
) -> Expected:
    """Where each client chooses a candidate with probability ∝ exp(-loss/scale), and the server takes the k-th.

    G_b, the probability that a client chooses one of the first b candidates, is averaged over simulated scores; clients
    are independent, so that P(the threshold is among the first b) = P(Bin(m, G_b) >= k) exactly.
    """
    rng = np.random.default_rng(seed)
    shares = np.append(np.linspace(0.0, 1.0, losses.points - 1), 1.0)
    chosen, done = np.zeros(losses.points), 0
    step = max(1, min(CHOICE_DRAWS, _AT_ONCE // losses.points))
    while done < CHOICE_DRAWS:
        counts = rng.multinomial(losses.rows, np.diff(shares, prepend=0.0), size=step)
        up_to = counts.cumsum(axis=1)
        short = np.maximum(0, losses.target - up_to)
        over = np.maximum(0, up_to - counts - losses.target + 1)
        weight = -(losses.below * short + losses.above * over) / noise.scale
        weight = np.exp(weight - weight.max(axis=1, keepdims=True))
        chosen += (weight / weight.sum(axis=1, keepdims=True)).sum(axis=0)
        done += step
    client = np.minimum(1.0, chosen.cumsum() / done)
    client[-1] = 1.0
    at = np.diff(betainc(server_rank, clients - server_rank + 1, client), prepend=0.0)
    return _moments(shares, at)


def pooled_coverage(
    summary: ValueSummary, noise: Noise, *, rows: int, level: float, margin: float, seed: int = 0
) -> Expected | None:
    """Where the threshold is the point after the last at which released T_i = C_i - (1-α)N is below the margin.

    Noise is drawn as rounded normal numbers of the right variance: what a sum gets is made of several draws. None where
    clients report on one level each.
    """
    if noise.reporting:
        return None
    rng = np.random.default_rng(seed)
    thresholds = summary.grid.thresholds
    shares = np.clip((thresholds - summary.lower) / (thresholds[-2] - summary.lower), 0.0, 1.0)
    covered = np.empty(POOLED_DRAWS)
    for draw in range(POOLED_DRAWS):
        counts = rng.multinomial(rows, np.diff(shares, prepend=0.0))
        draws = np.rint(rng.normal(0.0, math.sqrt(noise.variance), summary.draws)).astype(np.int64)
        sums = summary.read(summary.from_leaves(counts) + summary.spread(draws)).sums(noise)
        below = np.flatnonzero(sums[0][1:] - level * sums[0][-1] < margin)
        place = int(below[-1]) + 1 if below.size else 0
        covered[draw] = shares[min(place, len(shares) - 1)]
    return Expected(float(covered.mean()), float(covered.std(ddof=1)))


def pooled_exactly(rows: int, rank: int) -> Expected:
    """Of the score of this rank among all rows, but for the width of a bin."""
    law = CoverageLaw(clients=1, rows=rows, local_rank=rank, server_rank=1)
    return Expected(law.mean, law.standard_deviation)


def _moments(values: Floats, probabilities: Floats) -> Expected:
    mean = float(values @ probabilities)
    return Expected(mean, math.sqrt(max(0.0, float((values - mean) ** 2 @ probabilities))))
