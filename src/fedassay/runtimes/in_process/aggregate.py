"""Totals of a simulation, drawn from the law that the protocol gives them: for millions of one-row clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedassay.data.bounds import limit_pooled, limit_rows
from fedassay.data.federation import Federation
from fedassay.data.split import select_part, select_pooled_part
from fedassay.errors import UnsupportedQuery
from fedassay.kernel.client import EmptyRows, bounded, takes_part
from fedassay.kernel.envelope import Refusal
from fedassay.kernel.run import Errand
from fedassay.protocol.vocabulary import (
    Draw,
    Exchange,
    Memory,
    Part,
    Plan,
    Query,
    Randomness,
    Released,
    Rows,
    Sample,
    Sum,
    Vector,
)
from fedassay.runtimes.messaging import Traffic
from fedassay.runtimes.simulated import SERVERS


class Aggregate:
    """Draws the same totals from the same law, without simulating single messages."""

    name = "in-process"
    mode = "aggregate"
    simulated = True
    helpers: Sequence[str] = SERVERS

    def __init__(
        self, federation: Federation, *, randomness: Randomness, split_key: bytes, holdout: float = 0.3
    ) -> None:
        self._federation = federation
        self.clients = federation.clients
        self._randomness = randomness
        self._split_key = split_key
        self._holdout = holdout
        self.traffic = Traffic()
        self.refusals: Mapping[str, Refusal] = {}
        self.reasons: Mapping[str, str] = {}
        self._left_out: dict[Part, int] = {}
        self._memories: dict[tuple[str, Part, str], Memory] = {}

    @property
    def truncated(self) -> int:
        """Rows that clients left out to keep to their bound, in the latest measurement."""
        return sum(self._left_out.values())

    def prekeys(self, names: Sequence[str]) -> None:
        """None: no message passes."""

    def renewed(self, prekeys: Mapping[str, bytes]) -> Mapping[str, bytes]:
        """The same: there are none."""
        return prekeys

    def carry(self, errand: Errand) -> tuple[Released[Any], ...]:
        """Measure all rows at once, then let the trust model draw what its protocol would have released."""
        exchange = errand.exchange
        for plan in exchange.plans:
            require_sum(plan.query)
        self._left_out = {}
        totals = []
        for plan, task in zip(exchange.plans, exchange.tasks, strict=True):
            total, left_out = self._total(plan, exchange, task)
            # Of several questions about one part the last one counts, as it does at a client.
            self._left_out[plan.query.part] = left_out
            totals.append(total)
        drawn = [plan for plan in exchange.plans if isinstance(plan.query.cohort, Sample | Draw)]
        answered = len(exchange.cohort) if drawn else self._federation.client_count
        return errand.trust.aggregate(exchange.plans, totals, answered, errand.randomness)

    def _total(self, plan: Plan, exchange: Exchange, task: str) -> tuple[Vector, int]:
        """The exact total, and how many rows clients left out of it."""
        if not plan.query.of.additive or isinstance(plan.query.cohort, Sample | Draw):
            return self._sum_of_each(plan, exchange, task)
        protection, left_out = plan.setting.protection, 0
        rows = select_pooled_part(
            self._federation,
            plan.query.part,
            key=self._split_key,
            unit=protection.unit,
            holdout=self._holdout,
        )
        if protection.rows_per_client is not None:
            rows, left_out = limit_pooled(rows, protection.rows_per_client, self._randomness)
        total, _ = plan.query.of.measure(rows, {})
        return total, left_out

    def _sum_of_each(self, plan: Plan, exchange: Exchange, task: str) -> tuple[Vector, int]:
        """What clients measure one by one, added up; what each remembers is kept, as clients do."""
        of, measured = plan.query.of, plan.measured
        total, left_out = np.zeros(measured.length, dtype=np.int64), 0
        for name in exchange.cohort:
            key = (task, plan.query.part, name)
            if takes_part(plan, self._randomness):
                rows, more = self._rows_of(name, plan)
                vector, self._memories[key] = measured.measure(rows, self._memories.get(key, {}))
                left_out += more
            else:
                vector, _ = measured.measure(EmptyRows(), {})
            total = total + bounded(vector, plan)
        return total if measured is of else of.from_leaves(total), left_out

    def _rows_of(self, name: str, plan: Plan) -> tuple[Rows, int]:
        """The rows that a client would use, and how many it would leave out."""
        protection = plan.setting.protection
        rows = select_part(
            self._federation.rows_of(name),
            plan.query.part,
            key=self._split_key,
            unit=protection.unit,
            client=name,
            holdout=self._holdout,
        )
        if protection.rows_per_client is None:
            return rows, 0
        return limit_rows(rows, protection.rows_per_client, self._randomness)


def require_sum(query: Query[Any]) -> None:
    """Refuse what cannot be drawn in aggregate."""
    if not isinstance(query, Sum):
        raise UnsupportedQuery(
            f"{type(query).__name__} of {query.of.name}: only sums can be drawn in aggregate; use the faithful mode."
        )
