"""Quantile of quantiles from sums alone: every client votes for a bin, and for its number of rows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedassay.errors import UsageError
from fedassay.protocol import (
    LARGEST_ROWS_PER_CLIENT,
    UNBOUNDED,
    Memory,
    Protection,
    Rows,
    Sensitivity,
    Total,
    Vector,
)
from fedassay.summaries.local_quantile import MOST_CLIENTS, at_ranks, check_levels, local_rank
from fedassay.summaries.scored import Scored, whole
from fedassay.summaries.value_grid import ValueGrid

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LONGEST_LADDER = 1 << 16
TALLEST_LADDER = 1 << 22


@lru_cache(maxsize=16)
def ladder(largest: int) -> tuple[int, ...]:
    """Numbers of rows that clients round theirs down to: 0, 1, 2, .. and from 64 on steps of about sqrt(n)/4.

    About 8·sqrt(largest) rungs. Cost: a client with d rows more than its rung takes a rank that is higher by αd than it
    would have to be, which moves its coverage up by αd/n. That is at most sqrt(α/(1-α))/4 of the standard deviation
    of its coverage, a twelfth for α = 0.1, and half as much on average.

    Examples
    --------
    >>> ladder(10), ladder(100)[62:70]
    ((0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10), (62, 63, 64, 66, 68, 70, 72, 74))
    >>> len(ladder(10_000)), len(ladder(2**22)), ladder(2**22)[-3:]
    (846, 16480, (4193096, 4193607, 4194118))
    """
    rungs, n = [0], 1
    while n <= largest:
        rungs.append(n)
        n += max(1, math.isqrt(n) // 4)
    return tuple(rungs)


@dataclass(frozen=True, kw_only=True, eq=False)
class Votes:
    """The votes of all clients about one group.

    Parameters
    ----------
    edges : the upper edge of each bin, the last one +∞.
    votes : how many clients have their local quantile in each bin.
    rungs, rows : how many clients have about so many rows; on rung 0 are those without rows.
    """

    edges: Floats
    votes: Total
    rungs: Ints
    rows: Total


@dataclass(frozen=True, kw_only=True)
class QuantileVotes(Scored[dict[str, Votes]]):
    """For each group a one at the bin of the client's local quantile, and a one at its rung of the ladder of rows.

    A client with n rows stands on the highest rung n' that is not above n. Its rank is that of a client with n' rows
    and n - n' more: ℓ = ℓ' + (n - n'). Its coverage has the law Beta(ℓ' + n - n', n' - ℓ' + 1), which is stochastically
    at least Beta(ℓ', n' - ℓ' + 1), the law of what its rung says: it can be taken for a client with n' rows. Rounding
    its score up to the edge of a bin adds to coverage too. So `best_server_rank` of the rungs, and of their ranks
    (`rank`), gives a rank k among the votes for which the guarantee holds.

    Edge cases: a client without rows, or with fewer than the first rung above 0, votes for the last bin, +∞, as do
    scores above the last but one edge; scores below the range vote for the first bin. A client with more rows than the
    last rung counts the excess fully: choose a ladder that reaches far enough.

    Parameters
    ----------
    level, clients, confidence : as for `LocalQuantile`, with the rule ``spread``.
    lower, upper, points : the uniform `ValueGrid`.
    rungs : increasing numbers of rows from 0 on; `ladder(2**22)` if there are none.
    """

    name: ClassVar[str] = "quantile-votes"
    additive: ClassVar[bool] = False

    level: float
    clients: int
    lower: float
    upper: float
    points: int
    confidence: float | None = None
    rungs: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        check_levels(self.level, self.confidence)
        whole(self.clients, what="clients", least=1, most=MOST_CLIENTS)
        for name in ("lower", "upper"):
            object.__setattr__(self, name, getattr(self.grid, name))
        object.__setattr__(self, "rungs", _checked_rungs(tuple(self.rungs)))

    @property
    def grid(self) -> ValueGrid:
        """The bins."""
        return ValueGrid(lower=self.lower, upper=self.upper, points=self.points)

    @property
    def edges(self) -> Floats:
        """The upper edges of the bins, the last one +∞."""
        return np.append(self.grid.thresholds[:-1], np.inf)

    @property
    def length(self) -> int:
        """Per group the bins and the rungs."""
        return len(self.names) * (self.points + len(self.rungs))

    @property
    def largest(self) -> int:
        """A vote."""
        return 1

    def rank(self, rung: int) -> int:
        """ℓ' of a client with this many rows."""
        return local_rank("spread", self.clients, rung, self.level, self.confidence)

    def measure(self, rows: Rows, memory: Memory) -> tuple[Vector, Memory]:
        """Rank, round, vote."""
        votes = np.zeros((len(self.names), self.points + len(self.rungs)), dtype=np.int64)
        for group, scores in enumerate(self.collected(rows)):
            step = int(np.searchsorted(self.rungs, len(scores), side="right")) - 1
            rung = self.rungs[step]
            bin_ = self.points - 1
            if rung:
                score = at_ranks(scores, [self.rank(rung) + len(scores) - rung])
                bin_ = int(self.grid.locate(score)[0])
            votes[group, bin_] = votes[group, self.points + step] = 1
        return votes.reshape(-1), memory

    def sensitivity(self, protection: Protection) -> Sensitivity:
        """None that is finite, so that votes are not asked for under noise: one row can move them as far as they go."""
        return UNBOUNDED

    def read(self, total: Total) -> dict[str, Votes]:
        """The votes of each group."""
        edges, rungs = self.edges, np.array(self.rungs, dtype=np.int64)
        found = {}
        for name, part in zip(self.names, np.split(total, len(self.names)), strict=True):
            found[name] = Votes(edges=edges, votes=part[: self.points], rungs=rungs, rows=part[self.points :])
        return found


def _checked_rungs(rungs: tuple[int, ...]) -> tuple[int, ...]:
    if not rungs:
        return ladder(TALLEST_LADDER)
    if len(rungs) > LONGEST_LADDER:
        raise UsageError(f"rungs: got {len(rungs):,}, expected at most {LONGEST_LADDER:,}.")
    rising = all(type(n) is int for n in rungs) and all(a < b for a, b in pairwise(rungs))
    if not rising or rungs[0] != 0 or rungs[-1] > LARGEST_ROWS_PER_CLIENT:
        raise UsageError(
            f"rungs: expected increasing whole numbers of rows from 0 to at most {LARGEST_ROWS_PER_CLIENT:,}."
        )
    return rungs
