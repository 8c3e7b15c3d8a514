"""Counts on several levels of resolution: nodes over leaves, one level for each width.

Under noise, a sum over many bins is better read from a few wide nodes than from many leaves. A tree counts
every row once per level; `least_squares` then combines all levels into one estimate per leaf.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from fedassay.errors import UsageError

T = TypeVar("T", bound=np.generic)

LARGEST_MULTIPLIER = 16


@dataclass(frozen=True, kw_only=True)
class Tree:
    """Nodes over `leaves` leaves: one level per width, from the leaves (width 1) up; no root.

    A vector on the tree is the concatenation of its levels, leaves first.

    Examples
    --------
    >>> tree = Tree(leaves=4, widths=(1, 2))
    >>> tree.build(np.array([5, 1, 0, 2]))
    array([5, 1, 0, 2, 6, 2])
    """

    leaves: int
    widths: tuple[int, ...] = (1,)

    def __post_init__(self) -> None:
        object.__setattr__(self, "widths", tuple(self.widths))
        chain = (*self.widths, self.leaves)
        if chain[0] != 1 or any(high <= low or high % low for low, high in pairwise(chain)):
            raise UsageError(
                f"widths: got {list(self.widths)}, expected 1 first and each width a multiple of the one "
                f"before, below and dividing {self.leaves} leaves."
            )

    @property
    def levels(self) -> int:
        """Number of levels, which is the number of nodes that count each row."""
        return len(self.widths)

    @property
    def length(self) -> int:
        """Number of nodes."""
        return sum(self.leaves // width for width in self.widths)

    def checked_multipliers(self, given: Sequence[int]) -> tuple[int, ...]:
        """Return the multipliers of the counts of each level: what is given, or 1 on all of them."""
        multipliers = tuple(given) or (1,) * self.levels
        if len(multipliers) != self.levels or not all(
            type(m) is int and 1 <= m <= LARGEST_MULTIPLIER for m in multipliers
        ):
            raise UsageError(
                f"multipliers: got {list(multipliers)}, expected one whole number from 1 to {LARGEST_MULTIPLIER} "
                "per level."
            )
        return multipliers

    def factors(self, multipliers: Sequence[int]) -> NDArray[np.int64]:
        """Return the multiplier of each node."""
        return np.repeat(multipliers, [self.leaves // width for width in self.widths])

    def build(self, leaf_counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Compute all nodes from the leaves, along the last axis."""
        shape = leaf_counts.shape[:-1]
        return np.concatenate(
            [leaf_counts.reshape(*shape, -1, width).sum(-1) for width in self.widths], axis=-1
        )

    def split(self, nodes: NDArray[T]) -> tuple[NDArray[T], ...]:
        """Return the levels of a vector on the tree, leaves first."""
        ends = np.cumsum([self.leaves // width for width in self.widths])
        return tuple(np.split(nodes, ends[:-1], axis=-1))
