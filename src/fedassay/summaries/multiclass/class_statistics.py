"""Sums over the rows of a multiclass model: accuracy, losses, and calibration in bins of every class.

With p the probabilities of a row, y its class and e_y the unit vector of it, calibration is about r = p - e_y. The
entries of r sum to zero, so that Σ_j |r_j| <= 2 and Σ_j r_j² <= 2 *however many classes there are*. Rows per bin and
class would cost one count for each class; classwise calibration does not need them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, Any, ClassVar

import numpy as np

from fedassay.protocol.arrays import Floats, Ints
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
from fedassay.summaries.multiclass.losses import padded
from fedassay.summaries.multiclass.maps import (
    Predicted,
    carried_map,
    carried_theta,
    predicted,
)
from fedassay.summaries.scored import NumberOfClasses, RowsPerClient

EPSILON = float(np.finfo(np.float64).eps)
LARGEST_LOSS = -math.log(EPSILON)
"""Log loss of a probability that scikit-learn clips."""

LARGEST_BRIER = 2.0
MOST_BINS = 200
MOST_BITS = 14
MOST_DIGITS = 3

SUMS: Mapping[str, float] = MappingProxyType(
    {"rows": 1.0, "correct": 1.0, "brier": 1.0, "brier_squared": 0.25, "loss": 1.0, "loss_squared": 0.25}
)
TOP: Mapping[str, float] = MappingProxyType(
    {"rows": 0.5, "correct": 1.0, "confidence": 1.0, "squared": 0.25, "spread": 0.25}
)
CELLS: Mapping[str, float] = MappingProxyType(
    {"positives": 1.0, "probability": 1.0, "squared": 0.25, "spread": 0.25}
)
"""Numbers that are summed over all rows, per bin of the confidence, and per class and bin; each number of a row is in
[0, 1] and has this weight under noise. Squares only serve standard errors."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ScaledTotals:
    """Totals of one kind. Noise of variance σ² in each entry of the vector is `factor`·σ² here, independent.

    Each row was rounded down by less than `resolution`.
    """

    value: Floats
    factor: float
    resolution: float


@dataclass(frozen=True, kw_only=True, eq=False)
class ClassTotals:
    """Totals of `ClassStatistics`, by the names in `SUMS`, `TOP` and `CELLS`.

    brier and loss are in units of `LARGEST_BRIER` and `LARGEST_LOSS`. ``squared`` is Σ r², ``spread`` is Σ p(1-p), what
    Σ r² would be on average if probabilities were right. Cells have one line per class, one column per bin.
    """

    classes: int
    bins: int
    sums: Mapping[str, ScaledTotals]
    top: Mapping[str, ScaledTotals]
    cells: Mapping[str, ScaledTotals]


