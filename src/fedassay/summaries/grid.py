"""Public grid of score bins that every client counts on.

A grid is fixed before any row is read, so it costs no privacy: uniform bins, logit-spaced bins, or both at
once. Bin ("leaf") i is the half-open interval [e_i, e_{i+1}), the last one is closed at 1.

The bin of a score is found in constant time per row and exactly.

Uniform bins are one multiplication. For others, most of [0, 1] is covered by small uniform cells that hold at
most one edge each: a table and one comparison decide. Near 0 and 1, where logit-spaced edges crowd, they are
found without a logarithm: non-negative doubles order like their bits, so the leading bits of min(s, 1 - s)
index a table whose cells again hold at most one edge. Upper edges are 1 minus lower edges; for numbers in
[1/2, 1] this subtraction is exact in double precision (Sterbenz), so the mirrored comparison is exact too.

The rank of a score in a mixed grid is the sum of its ranks in the two halves, because the edges of a mixed
grid are the union of theirs.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fedassay.errors import UsageError

# --- the bin of a score -------------------------------------------------------------------------------------

TRANSFORMS = ("uniform", "logit", "mixed")


def unmoved_edges(transform: str, height: int, reach: float) -> NDArray[np.float64]:
    """Return the 2^height - 1 interior edges of a grid without thresholds, strictly increasing.

    Examples
    --------
    >>> unmoved_edges("uniform", 2, 24)
    array([0.25, 0.5 , 0.75])
    >>> unmoved_edges("mixed", 2, 24).round(6)
    array([6.00000e-06, 5.00000e-01, 9.99994e-01])
    """
    if transform == "uniform":
        return _uniform_edges(height)
    upper = _upper_logit_edges(transform, height, reach)
    if transform == "logit":
        return np.concatenate([(1 - upper)[::-1], [0.5], upper])
    return np.sort(np.concatenate([_uniform_edges(height - 1), 1 - upper, upper]))


def locate_unmoved(
    scores: NDArray[np.float64], transform: str, height: int, reach: float
) -> NDArray[np.int64]:
    """Return the leaf of each score in a grid without thresholds: the number of interior edges that it reaches.

    Examples
    --------
    >>> locate_unmoved(np.array([0.0, 1e-6, 0.5, 1.0]), "mixed", 2, 24)
    array([0, 0, 2, 3])
    """
    if transform == "uniform":
        return _uniform_rank(scores, height)
    if transform == "logit":
        return _table(transform, height, reach).rank(scores)
    return _uniform_rank(scores, height - 1) + _table(transform, height, reach).rank(scores)


@dataclass(frozen=True, kw_only=True, eq=False)
class Cells:
    """Uniform cells over [0, 1], 2^height of them: the edges before each, and the cells that hold several edges."""

    height: int
    before: NDArray[np.int64]
    crowded: NDArray[np.bool_]
    edges: NDArray[np.float64]

    @classmethod
    def of(cls, edges: NDArray[np.float64], *, height: int) -> Cells:
        """Build the cells for these interior edges."""
        starts = np.arange((1 << height) + 1) / (1 << height)  # the last cell is the score 1 alone
        before = np.searchsorted(edges, starts, side="right")
        inside = np.append(np.searchsorted(edges, starts[1:], side="left"), before[-1]) - before
        return cls(height=height, before=before, crowded=inside > 1, edges=np.append(edges, np.inf))

    def locate(self, scores: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.intp]]:
        """Return the leaf of each score, and the places of those for which it may be wrong: the crowded cells."""
        cell = (scores * (1 << self.height)).astype(np.int64)
        leaf = self.before.take(cell)
        leaf += scores >= self.edges.take(leaf)
        return leaf, np.flatnonzero(self.crowded.take(cell))


def _uniform_edges(height: int) -> NDArray[np.float64]:
    return np.arange(1, 1 << height) / (1 << height)


def _uniform_rank(scores: NDArray[np.float64], height: int) -> NDArray[np.int64]:
    # s·2^h is exact, so truncation is the floor of the real product; 1.0 belongs to the last leaf.
    return np.minimum((scores * (1 << height)).astype(np.int64), (1 << height) - 1)


def _upper_logit_edges(transform: str, height: int, reach: float) -> NDArray[np.float64]:
    """Return the edges above 0.5. Half of a mixed grid sits at half steps, so that 0.5 is not an edge twice."""
    if transform == "logit":
        steps = np.arange(1, 1 << (height - 1)) * (2 * reach / (1 << height))
    else:
        steps = (np.arange(1 << (height - 2)) + 0.5) * (2 * reach / (1 << (height - 1)))
    return np.asarray(1 / (1 + np.exp(-steps)))


@dataclass(frozen=True, kw_only=True, eq=False)
class _LogitTable:
    """Ranks among edges that are symmetric around 0.5, by the leading bits of the score.

    `edge_bits` are the bits of the edges below 0.5, closed by a sentinel; `below[c]` is the number of edges
    in cells before c; `top` is the rank of 1.0.
    """

    edge_bits: NDArray[np.int64]
    below: NDArray[np.int64]
    shift: int
    top: int

    def rank(self, scores: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the number of edges that each score reaches."""
        mirrored = 1 - scores
        upper = scores >= 0.5
        bits = np.minimum(scores, mirrored).view(np.int64)
        # s reaches the upper edge 1 - l exactly if 1 - s <= l: count the edges strictly below 1 - s, those at
        # most the double before it. The floor puts all scores below the first edge, -0.0 too, into cell 0.
        first = (int(self.edge_bits[0]) >> self.shift) << self.shift
        bits = np.maximum(bits - upper, first - 1)
        rank = self.below[(bits >> self.shift) - (first >> self.shift) + 1]
        rank += bits >= self.edge_bits[rank]
        return np.asarray(np.where(upper, self.top - rank, rank), dtype=np.int64)


