"""Common base of all summaries of a distribution: they are linear in the counts of rows per leaf."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, fields
from typing import ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedassay.errors import DataError, UsageError
from fedassay.estimation.count_noise import LeafCovariance
from fedassay.estimation.least_squares import LeastSquares, least_squares
from fedassay.estimation.tree import Tree
from fedassay.protocol.arrays import Floats
from fedassay.protocol.vocabulary import (
    LARGEST_ROWS_PER_CLIENT,
    Batch,
    Memory,
    Neighbours,
    Noise,
    Protection,
    Rows,
    Sensitivity,
    Summary,
    Total,
    Unit,
    Vector,
)
from fedassay.summaries.distribution.grid import ValueGrid
from fedassay.summaries.measures import checked_labels, column
from fedassay.summaries.quantities import QUANTITIES, checked_quantity, scores_of
from fedassay.summaries.scored import checked_condition, condition_columns, condition_names, places

V = TypeVar("V", bound="ValueSummary")

_BLOCK = 1 << 17
"""Rows per pass: temporary arrays stay small."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Distribution:
    """Released total of a distribution: the request, and a row of numbers for each class."""

    summary: ValueSummary
    classes: Total

    def sums(self, noise: Noise) -> Floats:
        """Estimate the rows up to each point, F_0..F_N, of each class; F_0 = 0."""
        sums = self.summary.estimated_sums(self.classes, noise)
        return np.concatenate([np.zeros((len(sums), 1)), sums], axis=-1)