@dataclass(frozen=True, kw_only=True)
class ClassStatistics(Checked, Summary[ClassTotals]):
    """Sums over rows, over bins of the confidence, and over bins of the probability of each class.

    Bin m of [0, 1] is [m/M, (m+1)/M), the last one is closed. Numbers are in [0, 1], rounded down to whole multiples of
    2^-(bits·digits)/weight. They are written as `digits` digits of `bits` bits, the highest first, each of them a
    vector of its own: the sums of the digits are exact and additive.

    Parameters
    ----------
    classes : c, public. Rows with another number of logits count for nothing.
    bins : M.
    bits, digits : without noise 10 and 3 (a resolution of 1e-9); under noise one digit, so that only what matters is
        measured. No entry exceeds 2^bits for each row.
    most_rows : rows that a client can have: entries are at most this many times 2^bits.
    kind, theta : of a map (`LOGIT_MAPS`) through which probabilities are seen; none, for those of the model.

    Sensitivity: an upper bound, from two cases. A row whose most probable class is wrong adds nothing to ``correct``;
    one that is right has p_y >= 1/c, hence Σ r² < 1 and a loss of at most log c. In either case the bounds of the
    numbers add up; through a map they are the same. All entries are >= 0, so that replacing a row moves the L2 norm by
    at most √2 as much.

    Examples
    --------
    >>> summary = ClassStatistics(classes=2, bins=4)
    >>> class TwoRows:
    ...     def batches(self):
    ...         yield {"logits": np.log([[0.2, 0.8], [0.6, 0.4]]), "class": np.array([1, 1])}
    >>> total = summary.read(summary.measure(TwoRows(), {})[0])
    >>> total.sums["correct"].value.tolist(), total.cells["probability"].value.round(6).tolist()
    (1.0, [[0.2, 0.0, 0.6, 0.0], [0.0, 0.4, 0.0, 0.8]])
    """

    name: ClassVar[str] = "class-statistics"
    columns: ClassVar[tuple[str, ...]] = ("logits", "class")

    classes: NumberOfClasses
    bins: Annotated[int, Interval(ge=1, le=MOST_BINS)] = 15
    bits: Annotated[int, Interval(ge=2, le=MOST_BITS)] = 10
    digits: Annotated[int, Interval(ge=1, le=MOST_DIGITS)] = 3
    most_rows: RowsPerClient = LARGEST_ROWS_PER_CLIENT
    kind: str = ""
    theta: tuple[float, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "theta", carried_theta(self.kind, self.theta, self.classes))

    @property
    def _width(self) -> int:
        """Number of entries of one digit."""
        return len(SUMS) + len(TOP) * self.bins + len(CELLS) * self.classes * self.bins

    @property
    def length(self) -> int:
        """Number of entries of all digits."""
        return self.digits * self._width

    @property
    def largest(self) -> int:
        """Largest entry: all rows of a client at their largest in one entry."""
        return self.most_rows << self.bits

    def measure(self, rows: Rows, memory: Memory) -> tuple[Vector, Memory]:
        """Add up the statistics. Linear in the rows, constant in memory, one pass."""
        totals = np.zeros((self.digits, self._width), dtype=np.int64)
        through = carried_map(self.kind, self.theta, self.classes)
        for batch in rows.batches():
            for block in predicted(batch, self.classes, through):
                totals = totals + self._block(block)
        return totals.reshape(-1), memory

    def _block(self, block: Predicted) -> Ints:
        everything = np.zeros(len(block.y), dtype=np.int64)
        bin_of = self._bins(block.confidence)
        cell_of = (self._bins(block.p) + self.bins * np.arange(self.classes)[:, None]).reshape(-1)
        cells, numbers = self.bins * self.classes, _row_numbers(block)
        parts = [self._added(everything, numbers[name], weight, 1) for name, weight in SUMS.items()]
        numbers = _top_numbers(block)
        parts += [self._added(bin_of, numbers[name], weight, self.bins) for name, weight in TOP.items()]
        numbers = _cell_numbers(block)
        parts += [self._added(cell_of, numbers[name], weight, cells) for name, weight in CELLS.items()]
        return np.concatenate(parts, axis=1)

    def _bins(self, p: Floats) -> Ints:
        return np.minimum((p * self.bins).astype(np.int64), self.bins - 1)

    def _added(self, places: Ints, numbers: Floats, weight: float, size: int) -> Ints:
        """Return the digits of these numbers, added up by place; exact, as all sums are whole and below 2^53."""
        written = self._digits.write(numbers.reshape(-1) * weight)
        added = [np.bincount(places, weights=digit, minlength=size) for digit in written]
        return np.array(added, dtype=np.int64)

    @property
    def _digits(self) -> Digits:
        return Digits(bits=self.bits, digits=self.digits)

    def sensitivity(self, protection: Protection) -> Sensitivity:
        """Return the sensitivity: r rows move the same entries, or twice as many where rows can be replaced."""
        rows, times = protection.rows_per_unit, 2 if protection.moves_both_ways else 1
        first, second = (
            max(norm) for norm in zip(*(_norms(self.classes, right) for right in (0, 1)), strict=True)
        )
        # Lower digits can have any value, in as many entries as a row touches.
        lower = (self.digits - 1) * (len(SUMS) + len(TOP) + 1 + (len(CELLS) - 1) * self.classes)
        l1 = 2**self.bits * first + lower * (2**self.bits - 1)
        l2_squared = 4**self.bits * second + lower * (2**self.bits - 1) ** 2
        return Sensitivity(l1=rows * times * l1, l2=rows * math.sqrt(times * l2_squared))

    def read(self, total: Total) -> ClassTotals:
        """Return the sums by name."""
        digits = np.asarray(total, dtype=np.float64).reshape(self.digits, self._width)
        scales = self._digits.scales
        values, factor = scales @ digits, float((scales**2).sum())
        ends = np.cumsum([len(SUMS), len(TOP) * self.bins])
        sums, top, cells = np.split(values, ends)

        def parts(names: Mapping[str, float], numbers: Any) -> dict[str, ScaledTotals]:
            return {
                name: ScaledTotals(value=value / w, factor=factor / w**2, resolution=float(scales[-1]) / w)
                for (name, w), value in zip(names.items(), numbers, strict=True)
            }

        return ClassTotals(
            classes=self.classes,
            bins=self.bins,
            sums=parts(SUMS, sums),
            top=parts(TOP, top.reshape(len(TOP), self.bins)),
            cells=parts(CELLS, cells.reshape(len(CELLS), self.classes, self.bins)),
        )