@lru_cache(maxsize=16)
def _table(transform: str, height: int, reach: float) -> _LogitTable:
    upper = _upper_logit_edges(transform, height, reach)
    bits = np.sort(1 - upper).view(np.int64)
    shift = 51
    while np.any(np.diff(bits >> shift) == 0):
        shift -= 1
    cells = (bits >> shift) - (bits[0] >> shift) + 1  # cell 0 is everything before the first edge's cell
    half = int(np.array([0.5]).view(np.int64)[0])
    last = (half >> shift) - int(bits[0] >> shift) + 1
    below = np.searchsorted(cells, np.arange(last + 1), side="left")
    top = 2 * len(upper) + (1 if transform == "logit" else 0)
    sentinel = np.iinfo(np.int64).max
    return _LogitTable(edge_bits=np.append(bits, sentinel), below=below, shift=shift, top=top)


# --- the public grid ----------------------------------------------------------------------------------------

LOWEST, HIGHEST = 2, 18
"""Lowest and highest height of a grid."""

LARGEST_REACH = 24.0
"""Largest logit at which an edge may lie."""


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Grid of 2^height score bins over [0, 1], some of whose edges are thresholds.

    * ``uniform``: edges i/2^h. The natural choice for scores that fill [0, 1].
    * ``logit``: edges equally spaced in logit(s) over ±reach; the outer bins catch the tails. For scores that
      concentrate near 0 or 1, where uniform bins fail (near 1e-6 every row is in the first uniform bin).
      The largest reach, 24, covers scores from 4e-11 to 1 - 4e-11; beyond it the edges near 1 of a tall grid
      would not be distinct doubles.
    * ``mixed``: the common refinement of a uniform and a logit grid of half the size each. Its binning
      error is never above that of either half, and choosing it needs no look at the data.

    Thresholds become edges by moving the nearest interior edge onto each of them. So the number of leaves stays 2^h,
    and ``score >= threshold`` is decided exactly, in double precision. A threshold of 0 needs no edge; a threshold of 1
    makes the last leaf hold the scores that equal 1.

    Edge cases: thresholds outside [0, 1], or more of them than interior edges, are refused. Thresholds that
    compete for one edge take the next ones, in order.

    Examples
    --------
    >>> grid = Grid(transform="uniform", height=2, thresholds=(0.3,))
    >>> grid.edges
    array([0.  , 0.3 , 0.5 , 0.75, 1.  ])
    >>> grid.locate(np.array([0.0, 0.29, 0.3, 1.0]))
    array([0, 0, 1, 3])
    """

    transform: str = "uniform"
    height: int = 10
    thresholds: tuple[float, ...] = ()
    reach: float = LARGEST_REACH

    def __post_init__(self) -> None:
        if self.transform not in TRANSFORMS:
            raise UsageError(f"transform: got {self.transform!r}, expected one of {', '.join(TRANSFORMS)}.")
        if not isinstance(self.height, int) or not LOWEST <= self.height <= HIGHEST:
            raise UsageError(
                f"height: got {self.height}, expected a whole number from {LOWEST} to {HIGHEST} "
                "(2^height bins)."
            )
        if not 1 <= self.reach <= LARGEST_REACH:
            raise UsageError(f"reach: got {self.reach}, expected a logit from 1 to {LARGEST_REACH:.0f}.")
        thresholds = tuple(sorted({float(threshold) for threshold in self.thresholds}))
        outside = [threshold for threshold in thresholds if not 0 <= threshold <= 1]
        if outside:
            raise UsageError(f"thresholds: got {outside}, expected numbers in [0, 1], as scores are.")
        if sum(threshold > 0 for threshold in thresholds) >= self.leaves:
            raise UsageError(
                f"thresholds: got {len(thresholds)}, expected at most {self.leaves - 1} for {self.leaves} "
                "bins; give a larger height."
            )
        object.__setattr__(self, "thresholds", thresholds)

    @classmethod
    def of(cls, bins: object) -> Grid:
        """Return the grid that these fields of a summary describe."""
        return cls(**{field.name: getattr(bins, field.name) for field in fields(cls)})

    @property
    def leaves(self) -> int:
        """Number of bins, 2^height."""
        return 1 << self.height

    @property
    def edges(self) -> NDArray[np.float64]:
        """Edges, 2^height + 1 of them, from 0 to 1, non-decreasing (read-only)."""
        return _edges(self)

    def locate(self, scores: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the leaf of each score. The caller has checked that scores are in [0, 1].

        Guarantee: ``edges[leaf] <= score < edges[leaf + 1]``, exactly (the last leaf includes 1).
        """
        if self.transform == "uniform":
            return self._locate_anywhere(scores)
        leaf, crowded = _cells(self).locate(scores)
        if crowded.size:
            leaf[crowded] = self._locate_anywhere(scores[crowded])
        return leaf

    def _locate_anywhere(self, scores: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the leaf of each score, also where edges crowd; slower, except for uniform bins."""
        leaf = locate_unmoved(scores, self.transform, self.height, self.reach)
        moved = _moved(self)
        if moved is None:
            return leaf
        # A leaf with two unmoved edges is right; the few other rows are looked up among the true edges.
        unsure = np.flatnonzero(moved[leaf])
        leaf[unsure] = np.searchsorted(self.edges[1:-1], scores[unsure], side="right")
        return leaf


@lru_cache(maxsize=64)
def _edges(grid: Grid) -> NDArray[np.float64]:
    edges = np.concatenate([[0.0], unmoved_edges(grid.transform, grid.height, grid.reach), [1.0]])
    wanted = np.array([threshold for threshold in grid.thresholds if threshold > 0])
    edges[_taken(edges, wanted)] = wanted
    edges.flags.writeable = False
    return edges


def _taken(edges: NDArray[np.float64], wanted: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the interior edge that each of the increasing thresholds takes: the nearest, in order, all distinct."""
    last = len(edges) - 2
    right = np.clip(np.searchsorted(edges, wanted), 1, last)
    left = np.maximum(right - 1, 1)
    nearest = np.where(wanted - edges[left] < edges[right] - wanted, left, right)
    places = np.arange(len(wanted))
    pushed = np.maximum.accumulate(nearest - places) + places  # strictly increasing, towards the right
    return np.asarray(np.minimum(pushed, last - places[::-1]), dtype=np.int64)  # and back from the right end


@lru_cache(maxsize=64)
def _moved(grid: Grid) -> NDArray[np.bool_] | None:
    """Return for each leaf whether one of its edges was moved; None if none was."""
    moved = _edges(grid) != _edges(replace(grid, thresholds=()))
    return np.asarray(moved[1:] | moved[:-1]) if moved.any() else None


@lru_cache(maxsize=16)
def _cells(grid: Grid) -> Cells:
    return Cells.of(_edges(grid)[1:-1], height=min(16, grid.height + 2))
