"""Search for the best pair (ℓ, k) of a quantile of quantiles, for clients with equally many rows.

Two rules. `spread` (ours) minimises E(U - (1-α))² = (M - (1-α))² + Var U over the valid pairs: how far the coverage of
the set actually built is from the level. `paper` minimises M alone (Eq. 6), and may pick a pair whose
coverage varies a lot: for m = 10, n = 100, α = 0.1 it is (95, 1) with a standard deviation of 0.0192, where (92, 4) has
0.0120 at a mean of 0.9023.

Only *corners* need to be looked at: valid pairs that are no longer valid with either rank lowered by one. For `paper`
that is so because M grows with both ranks; for `spread` it is a theorem (docs/explanation/conformal-coverage.md): among
valid pairs, E(U - (1-α))² never falls when a rank is raised. There are at most as many corners as clients.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import betainc, betaincinv, ndtri

from fedassay.errors import DataError, UsageError
from fedassay.estimation.coverage.law import (
    TIE,
    CoverageLaw,
    checked_level,
    largest_miss,
    mirrored_moments,
    split_rows,
)
from fedassay.protocol.arrays import AnyFloats, Bools, Ints

Rule = Literal["spread", "paper"]

SAME = 1e-9
"""Pairs whose criteria differ by this part of them are equally good, so that all machines choose the same one."""


def best_pair(
    clients: int, rows: int, level: float, *, rule: Rule = "spread", confidence: float | None = None
) -> CoverageLaw:
    """Find the best valid pair, as the law of its coverage.

    Guarantee: marginal, P(the new row is covered) >= level, over calibration rows and the new one; with `confidence`
    also training-conditional, P(U >= level) >= confidence, over the calibration rows. Both are exact but for ties
    within `TIE` of α and of 1 - confidence. No valid pair is better by the rule.

    Edge cases: of equally good pairs, the smallest ℓ. One client, or one row each, is split conformal prediction.

    Raises `DataError` if no pair is valid, with the number of rows that would be enough.

    Examples
    --------
    >>> best_pair(10, 100, 0.9).pair, best_pair(10, 100, 0.9, rule="paper").pair
    ((92, 4), (95, 1))
    >>> best_pair(10, 100, 0.9, confidence=0.9).pair
    (92, 6)
    """
    check_request(level, rule=rule, confidence=confidence)
    if clients < 1 or rows < 1:
        raise UsageError(
            f"federation: got {clients} clients with {rows} rows each, expected at least one of both."
        )
    needed = scores_needed(level, confidence=confidence)
    if clients * rows < needed:
        raise DataError(
            f"{told(level, confidence)}: got {clients} clients with {rows} rows each, expected at least {needed} rows "
            "in all; add rows, or lower the level."
        )
    search = _Search(m=clients, n=rows, level=level, confidence=confidence)
    ell, k = search.corners()
    best = search.best(ell, k, rule)
    return CoverageLaw(clients=clients, rows=rows, local_rank=int(ell[best]), server_rank=int(k[best]))


def scores_needed(level: float, *, confidence: float | None = None) -> int:
    """Return the fewest scores, over all clients together, for which there is a valid pair.

    No pair covers more than (n, m), the largest of all scores: 1-M = 1/(mn+1), and P(U < 1-α) = (1-α)^(mn).

    Examples
    --------
    >>> scores_needed(0.9), scores_needed(0.9, confidence=0.95)
    (9, 29)
    """
    marginal = split_rows(checked_level(level))
    if confidence is None:
        return marginal
    return max(marginal, math.ceil(math.log(largest_miss(confidence)) / math.log(level)))


def check_request(level: float, *, rule: Rule, confidence: float | None) -> None:
    """Raise unless level, rule and confidence are valid."""
    checked_level(level)
    if confidence is not None:
        checked_level(confidence, what="confidence")
    if rule not in ("spread", "paper"):
        raise UsageError(f"rule: got {rule!r}, expected 'spread' or 'paper'.")


def told(level: float, confidence: float | None) -> str:
    """Describe the request in words."""
    return f"coverage {level:g}" + ("" if confidence is None else f" with confidence {confidence:g}")


def best_of(miss: AnyFloats, variance: AnyFloats, level: float, rule: Rule) -> int:
    """Return the first of the best valid candidates: where the rule's criterion is smallest, and then the variance.

    Examples
    --------
    >>> best_of(np.array([0.10, 0.0999]), np.array([0.02, 0.01]), 0.9, "spread")
    1
    >>> best_of(np.array([0.10, 0.0999]), np.array([0.02, 0.01]), 0.9, "paper")
    0
    """
    excess = 1 - level - miss
    if rule == "paper":
        variance = np.where(excess <= excess.min() + TIE * (1 - level), variance, np.inf)
    else:
        variance = excess**2 + variance
    return int(np.argmax(variance <= variance.min() * (1 + SAME)))


@dataclass(frozen=True, kw_only=True)
class _Search:
    """Corners of the valid pairs: for each k the smallest ℓ, or for each ℓ the smallest k, whichever are fewer."""

    m: int
    n: int
    level: float
    confidence: float | None

    def corners(self) -> tuple[Ints, Ints]:
        """Return all corners, by growing ℓ."""
        first, last = np.minimum(self.local_ranks(np.array([self.m, 1])), self.n)
        if last - first >= self.m:
            k = np.arange(self.m, 0, -1)
            ell = self.local_ranks(k)
            higher = (np.diff(ell, append=self.n + 1) > 0) & (ell <= self.n)
            return ell[higher], k[higher]
        ell = np.arange(first, last + 1)
        k = self.server_ranks(ell)
        lower = np.diff(k, prepend=self.m + 1) < 0
        return ell[lower], k[lower]

    def best(self, ell: Ints, k: Ints, rule: Rule) -> int:
        found = mirrored_moments(self.m, self.n, ell, k)
        return best_of(found.mean, found.variance, self.level, rule)

    def valid(self, ell: Ints, k: Ints) -> tuple[Bools, Bools]:
        """Return whether pairs have the guarantees asked for, and whether it is certain that (ℓ, k-1) has not.

        A log-concave U exceeds its mean with a probability of at most 1-1/e, so that from a confidence of 0.633 on the
        training-conditional guarantee implies the marginal one; below, both are asked for.
        """
        good = np.full(ell.shape, fill_value=True)
        if self.confidence is not None:
            tail = betainc(k, self.m - k + 1, betainc(ell, self.n - ell + 1, self.level))
            good = tail <= largest_miss(self.confidence)
            if self.confidence >= 0.633:
                return good, ~good
        found = mirrored_moments(self.m, self.n, ell, k)
        limit = largest_miss(self.level)
        return good & (found.mean <= limit), found.mean + (1 - 1e-6) * found.step > limit

    def local_ranks(self, k: Ints) -> Ints:
        """Return for each k the smallest valid ℓ, or n+1 if there is none."""
        # F(1-α) <= 1-γ if and only if G(1-α) is at most v; for the mean, the bound is nearly k/(m+1).
        v: AnyFloats = k / (self.m + 1)
        if self.confidence is not None:
            v = betaincinv(k, self.m - k + 1, 1 - self.confidence)
        none, beyond = np.zeros_like(k), np.full_like(k, self.n + 1)

        def below(ell: Ints, i: Ints) -> tuple[Bools, Bools]:
            good: Bools = betainc(ell, self.n - ell + 1, self.level) <= v[i]
            return good, ~good

        def valid(ell: Ints, i: Ints) -> tuple[Bools, Bools]:
            good, _ = self.valid(ell, k[i])
            return good, ~good

        return smallest(valid, none, beyond, smallest(below, none, beyond, beyond // 2))

    def server_ranks(self, ell: Ints) -> Ints:
        """Return for each ℓ the smallest valid k; k = m must be valid."""
        G = betainc(ell, self.n - ell + 1, self.level)
        z = 0.0 if self.confidence is None else float(ndtri(self.confidence))
        guess = np.ceil((self.m + 1) * G + z * np.sqrt(self.m * G * (1 - G))).astype(np.int64)
        none, all_clients = np.zeros_like(ell), np.full_like(ell, self.m)
        return smallest(lambda k, i: self.valid(ell[i], k), none, all_clients, guess)


def smallest(
    test: Callable[[Ints, Ints], tuple[Bools, Bools]], fails: Ints, passes: Ints, guess: Ints
) -> Ints:
    """Find for each i the smallest whole number that passes a monotone test, by steps from a guess that double.

    `test(numbers, i)` is called for some of the positions i at a time. It returns whether the numbers pass, and whether
    the numbers lower by 1 are known to fail. `fails` and `passes` are not tested.

    Examples
    --------
    >>> squares = np.array([10, 100, 1000])
    >>> at = np.array([0, 0, 0]), np.array([50, 50, 50]), np.array([3, 20, 1])
    >>> smallest(lambda x, i: (x**2 >= squares[i], (x - 1) ** 2 < squares[i]), *at)
    array([ 4, 10, 32])
    """
    fails, passes, point = fails.copy(), passes.copy(), np.clip(guess, fails + 1, passes - 1)
    step = 1
    while len(i := np.flatnonzero(passes - fails > 1)):
        inside = (fails[i] < point[i]) & (point[i] < passes[i])
        at = np.where(inside, point[i], (fails[i] + passes[i]) // 2)
        good, last = test(at, i)
        passes[i] = np.where(good, at, passes[i])
        fails[i] = np.where(good, np.where(last, at - 1, fails[i]), at)
        point[i] = np.where(good, at - step, at + step)
        step *= 2
    return passes
