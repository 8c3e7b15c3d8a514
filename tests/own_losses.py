"""Losses that a user might write."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedassay import IndexLoss, SmoothLoss


class PoissonLoss(IndexLoss):
    """Minus the log-likelihood of counts with mean exp(u), up to a constant."""

    name = "poisson"

    def problem(self, y: Any) -> str | None:
        return f"{y.min():g}, expected counts from 0" if (y < 0).any() else None

    def value(self, u: Any, y: Any) -> Any:
        return np.exp(u) - y * u

    def first(self, u: Any, y: Any) -> Any:
        return np.exp(u) - y

    def second(self, u: Any, y: Any) -> Any:
        return np.exp(u)


class ExponentialSquares(SmoothLoss):
    """Half the squared error of exp(x·theta + offset), of which nothing else is said."""

    name = "exponential-squares"

    def losses(self, theta: Any, rows: Any) -> Any:
        return (self.mean(theta, rows) - rows.y) ** 2 / 2

    def gradients(self, theta: Any, rows: Any) -> Any:
        m = self.mean(theta, rows)
        return ((m - rows.y) * m)[..., None] * rows.x

    def hessians(self, theta: Any, rows: Any) -> Any:
        m = self.mean(theta, rows)
        return ((2 * m - rows.y) * m)[..., None, None] * rows.x[..., :, None] * rows.x[..., None, :]

    @staticmethod
    def mean(theta: Any, rows: Any) -> Any:
        return np.exp((rows.x @ theta[..., None])[..., 0] + rows.offset)
