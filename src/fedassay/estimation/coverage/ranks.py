"""Which ranks, for clients with different numbers of rows: the server's for given local ones, and a search for both.

M grows with k, so that the valid k are those from some number on. What `pairs.py` proves about E(U - (1-α))² needs
clients that are alike; here k goes up until (M - (1-α))² alone exceeds the best criterion, when no larger k can win.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress

import numpy as np
from scipy.special import betainc, betaln, xlog1py, xlogy

from fedassay.errors import DataError
from fedassay.estimation.coverage.law import largest_miss, split_rows
from fedassay.estimation.coverage.pairs import Rule, best_of, best_pair, check_request, scores_needed, told
from fedassay.estimation.coverage.senders import Senders
from fedassay.estimation.coverage.unequal import UnequalLaw, split_ranks
from fedassay.protocol.arrays import Ints

SHIFTS = tuple(np.linspace(-1.5, 1.5, 61).round(2).tolist())
"""How far local ranks are moved from (1-α)(n_j+1), in standard deviations of a client's own coverage."""

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
    """The best valid k for given ℓ_j, as the law of its coverage.

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
    """Good local ranks and the best k for them, as the law of its coverage.

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
    """⌈(1-α)(n_j+1) + shift·sqrt(α(1-α)(n_j+1))⌉, at least 1, and at most n_j for clients with enough rows.

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
    """No shift, and those with the smallest error by a normal approximation of the number of clients below 1-α.

    W = 1-U passes α where S(α) passes s: its standard deviation is about that of S(α) over the slope of its mean, and
    s is a whole number, which adds an error of at most one over the slope.
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
    """The best valid k, or None: moments of a range of k around where M passes 1-α, widened as long as it matters."""
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
