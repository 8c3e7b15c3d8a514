"""Rehearsal of a conformal task: it is asked as in a run, and answered by clients that do not exist.

The clients have equally many rows, with scores that are spread evenly over their range. The answers are exact, and come
with the law of the noise that they would have: ranks, margins and guarantees are then those of a real run, because the
task itself works them out.

Actual coverage of sets, before any data, where the guarantee is a lower bound or there is none.

A guarantee under noise holds for the worst scores. The coverage with ordinary scores is larger, which makes sets
wider than they need to be; planning has to know by how much. Everything here is for scores that are spread evenly
over their range; the distribution of scores matters through ties and bins only, but for the mean of quantiles.

These are expected numbers, not guarantees; some are from a small simulation with a fixed seed, so plans do not vary.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.special import betainc

from fedassay.errors import UsageError
from fedassay.estimation.coverage import best_pair
from fedassay.estimation.coverage.law import CoverageLaw, CoverageOfThreshold, split_rank
from fedassay.protocol.arrays import Floats
from fedassay.protocol.vocabulary import NO_NOISE, Batch, Noise, Query, Released, Select, Sum
from fedassay.summaries.distribution.tree import ValueSummary
from fedassay.summaries.local_quantiles import QuantileLosses
from fedassay.summaries.scored import EVERYONE
from fedassay.tasks.conformal.conformal import Conformal
from fedassay.tasks.conformal.pooled import TOO_FEW, point_after_last
from fedassay.tasks.conformal.threshold import Found
from fedassay.tasks.expectation import PlannedStudy

# --- what sets will cover in fact ---------------------------------------------------------------------------


CHOICE_DRAWS = 1000
"""Number of simulated clients; their probabilities are averaged, so that no choice has to be drawn."""

POOLED_DRAWS = 200
"""Number of simulated releases."""

_AT_ONCE = 1 << 20


class Expected(NamedTuple):
    """Mean and standard deviation of the coverage over calibration rows and noise."""

    mean: float
    standard_deviation: float

    @classmethod
    def of(cls, law: CoverageOfThreshold) -> Expected:
        """Return mean and standard deviation of a law."""
        return cls(law.mean, law.standard_deviation)


def average_coverage(clients: int, rows: int, level: float) -> Expected | None:
    """Predict coverage for the mean of split quantiles with independent coverages; None if clients have too few rows.

    For scores that are not spread evenly the mean of quantiles is not the quantile of the mean: nothing is guaranteed.

    Examples
    --------
    >>> average_coverage(10, 99, 0.9)
    Expected(mean=0.9, standard_deviation=0.00943975163291329)
    """
    rank = split_rank(rows, level)
    if rank > rows:
        return None
    mean = rank / (rows + 1)
    return Expected(mean, math.sqrt(mean * (1 - mean) / (rows + 2) / clients))


def choice_coverage(losses: QuantileLosses, noise: Noise, *, clients: int, server_rank: int) -> Expected:
    """Predict coverage where clients choose with probability ∝ exp(-loss/scale), and the server takes the k-th choice.

    G_b, the probability that a client chooses one of the first b candidates, is averaged over simulated scores; clients
    are independent, so that P(the threshold is among the first b) = P(Bin(m, G_b) >= k) exactly.
    """
    rng = np.random.default_rng(0)
    shares = np.append(np.linspace(0.0, 1.0, losses.points - 1), 1.0)
    chosen, done = np.zeros(losses.points), 0
    step = max(1, min(CHOICE_DRAWS, _AT_ONCE // losses.points))
    while done < CHOICE_DRAWS:
        counts = rng.multinomial(losses.rows, np.diff(shares, prepend=0.0), size=step)
        up_to = counts.cumsum(axis=1)
        short = np.maximum(0, losses.target - up_to)
        over = np.maximum(0, up_to - counts - losses.target + 1)
        weight = -(losses.below * short + losses.above * over) / noise.scale
        weight = np.exp(weight - weight.max(axis=1, keepdims=True))
        chosen += (weight / weight.sum(axis=1, keepdims=True)).sum(axis=0)
        done += step
    client = np.minimum(1.0, chosen.cumsum() / done)
    client[-1] = 1.0
    at = np.diff(betainc(server_rank, clients - server_rank + 1, client), prepend=0.0)
    return _moments(shares, at)


def pooled_coverage(
    summary: ValueSummary, noise: Noise, *, rows: int, level: float, margin: float
) -> Expected | None:
    """Predict coverage where the threshold is the point after the last with released T_i = C_i - (1-α)N below margin.

    Noise is drawn as rounded normal numbers of the right variance: what a sum gets is made of several draws. None where
    clients report on one level each.
    """
    if noise.reporting:
        return None
    rng = np.random.default_rng(0)
    shares = _shares(summary)
    covered = np.empty(POOLED_DRAWS)
    for draw in range(POOLED_DRAWS):
        counts = rng.multinomial(rows, np.diff(shares, prepend=0.0))
        draws = np.rint(rng.normal(0.0, math.sqrt(noise.variance), summary.draws)).astype(np.int64)
        sums = summary.read(summary.from_leaves(counts) + summary.spread(draws)).sums(noise)
        place = point_after_last(sums[0], level, margin)
        covered[draw] = shares[min(place, len(shares) - 1)]
    return Expected(float(covered.mean()), float(covered.std(ddof=1)))


def _shares(summary: ValueSummary) -> Floats:
    """Return the share of evenly spread scores up to each point."""
    thresholds = summary.grid.thresholds
    return np.asarray(np.clip((thresholds - summary.lower) / (thresholds[-2] - summary.lower), 0.0, 1.0))


def _moments(values: Floats, probabilities: Floats) -> Expected:
    mean = float(values @ probabilities)
    return Expected(mean, math.sqrt(max(0.0, float((values - mean) ** 2 @ probabilities))))


# --- rehearsal of a conformal task --------------------------------------------------------------------------

MOST_ROWS_EACH = 10**7
"""Largest number of rows of a client for which coverage is computed."""


@dataclass(frozen=True, kw_only=True)
class EvenScores:
    """Rows of a client with evenly spread scores."""

    count: int

    def batches(self) -> Iterator[Batch]:
        """Yield scores in the middles of `count` equal parts of [0, 1]."""
        yield {"conformity": (np.arange(self.count) + 0.5) / self.count}


@dataclass(frozen=True, kw_only=True)
class Rehearsal:
    """Threshold that the task finds, and what it covers.

    Parameters
    ----------
    task : for scores between 0 and 1.
    method : the method that was used.
    found : the threshold for scores between 0 and 1, and its guarantee.
    query : the question; None if no client was asked.
    noise : of the answer.
    clients, rows : how many clients have rows, and how many rows each.
    """

    task: Conformal
    method: str
    found: Found
    query: Query[Any] | None
    noise: Noise
    clients: int
    rows: int

    @property
    def in_private(self) -> bool:
        """True if each client chooses with privacy."""
        return isinstance(self.query, Select)

    @property
    def trivial(self) -> bool:
        """True if every set will hold everything. Private choices of clients are not known beforehand.

        But clients without rows, which are in other parts of the study, choose the point above all others.
        """
        if self.in_private:
            return bool(self.found.details["server_rank"] > self.clients)
        return self.found.infinite

    @property
    def reason(self) -> str | None:
        """Reason why every set will hold everything; None if that is not so."""
        if not self.trivial:
            return None
        # These clients have no scores outside the range.
        of = None if self.query is None else self.query.of
        if self.in_private:
            return (
                f"only {self.clients:,} clients have rows in this part of the study, and the others count as "
                "infinite scores"
            )
        return TOO_FEW if isinstance(of, ValueSummary) else self.found.reason

    @property
    def law(self) -> CoverageOfThreshold | None:
        """Law of the coverage, or a law below it; for single clients that of one client."""
        if self.method != "local" or self.trivial:
            return self.found.law
        return best_pair(1, self.rows, self.task.level)

    @cached_property
    def expected(self) -> Expected | None:
        """Coverage to expect in fact, for evenly spread scores; None if it is not known, or all is covered."""
        details, of = self.found.details, None if self.query is None else self.query.of
        if self.trivial:
            return None
        if self.method == "average":
            return average_coverage(self.clients, self.rows, self.task.level)
        known = None
        if isinstance(of, QuantileLosses):
            known = choice_coverage(of, self.noise, clients=self.clients, server_rank=details["server_rank"])
        elif isinstance(of, ValueSummary):
            rows = self.clients * self.rows
            if self.noise.variance == 0:
                # The law of the score of this rank among all rows, except for the width of a bin.
                rank = round(details["rank"])
                return Expected.of(CoverageLaw(clients=1, rows=rows, local_rank=rank, server_rank=1))
            known = pooled_coverage(
                of, self.noise, rows=rows, level=self.task.level, margin=details["margin"]
            )
        return Expected.of(self.law) if known is None and self.law is not None else known

    def width(self, name: str) -> float | None:
        """Return the width of a target, by its name: infinite if all is covered, None where nothing is known.

        Where clients report on one level each, only a law below that of the coverage is known. What is above the level
        then is the margin for the noise, and half a bin.
        """
        if self.trivial:
            return math.inf
        if name == "shortfall":
            return None if self.law is None else self.task.level - self.law.quantile(1 - self.task.confidence)
        if self.noise.reporting:
            details = self.found.details
            margin = details["margin"] / (self.clients * self.rows) + details["step"] / 2
            return float(margin) if name == "excess" else None
        if self.expected is None:
            return None
        return self.expected.standard_deviation if name == "spread" else self.expected.mean - self.task.level


def rehearse(task: Conformal, study: PlannedStudy) -> Rehearsal:
    """Ask as the task would, in the setting of the study.

    Raises what the task raises, such as `DataError` for too few rows, and `UnsupportedQuery`.
    """
    clients = study.holders
    rows = math.floor(study.rows / clients)
    if rows > MOST_ROWS_EACH:
        raise UsageError(f"rows: got {rows:,} per client, expected at most {MOST_ROWS_EACH:,}.")
    # Which rows are asked for matters where a client can be in one part only.
    task = replace(
        task, sets="conformity", score_parameters=(), score_range=(0.0, 1.0), holdout=1 - study.seen
    )
    setting = study.setting
    method, way = task.way(setting)
    steps = way(task, method, setting)
    query: Query[Any] | None = None
    noise = NO_NOISE
    try:
        step = next(steps)
        assert isinstance(step, Query), "a threshold takes one question"
        query, noise = step, setting.noise(step)
        value = _answer(step, clients=clients, rows=rows, empty=setting.clients - clients)
        steps.send(Released(value=value, noise=noise, clients=clients))
    except StopIteration as end:
        found = end.value[0][EVERYONE]
        return Rehearsal(
            task=task, method=method, found=found, query=query, noise=noise, clients=clients, rows=rows
        )
    raise AssertionError("a threshold takes one question")


def _answer(query: Query[Any], *, clients: int, rows: int, empty: int) -> Any:
    """Return the joint answer, without noise, of such clients and of `empty` clients without rows."""
    of = query.of
    if isinstance(of, ValueSummary):
        up_to = np.rint(clients * rows * _shares(of))
        return of.read(of.from_leaves(np.diff(up_to, prepend=0.0).astype(np.int64)))
    each = [of.measure(EvenScores(count=count), {})[0] for count in (rows, 0)]
    if isinstance(query, Sum):
        return of.read(clients * each[0] + empty * each[1])
    if isinstance(query, Select):
        each = [(np.arange(len(vector)) == vector.argmin()).astype(np.int64) for vector in each]
    return (of.read(each[0]),) * clients + (of.read(each[1]),) * empty
