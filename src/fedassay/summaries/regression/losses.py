"""Losses that regressions minimise, with their derivatives, for one row or many at once.

Arrays may have any leading axes (replications, clients): the last axis of `theta` holds parameters, the last two of
`x` are rows and features. What is summed over rows is therefore the same code in a federation and in a simulation of a
thousand of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import expit

from fedassay.errors import UsageError
from fedassay.protocol.arrays import Floats


@dataclass(frozen=True, kw_only=True, eq=False)
class Design:
    """Rows of a regression: `x` (.., rows, features), `y` and `offset` (.., rows).

    Examples
    --------
    >>> Design.of([[1.0, 2.0]], [1.0]).offset
    array([0.])
    """

    x: Floats
    y: Floats
    offset: Floats

    @classmethod
    def of(cls, x: object, y: object, offset: object = None) -> Design:
        """Build a design from arrays or lists; without an offset it is zero."""
        rows = np.asarray(x, dtype=np.float64)
        target = np.asarray(y, dtype=np.float64)
        added = np.zeros_like(target) if offset is None else np.asarray(offset, dtype=np.float64)
        return cls(x=rows, y=target, offset=added)

    @property
    def rows(self) -> int:
        """Number of rows (in each of the leading axes)."""
        return int(self.x.shape[-2])

    @property
    def features(self) -> int:
        """Number of features of each row."""
        return int(self.x.shape[-1])

    def take(self, index: object) -> Design:
        """Return the rows at these places."""
        return Design(x=self.x[..., index, :], y=self.y[..., index], offset=self.offset[..., index])  # type: ignore[index]


class SmoothLoss(ABC):
    """A loss of one row with two derivatives by the parameters; subclass it to fit a model of your own.

    Assumed: convex near its optimum, with derivatives that are finite wherever parameters and rows are. Nothing of it
    ever travels: a loss that is not in `LOSSES` works where one process holds all clients.
    """

    name: ClassVar[str]
    standardises: ClassVar[bool] = False
    """True if features may be shifted and scaled, and parameters translated back: where only x·theta matters."""
    quadratic: ClassVar[bool] = False
    """True if the loss is a parabola in the parameters."""

    def parameters(self, features: int) -> int:
        """Return the number of parameters; as many as features, by default."""
        return features

    def problem(self, y: Floats) -> str | None:
        """Describe what is wrong with these targets, in words that complete "target: got ..", or return None."""
        return None

    @abstractmethod
    def losses(self, theta: Floats, rows: Design) -> Floats:
        """Return the loss of each row: (.., rows)."""

    @abstractmethod
    def gradients(self, theta: Floats, rows: Design) -> Floats:
        """Return the derivatives by the parameters, of each row: (.., rows, parameters)."""

    @abstractmethod
    def hessians(self, theta: Floats, rows: Design) -> Floats:
        """Return the second derivatives, of each row: (.., rows, parameters, parameters)."""

    # Sums over many rows, without a matrix for each row where that is possible.

    def gradient_sum(self, theta: Floats, rows: Design, weight: Floats) -> Floats:
        """Sum gradients, weighted, over rows: (.., parameters)."""
        return np.asarray(np.einsum("...n,...np->...p", weight, self.gradients(theta, rows)))

    def hessian_sum(self, theta: Floats, rows: Design, weight: Floats) -> Floats:
        """Sum Hessians, weighted, over rows: (.., parameters, parameters)."""
        return np.asarray(np.einsum("...n,...npq->...pq", weight, self.hessians(theta, rows)))

    def hessian_products(self, theta: Floats, rows: Design, weight: Floats, vector: Floats) -> Floats:
        """Return the weighted sum of Hessians, times a vector: (.., parameters)."""
        return np.asarray((self.hessian_sum(theta, rows, weight) @ vector[..., None])[..., 0])


class IndexLoss(SmoothLoss):
    """A loss of y and u = x·theta + offset alone, as in generalised linear models.

    A subclass gives the loss and its first two derivatives by u.
    """

    standardises: ClassVar[bool] = True

    @abstractmethod
    def value(self, u: Floats, y: Floats) -> Floats:
        """Return the loss."""

    @abstractmethod
    def first(self, u: Floats, y: Floats) -> Floats:
        """Return the derivative of the loss by u."""

    @abstractmethod
    def second(self, u: Floats, y: Floats) -> Floats:
        """Return the second derivative of the loss by u."""

    @staticmethod
    def index(theta: Floats, rows: Design) -> Floats:
        """Return u, for each row."""
        return np.asarray((rows.x @ theta[..., None])[..., 0] + rows.offset)

    def losses(self, theta: Floats, rows: Design) -> Floats:
        """See `SmoothLoss`."""
        return self.value(self.index(theta, rows), rows.y)

    def gradients(self, theta: Floats, rows: Design) -> Floats:
        """See `SmoothLoss`."""
        return np.asarray(self.first(self.index(theta, rows), rows.y)[..., None] * rows.x)

    def hessians(self, theta: Floats, rows: Design) -> Floats:
        """See `SmoothLoss`."""
        second = self.second(self.index(theta, rows), rows.y)
        return np.asarray(second[..., None, None] * rows.x[..., :, None] * rows.x[..., None, :])

    def gradient_sum(self, theta: Floats, rows: Design, weight: Floats) -> Floats:
        """See `SmoothLoss`."""
        first = weight * self.first(self.index(theta, rows), rows.y)
        return np.asarray((first[..., None, :] @ rows.x)[..., 0, :])

    def hessian_sum(self, theta: Floats, rows: Design, weight: Floats) -> Floats:
        """See `SmoothLoss`."""
        second = weight * self.second(self.index(theta, rows), rows.y)
        return np.asarray(np.swapaxes(rows.x, -1, -2) @ (second[..., None] * rows.x))

    def hessian_products(self, theta: Floats, rows: Design, weight: Floats, vector: Floats) -> Floats:
        """See `SmoothLoss`."""
        second = weight * self.second(self.index(theta, rows), rows.y)
        along = second * (rows.x @ vector[..., None])[..., 0]
        return np.asarray((along[..., None, :] @ rows.x)[..., 0, :])


class SquaredError(IndexLoss):
    """Linear regression: half the squared error.

    Examples
    --------
    >>> SquaredError().gradients(np.array([1.0, 1.0]), Design.of([[1.0, 2.0]], [1.0]))
    array([[2., 4.]])
    """

    name: ClassVar[str] = "linear"
    quadratic: ClassVar[bool] = True

    def value(self, u: Floats, y: Floats) -> Floats:
        """See `IndexLoss`."""
        return np.asarray((u - y) ** 2 / 2)

    def first(self, u: Floats, y: Floats) -> Floats:
        """See `IndexLoss`."""
        return np.asarray(u - y)

    def second(self, u: Floats, y: Floats) -> Floats:
        """See `IndexLoss`."""
        return np.ones_like(u)


class LogLoss(IndexLoss):
    """Logistic regression: the log loss of P(y = 1) = 1/(1 + exp(-u)).

    Examples
    --------
    >>> LogLoss().gradients(np.array([0.0]), Design.of([[2.0]], [1.0]))
    array([[-1.]])
    """

    name: ClassVar[str] = "logistic"

    def problem(self, y: Floats) -> str | None:
        """Describe a label other than 0 and 1, or return None."""
        other = y[(y != 0) & (y != 1)]
        return f"{other[0]:g}, expected 0 or 1 in every row" if other.size else None

    def value(self, u: Floats, y: Floats) -> Floats:
        """See `IndexLoss`."""
        return np.asarray(np.logaddexp(0.0, u) - y * u)

    def first(self, u: Floats, y: Floats) -> Floats:
        """See `IndexLoss`."""
        return np.asarray(expit(u) - y)

    def second(self, u: Floats, y: Floats) -> Floats:
        """See `IndexLoss`."""
        return np.asarray(expit(u) * expit(-u))


LOSSES: Mapping[str, SmoothLoss] = {loss.name: loss for loss in (SquaredError(), LogLoss())}
"""Losses that every site knows by name."""

_LENT: dict[str, SmoothLoss] = {}


def loss_of(name: str) -> SmoothLoss:
    """Return the loss of this name: one that every site knows, or one that this process has lent.

    Examples
    --------
    >>> loss_of("probit")
    Traceback (most recent call last):
    fedassay.errors.UsageError: model: got 'probit', expected one of linear, logistic.
    """
    found = LOSSES.get(name) or _LENT.get(name)
    if found is None:
        raise UsageError(f"model: got {name!r}, expected one of {', '.join(LOSSES)}.")
    return found


@contextmanager
def lent(loss: SmoothLoss) -> Iterator[str]:
    """Make a custom loss known in this process, under its name, as long as the block lasts."""
    if LOSSES.get(loss.name) is loss:
        yield loss.name
        return
    if loss.name in LOSSES or loss.name in _LENT:
        raise UsageError(f"model: got a loss named {loss.name!r}, which is taken; give it another name.")
    _LENT[loss.name] = loss
    try:
        yield loss.name
    finally:
        del _LENT[loss.name]
