"""A client's part of a round as one vector of norm at most one: what noise for whole clients can cover.

A client's mean gradient g is shortened to the norm C, g' = g·min(1, C/|g|). What rounds then average is no longer the
gradient of the loss, and intervals must know it: where |g| > C the derivative of g' by the parameters is

    (C/|g|) (I - g gᵀ/|g|²) H,

H being the client's mean Hessian. That matrix is sent beside g', shortened to a public norm of its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedassay.errors import UsageError
from fedassay.protocol.arrays import Floats
from fedassay.protocol.vocabulary import (
    Memory,
    Neighbours,
    Protection,
    Rows,
    Sensitivity,
    Summary,
    Total,
    Unit,
    Vector,
)
from fedassay.summaries.regression.rounds import RoundFields

UNITS = 1 << 24
"""Whole numbers per unit of norm: rounding takes less than one of them from an entry."""

SLOPES = 0.3
"""Of the squared norm: for the derivative, where it is sent."""

_BELOW = 1 - 2.0**-40
"""A little less than the norm: more than what floating point can get wrong."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ClippedSums:
    """Sums over clients of g' and of its derivative (None where it was not sent), with noise.

    Noise of standard deviation σ in each entry of the released vector is σ·`units` in each of these, in this order.
    """

    gradient: Floats
    slopes: Floats | None
    units: tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class ClippedRound(RoundFields, Summary[ClippedSums]):
    """One round under noise. See `RoundFields`; clients take one step, and each weighs the same.

    Parameters
    ----------
    clip : C, the norm of a mean gradient that counts in full.
    slopes_clip : the Frobenius norm of a derivative that counts in full; 0 if none is sent.

    With r = 1 where no derivative is sent and √0.7 where one is: r·g'/C, and √0.3·(derivative)/(its clip), in units of
    2^-24, rounded toward zero.

    Sensitivity: both parts have norms of at most r and √0.3, so the vector is at most 1 away from that of a client
    without rows, which is zero, and at most 2 from any other.
    """

    name: ClassVar[str] = "clipped-round"
    additive: ClassVar[bool] = False

    clip: float
    slopes_clip: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.clip <= 2.0**20 or not 0 <= self.slopes_clip <= 2.0**20:
            raise UsageError(
                f"clip: got {self.clip:.3g} and {self.slopes_clip:.3g}, expected numbers above 0."
            )

    @property
    def columns(self) -> tuple[str, ...]:  # type: ignore[override]
        """See `Standard.roles`."""
        return self.roles

    @property
    def length(self) -> int:
        """The gradient, and its derivative."""
        p = len(self.theta)
        return p + (p * p if self.slopes_clip else 0)

    @property
    def largest(self) -> int:
        """The norm."""
        return UNITS

    @property
    def _parts(self) -> tuple[float, float]:
        """The norms of the two parts."""
        return (math.sqrt(1 - SLOPES), math.sqrt(SLOPES)) if self.slopes_clip else (1.0, 0.0)

    def measure(self, rows: Rows, memory: Memory) -> tuple[Vector, Memory]:
        """Zeros without rows."""
        work, used, _, kept = self.worked(rows, memory)
        if not used.rows:
            return np.zeros(self.length, dtype=np.int64), kept
        first, second = self._parts
        with np.errstate(all="ignore"):
            gradient, hessian = np.nan_to_num(work.gradient), np.nan_to_num(work.hessian)
            vector = [first * shortened(gradient, self.clip)]
            if self.slopes_clip:
                slopes = np.nan_to_num(derivative(gradient, hessian, self.clip))
                vector.append(second * shortened(slopes.reshape(-1), self.slopes_clip))
        return np.trunc(np.concatenate(vector) * (UNITS * _BELOW)).astype(np.int64), kept

    def sensitivity(self, protection: Protection) -> Sensitivity:
        """See the class."""
        # One row more can turn a client's vector round: then it is as if the client were replaced.
        away = protection.unit is Unit.CLIENT and protection.neighbours is Neighbours.ADD_REMOVE
        norm = float(UNITS if away else 2 * UNITS)
        return Sensitivity(l1=norm * math.sqrt(self.length), l2=norm)

    def read(self, total: Total) -> ClippedSums:
        """The sums."""
        p = len(self.theta)
        first, second = self._parts
        values = np.asarray(total, dtype=np.float64)
        units = (self.clip / (UNITS * first), self.slopes_clip / (UNITS * second) if second else 0.0)
        slopes = values[p:].reshape(p, p) * units[1] if second else None
        return ClippedSums(gradient=values[:p] * units[0], slopes=slopes, units=units)


def shortened(vector: Floats, clip: float) -> Floats:
    """Vectors (the last axis) divided by the clip, with norms of at most one, whatever their size."""
    largest = np.abs(vector).max(axis=-1, keepdims=True, initial=0.0)
    scaled = vector / np.where(largest > 0, largest, 1.0)
    norm = np.linalg.norm(scaled, axis=-1, keepdims=True)  # 0, or between 1 and √length: nothing overflows
    return np.asarray(scaled / np.where(norm > 0, norm, 1.0) * np.minimum(1.0, largest * norm / clip))


def derivative(gradient: Floats, hessian: Floats, clip: float) -> Floats:
    """Of the shortened gradient by the parameters; leading axes as in `regression.losses`."""
    norm = np.linalg.norm(gradient, axis=-1)[..., None, None]
    along = gradient[..., None, :] / np.where(norm > 0, norm, 1.0)
    across = hessian - np.swapaxes(along, -1, -2) @ (along @ hessian)
    return np.asarray(np.where(norm > clip, clip / np.where(norm > 0, norm, 1.0) * across, hessian))
