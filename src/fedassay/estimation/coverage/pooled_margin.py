"""The margin that makes a quantile of noisy counts cover enough, whatever the number of rows turns out to be.

Let y = t0 + (1-α)N and f = y - ⌈y⌉ + 1, a number in (0, 1]. As long as t0 <= αN, the bound of `pooled.py` is met if

    t0 >= (1-α)K + f - 1 + Σ_{i>=0} above(f+i) - Σ_{i>=1} (1 - above(f-i)),

the second sum over ranks up to N+1. N enters through f, and through how far the second sum goes: with the largest
right-hand side over f, and the fewest rows, t0 is enough for all numbers of rows from there on. Fewer than t0/α rows
are a matter of their own: there the sum of the bound is looked at directly, for ranges of N. Without noise t0 = (1-α)K
is split conformal prediction, ⌈(1-α)(N+K)⌉. Proofs: docs/explanation/private-conformal.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np

from fedassay.errors import DataError, UsageError
from fedassay.estimation.coverage.law import checked_level, largest_miss
from fedassay.estimation.coverage.noise_tail import Floats, NoiseTail
from fedassay.estimation.coverage.panels import Ints
from fedassay.estimation.coverage.pooled import PooledLaw

SPARE = 1e-8
"""For rounding (`ROUNDING`), and for the terms of the first sum that are left out, each below 1e-16."""


def fewest_rows(noisy_total: float, tail: NoiseTail, probability: float = 1e-6) -> int:
    """A number that the rows are at least, but with this probability, which is to be added to what is missed.

    `tail` is that of the total's noise. Guarantee: P(N < the result) <= probability; the result may be zero or less,
    when nothing is known.

    Examples
    --------
    >>> tail = NoiseTail(law="discrete-laplace", scale=1.0, variance=1.841, reach=1.0)
    >>> fewest_rows(1000.4, tail), fewest_rows(1000.0, NoiseTail(law="none"))
    (984, 1000)
    """
    if tail.exact:
        return math.ceil(noisy_total - 1e-9)
    # N = total - Z, and Z < reach but with this probability; a whole number above a bound is at least the next one.
    return math.floor(noisy_total - tail.reach_of(probability)) + 1


def pooled_margin(
    level: float,
    tail: NoiseTail,
    fewest_rows: int,
    *,
    test_points: int = 1,
    confidence: float | None = None,
    most_rows: int | None = None,
) -> float:
    """t0, for which the threshold after the last point with a noisy T_i below t0 covers enough.

    Guarantee: P(the new row is covered) >= level for every number of rows from `fewest_rows` on. With `confidence` also
    P(U >= level) >= confidence for every number of rows from `fewest_rows` to `most_rows`, which is then needed. Both
    may come from the same release, if they are right but with a small probability, which is added to what is missed:
    all margins that may then result are enough, and a larger one never lowers the threshold.

    Edge cases: no noise gives (1-α)·test_points, split conformal prediction; for `unary` noise
    and enough rows, t0 does not depend on their number.

    Examples
    --------
    >>> pooled_margin(0.9, NoiseTail(law="none"), 100)
    0.9
    >>> tail = NoiseTail(law="discrete-gaussian", scale=10.0, variance=400.0, reach=1.0, least_variance=300.0)
    >>> round(pooled_margin(0.9, tail, 1000), 2)
    2.75
    """
    checked_level(level)
    if test_points < 1 or fewest_rows < 1:
        raise DataError(
            f"pooled quantile: got at least {fewest_rows} rows and {test_points} test points, expected at least one of "
            "both; add rows, or allow a larger ε."
        )
    if confidence is None:
        return _marginal(level, tail, fewest_rows, test_points)
    checked_level(confidence, what="confidence")
    if test_points > 1:
        raise UsageError(
            f"confidence: got {test_points} clients whose rows are exchangeable within a client only, expected 1; only "
            "the mean is guaranteed then."
        )
    if most_rows is None or most_rows < fewest_rows:
        raise UsageError(
            f"confidence: got at most {most_rows} rows, expected a number from {fewest_rows} up; the margin grows with "
            "the rows."
        )
    start = _marginal(level, tail, fewest_rows, test_points)
    return max(start, _conditional(level, tail, fewest_rows, most_rows, confidence, start))


def _marginal(level: float, tail: NoiseTail, fewest: int, test_points: int) -> float:
    if tail.exact:
        return level * test_points
    if not tail.symmetric:
        return _with_reports(level, tail, fewest)
    margin = _largest(level, tail, fewest, test_points)
    ranges = _ranges(fewest, math.ceil(margin / (1 - level)), math.sqrt(tail.variance) / (50 * (1 - level)))

    def enough(t0: float) -> bool:
        return all(_missed(level, tail, t0, *ends, test_points) <= 1 - level for ends in ranges)

    return _smallest(enough, margin, math.sqrt(tail.variance) / 500)


def _largest(level: float, tail: NoiseTail, fewest: int, test_points: int) -> float:
    """The largest right-hand side over f, of which each cell (low, high] is bounded at its ends."""
    end = math.ceil(tail.furthest) + 1
    cells = 64 if tail.variance < 1e4 else 8
    low = np.arange(cells) / cells
    low[0] = math.ulp(0.0)  # f is above 0, and so is x
    first = _sums(tail, low, np.arange(end + 1)) + (np.arange(cells) + 1) / cells - 1
    most = float(first.max()) + level * test_points + SPARE
    # The ranks of the second sum go to N+1: f - i >= t0 - αN, and t0 is at most what it would be without that sum.
    count = max(0, min(end, math.floor((1 - level) * fewest - most) - 1))
    second = count - _sums(tail, low, -np.arange(1, count + 1))
    return float((first - second).max()) + level * test_points + SPARE


def _sums(tail: NoiseTail, starts: Floats, steps: Ints) -> Floats:
    """Σ above(start + step) over the steps, for each start."""
    return np.array([float(tail.above(start + steps).sum()) for start in starts])


def _missed(level: float, tail: NoiseTail, margin: float, fewest: int, most: int, test_points: int) -> float:
    """A bound of what is missed for all numbers of rows in a range.

    Counted from rank N+1 down, what is missed is the mean of K times above(t0-αN) and above(t0-αN+i), i = 1..N. Each
    is largest for the most rows, and as they fall with i, their mean is largest for the fewest.
    """
    end = min(fewest, math.ceil(tail.furthest) + math.ceil(max(0.0, (1 - level) * most - margin)) + 1)
    terms = tail.above(margin - (1 - level) * most + np.arange(end + 1))
    return float(test_points * terms[0] + terms[1:].sum() + SPARE) / (fewest + test_points)


def _with_reports(level: float, tail: NoiseTail, fewest: int) -> float:
    """Where noise and rows are one sum: ∫ above over x from t0-αN up must not exceed αN.

    For t0 <= αN that is t0 >= ∫ above over x > 0, and for smaller N the difference of both sides falls with N.
    """
    room = (1 - level) * fewest
    margin = tail.integral(0.0) + SPARE
    return _smallest(lambda t0: t0 <= room or tail.integral(t0 - room) <= room, margin, margin / 1000)


def _conditional(
    level: float, tail: NoiseTail, fewest: int, most: int, confidence: float, start: float
) -> float:
    """The margin with P(U < level) <= 1 - confidence for all these numbers of rows."""
    allowed = largest_miss(confidence)
    if not tail.symmetric:
        return tail.reach_of(1 - confidence) + SPARE
    deviation = math.sqrt(level * (1 - level) * most + tail.variance)
    ranges = _ranges(fewest, most, deviation / 20)

    def enough(t0: float) -> bool:
        return all(_worst(level, tail, t0, *ends) <= allowed for ends in ranges)

    return _smallest(enough, start, deviation / 500)


def _worst(level: float, tail: NoiseTail, margin: float, fewest: int, most: int) -> float:
    """A bound of P(U < level) for all numbers of rows in a range.

    The rank L' is at least that of the fewest rows, and Beta(ℓ, b) falls with b = N+1-ℓ: the most rows.
    """
    law = PooledLaw(rows=most, level=level, margin=margin - level * (most - fewest), tail=tail)
    return law.cdf(level)


def _ranges(fewest: int, most: int, width: float) -> list[tuple[int, int]]:
    """Ranges of about this width that cover all numbers from `fewest` to `most`, 64 at most."""
    if most < fewest:
        return []
    count = min(64, math.ceil((most - fewest + 1) / max(1.0, width)))
    edges = np.unique(np.linspace(fewest, most + 1, count + 1).round().astype(np.int64)).tolist()
    return [(a, b - 1) for a, b in pairwise(edges)]


def _smallest(enough: Callable[[float], bool], start: float, precision: float) -> float:
    """The smallest number from `start` on that is enough, up to this precision; more must not be worse."""
    if enough(start):
        return start
    low, high = start, 2 * start + precision
    while not enough(high):
        low, high = high, 2 * high
    while high - low > precision:
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
