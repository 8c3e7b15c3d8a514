"""What reports that are private by themselves look like, how a client makes one, and what they say together.

Shared by `local_dp`, where it is known who sent which report, and `shuffle`, where it is not: nothing here asks for
a name.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from fedassay.errors import ProtocolError, TooFewClients
from fedassay.privacy import accounting
from fedassay.privacy.accounting import CHOICE, UNARY
from fedassay.privacy.choices import choose
from fedassay.protocol import Noise, Plan, Randomness, Released, Sum, Summary, Vector
from fedassay.trust.local_noise import reach, several, spread
from fedassay.trust.unary_encoding import Partitions, UnaryEncoding, chosen_row, ones_of, well_formed

LIMIT = 2**63
"""Totals of noisy vectors stay below: they are int64."""


def largest_report(summary: Summary[Any], noise: Noise) -> int:
    """No entry of an honest client's noisy vector is larger."""
    return summary.largest + summary.overlap * reach(noise)


class Report(NamedTuple):
    """What one client says in answer to one query, and on which partition of the summary (0 if there are none)."""

    content: Any
    partition: int = 0


@dataclass(frozen=True, kw_only=True)
class Question:
    """A planned query, as clients report on it: what all their reports have in common."""

    plan: Plan
    partitions: Partitions

    @classmethod
    def of(cls, plan: Plan) -> Question:
        """How this plan is reported on; only unary reports have partitions."""
        return cls(plan=plan, partitions=plan.query.of.partitions if plan.noise.law == UNARY else ())

    def report(self, vector: Vector, partition: int, randomness: Randomness) -> Any:
        """Client side: a report that is private by itself; there always is one, whatever was measured."""
        plan = self.plan
        if self.partitions:
            cells = self.partitions[partition]
            row = chosen_row(vector[cells], randomness)
            return UnaryEncoding(scale=plan.noise.scale).report(row, len(cells), randomness)
        if plan.noise.law == CHOICE:
            return choose(vector, scale=Fraction(plan.noise.scale), randomness=randomness)
        return vector + spread(plan.query.of, accounting.draw(plan.noise, plan.query.of.draws, randomness))

    def fits(self, report: Report) -> bool:
        """Whether an honest client could have sent this."""
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
        """What these fitting reports say together."""
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
    """The law of the estimates from so many reports on each partition."""
    clients = math.fsum(reports)
    return Noise(
        law=UNARY,
        scale=scale,
        variance=clients * len(reports) * UnaryEncoding(scale=scale).variance,
        reporting=tuple(number / clients for number in reports),
    )


def estimated(plan: Plan, ones: Sequence[Vector], reports: Sequence[int]) -> Released[Any]:
    """The estimates of all cells from the ones of each partition."""
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
