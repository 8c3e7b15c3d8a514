"""Whether intervals cover as often as 95 % ones should: counts of hits against binomial bounds."""

from __future__ import annotations

from collections.abc import Sequence

from scipy.stats import binom

LEAST, MOST = 0.93, 0.97
"""What a 95 % interval may cover."""
FALSE_ALARM = 1e-3
"""The probability that a test fails although all its coverages are within the stated range."""


def too_low(hits: Sequence[bool], comparisons: int, least: float = LEAST) -> bool:
    """Whether so few hits would be rare for a coverage of `least`."""
    return bool(sum(hits) < binom.ppf(FALSE_ALARM / comparisons, len(hits), least))


def too_high(hits: Sequence[bool], comparisons: int, most: float = MOST) -> bool:
    """Whether so many hits would be rare for a coverage of `most`."""
    return bool(sum(hits) > binom.isf(FALSE_ALARM / comparisons, len(hits), most))