def right_of(block: Predicted) -> Floats:
    """Return 1 where the most probable class is the true one, else 0."""
    return np.asarray(block.top == block.y, dtype=np.float64)


def losses_of(block: Predicted) -> tuple[Floats, Floats]:
    """Return log loss (clipped as scikit-learn clips it) and Brier score of each row, as parts of the largest ones."""
    p = block.of_truth
    # Σ (p_j - 1[j=y])² = Σ p_j² - 2 p_y + 1, without the cancellation where p_y is near one.
    others = (padded(block.p) ** 2).sum(axis=0)[: len(p)] - p**2
    brier = np.clip(((1 - p) ** 2 + np.maximum(others, 0.0)) / LARGEST_BRIER, 0.0, 1.0)
    loss = np.clip(-np.log(np.clip(p, EPSILON, 1 - EPSILON)) / LARGEST_LOSS, 0.0, 1.0)
    return loss, brier


def _row_numbers(block: Predicted) -> dict[str, Floats]:
    loss, brier = losses_of(block)
    return {
        "rows": np.ones(len(loss)),
        "correct": right_of(block),
        "brier": brier,
        "brier_squared": brier**2,
        "loss": loss,
        "loss_squared": loss**2,
    }


def _top_numbers(block: Predicted) -> dict[str, Floats]:
    right, confidence = right_of(block), block.confidence
    return {
        "rows": np.ones(len(right)),
        "correct": right,
        "confidence": confidence,
        "squared": (confidence - right) ** 2,
        "spread": confidence * (1 - confidence),
    }


def _cell_numbers(block: Predicted) -> dict[str, Floats]:
    positives = np.zeros_like(block.p)
    positives[block.y, np.arange(len(block.y))] = 1.0
    return {
        "positives": positives,
        "probability": block.p,
        "squared": (block.p - positives) ** 2,
        "spread": block.p * (1 - block.p),
    }


def _norms(classes: int, right: int) -> tuple[float, float]:
    """Return the L1 norm and the squared L2 norm that a row can have, in units of 2^bits, if it is right or wrong.

    Per number the two are bounded by (b, b²), but for those of several classes: Σ_j p_j <= 1; Σ_j r_j² <= 2, and < 1 if
    the row is right, and Σ_j r_j⁴ <= Σ_j r_j²; Σ_j p_j(1-p_j) < 1, each at most 1/4.
    """
    loss = min(1.0, math.log(classes) / LARGEST_LOSS) if right else 1.0
    brier, squares = (0.5, 1.0) if right else (1.0, 2.0)
    single: list[tuple[Mapping[str, float], dict[str, float]]] = [
        (SUMS, {"rows": 1, "correct": right, "brier": brier, "brier_squared": brier**2}),
        (SUMS, {"loss": loss, "loss_squared": loss**2}),
        (TOP, {"rows": 1, "correct": right, "confidence": 1, "squared": 1, "spread": 0.25}),
        (CELLS, {"positives": 1, "probability": 1}),
    ]
    bounds = [weights[name] * bound for weights, numbers in single for name, bound in numbers.items()]
    w_squared, w_spread = CELLS["squared"], CELLS["spread"]
    first = sum(bounds) + w_squared * squares + w_spread
    return first, sum(b * b for b in bounds) + w_squared**2 * squares + w_spread**2 / 4