@dataclass(frozen=True, kw_only=True)
class ValueSummary(Summary[Distribution]):
    """Distribution of a scalar over the rows, of each class if they are labelled or kept apart.

    Enforced in `measure`: every row is counted in exactly one leaf of one class; a value that is NaN and a label other
    than 0 and 1 are a `DataError`.

    Parameters
    ----------
    lower, upper, points, spacing, given : the `ValueGrid`.
    labelled : True if positives and negatives are counted apart, positives first.
    public_labels : True if two neighbouring data sets have the same labels. It is used for the unit example under
        replace-one without a bound on rows, and ignored elsewhere.
    quantity, parameters : the scalar: a column, or a score that is computed from several columns (`quantities`).
    by, groups : the other condition that keeps rows apart (`scored`), if they are not labelled.
    """

    lower: float
    upper: float
    points: int
    spacing: str = "uniform"
    given: tuple[float, ...] = ()
    labelled: bool = False
    public_labels: bool = False
    quantity: str = "value"
    parameters: tuple[float, ...] = ()
    by: str = ""
    groups: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "parameters", checked_quantity(self.quantity, self.parameters))
        object.__setattr__(self, "groups", checked_condition(self.by, self.groups))
        if self.by and self.labelled:
            raise UsageError("condition: rows are labelled already, expected one or the other.")
        for name in ("lower", "upper", "given"):
            object.__setattr__(self, name, getattr(self.grid, name))

    @property
    def columns(self) -> tuple[str, ...]:  # type: ignore[override]
        """Columns of the scalar, and those that distinguish rows."""
        apart = ("label",) if self.labelled else condition_columns(self.by, self.quantity)
        return tuple(dict.fromkeys((*QUANTITIES[self.quantity].columns, *apart)))

    @property
    def grid(self) -> ValueGrid:
        """Grid of the points."""
        return ValueGrid(
            lower=self.lower,
            upper=self.upper,
            points=self.points,
            spacing=self.spacing,
            given=tuple(self.given),
        )

    @property
    def height(self) -> int:
        """Height L, of 2^L points."""
        return self.points.bit_length() - 1

    @property
    def classes(self) -> int:
        """Number of distributions."""
        return 2 if self.labelled else len(condition_names(self.by, self.groups))

    @property
    def entries(self) -> int:
        """Length of the vector of one class: one number per point, unless a subclass states otherwise."""
        return self.points

    @property
    def length(self) -> int:
        """Number of entries of all classes."""
        return self.classes * self.entries

    @abstractmethod
    def of_counts(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the vectors that belong to leaf counts, along the last axis: linear, in whole numbers."""

    @abstractmethod
    def leaf_covariance(self, noise: Noise) -> LeafCovariance:
        """Return the covariance that this noise gives to the leaf estimates of one class."""

    @abstractmethod
    def estimated_sums(self, classes: Total, noise: Noise) -> Floats:
        """Estimate the rows up to each point, F_1..F_N, from the released vectors of the classes."""

    @property
    def leaves(self) -> ValueTree:
        """Counts per leaf."""
        return self.like(ValueTree)

    def like(self, kind: type[V]) -> V:
        """Return the same scalar, grid and classes in another mechanism."""
        return kind(**{field.name: getattr(self, field.name) for field in fields(ValueSummary)})

    def from_leaves(self, counts: Vector) -> Vector:
        """Apply `of_counts` to all classes."""
        return self.of_counts(counts.reshape(self.classes, self.points)).reshape(-1)

    def measure(self, rows: Rows, memory: Memory) -> tuple[Vector, Memory]:
        """Count, then transform: linear in the rows."""
        grid = self.grid
        counts = np.zeros(self.classes * self.points, dtype=np.int64)
        for batch in rows.batches():
            values = self.values_of(batch)
            where = self._places(batch, len(values))
            for start in range(0, len(values), _BLOCK):
                part = slice(start, start + _BLOCK)
                code = grid.locate(values[part])
                if where is not None:
                    code = code + self.points * where[part]
                counts += np.bincount(code, minlength=len(counts))
        if counts.sum() > LARGEST_ROWS_PER_CLIENT:
            # Entries beyond their bound would be cut, and a sum that is cut is not hidden by noise on paths.
            raise DataError(
                f"values: got {counts.sum():,} rows, expected at most {LARGEST_ROWS_PER_CLIENT:,}."
            )
        return self.from_leaves(counts), memory

    def values_of(self, batch: Batch) -> Floats:
        """Return the scalar of each row."""
        return scores_of(batch, self.quantity, self.parameters)

    def _places(self, batch: Batch, rows: int) -> NDArray[np.int64] | None:
        """Return the class of each row, None if there is one only."""
        if self.labelled:
            return 1 - checked_labels(column(batch, "label")).astype(np.int64)
        return places(batch, self.by, self.groups, rows, quantity=self.quantity) if self.by else None

    def read(self, total: Total) -> Distribution:
        """Return one row per class."""
        return Distribution(summary=self, classes=total.reshape(self.classes, -1))

    def labels_stay(self, protection: Protection) -> bool:
        """Return whether a replaced row stays in its class: there is a single class, or labels are public."""
        if self.classes == 1:
            return True
        return (
            self.labelled
            and self.public_labels
            and protection.unit is Unit.EXAMPLE
            and protection.neighbours is Neighbours.REPLACE_ONE
            and protection.rows_per_client is None
        )


# --- the distribution of a scalar as counts on the levels of a tree -----------------------------------------


@dataclass(frozen=True, kw_only=True)
class ValueTree(ValueSummary):
    """Counts per leaf, and per block of leaves on each level above.

    A row adds its level's multiplier to one node per level, of one class: sensitivities are those of counts,
    exactly, for one curve and for two.

    Parameters
    ----------
    widths : the levels of the `Tree`; ``(1,)`` counts leaves only.
    multipliers : the factors of the counts of each level before they are summed, 1 by default; this is how levels get
        different parts of the budget.

    Examples
    --------
    >>> ValueTree(lower=0, upper=1, points=4, widths=(1, 2)).of_counts(np.array([5, 1, 0, 2]))
    array([5, 1, 0, 2, 6, 2])
    """

    name: ClassVar[str] = "value-tree"

    widths: tuple[int, ...] = (1,)
    multipliers: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "widths", self.tree.widths)
        object.__setattr__(self, "multipliers", self.tree.checked_multipliers(self.multipliers))

    @property
    def tree(self) -> Tree:
        """Levels over the leaves."""
        return Tree(leaves=self.points, widths=tuple(self.widths))

    @property
    def entries(self) -> int:
        """Number of nodes."""
        return self.tree.length

    @property
    def largest(self) -> int:
        """Largest entry: all rows of a client in one node of the level with the largest multiplier."""
        return LARGEST_ROWS_PER_CLIENT * max(self.multipliers)

    @property
    def partitions(self) -> tuple[NDArray[np.int64], ...]:
        """Levels, all classes together; none if counts are multiplied."""
        if set(self.multipliers) != {1}:
            return ()
        levels = self.tree.split(np.arange(self.entries, dtype=np.int64))
        return tuple(
            np.concatenate([level + self.entries * c for c in range(self.classes)]) for level in levels
        )

    @property
    def factors(self) -> NDArray[np.int64]:
        """Multiplier of each node."""
        return self.tree.factors(self.multipliers)

    def of_counts(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Build all nodes from the counts, multiplied."""
        return self.tree.build(counts) * self.factors

    def leaf_covariance(self, noise: Noise) -> LeastSquares:
        """Return the covariance of the least-squares fit over all levels."""
        return least_squares(self.tree, self.multipliers, noise, classes=self.classes)

    def estimated_sums(self, classes: Total, noise: Noise) -> Floats:
        """Add up the fitted leaves."""
        return np.cumsum(self.leaf_covariance(noise).estimate(classes / self.factors), axis=-1)

    def sensitivity(self, protection: Protection) -> Sensitivity:
        """Return the sensitivity of one node per level and row, times the multipliers."""
        return Sensitivity.of_counts(protection, multipliers=self.multipliers)
