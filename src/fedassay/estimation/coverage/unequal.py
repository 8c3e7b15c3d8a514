"""Coverage of a quantile of quantiles where clients have different numbers of rows.

Client j sends the ℓ_j-th smallest of its n_j scores, the server takes the k-th smallest of what it got (the paper's
A.1). Then F(t) = P(S(t) >= k), where S(t) adds independent coins with the probabilities G_j(t) = I_t(ℓ_j, n_j-ℓ_j+1).

A client with ℓ_j > n_j has too few rows and sends +∞. The k-th smallest of all is then the k-th smallest of the others,
so that such a client has no effect. If k is larger than the number of the others, the threshold is +∞ and everything is
covered.

Which ranks, for these clients: the server's for given local ones, and a search for both. M grows with k, so that the
valid k are those from some number on. What `pairs.py` proves about E(U - (1-α))² needs clients that are alike; here k
goes up until (M - (1-α))² alone exceeds the best criterion, when no larger k can win.

Reference: the paper's A.1. Symbols are those of `law.py`; accuracy: docs/explanation/conformal-coverage.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.optimize import brentq
from scipy.special import betainc, betaln, xlog1py, xlogy

from fedassay.errors import DataError, UsageError
from fedassay.estimation.coverage.law import (
    CoverageOfThreshold,
    checked_level,
    largest_miss,
    split_rank,
    split_rows,
)
from fedassay.estimation.coverage.pairs import Rule, best_of, best_pair, check_request, scores_needed, told
from fedassay.estimation.coverage.senders import Senders
from fedassay.protocol.arrays import Ints


def split_ranks(rows: Sequence[int], level: float) -> tuple[int, ...]:
    """Return ℓ_j = ⌈(1-α)(n_j+1)⌉, the ranks that the paper proposes; above n_j where a client has too few rows.

    Examples
    --------
    >>> split_ranks([100, 20, 5], 0.9)
    (91, 19, 6)
    """
    return tuple(split_rank(n, checked_level(level)) for n in rows)


@dataclass(frozen=True, kw_only=True)
class UnequalLaw(CoverageOfThreshold):
    """Law of the coverage U where client j sends its ℓ_j-th smallest of n_j scores and the server takes the k-th.

    Guarantee and assumption as for `CoverageLaw`. Mean, standard deviation and probabilities are within 1e-12
    for up to 10^5 clients and 10^6 rows each, absolute; `miss` is accurate relative to itself to 1e-10.

    Edge cases: clients with ℓ_j > n_j (no rows among them) send +∞, see `infinite`; with k above the number of the
    others the set is trivial, and U is 1.

    Examples
    --------
    >>> rows = (200, 100, 50, 20, 20, 5)
    >>> law = UnequalLaw(rows=rows, local_ranks=split_ranks(rows, 0.9), server_rank=3)
    >>> round(law.mean, 4), round(law.standard_deviation, 4), law.infinite
    (0.9059, 0.0203, (5,))
    """

    rows: tuple[int, ...]
    local_ranks: tuple[int, ...]
    server_rank: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", tuple(int(n) for n in self.rows))
        object.__setattr__(self, "local_ranks", tuple(int(ell) for ell in self.local_ranks))
        if not self.rows or min(self.rows) < 0:
            raise UsageError(
                f"rows per client: got {len(self.rows)} numbers, the smallest {min(self.rows, default=0)}, expected "
                "one from 0 up for each client."
            )
        if len(self.local_ranks) != len(self.rows) or min(self.local_ranks) < 1:
            raise UsageError(
                f"local ranks: got {len(self.local_ranks)} of them, the smallest {min(self.local_ranks, default=0)}, "
                f"expected one from 1 up for each of the {len(self.rows)} clients."
            )
        if not 1 <= self.server_rank <= len(self.rows):
            raise UsageError(
                f"server rank: got {self.server_rank}, expected a number from 1 to {len(self.rows)}, the clients."
            )

    @property
    def clients(self) -> int:
        """Number of clients m, including those that send +∞."""
        return len(self.rows)

    @cached_property
    def infinite(self) -> tuple[int, ...]:
        """Positions of the clients that send +∞."""
        return tuple(j for j in range(self.clients) if self.local_ranks[j] > self.rows[j])

    @property
    def is_trivial(self) -> bool:
        """True if the threshold is +∞, whatever the scores are."""
        return self.server_rank > self.clients - len(self.infinite)

    @cached_property
    def _senders(self) -> Senders:
        return Senders.of(self.rows, self.local_ranks)

    @property
    def _rank(self) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """Rank of the server, counted from the other end."""
        return np.array([self._senders.clients + 1 - self.server_rank])

    @cached_property
    def _mirrored(self) -> tuple[float, float]:
        if self.is_trivial:
            return 0.0, 0.0
        mean, variance = self._senders.moments(self._rank)
        return float(mean[0]), float(variance[0])

    def cdf(self, t: float) -> float:
        """Return F(t) = P(U <= t)."""
        return 1.0 if t >= 1 else 1 - self.probability_at_least(t)

    def probability_at_least(self, level: float) -> float:
        """Return P(U >= level): the training-conditional guarantee."""
        if self.is_trivial:
            return float(level <= 1)
        miss = np.array([min(1.0, max(0.0, 1 - level))])
        return float(self._senders.tails(miss, self._rank)[0, 0])

    def _quantile(self, p: float) -> float:
        if p == 0 and not self.is_trivial:
            return 0.0
        if p == 1 or self.is_trivial:
            return 1.0
        lo, hi = self._senders.ends(self._rank)

        def excess(w: float) -> float:
            return 1 - p - float(self._senders.tails(np.array([w]), self._rank)[0, 0])

        if excess(lo) <= 0 or excess(hi) >= 0:  # beyond what F can resolve
            return 1 - (lo if p > 0.5 else hi)
        return 1 - float(brentq(excess, lo, hi, xtol=1e-15, rtol=1e-14))


# --- the choice of ranks ---------------------------------------------------------------------------------

SHIFTS = tuple(np.linspace(-1.5, 1.5, 61).round(2).tolist())
"""Shifts of local ranks from (1-α)(n_j+1), in standard deviations of a client's own coverage."""

