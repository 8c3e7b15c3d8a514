"""How well a quantile of quantiles covers where clients have different numbers of rows.

Client j sends the ℓ_j-th smallest of its n_j scores, the server takes the k-th smallest of what it got (the paper's
A.1). Then F(t) = P(S(t) >= k), where S(t) adds independent coins with the probabilities G_j(t) = I_t(ℓ_j, n_j-ℓ_j+1).

A client with ℓ_j > n_j has too few rows and sends +∞. The k-th smallest of all is then the k-th smallest of the
others, so that such a client changes nothing, for better or worse; if k is larger than the number of the others, the
threshold is +∞ and everything is covered.

Reference: the paper's A.1. Symbols are those of `law.py`; accuracy: docs/explanation/conformal-coverage.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq

from fedassay.errors import UsageError
from fedassay.estimation.coverage.law import FromMoments, checked_level, split_rank, split_rows
from fedassay.estimation.coverage.senders import Senders


class TooSmall(NamedTuple):
    """A client that would send +∞: its position, how many rows it has, and how many it would need."""

    client: int
    rows: int
    needed: int


def split_ranks(rows: Sequence[int], level: float) -> tuple[int, ...]:
    """ℓ_j = ⌈(1-α)(n_j+1)⌉, the ranks that the paper proposes; above n_j where a client has too few rows.

    Examples
    --------
    >>> split_ranks([100, 20, 5], 0.9)
    (91, 19, 6)
    """
    return tuple(split_rank(n, checked_level(level)) for n in rows)


def too_small(rows: Sequence[int], level: float) -> tuple[TooSmall, ...]:
    """The clients that have too few rows for `split_ranks`.

    Examples
    --------
    >>> too_small([100, 20, 5], 0.9)
    (TooSmall(client=2, rows=5, needed=9),)
    """
    needed = split_rows(checked_level(level))
    return tuple(TooSmall(j, n, needed) for j, n in enumerate(rows) if n < needed)


@dataclass(frozen=True, kw_only=True)
class UnequalLaw(FromMoments):
    """The law of the coverage U where client j sends its ℓ_j-th smallest of n_j scores and the server takes the k-th.

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
        """m, those who send +∞ included."""
        return len(self.rows)

    @cached_property
    def infinite(self) -> tuple[int, ...]:
        """The positions of the clients that send +∞."""
        return tuple(j for j in range(self.clients) if self.local_ranks[j] > self.rows[j])

    @property
    def is_trivial(self) -> bool:
        """Whether the threshold is +∞, whatever the scores are."""
        return self.server_rank > self.clients - len(self.infinite)

    @cached_property
    def _senders(self) -> Senders:
        return Senders.of(self.rows, self.local_ranks)

    @property
    def _rank(self) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """The server's rank, counted from the other end."""
        return np.array([self._senders.clients + 1 - self.server_rank])

    @cached_property
    def _mirrored(self) -> tuple[float, float]:
        if self.is_trivial:
            return 0.0, 0.0
        mean, variance = self._senders.moments(self._rank)
        return float(mean[0]), float(variance[0])

    def cdf(self, t: float) -> float:
        """F(t) = P(U <= t)."""
        return 1.0 if t >= 1 else 1 - self.probability_at_least(t)

    def probability_at_least(self, level: float) -> float:
        """P(U >= level): the training-conditional guarantee."""
        if self.is_trivial:
            return float(level <= 1)
        miss = np.array([min(1.0, max(0.0, 1 - level))])
        return float(self._senders.tails(miss, self._rank)[0, 0])

    def quantile(self, p: float) -> float:
        """The coverage that is reached with probability 1 - p: F^{-1}(p)."""
        if not 0 <= p <= 1:
            raise UsageError(f"probability: got {p:g}, expected a number from 0 to 1.")
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
