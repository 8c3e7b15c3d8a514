"""Plain: every client sends its exact summary to the server. No privacy; the reference for all others."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from fedassay.errors import UnsupportedQuery, UsageError
from fedassay.protocol import (
    NO_NOISE,
    Collect,
    Exchange,
    Measure,
    Message,
    Plan,
    Query,
    Randomness,
    Released,
    Replies,
    Request,
    Round,
    Select,
    Setting,
    Sum,
    TrustModel,
    Vector,
)
from fedassay.trust import clear
from fedassay.trust.words import refuse_points

LIMIT = 2**63
"""Totals stay below: they are int64."""


@dataclass(frozen=True, kw_only=True)
class Plain(TrustModel):
    """Vectors in the clear, added without noise; answers every kind of query.

    Guarantee: none. Assumption: everyone who sees the messages or the result is trusted with exact summaries.
    Edge cases: a client whose reply is malformed or out of bounds counts as a dropout; with nobody left
    the release fails with `TooFewClients`.
    """

    name: ClassVar[str] = "plain"
    private: ClassVar[bool] = False

    def plan(self, query: Query[Any], setting: Setting) -> Plan:
        """Refuse a budget (there is no noise to spend it on) and sums that could wrap."""
        refuse_points(query)
        if setting.budget is not None:
            raise UsageError(
                "plain: got a privacy budget, but plain adds no noise; leave out `epsilon` and `delta`."
            )
        if not isinstance(query, Sum | Collect | Select):
            raise UnsupportedQuery(f"{type(query).__name__}: plain answers Sum, Collect and Select.")
        if isinstance(query, Sum):
            clear.check_no_wrap(query, setting, limit=LIMIT)
        return Plan(query=query, setting=setting, sensitivity=query.of.sensitivity(setting.protection))

    def exchange(
        self, exchange: Exchange, randomness: Randomness
    ) -> Generator[Round, Replies, tuple[Released[Any], ...]]:
        """Server half: one round, then add (or keep apart) what came."""
        answers = yield from clear.ask(exchange)
        return tuple(
            Released(value=_gather(column, plan), noise=NO_NOISE, clients=len(answers))
            for plan, column in zip(exchange.plans, zip(*answers.values(), strict=True), strict=True)
        )

    def respond(
        self, request: Request, measure: Measure, state: Message, randomness: Randomness
    ) -> tuple[Message, Message]:
        """Client half: the exact vectors."""
        return clear.answer(request, measure), {}

    def aggregate(
        self, plans: Sequence[Plan], totals: Sequence[Vector], clients: int, randomness: Randomness
    ) -> tuple[Released[Any], ...]:
        """The totals themselves; only sums can be made from totals."""
        for plan in plans:
            if not isinstance(plan.query, Sum):
                raise UnsupportedQuery(
                    f"{type(plan.query).__name__}: totals do not show single clients; use the faithful mode."
                )
        return tuple(Released(value=total, noise=NO_NOISE, clients=clients) for total in totals)

    def statement(self, setting: Setting) -> str:
        """That nothing is promised."""
        return (
            "No privacy is promised. The server sees each client's exact summary, and what is published is "
            "exact: everyone who sees the messages or the results must be trusted."
        )


def _gather(column: Sequence[Vector], plan: Plan) -> Vector | tuple[Vector, ...]:
    return clear.total(column, plan, limit=LIMIT) if isinstance(plan.query, Sum) else tuple(column)
