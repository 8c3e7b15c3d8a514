"""The public grid of score bins that every client counts on.

A grid is fixed before any row is read, so it costs no privacy: uniform bins, logit-spaced bins, or both at
once. Bin ("leaf") i is the half-open interval [e_i, e_{i+1}), the last one is closed at 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fedassay.errors import UsageError
from fedassay.summaries.locate import TRANSFORMS, Cells, locate_unmoved, unmoved_edges

LOWEST, HIGHEST = 2, 18
"""The heights a grid can have."""

LARGEST_REACH = 24.0
"""The largest logit at which an edge may lie."""


@dataclass(frozen=True, kw_only=True)
class Grid:
    """2^height score bins over [0, 1], some of whose edges are thresholds.

    * ``uniform``: edges i/2^h. The natural choice for scores that fill [0, 1].
    * ``logit``: edges equally spaced in logit(s) over ±reach; the outer bins catch the tails. For scores that
      concentrate near 0 or 1, where uniform bins fail (near 1e-6 every row is in the first uniform bin).
      The largest reach, 24, covers scores from 4e-11 to 1 - 4e-11; beyond it the edges near 1 of a tall grid
      would not be distinct doubles.
    * ``mixed``: the common refinement of a uniform and a logit grid of half the size each. Its binning
      error is never above that of either half, and choosing it needs no look at the data.

    Thresholds become edges by moving the nearest interior edge onto each of them, so that the number of
    leaves stays 2^h and ``score >= threshold`` is decided exactly, in double precision. A threshold of 0
    needs no edge; a threshold of 1 makes the last leaf hold the scores that equal 1.

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

    @property
    def leaves(self) -> int:
        """The number of bins, 2^height."""
        return 1 << self.height

    @property
    def edges(self) -> NDArray[np.float64]:
        """The 2^height + 1 edges, from 0 to 1, non-decreasing (read-only)."""
        return _edges(self.transform, self.height, self.reach, self.thresholds)

    def locate(self, scores: NDArray[np.float64]) -> NDArray[np.int64]:
        """The leaf of each score. The caller has checked that scores are in [0, 1].

        Guarantee: ``edges[leaf] <= score < edges[leaf + 1]``, exactly (the last leaf includes 1).
        """
        if self.transform == "uniform":
            return self._locate_anywhere(scores)
        leaf, crowded = _cells(self.transform, self.height, self.reach, self.thresholds).locate(scores)
        if crowded.size:
            leaf[crowded] = self._locate_anywhere(scores[crowded])
        return leaf

    def _locate_anywhere(self, scores: NDArray[np.float64]) -> NDArray[np.int64]:
        """The same, also where edges crowd; slower, except for uniform bins."""
        leaf = locate_unmoved(scores, self.transform, self.height, self.reach)
        moved = _moved(self.transform, self.height, self.reach, self.thresholds)
        if moved is None:
            return leaf
        # A leaf with two unmoved edges is right; the few other rows are looked up among the true edges.
        unsure = np.flatnonzero(moved[leaf])
        leaf[unsure] = np.searchsorted(self.edges[1:-1], scores[unsure], side="right")
        return leaf


@lru_cache(maxsize=64)
def _edges(transform: str, height: int, reach: float, thresholds: tuple[float, ...]) -> NDArray[np.float64]:
    edges = np.concatenate([[0.0], unmoved_edges(transform, height, reach), [1.0]])
    wanted = np.array([threshold for threshold in thresholds if threshold > 0])
    edges[_taken(edges, wanted)] = wanted
    edges.flags.writeable = False
    return edges


def _taken(edges: NDArray[np.float64], wanted: NDArray[np.float64]) -> NDArray[np.int64]:
    """The interior edge that each of the increasing thresholds takes: the nearest, in order, all distinct."""
    last = len(edges) - 2
    right = np.clip(np.searchsorted(edges, wanted), 1, last)
    left = np.maximum(right - 1, 1)
    nearest = np.where(wanted - edges[left] < edges[right] - wanted, left, right)
    places = np.arange(len(wanted))
    pushed = np.maximum.accumulate(nearest - places) + places  # strictly increasing, towards the right
    return np.asarray(np.minimum(pushed, last - places[::-1]), dtype=np.int64)  # and back from the right end


@lru_cache(maxsize=64)
def _moved(
    transform: str, height: int, reach: float, thresholds: tuple[float, ...]
) -> NDArray[np.bool_] | None:
    """For each leaf, whether one of its edges was moved; None if none was."""
    moved = _edges(transform, height, reach, thresholds) != _edges(transform, height, reach, ())
    return np.asarray(moved[1:] | moved[:-1]) if moved.any() else None


@lru_cache(maxsize=16)
def _cells(transform: str, height: int, reach: float, thresholds: tuple[float, ...]) -> Cells:
    return Cells.of(_edges(transform, height, reach, thresholds)[1:-1], height=min(16, height + 2))
