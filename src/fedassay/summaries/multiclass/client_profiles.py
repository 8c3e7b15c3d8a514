"""What one client's rows say about a temperature and about shifts of the classes, in one vector of norm at most one.

Three things, each bounded by itself: the direction of the client's loss curve (`LossCurves`), the mean of p - e_y over
its rows (how much too probable each class is), and how uncertain its probabilities are, which says how far a shift of
the logits moves them. Noise for a vector of norm one then covers all of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedassay.protocol import (
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
from fedassay.summaries.multiclass.loss_curves import CLIENT, UNITS, Curves, LossCurves
from fedassay.summaries.multiclass.probabilities import predicted

Floats = NDArray[np.float64]

PARTS = (0.4, 0.5, 0.1)
"""Of the squared norm: for the curve, the excess of each class, and the uncertainty."""

LARGEST_EXCESS = 0.05
"""The norm of the mean of p - e_y to which clients are clipped: classes that are 1 % too probable matter."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Profiles:
    """Sums over clients, each weighing at most one.

    `curves` are the sums of directions; `excess` the sums of the clipped means of p - e_y, by class; `uncertainty` the
    sum of the roots of the means of 1 - Σ p². Noise of standard deviation σ in each entry of the released vector is
    `units`·σ in each of these, in this order.
    """

    curves: Curves
    excess: Floats
    uncertainty: float
    units: tuple[float, float, float]


@dataclass(frozen=True, kw_only=True)
class ClientProfiles(Summary[Profiles]):
    """The profile of each client, added up.

    Parameters
    ----------
    classes : c, public. Rows with another number of logits count for nothing.
    grid : inverse temperatures of the curve, rising, above 0.
    full_rows : a client with fewer rows than this counts for less.

    With w = min(1, rows/`full_rows`): √0.4·w·(direction of the curve), √0.5·w·(mean of p - e_y, clipped to a norm of
    0.05)/0.05, √0.1·w·√(mean of 1 - Σ p²), in units of 2^-24, rounded toward zero.

    Sensitivity: the three parts have norms of at most √0.4, √0.5 and √0.1, so the vector is at most 1 away from that of
    a client without rows, which is zero, and at most 2 from any other.

    Examples
    --------
    >>> class TenRows:
    ...     def batches(self):
    ...         yield {"logits": np.log([[0.75, 0.25]] * 10), "class": np.array([0] * 10)}
    >>> summary = ClientProfiles(classes=2, grid=(0.5, 1.0, 2.0))
    >>> profiles = summary.read(summary.measure(TenRows(), {})[0])
    >>> profiles.excess.round(4), round(profiles.uncertainty**2, 4)
    (array([-0.0354,  0.0354]), 0.375)
    """

    name: ClassVar[str] = "client-profiles"
    columns: ClassVar[tuple[str, ...]] = ("class", "logits")
    additive: ClassVar[bool] = False

    classes: int
    grid: tuple[float, ...]
    full_rows: int = 10

    def __post_init__(self) -> None:
        object.__setattr__(self, "grid", self.curves.grid)

    @property
    def curves(self) -> LossCurves:
        """The part about the temperature."""
        return LossCurves(classes=self.classes, grid=tuple(self.grid), bound=CLIENT, full_rows=self.full_rows)

    @property
    def length(self) -> int:
        """The curve, the classes, and one."""
        return len(self.grid) + self.classes + 1

    @property
    def largest(self) -> int:
        """The norm."""
        return UNITS

    def measure(self, rows: Rows, memory: Memory) -> tuple[Vector, Memory]:
        """Two passes over the rows, linear in them, constant in memory; zeros without rows."""
        direction = self.curves.measure(rows, {})[0] / UNITS
        count, excess, uncertain = 0, np.zeros(self.classes), 0.0
        for batch in rows.batches():
            for block in predicted(batch, self.classes):
                count += len(block.y)
                excess = excess + block.p.sum(axis=1) - np.bincount(block.y, minlength=self.classes)
                uncertain += float(len(block.y) - (block.p**2).sum())
        weight = min(1.0, count / self.full_rows)
        mean = excess / max(1, count)
        clipped = mean / max(float(np.linalg.norm(mean)), LARGEST_EXCESS)
        root = math.sqrt(min(1.0, max(0.0, uncertain / max(1, count))))
        a, b, d = (math.sqrt(part) for part in PARTS)
        vector = np.concatenate([a * direction, b * weight * clipped, [d * weight * root]])
        return np.trunc(vector * (UNITS * _BELOW)).astype(np.int64), memory

    def sensitivity(self, protection: Protection) -> Sensitivity:
        """See the class."""
        # Adding one row to a client can turn its vector round: then it is as if the client were replaced.
        away = protection.unit is Unit.CLIENT and protection.neighbours is Neighbours.ADD_REMOVE
        norm = float(UNITS if away else 2 * UNITS)
        return Sensitivity(l1=norm * math.sqrt(self.length), l2=norm)

    def read(self, total: Total) -> Profiles:
        """The three sums."""
        values = np.asarray(total, dtype=np.float64)
        points = len(self.grid)
        a, b, d = (1 / (UNITS * math.sqrt(part)) for part in PARTS)
        units = (a, b * LARGEST_EXCESS, d)
        return Profiles(
            curves=Curves(grid=np.array(self.grid), losses=values[:points] * units[0], unit=units[0]),
            excess=values[points:-1] * units[1],
            uncertainty=float(values[-1] * units[2]),
            units=units,
        )


_BELOW = 1 - 2.0**-40
"""A little less than the norm: more than what floating point can get wrong."""