MOST_WORK = 2000
"""Up to seven shifts are worked out exactly, fewer if they times the clients are more than this."""


def best_server_rank(
    rows: Sequence[int],
    local_ranks: Sequence[int],
    level: float,
    *,
    rule: Rule = "spread",
    confidence: float | None = None,
) -> UnequalLaw:
    """Find the best valid k for given ℓ_j, as the law of its coverage.

    Guarantee as for `best_pair`: marginal, and with `confidence` training-conditional too; no valid k is better by the
    rule. For `paper` that is the smallest valid k.

    Raises `DataError` if no k up to the number of clients that send a score is valid.

    Examples
    --------
    >>> rows = [200, 100, 50, 20, 20, 5]
    >>> law = best_server_rank(rows, split_ranks(rows, 0.9), 0.9)
    >>> law.server_rank, round(law.mean, 4)
    (3, 0.9059)
    """
    check_request(level, rule=rule, confidence=confidence)
    law = UnequalLaw(rows=tuple(rows), local_ranks=tuple(local_ranks), server_rank=1)
    k = _server_rank(Senders.of(law.rows, law.local_ranks), level, rule, confidence)
    if k is None:
        raise DataError(
            f"{told(level, confidence)}: got {sum(law.rows)} rows in all, and too few for the local rank at "
            f"{len(law.infinite)} of {law.clients} clients, expected more; add rows (one client alone needs "
            f"{split_rows(level)} for this level), or lower the level."
        )
    return UnequalLaw(rows=law.rows, local_ranks=law.local_ranks, server_rank=k)


def best_ranks(
    rows: Sequence[int], level: float, *, rule: Rule = "spread", confidence: float | None = None
) -> UnequalLaw:
    """Find good local ranks and the best k for them, as the law of its coverage.

    Guarantee: valid as for `best_pair`. `paper` takes ℓ_j = ⌈(1-α)(n_j+1)⌉, as A.1 proposes. `spread` also tries ranks
    that are `SHIFTS` standard deviations sqrt(α(1-α)(n_j+1)) away from there, and is never worse than without; it is
    not claimed to be the best of all ranks. A negative shift lets clients take part that have too few rows for the
    level; no shift leaves out a client that has enough. For equal numbers of rows, `spread` is `best_pair`.

    Raises `DataError` if no ranks are valid (for `paper`: if no k is), with the number of rows that would be enough.

    Examples
    --------
    >>> law = best_ranks([9, 8, 8, 8, 8, 8, 7, 7, 7, 7], 0.9)
    >>> law.local_ranks, law.server_rank, law.infinite, round(law.mean, 4)
    ((9, 8, 8, 8, 8, 8, 7, 7, 7, 7), 6, (), 0.9201)
    """
    check_request(level, rule=rule, confidence=confidence)
    if rule == "paper":
        return best_server_rank(rows, split_ranks(rows, level), level, rule=rule, confidence=confidence)
    needed = scores_needed(level, confidence=confidence)
    if sum(rows) < needed:
        raise DataError(
            f"{told(level, confidence)}: got {sum(rows)} rows in all, expected at least {needed}; add rows, or lower "
            "the level."
        )
    if len(set(rows)) == 1:
        pair = best_pair(len(rows), int(rows[0]), level, confidence=confidence)
        ranks = (pair.local_rank,) * len(rows)
        return UnequalLaw(rows=tuple(rows), local_ranks=ranks, server_rank=pair.server_rank)
    largest = tuple(max(1, n) for n in rows)  # with k = m, the largest of all scores: valid if anything is
    shifts = [shifted_ranks(rows, level, shift) for shift in _promising(rows, level)]
    found: list[UnequalLaw] = []
    for ranks in (*shifts, largest):
        with suppress(DataError):
            found.append(best_server_rank(rows, ranks, level, confidence=confidence))
    miss, variance = (np.array(x) for x in zip(*((law.miss, law.variance) for law in found), strict=True))
    return found[best_of(miss, variance, level, rule)]


