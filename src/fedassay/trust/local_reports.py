"""Reports that are private by themselves: their form, how a client makes one, and what they yield together.

Shared by `local_dp`, where it is known who sent which report, and `shuffle`, where it is not: nothing here asks for
a name.

Optimized Unary Encoding: one client reports which cell it is in, by bits that are randomised one by one.

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
from dataclasses import dataclass, replace
from decimal import ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedassay.errors import ProtocolError, TooFewClients, UnsupportedQuery
from fedassay.privacy import accounting, samplers
from fedassay.privacy import samplers as coins
from fedassay.privacy.accounting import CHOICE, GAUSSIAN, LAPLACE, UNARY
from fedassay.privacy.samplers import choose
from fedassay.protocol.vocabulary import Noise, Plan, Randomness, Released, Sum, Summary, Vector

# --- noise that is drawn whole ------------------------------------------------------------------------------

_LONGEST = 2**11
"""Bound on draws, in scales: the samplers stop below 1024 (Laplace) and 66 (Gaussian)."""


def reach(noise: Noise) -> int:
    """Return a bound that every draw stays below in absolute value.

    Examples
    --------
    >>> reach(Noise(law=LAPLACE, scale=1.5, variance=4.3))
    3072
    """
    return math.ceil(_LONGEST * noise.scale)


def room_beside(noise: Noise, summary: Summary[Any]) -> int:
    """Return the bound below which totals, in absolute value, are still int64 with their noise."""
    return 2**63 - summary.overlap * reach(noise)


def spread(summary: Summary[Any], draws: Vector) -> Vector:
    """Return what the draws add to a total of the summary, checked to be as long as it."""
    added = summary.spread(draws)
    if added.dtype != np.int64 or added.shape != (summary.length,):
        raise ProtocolError(f"{summary.name}: its noise is not {summary.length} whole numbers.")
    return added


def several(noise: Noise, messages: int) -> Noise:
    """Return the noise in the sum of `messages` messages.

    Examples
    --------
    >>> several(Noise(law=LAPLACE, scale=1.0, variance=1.84), 100).variance
    184.0
    """
    return replace(noise, variance=noise.variance * (messages / noise.copies), copies=float(messages))


def sum_of_draws(noise: Noise, size: int, randomness: Randomness) -> Vector:
    """Draw sums of `noise.copies` draws, by the law of such sums (simulation).

    Laplace: the difference of two negative binomial draws. Gaussian of σ >= 2: one draw of √copies·σ, which
    differs from the sum by a total variation of about copies·exp(-π²σ²) at most, under 1e-9 for 10^7 clients
    (Kairouz, Liu, Steinke 2021, on sums of discrete Gaussians); smaller σ: how often each value is drawn.
    """
    copies, rng = round(noise.copies), np.random.default_rng(randomness.words(4).tolist())
    if noise.law == LAPLACE:
        p = -math.expm1(-1 / noise.scale)
        return rng.negative_binomial(copies, p, size) - rng.negative_binomial(copies, p, size)
    assert noise.law == GAUSSIAN
    if noise.scale >= 2:
        scale = samplers.gaussian_scale(Fraction(noise.scale * math.sqrt(copies)))
        return accounting.draw(replace(noise, scale=float(scale)), size, randomness)
    values = np.arange(-24, 25)
    weights = np.exp(-(values**2) / (2 * noise.scale**2))
    return np.asarray(rng.multinomial(copies, weights / weights.sum(), size) @ values, dtype=np.int64)


# --- optimized Unary Encoding -------------------------------------------------------------------------------

SMALLEST_SCALE = 1 / 32
"""Smallest 1/ε that is used: at ε = 32 a bit lies once in 10^13 times, and 2^-64 is still far below q."""

_FAIR = 2**63
_AT_ONCE = 1 << 12
"""Number of reports that are unpacked together."""

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
        """V = q(1-q)/(½-q)²: the variance that one report adds to a count that it has nothing to do with."""
        return self.q * (1 - self.q) / self.contrast**2

    def report(self, cell: int | None, cells: int, randomness: Randomness) -> bytes:
        """Return the randomised bits, eight to a byte, for this cell or for none (client side)."""
        thresholds = np.full(cells, self.threshold, dtype=np.uint64)
        if cell is not None:
            thresholds[cell] = _FAIR
        return np.packbits(randomness.words(cells) < thresholds).tobytes()

    def estimate(self, ones: NDArray[np.int64], reports: int, clients: int) -> NDArray[np.float64]:
        """Estimate the number of all clients in each cell of a partition on which `reports` clients reported."""
        return np.asarray((ones - reports * self.q) * (clients / reports / self.contrast))

    def simulated_ones(
        self, counts: NDArray[np.int64], reports: int, rng: np.random.Generator
    ) -> NDArray[np.int64]:
        """Draw the number of ones that each cell gets from `reports` reports, of which `counts` are about each cell.

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
    """Return the partition that a client reports on: public, the same on both sides, uniform up to 2^-60.

    Examples
    --------
    >>> [assigned(b"id", 0, f"client{i}", 3) for i in range(8)]
    [0, 0, 0, 2, 2, 2, 0, 1]
    """
    parts = (b"fedassay unary encoding", exchange, plan.to_bytes(8), client.encode())
    digest = hashlib.sha256(b"".join(len(part).to_bytes(8) + part for part in parts)).digest()
    return int.from_bytes(digest[:8]) % partitions


