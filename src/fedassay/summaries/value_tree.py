"""The distribution of a scalar as counts on the levels of a tree: the mechanism ``tree``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedassay.estimation.least_squares import LeastSquares, least_squares
from fedassay.estimation.tree import Tree
from fedassay.protocol import LARGEST_ROWS_PER_CLIENT, Noise, Protection, Sensitivity, Total
from fedassay.summaries.values import Floats, ValueSummary


@dataclass(frozen=True, kw_only=True)
class ValueTree(ValueSummary):
    """Counts per leaf, and per block of leaves on each level above.

    A row adds its level's multiplier to one node per level, of one class: sensitivities are those of counts,
    exactly, for one curve and for two.

    Parameters
    ----------
    widths : the levels of the `Tree`; ``(1,)`` counts leaves only.
    multipliers : by how much the counts of a level are multiplied before they are summed, 1 by default; this is
        how levels get different parts of the budget.

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
        """The levels over the leaves."""
        return Tree(leaves=self.points, widths=tuple(self.widths))

    @property
    def entries(self) -> int:
        """All nodes."""
        return self.tree.length

    @property
    def largest(self) -> int:
        """All rows of a client in one node of the level with the largest multiplier."""
        return LARGEST_ROWS_PER_CLIENT * max(self.multipliers)

    @property
    def partitions(self) -> tuple[NDArray[np.int64], ...]:
        """The levels, all classes together; none if counts are multiplied."""
        if set(self.multipliers) != {1}:
            return ()
        levels = self.tree.split(np.arange(self.entries, dtype=np.int64))
        return tuple(
            np.concatenate([level + self.entries * c for c in range(self.classes)]) for level in levels
        )

    @property
    def factors(self) -> NDArray[np.int64]:
        """The multiplier of each node."""
        return self.tree.factors(self.multipliers)

    def of_counts(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """All nodes, multiplied."""
        return self.tree.build(counts) * self.factors

    def leaf_covariance(self, noise: Noise) -> LeastSquares:
        """The covariance of the least-squares fit over all levels."""
        return least_squares(self.tree, self.multipliers, noise, classes=self.classes)

    def estimated_sums(self, classes: Total, noise: Noise) -> Floats:
        """Add up the fitted leaves."""
        return np.cumsum(self.leaf_covariance(noise).estimate(classes / self.factors), axis=-1)

    def sensitivity(self, protection: Protection) -> Sensitivity:
        """One node per level and row, times the multipliers."""
        return Sensitivity.of_counts(protection, multipliers=self.multipliers)
