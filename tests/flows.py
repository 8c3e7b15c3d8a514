"""Flows of queries, driven to their end by a function that answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator
from typing import Any

from fedassay.protocol.vocabulary import Part, Query, Released, Step

Asked = list[tuple[Query[Any], ...]]


def finished(
    flow: Generator[Step, Any, Any], answered: Callable[[Query[Any], int], Released[Any]]
) -> tuple[Any, Asked]:
    """What a flow returns, and the queries of each step; no part of the rows is asked for more than the budget."""
    asked: Asked = []
    reply = None
    while True:
        try:
            step = flow.send(reply)
        except StopIteration as end:
            shares: Counter[Part] = Counter()
            for query in (query for queries in asked for query in queries):
                shares[query.part] += query.share
            assert max(shares.values()) <= 1 + 1e-9
            return end.value, asked
        queries = step if isinstance(step, tuple) else (step,)
        replies = tuple(answered(query, len(asked)) for query in queries)
        asked.append(queries)
        reply = replies if isinstance(step, tuple) else replies[0]
