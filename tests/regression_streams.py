"""Rounds of federated averaging without messages: clients that remember, cohorts that are drawn."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any

import numpy as np

from conformal_drive import Columns
from fedassay.data.tables import ArrayRows
from fedassay.protocol import wire
from fedassay.protocol.vocabulary import NO_NOISE, Draw, Memory, Released, Step, Sum


class Stream:
    """Clients that answer sums, each with a memory that passes through bytes after every answer."""

    def __init__(self, clients: Sequence[Columns], *, seed: int = 0) -> None:
        self.clients, self.rng = clients, np.random.default_rng(seed)
        self.memories: list[Memory] = [{} for _ in clients]
        self.asked: list[Sum[Any]] = []
        self.answers: list[Released[Any]] = []

    def answer(self, query: Sum[Any]) -> Released[Any]:
        """What the clients of this query's cohort release."""
        everyone = np.arange(len(self.clients))
        who = everyone
        if isinstance(query.cohort, Draw):
            who = self.rng.choice(everyone, size=query.cohort.clients, replace=False)
        total = np.zeros(query.of.length, dtype=np.int64)
        for place in who:
            rows = ArrayRows(columns=self.clients[place])
            vector, kept = query.of.measure(rows, self.memories[place])
            self.memories[place] = wire.decode(wire.encode(dict(kept)))
            total = total + vector
        self.asked.append(query)
        self.answers.append(Released(value=query.of.read(total), noise=NO_NOISE, clients=len(who)))
        return self.answers[-1]

    def drive(self, steps: Generator[Step, Any, Any]) -> Any:
        """What the steps return."""
        return answered(steps, self.answer)


def answered(steps: Generator[Step, Any, Any], answer: Callable[[Sum[Any]], Released[Any]]) -> Any:
    """What steps return; they ask for nothing but sums, within the budget."""
    reply, spent = None, 0.0
    while True:
        try:
            query = steps.send(reply)
        except StopIteration as finished:
            return finished.value
        assert isinstance(query, Sum)
        spent += query.share
        assert spent <= 1 + 1e-9
        reply = answer(query)
