"""Quantiles of each client's conformity scores: in the clear, by private losses, or by votes for public points."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from types import MappingProxyType
from typing import Annotated, ClassVar, Literal, get_args

import numpy as np

from fedassay.errors import DataError, UsageError
from fedassay.estimation.coverage import best_pair
from fedassay.estimation.coverage.law import split_rank
from fedassay.protocol.arrays import Floats, Ints
from fedassay.protocol.parameters import Fraction, Interval
from fedassay.protocol.vocabulary import (
    LARGEST_ROWS_PER_CLIENT,
    Memory,
    Protection,
    Rows,
    Total,
    Vector,
)
from fedassay.summaries.distribution.grid import ValueGrid
from fedassay.summaries.measures import WithoutNoise
from fedassay.summaries.quantities import scores_of
from fedassay.summaries.scored import OfQuantity, RowsPerClient, Scored, whole

MOST_CANDIDATES = 1 << 16
LARGEST_SLOPE = 1 << 20


@dataclass(frozen=True, kw_only=True)
class QuantileLosses(WithoutNoise, OfQuantity[float]):
    """Losses of B candidates e_1 < .. < e_B = +∞ for the t-th smallest of exactly n scores, in whole numbers.

    With c_b = #{scores <= e_b} and c_0 = 0, the loss of candidate b is

        below·(t - c_b)          if c_b < t: it misses that many scores
        above·(c_{b-1} - t + 1)  if c_{b-1} >= t: the candidate before has that many more than it needs
        0                        otherwise: e_b is the t-th smallest score, rounded up

    A client with fewer than n rows pads with +∞, so that it has n scores always: its number of rows stays its secret,
    and adding, removing and replacing a row all replace one score of n by another. More than n rows are a `DataError`;
    `client.py` leaves out the excess at random before.

    Guarantee (`loss_range`): if one score is replaced, the losses all move by amounts within an interval of length
    below + above. For a score that falls, say, c_b grows by one for some b and stays for the others; the first kind of
    loss does not grow and falls by at most `below`, the second does not fall and grows by at most `above`. Choosing b
    with probability proportional to exp(-ε·loss_b/(below + above)) is therefore ε-differentially private: a part of
    the change that all losses share cancels. For any two sets of n scores the length is at most
    below·t + above·(n - t + 1): between two candidates a < b, the loss of a can be larger by at most below·t and
    smaller by at most above·(n - t + 1), for either set of scores.

    The published weights (Humbert et al. 2023, Algorithm 2), max(#{S < e_b}/q, #{S > e_b}/(1-q)), are of the same kind:
    for q = below/(below + above), t = qn and scores rounded up to candidates they are n plus
    (below + above)/(below·above) times max(below·(t - c_b), above·(c_{b-1} - t)), that is, these losses but for one
    step above the quantile and the cut at zero. Their range is the same, and for q >= 1/2 the published mechanism,
    which spends ε by sensitivity, is ε/(2q)-differentially private: there is no reason to have it too.

    Parameters
    ----------
    rows : n.
    lower, upper, points : the candidates, B = points from 2 to 2^16: B-1 equally spaced ones from the lower to the
        upper end (the upper end alone if there is one), and +∞.
    target : t, from 1 to n.
    below, above : the slopes.

    Examples
    --------
    >>> class FourRows:
    ...     def batches(self):
    ...         yield {"value": np.array([0.1, 0.6, 0.3, 0.3])}
    >>> summary = QuantileLosses(
    ...     quantity="value", rows=5, lower=0.0, upper=1.0, points=6, target=3, below=1, above=2
    ... )
    >>> summary.candidates, summary.measure(FourRows(), {})[0]
    (array([0.  , 0.25, 0.5 , 0.75, 1.  ,  inf]), array([3, 2, 0, 2, 4, 4]))
    """

    name: ClassVar[str] = "quantile-losses"

    rows: RowsPerClient
    lower: float
    upper: float
    points: Annotated[int, Interval(ge=2, le=MOST_CANDIDATES)]
    target: int
    below: Annotated[int, Interval(ge=1, le=LARGEST_SLOPE)] = 1
    above: Annotated[int, Interval(ge=1, le=LARGEST_SLOPE)] = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        whole(self.target, what="target", least=1, most=self.rows)
        width = self.upper - self.lower
        if not (width > 0 and math.isfinite(width)):
            raise UsageError(
                f"range: got {self.lower:g} to {self.upper:g}, expected a lower end below the upper end."
            )
        if not width / self.points > 8 * math.ulp(max(abs(self.lower), abs(self.upper))):
            raise UsageError(
                f"points: {self.points:,} between {self.lower:g} and {self.upper:g} are closer together than "
                "numbers can be; expected fewer."
            )

    @property
    def candidates(self) -> Floats:
        """Candidates e_1 .. e_B, the last one +∞."""
        with np.errstate(over="ignore"):  # before the last point is set to the upper end itself
            finite = np.linspace(self.lower, self.upper, self.points - 1) if self.points > 2 else [self.upper]
        return np.append(finite, np.inf)

    @property
    def length(self) -> int:
        """Number of entries: one loss per candidate."""
        return self.points

    @property
    def _ends(self) -> tuple[int, int]:
        """Largest loss below the quantile, and above it."""
        return self.below * self.target, self.above * (self.rows - self.target + 1)

    @property
    def largest(self) -> int:
        """Largest loss of all, below 2^53."""
        return max(self._ends)

    def measure(self, rows: Rows, memory: Memory) -> tuple[Vector, Memory]:
        """Count the scores, pad them, and weigh each candidate."""
        counts = np.zeros(self.points, dtype=np.int64)
        candidates = self.candidates
        for batch in rows.batches():
            scores = scores_of(batch, self.quantity, self.parameters)
            counts += np.bincount(np.searchsorted(candidates, scores), minlength=self.points)
        missing = self.rows - int(counts.sum())
        if missing < 0:
            raise DataError(
                f"rows: got {self.rows - missing:,}, expected at most {self.rows:,}; the question has to say so too "
                "(rows per client), and the excess is then left out at random."
            )
        up_to = np.cumsum(counts)
        before = up_to - counts
        up_to[-1] = self.rows  # the padding is +∞
        return (
            self.below * np.maximum(0, self.target - up_to)
            + self.above * np.maximum(0, before - self.target + 1)
        ), memory

    def loss_range(self, protection: Protection) -> float:
        """Return the length of an interval in which all losses move if one protected unit changes."""
        if protection.rows_per_client != self.rows:
            raise UsageError(
                f"rows per client: got {protection.rows_per_client}, expected {self.rows}, the number of scores that "
                "every client is to have; give `rows_per_client`."
            )
        return float(min((self.below + self.above) * protection.rows_per_unit, sum(self._ends)))

    def read(self, total: Total) -> float:
        """Return the candidate that was chosen."""
        return float(self.candidates[int(np.argmax(total))])


# --- one score per client -----------------------------------------------------------------------------------

LocalRule = Literal["spread", "paper", "split"]
RULES: tuple[LocalRule, ...] = get_args(LocalRule)

MOST_CLIENTS = 100_000

Clients = Annotated[int, Interval(ge=1, le=MOST_CLIENTS)]
"""Public number of clients."""

_FEW_CLIENTS, _MOST_SCORES = 100, 10**6
"""Largest numbers (clients, or scores in all) with which the best pair is found in milliseconds for any request."""

_ALL_BUT_SIGN = np.int64(2**63 - 1)


@lru_cache(maxsize=1 << 16)
def local_rank(rule: str, clients: int, rows: int, level: float, confidence: float | None = None) -> int:
    """Return ℓ, the rank of the score that a client with this many rows sends, 1 the smallest; it sends +∞ if it has
    fewer.

    ``spread`` and ``paper`` are the local rank of `best_pair` for `clients` clients that all have as many rows as this
    one; ``split`` is ⌈(1-α)(n+1)⌉. A client and the server come to the same number, as all of it is public but the
    rows, which the client reports.

    Edge cases: with too few rows for any pair the client sends its largest score (``split``: +∞). With more than 100
    clients and more than 10^6 scores in all, all rules are ``split``: the server's rank, of that many, makes up for it.

    Any rank is as valid as any other: the server computes what its own rank guarantees from the ranks that were used
    (`best_server_rank`). The rules only differ in how much the coverage varies.

    Examples
    --------
    >>> [local_rank(rule, 10, 100, 0.9) for rule in RULES]
    [92, 95, 91]
    >>> local_rank("spread", 10, 0, 0.9), local_rank("spread", 1, 5, 0.9), local_rank("split", 1, 5, 0.9)
    (1, 5, 6)
    """
    if rows < 1:
        return 1
    hard = clients > _FEW_CLIENTS and clients * rows > _MOST_SCORES
    if rule == "split" or hard:
        return split_rank(rows, level)
    assert rule in ("spread", "paper")
    try:
        return best_pair(
            clients, rows, level, rule="paper" if rule == "paper" else "spread", confidence=confidence
        ).local_rank
    except DataError:
        return rows


@dataclass(frozen=True, kw_only=True)
class LocalScores:
    """Scores that one client has sent about one group: its number of rows, and for each rule its rank and score.

    A score is +∞ where the rank is larger than the number of rows.
    """

    rows: int
    ranks: Mapping[str, int]
    scores: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class LocalQuantile(WithoutNoise, Scored[dict[str, LocalScores]]):
    """Number of rows of a client, for each group, and its score at the rank ℓ of `local_rank`, by each rule.

    Scores travel as whole numbers with the same order and nothing lost (`to_ordered`). Rows are held in memory once.

    Sensitivity: without a bound. For privacy there are `QuantileLosses`.

    No answer of a client can break its reading: numbers of rows are bounded, what is no finite number counts as
    +∞, and so does a score at a rank that does not exist. A client that lies moves its own vote only.

    Parameters
    ----------
    level : the coverage that is wanted.
    rules : for each of them a score is sent.
    clients : m, the public number of clients that are asked.
    confidence : with which the level is to be reached given the calibration rows; None for marginal coverage.

    Examples
    --------
    >>> summary = LocalQuantile(quantity="absolute", level=0.5, rules=("split",), clients=1)
    >>> class ThreeRows:
    ...     def batches(self):
    ...         yield {"target": np.array([1.0, 2.0, 3.0]), "prediction": np.array([1.5, 2.0, 5.0])}
    >>> summary.read(summary.measure(ThreeRows(), {})[0])["all"].scores["split"]
    0.5
    """

    name: ClassVar[str] = "local-quantile"

    level: Fraction
    clients: Clients
    rules: tuple[LocalRule, ...] = ("spread",)
    confidence: Fraction | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.rules or len(set(self.rules)) < len(self.rules):
            raise UsageError(f"rules: got {list(self.rules)}, expected different ones of {', '.join(RULES)}.")

    @property
    def length(self) -> int:
        """Number of entries: per group the rows and a score for each rule."""
        return len(self.names) * (1 + len(self.rules))

    @property
    def largest(self) -> int:
        """Largest entry: any score."""
        return int(_ALL_BUT_SIGN)

    def rank(self, rule: str, rows: int) -> int:
        """Return ℓ for this many rows."""
        return local_rank(rule, self.clients, rows, self.level, self.confidence)

    def measure(self, rows: Rows, memory: Memory) -> tuple[Vector, Memory]:
        """Rank the scores; linear in the rows."""
        entries: list[int] = []
        for scores in self.collected(rows):
            ranks = [self.rank(rule, len(scores)) for rule in self.rules]
            entries += [len(scores), *to_ordered(at_ranks(scores, ranks)).tolist()]
        return np.array(entries, dtype=np.int64), memory

    def read(self, total: Total) -> dict[str, LocalScores]:
        """Return the answer of the client, group by group, whatever it has sent."""
        parts = np.split(np.asarray(total, dtype=np.int64), len(self.names))
        return {name: self._read(part) for name, part in zip(self.names, parts, strict=True)}

    def _read(self, entries: Vector) -> LocalScores:
        rows = min(max(0, int(entries[0])), LARGEST_ROWS_PER_CLIENT)
        sent = dict(zip(self.rules, from_ordered(entries[1:]).tolist(), strict=True))
        ranks: dict[str, int] = {rule: self.rank(rule, rows) for rule in self.rules}
        scores: dict[str, float] = {
            rule: score if ranks[rule] <= rows and math.isfinite(score) else math.inf
            for rule, score in sent.items()
        }
        return LocalScores(rows=rows, ranks=MappingProxyType(ranks), scores=MappingProxyType(scores))


def at_ranks(scores: Floats, ranks: list[int]) -> Floats:
    """Return the scores at these ranks, 1 the smallest; +∞ at ranks that do not exist.

    Examples
    --------
    >>> at_ranks(np.array([3.0, 1.0, 2.0]), [1, 3, 4])
    array([ 1.,  3., inf])
    """
    existing = sorted({rank - 1 for rank in ranks if rank <= len(scores)})
    placed = np.partition(scores, existing) if existing else scores
    return np.array([placed[rank - 1] if rank <= len(scores) else math.inf for rank in ranks])


def to_ordered(numbers: Floats) -> Vector:
    """Return whole numbers that are ordered as these floating-point numbers are, one to one.

    The bits of positive numbers are ordered already; those of negative ones are, but the other way round.

    Examples
    --------
    >>> to_ordered(np.array([-np.inf, -1.0, 0.0, 5e-324, 1.0])).tolist()
    [-9218868437227405313, -4607182418800017409, 0, 1, 4607182418800017408]
    """
    bits = np.ascontiguousarray(numbers, dtype=np.float64).view(np.int64)
    return np.where(bits < 0, bits ^ _ALL_BUT_SIGN, bits)


def from_ordered(ordered: Vector) -> Floats:
    """Invert `to_ordered`."""
    bits = np.where(ordered < 0, ordered ^ _ALL_BUT_SIGN, ordered)
    return bits.view(np.float64)


# --- quantile of quantiles from sums alone ------------------------------------------------------------------


LONGEST_LADDER = 1 << 16
TALLEST_LADDER = 1 << 22


@lru_cache(maxsize=16)
def ladder(largest: int) -> tuple[int, ...]:
    """Return numbers of rows that clients round theirs down to: 0, 1, 2, .. and from 64 on steps of about sqrt(n)/4.

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
    """Votes of all clients about one group.

    Parameters
    ----------
    edges : the upper edge of each bin, the last one +∞.
    votes : the number of clients that have their local quantile in each bin.
    rungs, rows : the number of clients that have about this many rows; on rung 0 are those without rows.
    """

    edges: Floats
    votes: Total
    rungs: Ints
    rows: Total


@dataclass(frozen=True, kw_only=True)
class QuantileVotes(WithoutNoise, Scored[dict[str, Votes]]):
    """Indicators, for each group, of the bin of the client's local quantile and of its rung of the ladder of rows.

    A client with n rows stands on the highest rung n' that is not above n. Its rank is that of a client with n' rows
    and n - n' more: ℓ = ℓ' + (n - n'). Its coverage has the law Beta(ℓ' + n - n', n' - ℓ' + 1), which is stochastically
    at least Beta(ℓ', n' - ℓ' + 1), the law of its rung: it can be taken for a client with n' rows. Rounding its score
    up to the edge of a bin adds to coverage too. So `best_server_rank` of the rungs, and of their ranks (`rank`), gives
    a rank k among the votes for which the guarantee holds.

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

    level: Fraction
    clients: Clients
    lower: float
    upper: float
    points: int
    confidence: Fraction | None = None
    rungs: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.grid
        object.__setattr__(self, "rungs", _checked_rungs(self.rungs))

    @property
    def grid(self) -> ValueGrid:
        """Grid of the bins."""
        return ValueGrid(lower=self.lower, upper=self.upper, points=self.points)

    @property
    def edges(self) -> Floats:
        """Upper edges of the bins, the last one +∞."""
        return np.append(self.grid.thresholds[:-1], np.inf)

    @property
    def length(self) -> int:
        """Number of entries: per group the bins and the rungs."""
        return len(self.names) * (self.points + len(self.rungs))

    @property
    def largest(self) -> int:
        """Largest entry: a vote."""
        return 1

    def rank(self, rung: int) -> int:
        """Return ℓ' of a client with this many rows."""
        return local_rank("spread", self.clients, rung, self.level, self.confidence)

    def measure(self, rows: Rows, memory: Memory) -> tuple[Vector, Memory]:
        """Rank the scores, round the rank's score and the rows, and vote."""
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

    def read(self, total: Total) -> dict[str, Votes]:
        """Return the votes of each group."""
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
    rising = all(a < b for a, b in pairwise(rungs))
    if not rising or rungs[0] != 0 or rungs[-1] > LARGEST_ROWS_PER_CLIENT:
        raise UsageError(
            f"rungs: expected increasing whole numbers of rows from 0 to at most {LARGEST_ROWS_PER_CLIENT:,}."
        )
    return rungs
