"""Target, server rank and slopes where each client chooses its quantile privately.

Everything is public: m, n, B, ε and the level. A choice is valid if the lower law (`ChoiceLaw`) has the guarantee.
Among valid ones we look for small sets. The losses of ranks above the target hold the choice down, those below hold it
up, and both share one ε: steep slopes below need a smaller correction and overshoot more. The criterion weighs both by
the largest law that the coverage can have: if every client wins as many ranks as it may (E of `choice.py`), the
smallest E(U - (1-α))² is best, as `spread` of `pairs.py` without privacy.

The search is in two steps, so that it takes a fraction of a second. On a grid, one target for each of some server ranks
and each pair of slopes, with a law that is good to a few digits. For the best of them, exact targets, the exact laws,
and a comparison. The result is valid; that nothing is better is not claimed (docs/explanation/private-conformal.md
compares it with the shortest sets that any choice gives).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.special import betainc

from fedassay.errors import DataError, UsageError
from fedassay.estimation.coverage.choice import (
    ChoiceLaw,
    binomial,
    cdf_after_gain,
    cdf_after_loss,
    enough_epsilon,
    enough_rows,
    kept_at_most,
    lost_at_least,
    lowest_moments,
    would_do,
)
from fedassay.estimation.coverage.law import largest_miss, mean_and_variance
from fedassay.estimation.coverage.pairs import SAME, check_request, smallest, told
from fedassay.protocol.arrays import AnyFloats, Bools, Ints

SLOPES = ((1, 2), (1, 1), (2, 1), (4, 1), (8, 1))
"""Slopes (below, above) that are tried."""

STEEPEST = max(below / (below + above) for below, above in SLOPES)

SERVER_RANKS = 24
"""Number of server ranks that are tried for each pair of slopes; all, if there are fewer."""

FINALISTS = 6
"""Number of choices that are worked out exactly."""


@dataclass(frozen=True, kw_only=True)
class ClientChoice:
    """Choice that clients are to make and rank that the server is to take: public, before any score is seen.

    Parameters
    ----------
    target : t, the rank of the score that a client aims at.
    server_rank : k, the rank of the client value that the server takes.
    below, above : the slopes of the losses, η = ε/(below + above).
    law : the law of the coverage that this guarantees.
    """

    target: int
    server_rank: int
    below: int
    above: int
    law: ChoiceLaw


@lru_cache(maxsize=64)
def best_choice(
    clients: int, rows: int, level: float, *, epsilon: float, candidates: int, confidence: float | None = None
) -> ClientChoice:
    """Find a valid choice with small sets.

    Guarantee: marginal, P(the new row is covered) >= level, over calibration rows, coins and the new row; with
    `confidence` also training-conditional, P(U >= level) >= confidence. For any distribution of the scores.

    Edge cases: one client; one row each; two candidates, of which one is +∞.

    Raises `DataError` if nothing is valid, with the number of rows that would be enough at this ε, and the ε that would
    be enough with these rows.

    Examples
    --------
    >>> found = best_choice(20, 110, 0.9, epsilon=2.0, candidates=100)
    >>> found.target, found.server_rank, (found.below, found.above), round(found.law.mean, 4)
    (97, 20, (1, 1), 0.9019)
    """
    check_request(level, rule="spread", confidence=confidence)
    if clients < 1 or rows < 1:
        raise UsageError(
            f"federation: got {clients} clients with {rows} rows each, expected at least one of both."
        )
    if candidates < 2 or not epsilon > 0:
        raise UsageError(
            f"private choice: got {candidates} candidates and ε = {epsilon:.3g}, expected at least two and an ε above "
            "0."
        )
    ask = _Ask(m=clients, n=rows, level=level, candidates=candidates, confidence=confidence)
    if not ask.possible(epsilon * STEEPEST):
        raise DataError(_refusal(ask, epsilon))
    return _best(ask, epsilon, _finalists(ask, epsilon))


@dataclass(frozen=True, kw_only=True)
class _Ask:
    """Request for a private choice; checks which pairs (t, k) meet it."""

    m: int
    n: int
    level: float
    candidates: int
    confidence: float | None

    def valid(self, t: Ints, k: Ints, rate: float) -> Bools:
        """Return whether these pairs have the guarantees asked for."""
        good = np.full(t.shape, fill_value=True)
        if self.confidence is not None:
            tail = betainc(k, self.m - k + 1, self._client(t, rate))
            good = tail <= largest_miss(self.confidence)
        if good.any():
            miss, _ = lowest_moments(self.m, self.n, t[good], k[good], self.candidates, rate)
            good[good] = miss <= largest_miss(self.level)
        return good

    def possible(self, rate: float) -> bool:
        """Return whether any pair has the guarantees asked for: t = n and k = m cover the most."""
        return bool(self.valid(np.array([self.n]), np.array([self.m]), rate)[0])

    def guessed_targets(self, k: Ints, rate: float) -> Ints:
        """Guess the smallest targets from the law at 1-α alone, of which the k-th of m is about k/(m+1)."""
        start = np.full_like(k, math.ceil(self.level * self.n))
        return self.smallest_targets(k, start, lambda t, i: self._client(t, rate) <= k[i] / (self.m + 1))

    def exact_targets(self, k: Ints, guess: Ints, rate: float) -> Ints:
        """Return for each k the smallest valid target, or n+1 if there is none."""
        return self.smallest_targets(k, guess, lambda t, i: self.valid(t, k[i], rate))

    def spread(self, t: Ints, k: Ints, rate: float) -> AnyFloats:
        """Return E(U - (1-α))² if every client wins as many ranks as it may; `rate` is that of the losses above."""

        def cdf(s: AnyFloats, i: Ints) -> AnyFloats:
            client = cdf_after_gain(s, self.n, t[i], self.candidates, rate)
            found: AnyFloats = betainc(k[i], self.m - k[i] + 1, client)
            return found

        miss, variance = mean_and_variance(cdf, len(k))
        return np.asarray((1 - self.level - miss) ** 2 + variance)

    def smallest_targets(self, k: Ints, guess: Ints, good: Callable[[Ints, Ints], Bools]) -> Ints:
        """Return for each k the smallest target that is good, or n+1 if none is."""

        def test(t: Ints, i: Ints) -> tuple[Bools, Bools]:
            found = good(t, i)
            return found, ~found

        return smallest(test, np.zeros_like(k), np.full_like(k, self.n + 1), guess)

    def _client(self, t: Ints, rate: float) -> AnyFloats:
        return cdf_after_loss(np.full(len(t), self.level), self.n, t, self.candidates, rate)


# --- the search -----------------------------------------------------------------------------------------


class _Candidate(NamedTuple):
    """Slopes, a server rank, about the smallest valid target, and about its criterion."""

    below: int
    above: int
    server_rank: int
    target: int
    spread: float


def _finalists(ask: _Ask, epsilon: float) -> list[_Candidate]:
    """Return the most promising of all slopes and server ranks, and the pair that covers the most, which is valid."""
    k = np.unique(np.linspace(1, ask.m, min(ask.m, SERVER_RANKS)).round().astype(np.int64))
    grid = _Grid.around(ask, epsilon * min(min(x) / sum(x) for x in SLOPES))
    found = []
    for below, above in SLOPES:
        eta = epsilon / (below + above)
        t = grid.targets(ask, k, eta * below)
        pairs = k[t <= ask.n], t[t <= ask.n]
        spread = grid.spread(ask, *pairs, eta * above)
        found += [
            _Candidate(below, above, *x)
            for x in zip(*(each.tolist() for each in (*pairs, spread)), strict=True)
        ]
    found.sort(key=lambda x: x.spread)
    below, above = max(SLOPES, key=lambda x: x[0] / x[1])
    return [*found[:FINALISTS], _Candidate(below, above, ask.m, ask.n, math.inf)]


def _best(ask: _Ask, epsilon: float, finalists: list[_Candidate]) -> ClientChoice:
    """Return the best finalist, with exact targets and exact criteria; the first, if several are as good."""
    best, least = None, math.inf
    for below, above in dict.fromkeys((x.below, x.above) for x in finalists):
        ours = [x for x in finalists if (x.below, x.above) == (below, above)]
        eta = epsilon / (below + above)
        k, guess = (np.array(x) for x in zip(*((x.server_rank, x.target) for x in ours), strict=True))
        t = ask.exact_targets(k, guess, eta * below)
        k, t = k[t <= ask.n], t[t <= ask.n]
        for target, rank, spread in zip(t, k, ask.spread(t, k, eta * above), strict=True):
            if spread < least * (1 - SAME):
                best, least = (int(target), int(rank), below, above), float(spread)
    assert best is not None
    target, rank, below, above = best
    law = ChoiceLaw(
        clients=ask.m,
        rows=ask.n,
        target=target,
        server_rank=rank,
        candidates=ask.candidates,
        rate=epsilon * below / (below + above),
    )
    return ClientChoice(target=target, server_rank=rank, below=below, above=above, law=law)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Grid:
    """Points around 1-α, and the binomial laws there, which all targets and slopes share."""

    s: AnyFloats
    counts: Ints
    p: AnyFloats

    @classmethod
    def around(cls, ask: _Ask, rate: float) -> _Grid:
        """Build a grid beyond which hardly anything of a client's law lies, choice included, at the smallest `rate`."""
        # D and E are log(B-1)/rate, give or take a few 1/rate.
        width = 8 * math.sqrt(ask.level * (1 - ask.level) / ask.n) + (math.log(ask.candidates) + 8) / (
            rate * ask.n
        )
        s = np.linspace(max(0.0, ask.level - width), min(1.0, ask.level + width), 401)
        reach = 8 * math.sqrt(ask.n) + 8
        first, last = max(0, math.floor(ask.n * s[0] - reach)), min(ask.n, math.ceil(ask.n * s[-1] + reach))
        counts = np.unique(np.linspace(first, last, min(last - first, 4000) + 1).round().astype(np.int64))
        p = binomial(s[:, None], counts, ask.n)
        return cls(s=s, counts=counts, p=p / p.sum(axis=1, keepdims=True))

    def targets(self, ask: _Ask, k: Ints, rate: float) -> Ints:
        """Return for each k about the smallest valid target, or n+1."""

        def good(t: Ints, i: Ints) -> Bools:
            lost = lost_at_least(t - self.counts[:, None], ask.candidates, rate)
            part, at = self._parts(ask, k[i], self.p @ lost)
            if ask.confidence is None:
                return np.asarray((1 - at) @ part <= largest_miss(ask.level))
            low = part[at < ask.level].sum(axis=0) <= largest_miss(ask.confidence)
            return np.asarray(low & ((1 - at) @ part <= largest_miss(ask.level)))

        return ask.smallest_targets(k, ask.guessed_targets(k, rate), good)

    def spread(self, ask: _Ask, k: Ints, t: Ints, rate: float) -> AnyFloats:
        """Return E(U - (1-α))² of the upper law."""
        part, at = self._parts(ask, k, self.p @ kept_at_most(self.counts[:, None] - t, ask.candidates, rate))
        return np.asarray(((at - ask.level) ** 2) @ part)

    def _parts(self, ask: _Ask, k: Ints, client: AnyFloats) -> tuple[AnyFloats, AnyFloats]:
        """Return probabilities between the points, and where: F jumps at 0 and 1, and is flat up to the ends."""
        F = betainc(k, ask.m - k + 1, client.clip(0, 1))
        part = np.diff(F, axis=0, prepend=0.0, append=1.0)
        return part, np.concatenate([[0.0], (self.s[1:] + self.s[:-1]) / 2, [1.0]])


def _refusal(ask: _Ask, epsilon: float) -> str:
    """Describe the request, and what would be enough."""
    enough = would_do(
        enough_rows(lambda n: replace(ask, n=n).possible(epsilon * STEEPEST), ask.n),
        enough_epsilon(lambda value: ask.possible(value * STEEPEST), epsilon),
    )
    return (
        f"{told(ask.level, ask.confidence)} at ε = {epsilon:.3g}: got {ask.m} clients with {ask.n} rows each and "
        f"{ask.candidates} candidates, {enough}; add rows, raise ε, use fewer candidates (`bins`), or lower "
        "the level."
    )
