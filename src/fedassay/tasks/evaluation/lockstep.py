"""Several flows of queries as one: what they ask at the same time shares a round trip."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from fedassay.protocol.vocabulary import Query, Step

Flow = Generator[Step, Any, dict[str, Any]]
"""A part of a task: yields steps as a task does and returns its part of the results."""


def together(*flows: Flow) -> Generator[Step, Any, list[dict[str, Any]]]:
    """Run the flows in lockstep until all have returned; what each of them returned.

    Each flow is sent exactly what it asked for, a release for a query and a tuple for a tuple.
    """
    returned: list[dict[str, Any]] = [{} for _ in flows]
    waiting: dict[int, Step] = {}

    def go_on(place: int, answer: Any) -> None:
        try:
            waiting[place] = flows[place].send(answer)
        except StopIteration as finished:
            waiting.pop(place, None)
            returned[place] = finished.value

    for place in range(len(flows)):
        go_on(place, None)
    while waiting:
        asked = dict(waiting)
        answers = iter((yield tuple(query for step in asked.values() for query in _queries(step))))
        for place, step in asked.items():
            mine = tuple(next(answers) for _ in _queries(step))
            go_on(place, mine if isinstance(step, tuple) else mine[0])
    return returned


def _queries(step: Step) -> tuple[Query[Any], ...]:
    return step if isinstance(step, tuple) else (step,)
