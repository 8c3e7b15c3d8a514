"""Which levels a histogram should have under noise, decided from public settings by exact variances."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from fedassay.protocol import Setting, Sum
from fedassay.summaries.score_histogram import ScoreHistogram
from fedassay.summaries.tree import ranked_widths
from fedassay.tasks.evaluation.accuracy import AUC, PREVALENCE, expected_auc_noise, expected_evidence
from fedassay.tasks.evaluation.intervals import z_value
from fedassay.tasks.evaluation.metric import LEVEL
from fedassay.tasks.evaluation.ranking import auc_binning_bound

_CANDIDATES = 20
"""Fan-outs that are compared by the expected error of the AUC, out of the best for sums up to an edge."""

_LOWEST = 5
"""The least height that is tried."""

_SLOPES = ((2, 3), (1, 2), (2, 4), (3, 4), (1, 3), (3, 5))
"""Multipliers of the finest and the coarsest level; the levels between lie on a line."""


def least_noisy(histogram: ScoreHistogram, setting: Setting) -> ScoreHistogram:
    """The same bins, with the levels and the division of the budget among them that serve the AUC best.

    Among the fan-outs with the smallest mean variance of a sum up to an edge, and multipliers that give
    coarser levels more of the budget, the pair with the smallest noise in the AUC that a typical model would
    have (balanced classes, AUC 0.8). Wide nodes deserve more: each is a part of many sums. At 2^11 bins and a
    pure epsilon this takes 13 % off the noise of equal levels.
    """

    def with_levels(widths: tuple[int, ...], multipliers: tuple[int, ...]) -> ScoreHistogram:
        return replace(histogram, widths=widths, multipliers=multipliers)

    def equal_levels(levels: int) -> float:
        flat = with_levels(tuple(1 << level for level in range(levels)), (1,) * levels)
        return setting.noise(Sum(of=flat)).variance

    # Where clients report on one level each, they need counts as they are, and hold one row at most.
    divisible = not setting.noise(Sum(of=histogram)).reporting
    rows = 1e5 if divisible else max(2.0, setting.clients)

    def expected_error(candidate: ScoreHistogram) -> float:
        return expected_auc_noise(candidate, setting.noise(Sum(of=candidate)), rows=rows)

    candidates = [
        with_levels(widths, multipliers)
        for widths in ranked_widths(histogram.grid.leaves, equal_levels, keep=_CANDIDATES)
        for multipliers in (slopes(len(widths)) if divisible else [(1,) * len(widths)])
    ]
    return min(candidates, key=expected_error)


def most_telling(finest: ScoreHistogram, setting: Setting) -> ScoreHistogram:
    """Bins for randomised answers, fine or coarse, with the shortest interval for the AUC of a typical model.

    Such noise grows with the number of clients, so that it, not the binning, decides how fine the bins should
    be: every halving of the bins adds a level, and clients report on one level only. Clients are taken to hold
    one row each.
    """
    rows = max(2, setting.clients)

    def half_width(histogram: ScoreHistogram) -> float:
        binning = auc_binning_bound(expected_evidence(histogram, rows=rows, prevalence=PREVALENCE, auc=AUC))
        noise = setting.noise(Sum(of=histogram))
        return z_value(LEVEL) * expected_auc_noise(histogram, noise, rows=rows) + binning

    lowest = max(_LOWEST, (len(finest.thresholds) + 1).bit_length())
    candidates = [replace(finest, height=height) for height in range(lowest, finest.height + 1)]
    return min((least_noisy(candidate, setting) for candidate in candidates or [finest]), key=half_width)


def slopes(levels: int) -> Iterator[tuple[int, ...]]:
    """Multipliers for so many levels: equal ones, and those that rise towards the coarser levels.

    Examples
    --------
    >>> list(slopes(2))
    [(1, 1), (2, 3), (1, 2), (3, 4), (1, 3), (3, 5)]
    """
    seen = {(1,) * levels}
    yield (1,) * levels
    for low, high in _SLOPES:
        rising = tuple(int(m) for m in np.round(np.linspace(low, high, levels)))
        reduced = tuple(m // math.gcd(*rising) for m in rising)
        if reduced not in seen:
            seen.add(reduced)
            yield reduced
