"""Vectors in the clear: one round, one message per client. Shared by `plain` and `server_dp`.

What a client sends is ``{"vectors": [one int64 array per plan]}``. The server believes nothing: a reply that
is not exactly of this form, or that exceeds the bounds that the plan's proofs rest on, is a dropout.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Any

import numpy as np

from fedassay.errors import ProtocolError, TooFewClients, UnsupportedQuery
from fedassay.protocol import (
    Exchange,
    Measure,
    Message,
    Plan,
    Query,
    Replies,
    Request,
    Round,
    Select,
    Setting,
    Vector,
)

Answers = Mapping[str, tuple[Vector, ...]]
"""Client to its vectors, one per plan, in the order of the cohort."""


def check_no_wrap(query: Query[Any], setting: Setting, *, limit: int) -> None:
    """Prove that no total over all clients reaches `limit`, or raise `UnsupportedQuery`."""
    if setting.clients * query.of.largest >= limit:
        raise UnsupportedQuery(
            f"{query.of.name}: {setting.clients:,} clients with entries of up to {query.of.largest:,} could "
            f"reach {limit:.3g}, where sums wrap; expected a summary with smaller entries, or fewer clients."
        )


def ask(exchange: Exchange) -> Generator[Round, Replies, Answers]:
    """Server half: ask every client of the cohort once; who does not answer properly is left out."""
    replies = yield Round(requests={name: {} for name in exchange.cohort})
    answers = {}
    for name in exchange.cohort:
        vectors = _opened(replies.get(name), exchange.plans)
        if vectors is not None:
            answers[name] = vectors
    if not answers:
        raise TooFewClients(f"release: none of {len(exchange.cohort)} clients answered, expected at least 1.")
    return answers


def answer(request: Request, measure: Measure) -> Message:
    """Client half: the measured vectors; for a `Select`, a one at the smallest loss (the first, if tied)."""
    if request.leg != 0:
        raise ProtocolError(f"request: got leg {request.leg}, expected only leg 0.")
    return {
        "vectors": [
            one_hot(vector) if isinstance(plan.query, Select) else vector
            for plan, vector in zip(request.plans, measure(), strict=True)
        ]
    }


def total(vectors: Sequence[Vector], plan: Plan, *, limit: int) -> Vector:
    """The sum over clients, proven not to wrap by the number that really answered."""
    if len(vectors) * plan.query.of.largest >= limit:
        raise ProtocolError(f"{plan.query.of.name}: more clients answered than the plan allows for.")
    result = np.zeros(plan.query.of.length, dtype=np.int64)
    for vector in vectors:
        result += vector
    return result


def one_hot(losses: Vector) -> Vector:
    """A one at the smallest loss, zeros elsewhere.

    Examples
    --------
    >>> one_hot(np.array([3, 1, 1]))
    array([0, 1, 0])
    """
    chosen = np.zeros(losses.size, dtype=np.int64)
    chosen[np.argmin(losses)] = 1
    return chosen


def _opened(reply: Any, plans: Sequence[Plan]) -> tuple[Vector, ...] | None:
    """The vectors of a reply, or None if it is not what an honest client could have sent."""
    if not isinstance(reply, dict) or set(reply) != {"vectors"}:
        return None
    vectors = reply["vectors"]
    if not isinstance(vectors, list | tuple) or len(vectors) != len(plans):
        return None
    if not all(_fits(vector, plan) for vector, plan in zip(vectors, plans, strict=True)):
        return None
    return tuple(vectors)


def _fits(vector: Any, plan: Plan) -> bool:
    summary = plan.query.of
    if not isinstance(vector, np.ndarray) or vector.dtype != np.int64 or vector.shape != (summary.length,):
        return False
    if isinstance(plan.query, Select):
        return bool(((vector == 0) | (vector == 1)).all() and vector.sum() == 1)
    # Not np.abs: the absolute value of -2^63 is negative.
    return vector.size == 0 or bool(vector.max() <= summary.largest and vector.min() >= -summary.largest)
