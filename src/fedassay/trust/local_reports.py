"""The server's side of `local_dp`: what reports must look like, and what they say together."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedassay.errors import ProtocolError, TooFewClients
from fedassay.privacy.accounting import CHOICE, UNARY
from fedassay.protocol import Exchange, Noise, Plan, Released, Sum, Summary, Vector
from fedassay.trust.local_noise import reach, several
from fedassay.trust.unary_encoding import Partitions, UnaryEncoding, assigned, ones_of, well_formed

LIMIT = 2**63
"""Totals of noisy vectors stay below: they are int64."""


def largest_report(summary: Summary[Any], noise: Noise) -> int:
    """No entry of an honest client's noisy vector is larger."""
    return summary.largest + summary.overlap * reach(noise)


@dataclass(frozen=True, kw_only=True)
class Question:
    """A plan of an exchange, with what all clients' reports have in common."""

    exchange: bytes
    index: int
    plan: Plan
    partitions: Partitions

    @classmethod
    def of(cls, exchange: Exchange, index: int) -> Question:
        """The plan with this index; only unary reports have partitions."""
        plan = exchange.plans[index]
        partitions = plan.query.of.partitions if plan.noise.law == UNARY else ()
        return cls(exchange=exchange.id, index=index, plan=plan, partitions=partitions)

    def partition_of(self, client: str) -> int:
        """Which partition this client reports on."""
        return assigned(self.exchange, self.index, client, len(self.partitions))

    def fits(self, report: Any, client: str) -> bool:
        """Whether an honest client of this name could have sent this."""
        if self.partitions:
            return well_formed(report, len(self.partitions[self.partition_of(client)]))
        if self.plan.noise.law == CHOICE:
            return type(report) is int and 0 <= report < self.plan.query.of.length
        shape = (self.plan.query.of.length,)
        if not isinstance(report, np.ndarray) or report.dtype != np.int64 or report.shape != shape:
            return False
        bound = largest_report(self.plan.query.of, self.plan.noise)
        # Not np.abs: the absolute value of -2^63 is negative.
        return report.size == 0 or bool(report.max() <= bound and report.min() >= -bound)

    def release(self, reports: Mapping[str, Any]) -> Released[Any]:
        """What these fitting reports say together."""
        plan, clients = self.plan, len(reports)
        if self.partitions:
            groups: list[list[bytes]] = [[] for _ in self.partitions]
            for name, report in reports.items():
                groups[self.partition_of(name)].append(report)
            ones = [ones_of(group, len(cells)) for group, cells in zip(groups, self.partitions, strict=True)]
            return estimated(plan, ones, [len(group) for group in groups])
        if plan.noise.law == CHOICE:
            chosen = tuple(_one_hot(place, plan.query.of.length) for place in reports.values())
            return Released(value=chosen, noise=plan.noise, clients=clients)
        if not isinstance(plan.query, Sum):
            return Released(value=tuple(reports.values()), noise=plan.noise, clients=clients)
        if clients * largest_report(plan.query.of, plan.noise) >= LIMIT:
            raise ProtocolError(f"{plan.query.of.name}: more clients answered than the plan allows for.")
        total = np.zeros(plan.query.of.length, dtype=np.int64)
        for vector in reports.values():
            total += vector
        return Released(value=total, noise=several(plan.noise, clients), clients=clients)


def _one_hot(place: int, length: int) -> Vector:
    vector = np.zeros(length, dtype=np.int64)
    vector[place] = 1
    return vector


def opened(reply: Any, questions: Sequence[Question], client: str) -> list[Any] | None:
    """One report per plan, or None if the reply is not what an honest client could have sent."""
    if not isinstance(reply, dict) or set(reply) != {"reports"}:
        return None
    reports = reply["reports"]
    if not isinstance(reports, list | tuple) or len(reports) != len(questions):
        return None
    if not all(question.fits(report, client) for question, report in zip(questions, reports, strict=True)):
        return None
    return list(reports)


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
