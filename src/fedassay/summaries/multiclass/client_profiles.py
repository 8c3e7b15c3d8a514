"""What one client's rows say about a temperature and about shifts of the classes, in one vector of norm at most one.

Two things, each bounded by itself: the direction of the client's loss curve (`LossCurves`), and its moments by class,
the means of p - e_y (how much too probable a class is) and of p(1 - p) (how far a shift of the class's logit moves it).
Moments are made shorter together, so that the client loses weight and still asks for the same shift: clipping the
excess alone would make shifts shorter than anybody wants them. Noise for a vector of norm one covers all.
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
from fedassay.summaries.multiclass.loss_curves import CLIENT, UNITS, Curves, LossCurves
from fedassay.summaries.multiclass.maps import predicted
from fedassay.summaries.multiclass.scaling_maps import Temperature

PARTS = (0.5, 0.5)
"""Of the squared norm: for the curve and for the moments."""

LARGEST_MOMENTS = 0.05
"""The norm to which moments are clipped: classes that are 1 % too probable matter."""

SPREAD_WEIGHT = 0.5
"""Of p(1 - p) beside p - e_y. It is only needed as a mean over classes, in which noise averages out, so that it may
have more of it than the excess, and leave more of the norm to that."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Profiles:
    """Sums over clients, each weighing at most one.

    `curves` are the sums of directions; `excess` and `spread` those of the means of p - e_y and p(1 - p), by class,
    with the same weight of a client in both. Noise of standard deviation σ in each entry of the released vector is
    `units`·σ in each of these, in this order.
    """

    curves: Curves
    excess: Floats
    spread: Floats
    units: tuple[float, float, float]


@dataclass(frozen=True, kw_only=True)
class ClientProfiles(Summary[Profiles]):
    """The profile of each client, added up.

    Parameters
    ----------
    classes : c, public. Rows with another number of logits count for nothing.
    grid : inverse temperatures of the curve, rising, above 0.
    full_rows : a client with fewer rows than this counts for less.
    at : the inverse temperature at which moments are taken. None: for each client the point of the grid where its own
        loss is lowest, or 1 if that is less: where classes are unequally frequent, a model that is too sure looks as if
        frequent ones were too probable.

    With w = min(1, rows/`full_rows`) and m the means of p - e_y and 0.5·p(1 - p), by class: √0.5·w·(direction of the
    curve), √0.5·w·m/max(|m|, 0.05), in units of 2^-24, rounded toward zero.

    Sensitivity: both parts have norms of at most √0.5, so the vector is at most 1 away from that of a client without
    rows, which is zero, and at most 2 from any other. At which temperature a client looks does not change that.

    Examples
    --------
    >>> class TenRows:
    ...     def batches(self):
    ...         yield {"logits": np.log([[0.75, 0.25]] * 10), "class": np.array([0] * 10)}
    >>> summary = ClientProfiles(classes=2, grid=(0.5, 1.0, 2.0))
    >>> profiles = summary.read(summary.measure(TenRows(), {})[0])
    >>> (profiles.excess / profiles.spread).round(4)
    array([-1.3333,  1.3333])
    """

    name: ClassVar[str] = "client-profiles"
    columns: ClassVar[tuple[str, ...]] = ("class", "logits")
    additive: ClassVar[bool] = False

    classes: int
    grid: tuple[float, ...]
    full_rows: int = 10
    at: float | None = None

    def __post_init__(self) -> None:
        if self.at is not None and not 2.0**-20 <= self.at <= 2.0**20:
            raise UsageError(f"at: got {self.at!r}, expected None or a number between 2^-20 and 2^20.")
        object.__setattr__(self, "grid", self.curves.grid)

    @property
    def curves(self) -> LossCurves:
        """The part about the temperature."""
        return LossCurves(classes=self.classes, grid=tuple(self.grid), bound=CLIENT, full_rows=self.full_rows)

    @property
    def length(self) -> int:
        """The curve, and two for each class."""
        return len(self.grid) + 2 * self.classes

    @property
    def largest(self) -> int:
        """The norm."""
        return UNITS

    def measure(self, rows: Rows, memory: Memory) -> tuple[Vector, Memory]:
        """Two passes over the rows, linear in them, constant in memory; zeros without rows."""
        direction = self.curves.measure(rows, {})[0] / UNITS
        own = self.grid[int(np.argmin(direction))] if direction.any() else 1.0
        through = Temperature(inverse_temperature=self.at or min(1.0, own), classes=self.classes)
        count, excess, spread = 0, np.zeros(self.classes), np.zeros(self.classes)
        for batch in rows.batches():
            for block in predicted(batch, self.classes, through):
                count += len(block.y)
                excess = excess + block.p.sum(axis=1) - np.bincount(block.y, minlength=self.classes)
                spread = spread + (block.p * (1 - block.p)).sum(axis=1)
        moments = np.concatenate([excess, SPREAD_WEIGHT * spread]) / max(1, count)
        clipped = moments / max(float(np.linalg.norm(moments)), LARGEST_MOMENTS)
        a, b = (math.sqrt(part) for part in PARTS)
        vector = np.concatenate([a * direction, b * min(1.0, count / self.full_rows) * clipped])
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
        ends = [len(self.grid), len(self.grid) + self.classes]
        a, b = (1 / (UNITS * math.sqrt(part)) for part in PARTS)
        units = (a, b * LARGEST_MOMENTS, b * LARGEST_MOMENTS / SPREAD_WEIGHT)
        losses, excess, spread = np.split(values, ends)
        return Profiles(
            curves=Curves(grid=np.array(self.grid), losses=losses * units[0], unit=units[0]),
            excess=excess * units[1],
            spread=spread * units[2],
            units=units,
        )


_BELOW = 1 - 2.0**-40
"""A little less than the norm: more than what floating point can get wrong."""
