"""Groups of rows with neighbouring scores, of about equal size, from a noisy distribution function of the scores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import isotonic_regression

from fedassay.estimation.evidence import ENOUGH
from fedassay.protocol.arrays import Floats
from fedassay.tasks.distribution.search import inverse_by_search


@dataclass(frozen=True, kw_only=True, eq=False)
class ScoreCurve:
    """How many rows have a score up to i/N, i = 1..N, as released: under noise it can go down.

    Examples
    --------
    >>> curve = ScoreCurve(counts=np.array([1.0, 3.0, 2.0, 4.0]))
    >>> curve.edges(2), curve.edges(4)
    ((0.0, 0.5, 1.0), (0.0, 0.25, 0.5, 1.0))
    """

    counts: Floats

    @property
    def monotone(self) -> ScoreCurve:
        """The closest curve that does not go down (least squares)."""
        return ScoreCurve(counts=np.asarray(isotonic_regression(self.counts).x))

    def edges(self, groups: int) -> tuple[float, ...]:
        """Edges at the quantiles q/Q, q = 1..Q-1, of the released number of rows.

        Each quantile is found by the search of Algorithm 1 of Barczewski, Mawass and Ramon, down to one point of the
        grid: the upper end of the last interval, which a row can belong to. The larger of two quantiles is never
        found below the smaller one, whatever the curve looks like: wherever the searches part, the larger one goes
        right. Quantiles that coincide, or are found at the end, give fewer groups. Without rows there is one group.
        """
        N, rows = len(self.counts), float(self.counts[-1])
        if rows <= 0:
            return (0.0, 1.0)
        found = {
            inverse_by_search(lambda place: float(self.counts[place]), N, rows * q / groups)
            for q in range(1, groups)
        }
        # Behind the last row there is no group.
        inner = sorted(place for place in found if place < N - 1 and self.counts[place] < rows)
        return (0.0, *((place + 1) / N for place in inner), 1.0)

    def expected(self, edges: tuple[float, ...]) -> tuple[Floats, Floats]:
        """The positives and negatives that each group would have if each score were right, each in mid-bin.

        Examples
        --------
        >>> ScoreCurve(counts=np.array([4.0, 8.0])).expected((0.0, 0.5, 1.0))
        (array([1., 3.]), array([3., 1.]))
        """
        N = len(self.counts)
        rows, scores = np.diff(self.counts, prepend=0.0), (np.arange(N) + 0.5) / N
        starts = np.rint(np.array(edges[:-1]) * N).astype(np.int64)
        return np.add.reduceat(rows * scores, starts), np.add.reduceat(rows * (1 - scores), starts)


def enough_rows(rows: Floats, deviation: Callable[[int, int], float]) -> list[int]:
    """Where to cut a row of groups so that each part has enough rows: more than none, and than noise could feign.

    Parameters
    ----------
    rows : of each group, as released.
    deviation : the noise standard deviation of the rows of the groups from i up to but not j.

    Each part ends as soon as it has `ENOUGH` noise standard deviations of rows; what is left over at the end joins the
    part before it, and so on until that has enough. If there are not enough rows in all, the answer has no part.

    Examples
    --------
    >>> enough_rows(np.array([100.0, 3.0, 50.0, 2.0]), lambda i, j: 5.0)
    [0, 1, 4]
    """

    def enough(start: int, end: int) -> bool:
        total = float(rows[start:end].sum())
        return total > 0 and total >= ENOUGH * deviation(start, end)

    starts = [0]
    for end in range(1, len(rows)):
        if enough(starts[-1], end):
            starts.append(end)
    while starts and not enough(starts[-1], len(rows)):
        starts.pop()
    return [*starts, len(rows)] if starts else [0]
