"""Optimized Unary Encoding: one client says which cell it is in, by bits that are randomised one by one.

The bit of the client's own cell is 1 with probability ½, every other bit with probability q, a little above
1/(e^ε + 1). A client without a row sends bits that are all 1 with probability q.

Guarantee: every report is ε-differentially private for the cell, "none" included. Reports about cells i and j
differ in the law of two bits only, so their likelihoods differ by a factor of at most

    (½/q)·((1-q)/½) = (1-q)/q    (bit i is 1, bit j is 0),

and a report about i and one about nothing by at most max(½/q, 2(1-q)), which is no more because q <= ½. As
(1-q)/q falls with q, a q above 1/(e^ε + 1) only costs accuracy: q is rounded *up* to a multiple of 2^-64, and a
coin of q is a uniform 64-bit word below q·2^64. No floating point decides anything.

Each client reports on one *partition* of the cells (a level of a tree, say), by a public hash. If M_k of the M
clients report on partition k and y_j of them set bit j, then (M/M_k)(y_j - M_k q)/(½ - q) estimates without bias
how many clients are in cell j.

Reference: Wang, Blocki, Li, Jha, "Locally Differentially Private Protocols for Frequency Estimation" (USENIX
Security 2017), Section 4.3; Cormode and Markov (2023), Section 2.2, for the random level.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Context, Decimal
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fedassay.errors import UnsupportedQuery
from fedassay.privacy import coins
from fedassay.protocol import Randomness, Vector

SMALLEST_SCALE = 1 / 32
"""No smaller 1/ε is used: at ε = 32 a bit lies once in 10^13 times, and 2^-64 is still far below q."""

_FAIR = 2**63
_AT_ONCE = 1 << 12
"""Reports that are unpacked together."""

Partitions = Sequence[NDArray[np.int64]]


@dataclass(frozen=True, kw_only=True)
class UnaryEncoding:
    """The encoding for a given scale 1/ε, a float that stands for itself, at least `SMALLEST_SCALE`.

    Examples
    --------
    >>> encoding = UnaryEncoding(scale=1.0)
    >>> encoding.q >= 1 / (math.e + 1), round(encoding.variance, 6)
    (True, 3.682694)
    """

    scale: float

    @property
    def threshold(self) -> int:
        """q·2^64, a whole number: words below it are ones. Below 2^63 for every scale up to 2^52."""
        return _threshold(self.scale)

    @property
    def q(self) -> float:
        """The probability of a one in a cell that the client is not in."""
        return self.threshold / 2**64

    @property
    def contrast(self) -> float:
        """½ - q."""
        return (_FAIR - self.threshold) / 2**64

    @property
    def variance(self) -> float:
        """V = q(1-q)/(½-q)²: what one report adds to the variance of a count that it has nothing to do with."""
        return self.q * (1 - self.q) / self.contrast**2

    def report(self, cell: int | None, cells: int, randomness: Randomness) -> bytes:
        """Client side: the randomised bits, eight to a byte, for this cell or for none."""
        thresholds = np.full(cells, self.threshold, dtype=np.uint64)
        if cell is not None:
            thresholds[cell] = _FAIR
        return np.packbits(randomness.words(cells) < thresholds).tobytes()

    def estimate(self, ones: NDArray[np.int64], reports: int, clients: int) -> NDArray[np.float64]:
        """How many of all clients are in each cell of a partition on which so many reported."""
        return np.asarray((ones - reports * self.q) * (clients / reports / self.contrast))

    def simulated_ones(
        self, counts: NDArray[np.int64], reports: int, rng: np.random.Generator
    ) -> NDArray[np.int64]:
        """How many ones each cell gets from so many reports, if this many are about it.

        The exact law: given the cells, all bits are independent.
        """
        return rng.binomial(counts, 0.5) + rng.binomial(reports - counts, self.q)


@lru_cache
def _threshold(scale: float) -> int:
    # Rounded towards a larger q at every step: a smaller ε, a smaller exponential (which is correctly rounded to
    # 60 digits), a larger quotient.
    context = Context(prec=60, rounding=ROUND_FLOOR)
    epsilon = context.divide(Decimal(1), Decimal(scale))
    exponential = context.multiply(context.exp(epsilon), context.subtract(1, Decimal(10) ** -58))
    return math.floor(context.divide(Decimal(2**64), context.add(exponential, Decimal(1)))) + 1


def assigned(exchange: bytes, plan: int, client: str, partitions: int) -> int:
    """Which partition a client reports on: public, the same on both sides, uniform up to 2^-60.

    Examples
    --------
    >>> [assigned(b"id", 0, f"client{i}", 3) for i in range(8)]
    [0, 0, 0, 2, 2, 2, 0, 1]
    """
    parts = (b"fedassay unary encoding", exchange, plan.to_bytes(8), client.encode())
    digest = hashlib.sha256(b"".join(len(part).to_bytes(8) + part for part in parts)).digest()
    return int.from_bytes(digest[:8]) % partitions


def chosen_row(counts: NDArray[np.int64], randomness: Randomness) -> int | None:
    """The cell of one row, chosen uniformly among all rows of the client; None if it has none."""
    ends = np.cumsum(np.maximum(counts, 0))
    if ends[-1] == 0:
        return None
    row = int(coins.below(int(ends[-1]), 1, randomness)[0])
    return int(np.searchsorted(ends, row, side="right"))


def well_formed(report: object, cells: int) -> bool:
    """Whether an honest client could have sent this: so many bits, and zeros to fill the last byte."""
    if type(report) is not bytes or len(report) != -(-cells // 8):
        return False
    return cells % 8 == 0 or report[-1] & (0xFF >> cells % 8) == 0


def ones_of(reports: Sequence[bytes], cells: int) -> NDArray[np.int64]:
    """How many of these well-formed reports have a one in each cell."""
    ones = np.zeros(cells, dtype=np.int64)
    for start in range(0, len(reports), _AT_ONCE):
        some = reports[start : start + _AT_ONCE]
        packed = np.frombuffer(b"".join(some), dtype=np.uint8).reshape(len(some), -1)
        ones += np.unpackbits(packed, axis=1, count=cells).sum(axis=0, dtype=np.int64)
    return ones


def simulated_partition(
    total: Vector, partitions: Partitions, clients: int, rng: np.random.Generator
) -> list[tuple[NDArray[np.int64], int]]:
    """For each partition, the counts and the number of clients that report on it, given the counts of all.

    The exact law where every client has at most one row: each client goes to a partition of its own choice,
    so that the rows of each cell of the finest partition, and the clients without a row, split multinomially.

    The first partition must be the finest, and the cells of each other one must join equally many consecutive
    cells of it, in order; as far as the totals show, this is checked.
    """
    finest = total[partitions[0]]
    idle = clients - int(finest.sum())
    blocks = [len(partitions[0]) // len(cells) for cells in partitions]
    for cells, block in zip(partitions, blocks, strict=True):
        nested = len(cells) * block == len(finest)
        if idle < 0 or not nested or not np.array_equal(finest.reshape(-1, block).sum(-1), total[cells]):
            raise UnsupportedQuery(
                "aggregate: expected counts of at most one row per client whose first partition is the finest; "
                "use the faithful mode."
            )
    even = np.full(len(partitions), 1 / len(partitions))
    rows = rng.multinomial(finest, even)
    reports = rows.sum(axis=0) + rng.multinomial(idle, even)
    return [(rows[:, k].reshape(-1, block).sum(-1), int(reports[k])) for k, block in enumerate(blocks)]