def chosen_row(counts: NDArray[np.int64], randomness: Randomness) -> int | None:
    """Choose the cell of one row, uniformly among all rows of the client; None if it has none."""
    ends = np.cumsum(np.maximum(counts, 0))
    if ends[-1] == 0:
        return None
    row = int(coins.below(int(ends[-1]), 1, randomness)[0])
    return int(np.searchsorted(ends, row, side="right"))


def well_formed(report: object, cells: int) -> bool:
    """Return whether an honest client could have sent this: a bit per cell, and zeros to fill the last byte."""
    if type(report) is not bytes or len(report) != -(-cells // 8):
        return False
    return cells % 8 == 0 or report[-1] & (0xFF >> cells % 8) == 0


def ones_of(reports: Sequence[bytes], cells: int) -> NDArray[np.int64]:
    """Count for each cell the well-formed reports that have a one in it."""
    ones = np.zeros(cells, dtype=np.int64)
    for start in range(0, len(reports), _AT_ONCE):
        some = reports[start : start + _AT_ONCE]
        packed = np.frombuffer(b"".join(some), dtype=np.uint8).reshape(len(some), -1)
        ones += np.unpackbits(packed, axis=1, count=cells).sum(axis=0, dtype=np.int64)
    return ones


def simulated_partition(
    total: Vector, partitions: Partitions, clients: int, rng: np.random.Generator
) -> list[tuple[NDArray[np.int64], int]]:
    """Draw for each partition the counts and the number of clients that report on it, given the counts of all.

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


# --- what reports that are private by themselves look like --------------------------------------------------

LIMIT = 2**63
"""Strict bound on totals of noisy vectors: they are int64."""


def largest_report(summary: Summary[Any], noise: Noise) -> int:
    """Return a bound on every entry of an honest client's noisy vector."""
    return summary.largest + summary.overlap * reach(noise)


class Report(NamedTuple):
    """Answer of one client to one query, and the partition of the summary that it is on (0 if there are none)."""

    content: Any
    partition: int = 0


@dataclass(frozen=True, kw_only=True)
class Question:
    """Planned query, as clients report on it: the common part of all their reports."""

    plan: Plan
    partitions: Partitions

    @classmethod
    def of(cls, plan: Plan) -> Question:
        """Return the way to report on this plan; only unary reports have partitions."""
        return cls(plan=plan, partitions=plan.query.of.partitions if plan.noise.law == UNARY else ())

    def report(self, vector: Vector, partition: int, randomness: Randomness) -> Any:
        """Make a report that is private by itself (client side); there always is one, whatever was measured."""
        plan = self.plan
        if self.partitions:
            cells = self.partitions[partition]
            row = chosen_row(vector[cells], randomness)
            return UnaryEncoding(scale=plan.noise.scale).report(row, len(cells), randomness)
        if plan.noise.law == CHOICE:
            return choose(vector, scale=Fraction(plan.noise.scale), randomness=randomness)
        return vector + spread(plan.query.of, accounting.draw(plan.noise, plan.query.of.draws, randomness))

    def fits(self, report: Report) -> bool:
        """Return whether an honest client could have sent this."""
        content = report.content
        if self.partitions:
            known = 0 <= report.partition < len(self.partitions)
            return known and well_formed(content, len(self.partitions[report.partition]))
        if self.plan.noise.law == CHOICE:
            return type(content) is int and 0 <= content < self.plan.query.of.length
        shape = (self.plan.query.of.length,)
        if not isinstance(content, np.ndarray) or content.dtype != np.int64 or content.shape != shape:
            return False
        bound = largest_report(self.plan.query.of, self.plan.noise)
        # Not np.abs: the absolute value of -2^63 is negative.
        return content.size == 0 or bool(content.max() <= bound and content.min() >= -bound)

    def release(self, reports: Sequence[Report]) -> Released[Any]:
        """Compute the released value from these fitting reports."""
        plan, clients = self.plan, len(reports)
        if self.partitions:
            groups: list[list[bytes]] = [[] for _ in self.partitions]
            for report in reports:
                groups[report.partition].append(report.content)
            ones = [ones_of(group, len(cells)) for group, cells in zip(groups, self.partitions, strict=True)]
            return estimated(plan, ones, [len(group) for group in groups])
        if plan.noise.law == CHOICE:
            chosen = tuple(_one_hot(report.content, plan.query.of.length) for report in reports)
            return Released(value=chosen, noise=plan.noise, clients=clients)
        if not isinstance(plan.query, Sum):
            return Released(
                value=tuple(report.content for report in reports), noise=plan.noise, clients=clients
            )
        if clients * largest_report(plan.query.of, plan.noise) >= LIMIT:
            raise ProtocolError(f"{plan.query.of.name}: more clients answered than the plan allows for.")
        total = np.zeros(plan.query.of.length, dtype=np.int64)
        for report in reports:
            total += report.content
        return Released(value=total, noise=several(plan.noise, clients), clients=clients)


def _one_hot(place: int, length: int) -> Vector:
    vector = np.zeros(length, dtype=np.int64)
    vector[place] = 1
    return vector


def reported(scale: float, reports: Sequence[float]) -> Noise:
    """Return the law of the estimates from `reports` reports on each partition."""
    clients = math.fsum(reports)
    return Noise(
        law=UNARY,
        scale=scale,
        variance=clients * len(reports) * UnaryEncoding(scale=scale).variance,
        reporting=tuple(number / clients for number in reports),
    )


def estimated(plan: Plan, ones: Sequence[Vector], reports: Sequence[int]) -> Released[Any]:
    """Estimate all cells from the ones of each partition."""
    clients = sum(reports)
    if clients < 2 or min(reports) == 0:
        raise TooFewClients(
            f"{plan.query.of.name}: {clients} clients reported, on {sum(number > 0 for number in reports)} of "
            f"{len(reports)} partitions; expected at least 2, and 1 on each; ask more clients, or fewer levels."
        )
    encoding = UnaryEncoding(scale=plan.noise.scale)
    value = np.empty(plan.query.of.length)
    for cells, counted, number in zip(plan.query.of.partitions, ones, reports, strict=True):
        value[cells] = encoding.estimate(counted, number, clients)
    return Released(value=value, noise=reported(plan.noise.scale, reports), clients=clients)
