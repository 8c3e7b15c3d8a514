"""One score per client: the quantile of its own scores that federated conformal prediction is made of."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedassay.errors import DataError, UsageError
from fedassay.estimation.coverage import best_pair
from fedassay.estimation.coverage.law import checked_level, split_rank
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
from fedassay.summaries.scored import Scored, whole

Floats = NDArray[np.float64]

RULES = ("spread", "paper", "split")

MOST_CLIENTS = 100_000

_FEW_CLIENTS, _MOST_SCORES = 100, 10**6
"""With few clients, or few scores in all, the best pair is found within milliseconds, whoever asks for whatever."""

_ALL_BUT_SIGN = np.int64(2**63 - 1)


@lru_cache(maxsize=1 << 16)
def local_rank(rule: str, clients: int, rows: int, level: float, confidence: float | None = None) -> int:
    """ℓ: which of its scores a client with so many rows sends, 1 the smallest; it sends +∞ if there are fewer.

    ``spread`` and ``paper`` are the local rank of `best_pair` for `clients` clients that all have as many rows as this
    one, ``split`` is ⌈(1-α)(n+1)⌉. A client and the server come to the same number, as all of it is public but the
    rows, which the client tells.

    Edge cases: with too few rows for any pair the client sends its largest score (``split``: +∞). With more than 100
    clients and more than 10^6 scores in all, all rules are ``split``: the server's rank, of so many, makes up for it.

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
    """What one client has sent about one group: its number of rows, and for each rule its rank and score.

    A score is +∞ where the rank is larger than the number of rows.
    """

    rows: int
    ranks: Mapping[str, int]
    scores: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class LocalQuantile(Scored[dict[str, LocalScores]]):
    """For each group, how many rows a client has and, by each rule, its score at the rank ℓ of `local_rank`.

    Scores travel as whole numbers with the same order and nothing lost (`to_ordered`). Rows are held in memory once.

    Sensitivity: without a bound. For privacy there are `QuantileLosses`.

    What a client sends cannot break the reading of it: numbers of rows are bounded, what is no finite number counts as
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
    additive: ClassVar[bool] = False

    level: float
    clients: int
    rules: tuple[str, ...] = ("spread",)
    confidence: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_levels(self.level, self.confidence)
        whole(self.clients, what="clients", least=1, most=MOST_CLIENTS)
        object.__setattr__(self, "rules", tuple(self.rules))
        if not self.rules or len(set(self.rules)) < len(self.rules) or not set(self.rules) <= set(RULES):
            raise UsageError(f"rules: got {list(self.rules)}, expected different ones of {', '.join(RULES)}.")

    @property
    def length(self) -> int:
        """Per group the rows and a score for each rule."""
        return len(self.names) * (1 + len(self.rules))

    @property
    def largest(self) -> int:
        """Any score."""
        return int(_ALL_BUT_SIGN)

    def rank(self, rule: str, rows: int) -> int:
        """ℓ for this many rows."""
        return local_rank(rule, self.clients, rows, self.level, self.confidence)

    def measure(self, rows: Rows, memory: Memory) -> tuple[Vector, Memory]:
        """Rank; linear in the rows."""
        entries: list[int] = []
        for scores in self.collected(rows):
            ranks = [self.rank(rule, len(scores)) for rule in self.rules]
            entries += [len(scores), *to_ordered(at_ranks(scores, ranks)).tolist()]
        return np.array(entries, dtype=np.int64), memory

    def sensitivity(self, protection: Protection) -> Sensitivity:
        """None that is finite: one row can move a quantile from one end of the range to the other."""
        return UNBOUNDED

    def read(self, total: Total) -> dict[str, LocalScores]:
        """What the client says, group by group, whatever it has sent."""
        parts = np.split(np.asarray(total, dtype=np.int64), len(self.names))
        return {name: self._read(part) for name, part in zip(self.names, parts, strict=True)}

    def _read(self, entries: Vector) -> LocalScores:
        rows = min(max(0, int(entries[0])), LARGEST_ROWS_PER_CLIENT)
        sent = dict(zip(self.rules, from_ordered(entries[1:]).tolist(), strict=True))
        ranks = {rule: self.rank(rule, rows) for rule in self.rules}
        scores = {
            rule: score if ranks[rule] <= rows and math.isfinite(score) else math.inf
            for rule, score in sent.items()
        }
        return LocalScores(rows=rows, ranks=MappingProxyType(ranks), scores=MappingProxyType(scores))


def check_levels(level: float, confidence: float | None) -> None:
    """Refuses what is not a level or a confidence."""
    checked_level(level)
    if confidence is not None:
        checked_level(confidence, what="confidence")


def at_ranks(scores: Floats, ranks: list[int]) -> Floats:
    """The scores at these ranks, 1 the smallest; +∞ at ranks that there are not.

    Examples
    --------
    >>> at_ranks(np.array([3.0, 1.0, 2.0]), [1, 3, 4])
    array([ 1.,  3., inf])
    """
    existing = sorted({rank - 1 for rank in ranks if rank <= len(scores)})
    placed = np.partition(scores, existing) if existing else scores
    return np.array([placed[rank - 1] if rank <= len(scores) else math.inf for rank in ranks])


def to_ordered(numbers: Floats) -> Vector:
    """Whole numbers that are ordered as these floating-point numbers are, one to one.

    The bits of positive numbers are ordered already; those of negative ones are, but the other way round.

    Examples
    --------
    >>> to_ordered(np.array([-np.inf, -1.0, 0.0, 5e-324, 1.0])).tolist()
    [-9218868437227405313, -4607182418800017409, 0, 1, 4607182418800017408]
    """
    bits = np.ascontiguousarray(numbers, dtype=np.float64).view(np.int64)
    return np.where(bits < 0, bits ^ _ALL_BUT_SIGN, bits)


def from_ordered(ordered: Vector) -> Floats:
    """What `to_ordered` was made from."""
    bits = np.where(ordered < 0, ordered ^ _ALL_BUT_SIGN, ordered)
    return bits.view(np.float64)
