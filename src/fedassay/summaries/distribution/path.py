"""Distribution of a scalar with noise along the paths of a binary tree: the mechanism ``path``.

What is released is the number of rows up to every point, F_i, plus the noise of all nodes over leaf i:

    F_i + Σ_{l=0..L} η_{⌊i/2^l⌋, l}

(Barczewski, Mawass and Ramon, Eq. 2). A row that is added raises F on a suffix of the points. The noise hides that
if the suffix is a sum of few nodes, with signs: `Sensitivity` is about the nodes.

**Pure epsilon: the fewest nodes** (docs/explanation/distributions.md; enumerated in the tests for L <= 8). A suffix
needs ⌈(L+1)/2⌉ nodes, the difference of two suffixes, an interval, L. A row of one class touches one curve; one that
is replaced by a row of the other class touches a suffix of each. Rows with the same value need as many nodes with the
factor r.

**Gaussian noise: the shortest vector.** w does not have to be sparse. Its least squared length is q(v) =
v^T (A A^T)^{-1} v for the spread matrix A, and A A^T = Σ_l 2^l Π_l with the block averages Π_l. `steepest(L)` is the
largest q of a suffix. An interval with its first part in the left and its second in the right half of some block has q
of at most the sum of the q of its parts in the half's own tree (the terms that couple them are negative), so at most
2·steepest(L-1). Noise is whole numbers, so w must be: counts are multiplied by a large S first. S times the shortest
vector is then a vector of whole numbers plus an element of the kernel of A. The kernel is spanned by (parent, -left,
-right), N-1 vectors of whole numbers; rounding their coefficients changes each entry by at most 1, so that
|w| <= S·√q + √(2N).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedassay.errors import UsageError
from fedassay.estimation.covariances import PathCovariance
from fedassay.protocol.arrays import Floats
from fedassay.protocol.vocabulary import (
    LARGEST_ROWS_PER_CLIENT,
    Batch,
    Noise,
    Protection,
    Sensitivity,
    Total,
    Vector,
)
from fedassay.summaries.distribution.tree import ValueSummary
from fedassay.summaries.measures import checked_scores, column

LARGEST_MULTIPLIER = 1 << 16


@dataclass(frozen=True, kw_only=True)
class ValuePath(ValueSummary):
    """Number of rows up to each point, with noise that neighbouring points share.

    Parameters
    ----------
    multiplier : the factor of the counts. 1 is for noise that is calibrated in the L1 norm; others state the
        sensitivity of `multiplied` vectors, which are shorter in the L2 norm.

    Examples
    --------
    >>> path = ValuePath(lower=0, upper=1, points=4)
    >>> path.of_counts(np.array([5, 1, 0, 2]))
    array([5, 6, 6, 8])
    >>> path.spread(np.array([1, 0, 0, 0, 10, 0, 100]))  # four leaves, two pairs, the root
    array([111, 110, 100, 100])
    """

    name: ClassVar[str] = "value-path"
    cumulative: ClassVar[bool] = True

    multiplier: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        m = self.multiplier
        if type(m) is not int or not 1 <= m <= LARGEST_MULTIPLIER or m.bit_count() != 1:
            raise UsageError(f"multiplier: got {m}, expected a power of two up to {LARGEST_MULTIPLIER}.")

    @property
    def largest(self) -> int:
        """Largest entry: all rows of a client."""
        return LARGEST_ROWS_PER_CLIENT * self.multiplier

    @property
    def nodes(self) -> int:
        """Number of nodes of one tree, the root included."""
        return 2 * self.points - 1

    @property
    def draws(self) -> int:
        """Number of draws: one per node and class."""
        return self.classes * self.nodes

    @property
    def overlap(self) -> int:
        """Number of nodes over a leaf."""
        return self.height + 1

    def spread(self, draws: Vector) -> Vector:
        """Add to every point the draws of the nodes over its leaf."""
        trees = draws.reshape(self.classes, self.nodes)
        total = np.zeros((self.classes, self.points), dtype=np.int64)
        for level in range(self.height + 1):
            start, count = _start(self.points, level), self.points >> level
            total += np.repeat(trees[:, start : start + count], 1 << level, axis=1)
        return total.reshape(-1)

    def draws_of(self, place: int) -> tuple[int, ...]:
        """Return the nodes over one leaf."""
        tree, leaf = divmod(place, self.points)
        return tuple(
            tree * self.nodes + _start(self.points, level) + (leaf >> level)
            for level in range(self.height + 1)
        )

    def of_counts(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Sum up to each point."""
        return np.cumsum(counts, axis=-1) * self.multiplier

    def leaf_covariance(self, noise: Noise) -> PathCovariance:
        """Return the covariance of draws that neighbouring points share."""
        return PathCovariance(points=self.points, draw_variance=noise.variance, multiplier=self.multiplier)

    def estimated_sums(self, classes: Total, noise: Noise) -> Floats:
        """Divide the released sums by the multiplier."""
        return np.asarray(classes / self.multiplier)

    def sensitivity(self, protection: Protection) -> Sensitivity:
        """Return the sensitivity: the fewest nodes, or for a multiplier above 1 the shortest vector; see above."""
        rows = protection.rows_per_unit
        if self.multiplier == 1:
            nodes = rows * self.fewest_nodes(protection)
            return Sensitivity(l1=float(nodes), l2=float(rows * math.sqrt(self.fewest_nodes(protection))))
        curves = 2 if protection.moves_both_ways and not self.labels_stay(protection) else 1
        squared = self.shortest_squared(protection)
        l2 = rows * (self.multiplier * math.sqrt(squared) + math.sqrt(2 * curves * self.points))
        return Sensitivity(l1=l2 * math.sqrt(curves * self.nodes), l2=l2)

    def fewest_nodes(self, protection: Protection) -> int:
        """Return the number of nodes, with signs, that make up what one row moves; exact."""
        suffix = (self.height + 2) // 2  # ⌈(L+1)/2⌉
        if not protection.moves_both_ways:
            return suffix
        return self.height if self.labels_stay(protection) else 2 * suffix

    def shortest_squared(self, protection: Protection) -> float:
        """Bound the squared length of the shortest vector of nodes; exact unless rows are replaced."""
        if not protection.moves_both_ways:
            return steepest(self.height)
        if not self.labels_stay(protection):
            return 2 * steepest(self.height)
        # Of two points only the first can change alone: a suffix, mirrored.
        return 2 * steepest(self.height - 1) if self.height > 1 else steepest(1)


