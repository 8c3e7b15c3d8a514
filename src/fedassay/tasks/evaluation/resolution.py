"""Which levels a histogram should have under noise, decided from public settings by exact variances."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations_with_replacement

import numpy as np

from fedassay.estimation.intervals import z_value
from fedassay.estimation.least_squares import least_squares
from fedassay.estimation.metric import LEVEL
from fedassay.estimation.ranking import auc_binning_bound
from fedassay.estimation.widths import mean_prefix_variance, ranked_widths
from fedassay.protocol import NO_NOISE, Setting, Sum
from fedassay.summaries.score_histogram import ScoreHistogram
from fedassay.tasks.evaluation.accuracy import (
    AUC,
    PREVALENCE,
    expected_auc_noise,
    expected_evidence,
    hanley_mcneil_variance,
)

_CANDIDATES = 20
"""Fan-outs that are compared by the expected error of the AUC, out of the best for sums up to an edge."""

TYPICAL_ROWS = 1e5

_LOWEST = 5
"""The least height that is tried."""

_FEW = 4
"""Up to so many levels all small multipliers are tried, beyond those on a line between two."""

_SLOPES = ((1, 1), (1, 2), (2, 3), (1, 3), (3, 5))
"""Multipliers of the finest and of the coarsest level."""


def expected_rows(setting: Setting) -> float | None:
    """How many rows there would be if all clients had reached their bound; None if they have none."""
    per_client = setting.protection.rows_per_client
    return None if per_client is None else max(2.0, setting.clients * per_client)


def least_noisy(histogram: ScoreHistogram, setting: Setting) -> ScoreHistogram:
    """The same bins, with the levels and the division of the budget among them that serve the metrics best.

    Among the fan-outs with the smallest mean variance of a sum up to an edge, and multipliers that give
    coarser levels more of the budget, the pair with the smallest product of two errors: the noise of the AUC
    that a typical model would have (balanced classes, AUC 0.8), which counts twice, and that of a sum up to an
    edge, on which decisions and calibration rest. The AUC alone would take budget from the finest level until
    sums had three times the variance.
    """

    def with_levels(widths: tuple[int, ...], multipliers: tuple[int, ...]) -> ScoreHistogram:
        return replace(histogram, widths=widths, multipliers=multipliers)

    def equal_levels(levels: int) -> float:
        flat = with_levels(tuple(1 << level for level in range(levels)), (1,) * levels)
        return setting.noise(Sum(of=flat)).variance

    divisible = not setting.noise(Sum(of=histogram)).reporting  # who reports on one level counts as it is
    rows = expected_rows(setting) or TYPICAL_ROWS

    def expected_error(candidate: ScoreHistogram) -> float:
        noise = setting.noise(Sum(of=candidate))
        sums = mean_prefix_variance(least_squares(candidate.tree, candidate.multipliers, noise))
        return expected_auc_noise(candidate, noise, rows=rows) ** 2 * math.sqrt(sums)

    candidates = [
        with_levels(widths, multipliers)
        for widths in ranked_widths(histogram.grid.leaves, equal_levels, keep=_CANDIDATES)
        for multipliers in (slopes(len(widths)) if divisible else [(1,) * len(widths)])
    ]
    return min(candidates, key=expected_error)


def most_telling(finest: ScoreHistogram, setting: Setting) -> ScoreHistogram:
    """These bins or coarser ones: those with the shortest interval for the AUC of a typical model.

    The fewer rows there are, the more noise weighs against binning. How many rows there are is not public; where
    clients have a bound, they are taken to have reached it, else the finest bins are taken.
    """
    rows = expected_rows(setting)
    if rows is None:
        return least_noisy(finest, setting)

    def half_width(histogram: ScoreHistogram) -> float:
        noise = setting.noise(Sum(of=histogram))
        expected = {"rows": rows, "prevalence": PREVALENCE, "auc": AUC}
        binning = auc_binning_bound(expected_evidence(histogram, noise=NO_NOISE, **expected))
        sampling = hanley_mcneil_variance(AUC, positives=rows * PREVALENCE, negatives=rows * (1 - PREVALENCE))
        privacy = expected_auc_noise(histogram, noise, **expected) ** 2
        return z_value(LEVEL) * math.sqrt(sampling + privacy) + binning

    lowest = max(_LOWEST, (len(finest.thresholds) + 1).bit_length())
    candidates = [replace(finest, height=height) for height in range(lowest, finest.height + 1)]
    return min((least_noisy(candidate, setting) for candidate in candidates or [finest]), key=half_width)


def slopes(levels: int) -> Iterator[tuple[int, ...]]:
    """Multipliers for so many levels: equal ones, and those that rise towards the coarser levels.

    Examples
    --------
    >>> list(slopes(2))
    [(1, 1), (1, 2), (1, 3), (2, 3)]
    """
    if levels <= _FEW:
        for rising in combinations_with_replacement((1, 2, 3), levels):
            if math.gcd(*rising) == 1:
                yield rising
        return
    for low, high in _SLOPES:
        yield tuple(int(m) for m in np.round(np.linspace(low, high, levels)))
