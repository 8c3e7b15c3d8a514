"""Changes by a calibrator, row by row: the same rows before and after, so that what makes rows hard cancels."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, ClassVar

import numpy as np

from fedassay.errors import UsageError
from fedassay.protocol.arrays import Floats
from fedassay.protocol.parameters import Checked, Interval
from fedassay.protocol.vocabulary import (
    LARGEST_ROWS_PER_CLIENT,
    Memory,
    Protection,
    Rows,
    Sensitivity,
    Summary,
    Total,
    Vector,
)
from fedassay.summaries.measures import Digits
from fedassay.summaries.multiclass.class_statistics import (
    LARGEST_BRIER,
    LARGEST_LOSS,
    MOST_BITS,
    ScaledTotals,
    losses_of,
    right_of,
)
from fedassay.summaries.multiclass.maps import (
    Predicted,
    carried_map,
    carried_theta,
    predicted,
)
from fedassay.summaries.multiclass.scaling_maps import LogitMap
from fedassay.summaries.scored import NumberOfClasses, RowsPerClient

COUNTS: Mapping[str, float] = MappingProxyType({"rows": 0.5, "wrong": 0.25})
CHANGES: Mapping[str, float] = MappingProxyType({"loss": 1.0, "brier": 1.0, "correct": 2.0})
POWERS = 0.25
"""Weights of the numbers of a row under noise. Squares and cubes, which weigh `POWERS`, only serve standard errors;
rows and wrong rows only show whether there are enough. The accuracy has to be known to about 1 %, the losses to a few
per cent of their bound, hence its weight."""

MOST_DIGITS = 8
LEAST_BOUND = 1e-6


@dataclass(frozen=True, kw_only=True, eq=False)
class Change:
    """Sums over rows of a change, of its square and, if requested, of its cube.

    A row counts at most ±`bound`.
    """

    first: ScaledTotals
    second: ScaledTotals
    third: ScaledTotals | None
    bound: float


@dataclass(frozen=True, kw_only=True, eq=False)
class ChangeTotals:
    """Totals of `MapChanges`: rows, those that the model itself has wrong, and changes (after less before) by name."""

    rows: ScaledTotals
    wrong: ScaledTotals
    changes: Mapping[str, Change]


@dataclass(frozen=True, kw_only=True)
class MapChanges(Checked, Summary[ChangeTotals]):
    """Sums over rows of the changes by a map: of the log loss, the Brier score, and whether the row is right.

    Each change d, after less before, is cut at its bound and divided by it: c in [-1, 1]. Numbers are rounded toward
    zero to whole multiples of 2^-(bits·digits)/weight. They are written as `digits` signed digits of `bits` bits, the
    highest first, each of them a vector of its own: the sums of the digits are exact and additive. A map that keeps the
    order of classes makes no row right or wrong: there the change of ``correct`` is not measured.

    Parameters
    ----------
    classes : c, public. Rows with another number of logits count for nothing.
    kind, theta : of the map (`LOGIT_MAPS`).
    loss_bound, brier_bound : the most that the change of a row counts. By default the largest that there is, so that
        nothing is cut.
    moments : 2 for changes and squares, 3 for cubes too.
    bits, digits, most_rows : as in `ClassStatistics`. Without noise 10 and 7: a map that changes every loss by 1e-5 has
        squares of 1e-10 and cubes of 1e-15, and without them its interval would have no width.

    Sensitivity, in units of 2^bits, with one digit: a row adds at most its weights. A row replaced by another moves
    c by u = c - c' and c² by |u(c + c')| <= |u|(2 - |u|). With weights w and s <= w/4 the L1 norm w|u| + s|u|(2 - |u|)
    and the L2 norm are largest at u = 2, where c² does not move: 2w. So each change counts 2w, its cube 2s more, the
    row itself nothing and ``wrong`` once. Rounding does not spoil it: with wc and wc' written as w2^bits - j and
    k - w2^bits, the whole numbers of the squares differ by at most j + k. Lower digits count with all they can be. For
    units of several rows these add up.

    Examples
    --------
    >>> summary = MapChanges(classes=2, kind="temperature", theta=(2.0,))
    >>> class TwoRows:
    ...     def batches(self):
    ...         yield {"logits": np.log([[0.25, 0.75], [0.75, 0.25]]), "class": np.array([1, 1])}
    >>> total = summary.read(summary.measure(TwoRows(), {})[0])
    >>> round(float(total.changes["loss"].first.value), 6) == round(float(np.log(0.75 / 0.9 * 0.25 / 0.1)), 6)
    True
    >>> float(total.rows.value), float(total.wrong.value), sorted(total.changes)
    (2.0, 1.0, ['brier', 'loss'])
    """

    name: ClassVar[str] = "map-changes"
    columns: ClassVar[tuple[str, ...]] = ("logits", "class")

    classes: NumberOfClasses
    kind: str
    theta: tuple[float, ...] = field(repr=False)
    loss_bound: Annotated[float, Interval(ge=LEAST_BOUND, le=LARGEST_LOSS)] = LARGEST_LOSS
    brier_bound: Annotated[float, Interval(ge=LEAST_BOUND, le=LARGEST_BRIER)] = LARGEST_BRIER
    moments: Annotated[int, Interval(ge=2, le=3)] = 3
    bits: Annotated[int, Interval(ge=2, le=MOST_BITS)] = 10
    digits: Annotated[int, Interval(ge=1, le=MOST_DIGITS)] = 7
    most_rows: RowsPerClient = LARGEST_ROWS_PER_CLIENT

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.kind:
            raise UsageError("kind: got none, expected that of a map: without one nothing changes.")
        object.__setattr__(self, "theta", carried_theta(self.kind, self.theta, self.classes))

    @property
    def map(self) -> LogitMap:
        """Map through which rows are seen."""
        made = carried_map(self.kind, self.theta, self.classes)
        assert made is not None
        return made

    @property
    def _bounds(self) -> dict[str, float]:
        """Changes that are measured, and the most that a row counts."""
        losses = {"loss": self.loss_bound, "brier": self.brier_bound}
        return losses if self.map.keeps_order else {**losses, "correct": 1.0}

    @property
    def _weights(self) -> Floats:
        """Weights of the numbers of a row, in the order of the vector."""
        powers = [POWERS] * (self.moments - 1)
        changes = [weight for name in self._bounds for weight in (CHANGES[name], *powers)]
        return np.array([*COUNTS.values(), *changes])

    @property
    def length(self) -> int:
        """Number of entries of all digits."""
        return self.digits * len(self._weights)

    @property
    def largest(self) -> int:
        """Largest entry: all rows of a client at their largest in the entry with the largest weight."""
        return self.most_rows << (self.bits + 1)

    def measure(self, rows: Rows, memory: Memory) -> tuple[Vector, Memory]:
        """Add up the changes. Linear in the rows, constant in memory, one pass."""
        through, weights = self.map, self._weights
        totals = np.zeros((self.digits, len(weights)), dtype=np.int64)
        for batch in rows.batches():
            blocks = zip(predicted(batch, self.classes), predicted(batch, self.classes, through), strict=True)
            for before, after in blocks:
                written = self._digits.write(self._numbers(before, after) * weights[:, None])
                totals = totals + written.sum(axis=2).astype(np.int64)
        return totals.reshape(-1), memory

    def _numbers(self, before: Predicted, after: Predicted) -> Floats:
        """Return one line for each number, in [-1, 1]; one column per row."""
        right, (loss, brier) = right_of(before), losses_of(before)
        new_loss, new_brier = losses_of(after)
        changes = {
            "loss": (new_loss - loss) * (LARGEST_LOSS / self.loss_bound),
            "brier": (new_brier - brier) * (LARGEST_BRIER / self.brier_bound),
            "correct": right_of(after) - right,
        }
        cut = [np.clip(changes[name], -1.0, 1.0) for name in self._bounds]
        powers = [c**power for c in cut for power in range(1, self.moments + 1)]
        return np.stack([np.ones(len(right)), 1 - right, *powers])

    @property
    def _digits(self) -> Digits:
        return Digits(bits=self.bits, digits=self.digits)

    def sensitivity(self, protection: Protection) -> Sensitivity:
        """Return the sensitivity: what r rows can add, or r rows in the place of others can move (see the class)."""
        w, cubes = np.array([CHANGES[name] for name in self._bounds]), self.moments - 2
        added = self._weights
        norms = [(float(added.sum()), float((added**2).sum()))]
        if protection.moves_both_ways:
            # Also more than what a row adds, which counts where a unit gets more rows than it had.
            moved = np.array([COUNTS["wrong"], *(2 * w), *(2 * POWERS for _ in w if cubes)])
            norms.append((float(moved.sum()), float((moved**2).sum())))
        first, second = (max(norm) for norm in zip(*norms, strict=True))
        lower, most = (self.digits - 1) * len(added), 2 * (2**self.bits - 1)
        rows = protection.rows_per_unit
        return Sensitivity(
            l1=rows * (2**self.bits * first + lower * most),
            l2=rows * math.sqrt(4**self.bits * second + lower * most**2),
        )

    def read(self, total: Total) -> ChangeTotals:
        """Return the sums by name, in nats, in units of the Brier score, and in rows."""
        digits = np.asarray(total, dtype=np.float64).reshape(self.digits, -1)
        scales = self._digits.scales
        values, factor, finest = scales @ digits, float((scales**2).sum()), float(scales[-1])

        def part(place: int, unit: float = 1.0) -> ScaledTotals:
            times = unit / float(self._weights[place])
            return ScaledTotals(
                value=np.asarray(values[place] * times), factor=factor * times**2, resolution=finest * times
            )

        changes = {}
        for place, (name, bound) in enumerate(self._bounds.items()):
            at = len(COUNTS) + place * self.moments
            powers = [part(at + power, bound ** (power + 1)) for power in range(self.moments)]
            changes[name] = Change(
                first=powers[0], second=powers[1], third=powers[2] if self.moments > 2 else None, bound=bound
            )
        return ChangeTotals(rows=part(0), wrong=part(1), changes=changes)