def shifted_ranks(rows: Sequence[int], level: float, shift: float) -> tuple[int, ...]:
    """Return ⌈(1-α)(n_j+1) + shift·sqrt(α(1-α)(n_j+1))⌉, at least 1, and at most n_j for clients with enough rows.

    Examples
    --------
    >>> shifted_ranks([100, 20, 5], 0.9, -0.5), shifted_ranks([100, 20, 5], 0.9, 2.0)
    ((90, 19, 6), (97, 20, 7))
    """
    return tuple(_shifted(np.asarray(rows, dtype=np.int64), level, shift).tolist())


def _shifted(n: Ints, level: float, shift: float) -> Ints:
    away = shift * np.sqrt(level * (1 - level) * (n + 1))
    ranks: Ints = np.maximum(1, n + 1 - np.floor((n + 1) * largest_miss(level) - away).astype(np.int64))
    return np.minimum(ranks, np.where(n >= split_rows(level), n, ranks))


def _promising(rows: Sequence[int], level: float) -> list[float]:
    """Return no shift, and those with the smallest error by a normal approximation of the number of clients below 1-α.

    W = 1-U passes α where S(α) passes s: its standard deviation is about that of S(α) over the slope of its mean. Since
    s is a whole number, an error of at most one over the slope is added.
    """
    n, counts = np.unique(np.asarray(rows, dtype=np.int64), return_counts=True)
    errors = []
    for shift in SHIFTS:
        b = _shifted(n, level, shift)
        sends = b <= n
        a, b, count, t = (n + 1 - b)[sends], b[sends], counts[sends], 1 - level
        p = betainc(a, b, t)
        slope = float(np.exp(xlogy(a - 1, t) + xlog1py(b - 1, -t) - betaln(a, b)) @ count)
        errors.append((float((p * (1 - p)) @ count) + 1 / 3) / slope**2 if slope else math.inf)
    best = [SHIFTS[i] for i in np.argsort(errors, kind="stable") if SHIFTS[i] != 0]
    return [0.0, *best[: max(1, min(7, MOST_WORK // len(rows)))]]


def _server_rank(senders: Senders, level: float, rule: Rule, confidence: float | None) -> int | None:
    """Find the best valid k, or None, from moments for k around where M passes 1-α, widened as long as it matters."""
    m = senders.clients
    if m == 0:
        return None
    # P(U_k < 1-α) for k = 1..m, falling
    missed = 1 - senders.tails(np.array([1 - level]), np.arange(m, 0, -1))[0]
    first = 1 + int((missed > (1 if confidence is None else largest_miss(confidence))).sum())
    low = max(first, int((missed > 0.8).sum()))
    high = min(m, max(low, int((missed > 0.2).sum()) + 1))
    while low <= m:
        k = np.arange(low, high + 1)
        miss, variance = senders.moments(m + 1 - k)
        valid = miss <= largest_miss(level)
        if valid[0] and low > first:
            low = max(first, 2 * low - high - 1)
            continue
        if valid.any():
            k, miss, variance = k[valid], miss[valid], variance[valid]
            best = best_of(miss, variance, level, rule)
            error = (1 - level - miss[best]) ** 2 + variance[best]
            if rule == "paper" or high == m or (1 - level - miss[-1]) ** 2 >= error:
                return int(k[best])
        elif high == m:
            return None
        high = min(m, 2 * high - low + 1)
    return None
