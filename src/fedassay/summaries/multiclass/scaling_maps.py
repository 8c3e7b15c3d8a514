"""Maps that scale logits and take the softmax: one factor, one for each class, a matrix, one for each rank.

A multiclass calibrator is a map from logits to probabilities.

A map is made of plain numbers: it is written to JSON and read back bit for bit, and applying it executes no code from
the file. Finite logits of any size become probabilities that add up to one; a logit beyond ±2^20 counts as ±2^20,
in predictions as in fits. Every map is determined by its kind, the number of classes and `theta`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from fedassay.errors import DataError, UsageError
from fedassay.protocol.arrays import Floats
from fedassay.summaries.maps import PlainMap, numbers
from fedassay.summaries.multiclass.losses import (
    LEAST_SLOPE,
    blocks,
    falling_gaps,
    padded,
    product,
    suffix_sums,
)
from fedassay.summaries.scored import MOST_CLASSES, whole

# --- multiclass calibration maps ----------------------------------------------------------------------------


class LogitMap(PlainMap, ABC):
    """Function from logits to probabilities. A field `classes` is their number, the others are its parameters."""

    @property
    @abstractmethod
    def width(self) -> int:
        """Number of classes, c."""

    @property
    def theta(self) -> Floats:
        """Parameters in the order of the fields, as in `summaries.multiclass.losses`."""
        parameters = [np.ravel(value) for name, value in self._fields().items() if name != "classes"]
        return np.concatenate(parameters, dtype=np.float64)

    @classmethod
    @abstractmethod
    def of(cls, theta: Floats, classes: int) -> Self:
        """Build the map with these parameters."""

    @property
    def keeps_order(self) -> bool:
        """True if the map surely keeps the order of the classes of each row, so that no accuracy is lost or won."""
        return False

    @abstractmethod
    def _weights(self, z: Floats) -> Floats:
        """Return multiples of the probabilities of a block (classes first); the largest of each row is one."""

    def predict_proba(self, logits: ArrayLike) -> Floats:
        """Compute calibrated probabilities, n x c, one row for each row of logits.

        Raises `DataError` for another number of classes, and for logits that are NaN or infinite.
        """
        z = np.asarray(logits)
        if z.ndim != 2 or z.shape[1] != self.width:
            raise DataError(f"logits: got an array of shape {z.shape}, expected rows x {self.width} classes.")
        p = np.empty(z.shape)
        for part, block in blocks(z):
            e = self._weights(padded(block))
            p[part] = (e / e.sum(axis=0))[:, : block.shape[1]].T
        return p


def as_many(what: str, given: Any, classes: int) -> None:
    """Raise unless there is one for each class."""
    if len(given) != classes:
        raise UsageError(f"map: got {len(given)} {what} for {classes} classes, expected one for each.")


# --- maps that scale logits and take the softmax ------------------------------------------------------------


def exponentials(u: Floats) -> Floats:
    """Return what the softmax of a block (classes first) is proportional to; the largest of each row is one."""
    return np.asarray(np.exp(u - u.max(axis=0)))


def stretched(z: Floats, factors: Callable[[Floats], Floats]) -> Floats:
    """Return `exponentials` of logits whose gaps are stretched by factors of the sorted logits, largest first.

    Guarantee: for positive factors no class gets ahead of another, in floating point too.
    """
    order = np.argsort(-z, axis=0)
    falling = np.take_along_axis(z, order, axis=0)
    u = suffix_sums(falling_gaps(falling) * factors(falling))
    # Exponential functions are exact to a digit, not monotone to the last digit: what would rise is held down.
    e = np.minimum.accumulate(np.exp(u - u[0]), axis=0)
    back = np.empty_like(e)
    np.put_along_axis(back, order, e, axis=0)
    return back


@dataclass(frozen=True, kw_only=True)
class Temperature(LogitMap):
    """softmax(s z), with s the inverse temperature.

    s below 0 turns the ranking round: the pooled optimum of a model whose largest logits are of the wrong classes.

    Reference: Guo, Pleiss, Sun and Weinberger, On Calibration of Modern Neural Networks, 2017, Section 4.2.

    Examples
    --------
    >>> Temperature(inverse_temperature=2.0, classes=2).predict_proba(np.log([[0.5, 0.5], [0.75, 0.25]])).round(6)
    array([[0.5, 0.5],
           [0.9, 0.1]])
    """

    kind: ClassVar[str] = "temperature"

    inverse_temperature: float
    classes: int

    def __post_init__(self) -> None:
        whole(self.classes, what="classes", least=2, most=MOST_CLASSES)
        (s,) = numbers("inverse_temperature", [self.inverse_temperature])
        object.__setattr__(self, "inverse_temperature", s)

    @property
    def width(self) -> int:
        """Number of classes; see `LogitMap`."""
        return self.classes

    @classmethod
    def of(cls, theta: Floats, classes: int) -> Self:
        """Build the map; see `LogitMap`."""
        return cls(inverse_temperature=float(theta[0]), classes=classes)

    def _weights(self, z: Floats) -> Floats:
        return exponentials(z * self.inverse_temperature)

    @property
    def keeps_order(self) -> bool:
        """True for a positive inverse temperature; see `LogitMap`."""
        return self.inverse_temperature > 0


@dataclass(frozen=True, kw_only=True)
class VectorScaling(LogitMap):
    """softmax(a * z + b), with a slope and an intercept for each class.

    Reference: Guo, Pleiss, Sun and Weinberger, On Calibration of Modern Neural Networks, 2017, Section 4.2.

    Examples
    --------
    >>> vector = VectorScaling(slopes=(1.0, 1.0), intercepts=(0.0, float(np.log(3))))
    >>> vector.predict_proba([[0.0, 0.0]])
    array([[0.25, 0.75]])
    """

    kind: ClassVar[str] = "vector"

    slopes: tuple[float, ...]
    intercepts: tuple[float, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "slopes", numbers("slopes", self.slopes))
        object.__setattr__(self, "intercepts", numbers("intercepts", self.intercepts))
        whole(len(self.slopes), what="classes", least=2, most=MOST_CLASSES)
        as_many("intercepts", self.intercepts, len(self.slopes))

    @property
    def width(self) -> int:
        """Number of classes; see `LogitMap`."""
        return len(self.slopes)

    @classmethod
    def of(cls, theta: Floats, classes: int) -> Self:
        """Build the map; see `LogitMap`."""
        slopes, intercepts = np.split(theta, 2)
        return cls(slopes=tuple(slopes.tolist()), intercepts=tuple(intercepts.tolist()))

    def _weights(self, z: Floats) -> Floats:
        return exponentials(np.array(self.slopes)[:, None] * z + np.array(self.intercepts)[:, None])


@dataclass(frozen=True, kw_only=True)
class MatrixScaling(LogitMap):
    """softmax(A z + b); `weights` are the rows of A.

    Reference: Guo, Pleiss, Sun and Weinberger, On Calibration of Modern Neural Networks, 2017, Section 4.2.

    Examples
    --------
    >>> matrix = MatrixScaling(weights=((0.0, 1.0), (1.0, 0.0)), intercepts=(0.0, 0.0))
    >>> matrix.predict_proba(np.log([[0.75, 0.25]])).round(6)
    array([[0.25, 0.75]])
    """

    kind: ClassVar[str] = "matrix"

    weights: tuple[tuple[float, ...], ...]
    intercepts: tuple[float, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "intercepts", numbers("intercepts", self.intercepts))
        whole(len(self.intercepts), what="classes", least=2, most=MOST_CLASSES)
        if not isinstance(self.weights, list | tuple):
            raise UsageError("map: weights are not a list of rows.")
        as_many("weights", self.weights, len(self.intercepts))
        rows = tuple(numbers("weights", row) for row in self.weights)
        for row in rows:
            as_many("weights of a class", row, len(rows))
        object.__setattr__(self, "weights", rows)

    @property
    def width(self) -> int:
        """Number of classes; see `LogitMap`."""
        return len(self.intercepts)

    @classmethod
    def of(cls, theta: Floats, classes: int) -> Self:
        """Build the map; see `LogitMap`."""
        rows = theta[: classes**2].reshape(classes, classes)
        return cls(weights=tuple(map(tuple, rows.tolist())), intercepts=tuple(theta[classes**2 :].tolist()))

    def _weights(self, z: Floats) -> Floats:
        return exponentials(product(np.array(self.weights), z) + np.array(self.intercepts)[:, None])


@dataclass(frozen=True, kw_only=True)
class OrderPreserving(LogitMap):
    """Softmax of logits whose gaps, from the largest to the smallest, are stretched by one factor for each rank.

    Guarantee: whatever the factors are (all at least 1e-6), no ranking changes. A class whose logit is at least that of
    another class gets at least its probability, and equal logits get equal probabilities, in floating point too.
    Different logits can get equal probabilities if floating point cannot tell them apart (far below the largest, or
    closer than 1e-16).

    Reference: Rahimi, Shaban, Cheng, Hartley and Boots, Intra Order-Preserving Functions for Calibration of Multi-Class
    Neural Networks, 2020, Theorem 1. The last factor would only shift all classes: it has no effect.

    Examples
    --------
    >>> z = np.array([[0.0, np.log(2), np.log(2)]])
    >>> OrderPreserving(slopes=(5.0, 2.0, 1.0)).predict_proba(z).round(6)
    array([[0.111111, 0.444444, 0.444444]])
    """

    kind: ClassVar[str] = "order-preserving"

    slopes: tuple[float, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "slopes", numbers("slopes", self.slopes, least=LEAST_SLOPE))
        whole(len(self.slopes), what="classes", least=2, most=MOST_CLASSES)

    @property
    def width(self) -> int:
        """Number of classes; see `LogitMap`."""
        return len(self.slopes)

    @classmethod
    def of(cls, theta: Floats, classes: int) -> Self:
        """Build the map; see `LogitMap`."""
        return cls(slopes=tuple(theta.tolist()))

    def _weights(self, z: Floats) -> Floats:
        return stretched(z, lambda falling: np.array(self.slopes)[:, None])

    @property
    def keeps_order(self) -> bool:
        """True; see `LogitMap`."""
        return True
