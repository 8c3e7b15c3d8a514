"""Plain: every client sends its exact summary to the server. No privacy; the reference for all others.

Vectors in the clear: one round, one message per client. Shared by `plain` and `server_dp`.

What a client sends is ``{"vectors": [one int64 array per plan]}``. The server believes nothing: a reply that
is not exactly of this form, or that exceeds the bounds that the plan's proofs rest on, is a dropout.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fedassay.errors import ProtocolError, TooFewClients, UnsupportedQuery, UsageError
from fedassay.protocol.vocabulary import (
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
from fedassay.trust.card import refuse_points, require_sum

# --- vectors in the clear -----------------------------------------------------------------------------------


def check_no_wrap(query: Query[Any], setting: Setting, *, limit: int) -> None:
    """Prove that no total over all clients reaches `limit`, or raise `UnsupportedQuery`."""
    if setting.clients * query.of.largest >= limit:
        raise UnsupportedQuery(
            f"{query.of.name}: {setting.clients:,} clients with entries of up to {query.of.largest:,} could "
            f"reach {limit:.3g}, where sums wrap; expected a summary with smaller entries, or fewer clients."
        )


def ask(
    exchange: Exchange, field: str, fits: Callable[[str, list[Any]], list[Any] | None]
) -> Generator[Round, Replies, list[list[Any]]]:
    """Ask every client of the cohort once (server half); leave out those that do not answer properly.

    A reply is a list of one thing for each plan, under `field`; `fits` is called with a client's name and this list,
    and returns what the client has answered, or None if it is nothing that an honest client could have sent.
    """
    replies = yield Round(requests={name: {} for name in exchange.cohort})
    answers = []
    for name in exchange.cohort:
        reply = replies.get(name)
        found = reply[field] if isinstance(reply, dict) and set(reply) == {field} else None
        if isinstance(found, list | tuple) and len(found) == len(exchange.plans):
            answers.append(fits(name, list(found)))
    said = [answer for answer in answers if answer is not None]
    if not said:
        raise TooFewClients(f"release: none of {len(exchange.cohort)} clients answered, expected at least 1.")
    return said


def ask_for_vectors(exchange: Exchange) -> Generator[Round, Replies, list[list[Vector]]]:
    """Ask for the vectors of each client that answered, one per plan (server half)."""

    def fits(name: str, vectors: list[Any]) -> list[Any] | None:
        fit = all(_fits(vector, plan) for vector, plan in zip(vectors, exchange.plans, strict=True))
        return vectors if fit else None

    return (yield from ask(exchange, "vectors", fits))


def require_first_leg(request: Request) -> None:
    """Refuse a later leg: clients are asked once."""
    if request.leg != 0:
        raise ProtocolError(f"request: got leg {request.leg}, expected only leg 0.")


def answer(request: Request, measure: Measure) -> Message:
    """Return the measured vectors (client half); for a `Select`, a one at the smallest loss (the first, if tied)."""
    require_first_leg(request)
    return {
        "vectors": [
            one_hot(vector) if isinstance(plan.query, Select) else vector
            for plan, vector in zip(request.plans, measure(), strict=True)
        ]
    }


def total(vectors: Sequence[Vector], plan: Plan, *, limit: int) -> Vector:
    """Return the sum over clients, proven not to wrap by the number that really answered."""
    if len(vectors) * plan.query.of.largest >= limit:
        raise ProtocolError(f"{plan.query.of.name}: more clients answered than the plan allows for.")
    result = np.zeros(plan.query.of.length, dtype=np.int64)
    for vector in vectors:
        result += vector
    return result


def one_hot(losses: Vector) -> Vector:
    """Return a one at the smallest loss, zeros elsewhere.

    Examples
    --------
    >>> one_hot(np.array([3, 1, 1]))
    array([0, 1, 0])
    """
    chosen = np.zeros(losses.size, dtype=np.int64)
    chosen[np.argmin(losses)] = 1
    return chosen


def _fits(vector: Any, plan: Plan) -> bool:
    summary = plan.query.of
    if not isinstance(vector, np.ndarray) or vector.dtype != np.int64 or vector.shape != (summary.length,):
        return False
    if isinstance(plan.query, Select):
        return bool(((vector == 0) | (vector == 1)).all() and vector.sum() == 1)
    # Not np.abs: the absolute value of -2^63 is negative.
    return vector.size == 0 or bool(vector.max() <= summary.largest and vector.min() >= -summary.largest)


# --- plain --------------------------------------------------------------------------------------------------

LIMIT = 2**63
"""Strict bound on totals: they are int64."""


@dataclass(frozen=True, kw_only=True)
class Plain(TrustModel):
    """Vectors in the clear, added without noise; answers every kind of query.

    Guarantee: none. Assumption: everyone who sees the messages or the result is trusted with exact summaries.
    Edge cases: a client whose reply is malformed or out of bounds counts as a dropout; with no client left
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
            check_no_wrap(query, setting, limit=LIMIT)
        return Plan(query=query, setting=setting, sensitivity=query.of.sensitivity(setting.protection))

    def exchange(
        self, exchange: Exchange, randomness: Randomness
    ) -> Generator[Round, Replies, tuple[Released[Any], ...]]:
        """Run the server half: one round, then add (or keep apart) what came."""
        answers = yield from ask_for_vectors(exchange)
        return tuple(
            Released(value=_gather(column, plan), noise=NO_NOISE, clients=len(answers))
            for plan, column in zip(exchange.plans, zip(*answers, strict=True), strict=True)
        )

    def respond(
        self, request: Request, measure: Measure, state: Message, randomness: Randomness
    ) -> tuple[Message, Message]:
        """Run the client half: return the exact vectors."""
        return answer(request, measure), {}

    def aggregate(
        self, plans: Sequence[Plan], totals: Sequence[Vector], clients: int, randomness: Randomness
    ) -> tuple[Released[Any], ...]:
        """Return the totals themselves; only sums can be made from totals."""
        for plan in plans:
            require_sum(plan.query)
        return tuple(Released(value=total, noise=NO_NOISE, clients=clients) for total in totals)

    def statement(self, setting: Setting) -> str:
        """State that nothing is promised."""
        return (
            "No privacy is promised. The server sees each client's exact summary, and what is published is "
            "exact: everyone who sees the messages or the results must be trusted."
        )


def _gather(column: Sequence[Vector], plan: Plan) -> Vector | tuple[Vector, ...]:
    return total(column, plan, limit=LIMIT) if isinstance(plan.query, Sum) else tuple(column)
