"""Log loss of a client as a function of the temperature, on a public grid: all that temperature scaling needs, at once.

With L(s) the log loss of softmax(s z), the curve of some rows is L(s) - L(1) on a grid of inverse temperatures s. All
are convex in s; the curve of all rows, the sum of all curves, is lowest where the pooled temperature is.

Privacy requires that no curve is longer than one. Only its shape matters, so the mean over the grid is taken off, and
with it most of the length. Making a client's curve shorter leaves its lowest point where it is: the client loses
weight, and its answer stays the same. Clipping a client's *temperature*, as federated averaging does, moves its answer.

A profile is the evidence of one client's rows about a temperature and about shifts of the classes, in one vector of
norm at most one.

It has two parts, each bounded by itself: the direction of the client's loss curve (`LossCurves`), and its moments by
class. These are the means of p - e_y (how much too probable a class is) and of p(1 - p) (how far a shift of the class's
logit moves it). Moments are made shorter together, so that the client loses weight and still asks for the same shift:
clipping the excess alone would make shifts shorter than any client wants them. Noise for a vector of norm one covers
all.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, Literal

import numpy as np
from numpy.typing import NDArray

from fedassay.errors import UsageError
from fedassay.protocol.arrays import Floats
from fedassay.protocol.parameters import Checked, Interval
from fedassay.protocol.vocabulary import (
    LARGEST_ROWS_PER_CLIENT,
    UNBOUNDED,
    Memory,
    Protection,
    Rows,
    Sensitivity,
    Summary,
    Total,
    Vector,
)
from fedassay.summaries.class_scores import checked_labels
from fedassay.summaries.measures import SUMS, client_sensitivity
from fedassay.summaries.multiclass.calibrator_sums import LARGEST_SUM
from fedassay.summaries.multiclass.losses import blocks, loss_sums, padded
from fedassay.summaries.multiclass.maps import logits_of, predicted
from fedassay.summaries.multiclass.scaling_maps import Temperature
from fedassay.summaries.scored import NumberOfClasses, RowsPerClient

MOST_POINTS = 256
FEWEST_BITS, MOST_BITS = 4, 24
UNITS = 1 << MOST_BITS
"""Largest number of whole numbers per unit of norm: rounding takes less than one of them from an entry."""

Bound = Literal["none", "client", "row"]
NONE: Final = "none"
CLIENT: Final = "client"
ROW: Final = "row"

ROW_NORM = 2.0
"""Largest norm of a row's curve, that of a curve of two nats everywhere; few rows have more."""

_MARGIN = 1 + 2.0**-40
"""Factor by which curves are made shorter than the bound: more than what floating point can get wrong."""

