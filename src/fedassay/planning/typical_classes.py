"""What a plan assumes of a model with several classes, and clients that do not exist but have its rows.

True logits are u = spread·N(0, 1), independent over classes; the class is drawn from softmax(u); the model says T·u. So
the best temperature is T, a `temperature` above 1 is a model that is too sure of itself, and the spread decides how
often the model is right. Seeds are fixed and public: nothing here depends on anybody's data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from fedassay.data.rows import ArrayRows
from fedassay.data.schema import CLASS, LOGITS
from fedassay.errors import UsageError
from fedassay.planning.expectation import Size
from fedassay.protocol import Summary, Vector
from fedassay.summaries.multiclass.probabilities import checked_classes

ACCURACY, TEMPERATURE = 0.8, 1.5
HIGHEST_ACCURACY = 0.999
COLDEST, HOTTEST = 0.1, 10.0

_MOST_ROWS, _FEWEST_ROWS, _MOST_LOGITS = 4_000, 1_000, 1_000_000
"""Rows of all typical clients together: so many, or fewer of many classes."""

_FEWEST_CLIENTS, _MOST_CLIENTS = 8, 400
_SEED, _HELD_OUT_SEED, _ACCURACY_SEED = 7001, 7002, 7003


@dataclass(frozen=True, kw_only=True)
class TypicalModel:
    """A model as it is assumed to be; see the module.

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

    def drawn(self, rows: int, seed: int) -> dict[str, NDArray[Any]]:
        """So many rows of it."""
        rng = np.random.default_rng(seed)
        u = _spread(self) * rng.normal(size=(rows, self.classes))
        y = (u + rng.gumbel(size=u.shape)).argmax(axis=1)
        return {LOGITS: self.temperature * u, CLASS: y.astype(np.int64)}

    @property
    def rows_drawn(self) -> int:
        """How many rows stand for any number of them."""
        return max(_FEWEST_ROWS, min(_MOST_ROWS, _MOST_LOGITS // self.classes))

    @property
    def most_each(self) -> int:
        """The most rows of one of `TypicalClients`."""
        return self.rows_drawn // _FEWEST_CLIENTS


@dataclass(frozen=True, kw_only=True)
class ClassExpectation(Size):
    """So many rows at so many clients of equal size, of a model with so many classes that is right so often.

    Parameters
    ----------
    accuracy : how often the most probable class is the true one.
    temperature : the best one, before anybody knows it: 1.5 says that the model is too sure of itself, by as much as
        networks often are.

    Examples
    --------
    >>> ClassExpectation(rows=5000, clients=100, classes=10).model.temperature
    1.5
    """

    classes: int
    accuracy: float = ACCURACY
    temperature: float = TEMPERATURE

    def __post_init__(self) -> None:
        super().__post_init__()
        checked_classes(self.classes)
        if not 1 / self.classes < self.accuracy <= HIGHEST_ACCURACY:
            raise UsageError(
                f"accuracy: got {self.accuracy:g}, expected a number above {1 / self.classes:.3g}, which is guessing "
                f"among {self.classes} classes, up to {HIGHEST_ACCURACY:g}."
            )
        if not COLDEST <= self.temperature <= HOTTEST:
            raise UsageError(
                f"temperature: got {self.temperature:g}, expected a number from {COLDEST:g} to {HOTTEST:g}; above 1 "
                "for a model that is too sure of itself."
            )

    def with_rows(self, rows: float) -> Self:
        """More or fewer clients of the same size, at least one: about so many rows."""
        each = self.rows / self.clients
        clients = max(1, math.floor(rows / each))
        return replace(self, rows=clients * each, clients=clients)

    @property
    def model(self) -> TypicalModel:
        """What is assumed of the model."""
        return TypicalModel(classes=self.classes, accuracy=self.accuracy, temperature=self.temperature)


@dataclass(frozen=True, kw_only=True)
class TypicalClients:
    """Clients with `each` rows of a model, at most `TypicalModel.most_each`. A few hundred stand for any number."""

    model: TypicalModel
    each: int

    @property
    def rows(self) -> tuple[ArrayRows, ...]:
        """Of each of them."""
        return _rows_of(self)

    def total(self, summary: Summary[Any], clients: float) -> Vector:
        """What so many such clients measure together, on average."""
        return _whole(_total(self, summary) * (clients / len(self.rows)))


def held_out_total(model: TypicalModel, summary: Summary[Any], rows: float) -> Vector:
    """What so many rows add up to in an additive summary, on average; other rows than those of `TypicalClients`."""
    return _whole(_held_out(model, summary) * (rows / model.rows_drawn))


def _whole(numbers: NDArray[np.floating[Any]]) -> Vector:
    return np.asarray(np.rint(numbers), dtype=np.int64)


@lru_cache(maxsize=8)
def _rows_of(clients: TypicalClients) -> tuple[ArrayRows, ...]:
    count = min(_MOST_CLIENTS, clients.model.rows_drawn // clients.each)
    drawn = clients.model.drawn(count * clients.each, _SEED)
    parts = zip(np.split(drawn[LOGITS], count), np.split(drawn[CLASS], count), strict=True)
    return tuple(ArrayRows(columns={LOGITS: z, CLASS: y}) for z, y in parts)


@lru_cache(maxsize=8)
def _held_out(model: TypicalModel, summary: Summary[Any]) -> Vector:
    drawn = ArrayRows(columns=model.drawn(model.rows_drawn, _HELD_OUT_SEED))
    return summary.measure(drawn, {})[0]


@lru_cache(maxsize=16)
def _total(clients: TypicalClients, summary: Summary[Any]) -> Vector:
    answers = (summary.measure(rows, {})[0] for rows in clients.rows)
    return sum(answers, np.zeros(summary.length, dtype=np.int64))


@lru_cache(maxsize=32)
def _spread(model: TypicalModel) -> float:
    """Of the true logits: calibrated, so that the accuracy is the mean of the largest probability. By bisection."""
    rng = np.random.default_rng(_ACCURACY_SEED)
    z = rng.normal(size=(max(200, min(2_000, 400_000 // model.classes)), model.classes))
    low, high = 1e-3, 1e5
    while high > 1.001 * low:
        middle = math.sqrt(low * high)
        right = float(softmax(middle * z, axis=1).max(axis=1).mean())
        low, high = (middle, high) if right < model.accuracy else (low, middle)
    return high