def _start(points: int, level: int) -> int:
    """Return the start of a level: behind points + points/2 + .. of the levels below."""
    return 2 * points - (points >> (level - 1)) if level else 0


@lru_cache(maxsize=64)
def steepest(height: int) -> float:
    """Return the largest q of a suffix of 2^height points.

    Examples
    --------
    >>> round(steepest(10), 2)
    1.79
    """
    length = np.arange((1 << height) + 1)
    # |Π_k 1_{<r}|² = q·w + ρ²/w for r = q·w + ρ; suffixes mirror prefixes.
    total = np.zeros(len(length))
    below = None
    for level in range(height + 1):
        width = 1 << level
        norm = (length // width) * width + (length % width) ** 2 / width
        if below is not None:
            total += (below - norm) / (width - 1)  # λ of the level below: 2^level - 1
        below = norm
    assert below is not None
    return float((total + below / (2 * (1 << height) - 1)).max())


# --- the distribution of scores -----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ScorePath(ValuePath):
    """`ValuePath` of the column in the role ``score``: the number of rows with a score up to i/N, i = 1..N.

    Sensitivity and noise are those of `ValuePath` on the uniform grid of [0, 1]. Enforced in `measure`: a score that
    is NaN or outside [0, 1] is a `DataError`, where a `ValuePath` would count it into an end. There are no
    `leaves`: what it is asked for together with, sums of scores, cannot be computed from counts either.

    Examples
    --------
    >>> import numpy as np
    >>> class ThreeRows:
    ...     def batches(self):
    ...         yield {"score": np.array([0.1, 0.5, 0.9])}
    >>> ScorePath(points=4).measure(ThreeRows(), {})[0]
    array([1, 2, 2, 3])
    """

    name: ClassVar[str] = "score-path"

    lower: float = 0.0
    upper: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.lower, self.upper, self.spacing, self.labelled) != (0.0, 1.0, "uniform", False):
            raise UsageError("score path: expected the uniform grid of [0, 1] and one class of rows.")

    @property
    def columns(self) -> tuple[str, ...]:  # type: ignore[override]
        """Columns: the score only. How scores are distributed has nothing to do with labels."""
        return ("score",)

    @property
    def leaves(self) -> None:  # type: ignore[override]
        """None; see the class."""
        return

    def values_of(self, batch: Batch) -> Floats:
        """Return the scores, if they are valid."""
        return checked_scores(column(batch, "score"))