_ROUNDING = 1e-12
"""Rounding error of a mean curve, in nats per row: a curve within this has no direction."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Curves:
    """Sum of all curves, on the grid.

    Exact ones come with the number of `rows` and the derivatives by log s, first and second. Of bounded ones there are
    only `losses`, less their mean over the grid, in units in which the curve of a client (or a row, see `LossCurves`)
    has a norm of at most one; noise of standard deviation σ in each entry of the released vector is σ·`unit` in each.
    """

    grid: Floats
    losses: Floats
    unit: float = 1.0
    slopes: Floats | None = None
    second: Floats | None = None
    rows: int | None = None


@dataclass(frozen=True, kw_only=True)
class LossCurves(Checked, Summary[Curves]):
    """Log losses of softmax(s z), less that at s = 1, summed over rows, on a grid of s.

    Parameters
    ----------
    classes : c, public. Rows with another number of logits count for nothing.
    grid : inverse temperatures, rising, above 0.
    bound : ``none`` for exact sums, with the number of rows and derivatives by log s. ``client``: each client sends the
        direction of its curve, times min(1, rows/`full_rows`): all clients of `full_rows` rows weigh the same, however
        many it has and however much it would gain. ``row``: each row's curve is cut to a norm of two nats per point.
    full_rows : a client with fewer rows than this counts for less.
    bits : bounded curves are in units of 2^-bits of the largest norm.
    most_rows : for ``row``, rows that a client can have: entries are at most this many units of norm.

    Bounded curves are rounded toward zero, so that no norm grows: those of clients to units of 2^-bits; those of rows
    to 2^-24, after which sums are exact, and the sum of a client to 2^-bits.

    Sensitivity. Exact sums: none. For clients: a curve is at most 1 away from that of a client without rows, which is
    zero, and at most 2 from any other. For rows: as many as a unit owns, or twice that where rows can be replaced, and
    with less than 24 bits the second rounding, which changes each entry by less than one.

    Examples
    --------
    >>> class OneRow:
    ...     def batches(self):
    ...         yield {"logits": np.log([[0.5, 0.25, 0.25]]), "class": np.array([0])}
    >>> summary = LossCurves(classes=3, grid=(1.0, 2.0))
    >>> curves = summary.read(summary.measure(OneRow(), {})[0])
    >>> curves.rows, curves.losses.round(6), curves.slopes.round(6)
    (1, array([ 0.      , -0.287682]), array([-0.346574, -0.462098]))
    """

    name: ClassVar[str] = "loss-curves"
    columns: ClassVar[tuple[str, ...]] = ("class", "logits")
    additive: ClassVar[bool] = False

    classes: NumberOfClasses
    grid: tuple[float, ...]
    bound: Bound = NONE
    full_rows: RowsPerClient = 10
    bits: Annotated[int, Interval(ge=FEWEST_BITS, le=MOST_BITS)] = MOST_BITS
    most_rows: RowsPerClient = LARGEST_ROWS_PER_CLIENT

    def __post_init__(self) -> None:
        super().__post_init__()
        grid = self.grid
        if not 1 <= len(grid) <= MOST_POINTS or not all(2.0**-20 <= s <= 2.0**20 for s in grid):
            raise UsageError(
                f"grid: expected 1 to {MOST_POINTS} inverse temperatures between 2^-20 and 2^20."
            )
        if not all(a < b for a, b in itertools.pairwise(grid)):
            raise UsageError("grid: expected inverse temperatures that rise.")

    @property
    def length(self) -> int:
        """Number of entries: one for each point; for exact sums limbs, of three numbers each, and the rows."""
        return 1 + 3 * SUMS.limbs * len(self.grid) if self.bound == NONE else len(self.grid)

    @property
    def units(self) -> int:
        """Whole numbers per unit of norm, for bounded curves."""
        return 1 << self.bits

    @property
    def largest(self) -> int:
        """Largest entry: a limb; or the largest norm, times the rows of a client where each has one."""
        return {NONE: super().largest, CLIENT: self.units, ROW: self.units * self.most_rows}[self.bound]

    def measure(self, rows: Rows, memory: Memory) -> tuple[Vector, Memory]:
        """Sum the curves. Linear in the rows and the grid, constant in memory; zeros without rows."""
        batches = logits_of(rows, self.classes)
        if self.bound == ROW:
            fine = np.zeros(len(self.grid), dtype=np.int64)
            for logits, labels in batches:
                fine = fine + self._of_rows(logits, labels)
            return _toward_zero(fine, MOST_BITS - self.bits), memory
        count, sums = 0, np.zeros((3, len(self.grid)))
        for logits, labels in batches:
            count, sums = count + len(labels), sums + self._sums(logits, labels)
        if self.bound == NONE:
            numbers = np.clip(sums.reshape(-1), -LARGEST_SUM, LARGEST_SUM)
            return np.concatenate([[count], SUMS.write(numbers)]), memory
        direction = _direction(_level(sums[0] / max(1, count))) * min(1.0, count / self.full_rows)
        return np.trunc(direction * self.units).astype(np.int64), memory

    def _sums(self, logits: NDArray[Any], labels: NDArray[Any]) -> Floats:
        """Return the sums of L(s) - L(1), s L'(s) and s L'(s) + s² L''(s) over these rows."""
        grid = np.array(self.grid)
        order = 2 if self.bound == NONE else 1
        at = [loss_sums("temperature", logits, labels, [s], order=order) for s in (1.0, *grid)]
        losses = np.array([one.loss - at[0].loss for one in at[1:]])
        first = grid * np.array([float(one.gradient[0]) for one in at[1:]])
        second = np.array([0.0 if one.hessian is None else float(one.hessian[0, 0]) for one in at[1:]])
        return np.stack([losses, first, first + grid**2 * second])

    def _of_rows(self, logits: NDArray[Any], labels: NDArray[Any]) -> Vector:
        """Return the sum of the curves of single rows, each cut to a norm of one (`ROW_NORM` nats per point) and
        rounded.

        Rows are rounded one by one: sums of whole numbers are exact in any order, so that a row moves them by its own
        curve and nothing else.
        """
        grid, total = np.array(self.grid), np.zeros(len(self.grid), dtype=np.int64)
        for part, z in blocks(logits):
            y = checked_labels(labels[part], logits[part])
            curves = _row_curves(padded(z), np.pad(y, (0, -len(y) % 64)), grid)[: len(y)]
            curves = _level(curves) / (ROW_NORM * math.sqrt(len(grid)))
            length = np.linalg.norm(curves, axis=1, keepdims=True) * _MARGIN
            whole_numbers = np.trunc(UNITS * (curves / np.maximum(1.0, length))).astype(np.int64)
            total = total + whole_numbers.sum(axis=0)
        return total

    def sensitivity(self, protection: Protection) -> Sensitivity:
        """Return the sensitivity that the class states."""
        if self.bound == NONE:
            return UNBOUNDED
        if self.bound == CLIENT:
            return client_sensitivity(protection, norm=self.units, length=len(self.grid))
        times = 2 if protection.moves_both_ways else 1
        rounding = 0.0 if self.bits == MOST_BITS else math.sqrt(len(self.grid))
        norm = times * (self.units * protection.rows_per_unit + rounding)
        return Sensitivity(l1=norm * math.sqrt(len(self.grid)), l2=norm)

    def read(self, total: Total) -> Curves:
        """Return the sum of the curves."""
        grid = np.array(self.grid)
        if self.bound != NONE:
            losses = np.asarray(total, dtype=np.float64) / self.units
            return Curves(grid=grid, losses=losses, unit=1 / self.units)
        numbers = SUMS.read(total[1:])
        losses, first, second = np.split(numbers, 3)
        return Curves(grid=grid, losses=losses, slopes=first, second=second, rows=int(total[0]))


def _level(curves: Floats) -> Floats:
    """Return curves without their mean over the grid."""
    return np.asarray(curves - curves.mean(axis=-1, keepdims=True))


def _direction(curve: Floats) -> Floats:
    """Return a curve of norm one, a little less; zero stays zero, and so does what is zero but for rounding."""
    largest = float(np.abs(curve).max())
    if not largest > _ROUNDING:
        return np.zeros_like(curve)
    scaled = curve / largest  # squares of tiny numbers would vanish
    return np.asarray(scaled / (np.linalg.norm(scaled) * _MARGIN))


def _toward_zero(fine: Vector, bits: int) -> Vector:
    """Divide whole numbers by 2^bits, rounding toward zero."""
    return np.asarray(np.sign(fine) * (np.abs(fine) >> bits))


def _row_curves(z: Floats, labels: NDArray[np.int64], grid: Floats) -> Floats:
    """Return L(s) - L(1) of each row of a block (classes first), rows x points."""
    z = z - z[labels, np.arange(len(labels))]
    top = z.max(axis=0)
    away = z - top
    losses = np.empty((len(labels), len(grid) + 1))
    for place, s in enumerate((1.0, *grid)):
        losses[:, place] = np.log(np.exp(s * away).sum(axis=0)) + s * top
    return losses[:, 1:] - losses[:, :1]


# --- the profile of a client ---------------------------------------------------------------------------------


PARTS = (0.5, 0.5)
"""Parts of the squared norm: for the curve and for the moments."""

LARGEST_MOMENTS = 0.05
"""Norm to which moments are clipped: classes that are 1 % too probable matter."""

SPREAD_WEIGHT = 0.5
"""Weight of p(1 - p) relative to p - e_y. It is only needed as a mean over classes, in which noise averages out, so
that it may have more of it than the excess, and leave more of the norm to that."""


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
class ClientProfiles(Checked, Summary[Profiles]):
    """Profile of each client, added up.

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

    Sensitivity: both parts have norms of at most √0.5. So the vector is at most 1 away from that of a client without
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

    classes: NumberOfClasses
    grid: tuple[float, ...]
    full_rows: RowsPerClient = 10
    at: Annotated[float, Interval(ge=2.0**-20, le=2.0**20)] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.curves

    @property
    def curves(self) -> LossCurves:
        """Summary of the part about the temperature."""
        return LossCurves(classes=self.classes, grid=tuple(self.grid), bound=CLIENT, full_rows=self.full_rows)

    @property
    def length(self) -> int:
        """Number of entries: the curve, and two for each class."""
        return len(self.grid) + 2 * self.classes

    @property
    def largest(self) -> int:
        """Largest entry: the norm."""
        return UNITS

    def measure(self, rows: Rows, memory: Memory) -> tuple[Vector, Memory]:
        """Sum the profiles in two passes over the rows, linear in them, constant in memory; zeros without rows."""
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
        """Return the sensitivity that the class states."""
        return client_sensitivity(protection, norm=UNITS, length=self.length)

    def read(self, total: Total) -> Profiles:
        """Return the three sums."""
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
"""Factor that makes vectors a little shorter than the norm: more than what floating point can get wrong."""
