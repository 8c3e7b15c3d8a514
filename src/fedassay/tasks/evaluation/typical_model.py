"""Model of logits that a plan assumes, and hypothetical clients that have its rows.

True logits are u = spread·N(0, 1), independent over classes; the class is drawn from softmax(u); the model outputs
T·u. So the best temperature is T, a `temperature` above 1 is an over-confident model, and the spread determines its
accuracy. Seeds are fixed and public: nothing here depends on any site's data.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from fedassay.protocol.vocabulary import Batch, Query, Released, Setting, Summary, Vector
from fedassay.tasks.expectation import Expectation

_MOST_ROWS, _FEWEST_ROWS, _MOST_LOGITS = 4_000, 1_000, 1_000_000
"""Largest and smallest number of rows of all typical clients together, and largest number of logits."""

_FEWEST_CLIENTS, _MOST_CLIENTS = 8, 400
_SEED, _HELD_OUT_SEED, _ACCURACY_SEED = 7001, 7002, 7003


@dataclass(frozen=True, kw_only=True)
class TypicalModel:
    """Assumed model; see the module.

    Examples
    --------
    >>> model = TypicalModel(classes=10, accuracy=0.8, temperature=1.5)
    >>> rows = model.drawn(4000, seed=1)
    >>> bool(abs((rows["logits"].argmax(axis=1) == rows["class"]).mean() - 0.8) < 0.03)
    True
    """

    classes: int
    accuracy: float
    temperature: float

    @classmethod
    def of(cls, expectation: Expectation, task: str, classes: int | None = None) -> TypicalModel:
        """Return the expected model; a task may know the number of classes."""
        if classes is not None:
            expectation = replace(expectation, classes=classes)
        return cls(**expectation.known(task, "classes", "accuracy", "temperature"))

    def drawn(self, rows: int, seed: int) -> dict[str, NDArray[Any]]:
        """Draw rows of the model."""
        rng = np.random.default_rng(seed)
        u = _spread(self) * rng.normal(size=(rows, self.classes))
        y = (u + rng.gumbel(size=u.shape)).argmax(axis=1)
        return {"logits": self.temperature * u, "class": y.astype(np.int64)}

    @property
    def rows_drawn(self) -> int:
        """Number of rows that are drawn to represent any number of rows."""
        return max(_FEWEST_ROWS, min(_MOST_ROWS, _MOST_LOGITS // self.classes))

    @property
    def most_each(self) -> int:
        """Largest number of rows of one of `TypicalClients`."""
        return self.rows_drawn // _FEWEST_CLIENTS


@dataclass(frozen=True, kw_only=True)
class TypicalRows:
    """Columns in memory."""

    columns: Mapping[str, NDArray[Any]] = field(repr=False)

    def batches(self) -> Iterator[Batch]:
        """Yield all rows at once."""
        yield self.columns


@dataclass(frozen=True, kw_only=True)
class TypicalClients:
    """Clients with `each` rows of a model, at most `TypicalModel.most_each`.

    A few hundred stand for any number.
    """

    model: TypicalModel
    each: int

    @property
    def rows(self) -> tuple[TypicalRows, ...]:
        """Rows of each client."""
        return _rows_of(self)

    def total(self, summary: Summary[Any], clients: float) -> Vector:
        """Return the mean total of a summary over this number of clients."""
        return _whole(_total(self, summary) * (clients / len(self.rows)))


def held_out_total(model: TypicalModel, summary: Summary[Any], rows: float) -> Vector:
    """Return the mean total of an additive summary over `rows` rows, none of them of `TypicalClients`."""
    return _whole(_held_out(model, summary) * (rows / model.rows_drawn))


def held_out_release(model: TypicalModel, query: Query[Any], rows: float, setting: Setting) -> Released[Any]:
    """Return the expected answer of this number of rows: exact, with the law of the noise it would have."""
    value = query.of.read(held_out_total(model, query.of, rows))
    return Released(value=value, noise=setting.noise(query), clients=setting.clients)


def _whole(numbers: NDArray[np.floating[Any]]) -> Vector:
    return np.asarray(np.rint(numbers), dtype=np.int64)


@lru_cache(maxsize=8)
def _rows_of(clients: TypicalClients) -> tuple[TypicalRows, ...]:
    count = min(_MOST_CLIENTS, clients.model.rows_drawn // clients.each)
    drawn = clients.model.drawn(count * clients.each, _SEED)
    parts = zip(np.split(drawn["logits"], count), np.split(drawn["class"], count), strict=True)
    return tuple(TypicalRows(columns={"logits": z, "class": y}) for z, y in parts)


@lru_cache(maxsize=8)
def _held_out(model: TypicalModel, summary: Summary[Any]) -> Vector:
    drawn = TypicalRows(columns=model.drawn(model.rows_drawn, _HELD_OUT_SEED))
    return summary.measure(drawn, {})[0]


@lru_cache(maxsize=16)
def _total(clients: TypicalClients, summary: Summary[Any]) -> Vector:
    answers = (summary.measure(rows, {})[0] for rows in clients.rows)
    return sum(answers, np.zeros(summary.length, dtype=np.int64))


@lru_cache(maxsize=32)
def _spread(model: TypicalModel) -> float:
    """Find the spread of true logits by bisection: calibrated, so accuracy is the mean top probability."""
    rng = np.random.default_rng(_ACCURACY_SEED)
    z = rng.normal(size=(max(200, min(2_000, 400_000 // model.classes)), model.classes))
    low, high = 1e-3, 1e5
    while high > 1.001 * low:
        middle = math.sqrt(low * high)
        right = float(softmax(middle * z, axis=1).max(axis=1).mean())
        low, high = (middle, high) if right < model.accuracy else (low, middle)
    return high
