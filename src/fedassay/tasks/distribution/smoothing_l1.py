"""The least sum of absolute tree corrections under which no step of a curve is negative.

With q the steps on the vertices and B the incidence matrix of the tree's edges (see `dyadic`), the problem and its
dual are

    minimise Σ |ν|  subject to  q + Bν ≥ 0         maximise -Σ q_v λ_v  subject to  λ ≥ 0, |λ_a - λ_b| ≤ 1 on edges.

The first is a flow of least cost, so the dual has a solution in whole numbers.

**Dual.** T(x, y), the least Σ q_v λ_v over the inside of a block whose ends have λ_a = x and λ_b = y, |x - y| ≤ 1,
follows from those of its halves: T(x, y) = min_z T_left(x, z) + q_m z + T_right(z, y). No vertex of a block of 2^l
values is further from either end than k = ⌈(l+1)/2⌉ edges (Lemma 1 of the paper), so that from x = k on λ ≥ 0 says
nothing and T(x+1, y+1) = T(x, y) + Σ q over the inside. The table of a block has k + 1 rows: linear time in all.

**Primal.** By complementary slackness the optimal ν are exactly the flows that satisfy: ν ≥ 0 on edges with
λ_a - λ_b = 1, ν ≤ 0 with -1, ν = 0 otherwise; and w = q + Bν is zero where λ > 0. What a block can take from its two
ends is then a set given by an interval for each of the two amounts and one for their sum (what a network can take
from two terminals always is). These intervals are computed from the narrowest blocks up, and amounts chosen within
them from the widest down. The solution is not unique: where there is a choice, the amount nearest to zero is taken,
half of it from either side. Measured, that is closer to the truth than the middles of the intervals and than what
solvers of linear programs return, interior-point or simplex (docs/explanation/smoothing.md).

Reference: Barczewski, Mawass and Ramon, *Differentially Private Empirical Cumulative Distribution Functions*, Eq. 3
with p = 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedassay.tasks.distribution.dyadic import Floats, Increments, Ints, halves, right_ends

Offsets = NDArray[np.int8]


def least_absolute(increments: Increments) -> tuple[Floats, Ints, int]:
    """ν on the nodes, and λ on the vertices 0..N-1 (bit-reversed) and on N.

    Guarantee: exact up to rounding; see the module. Assumption: the steps add up to more than zero.
    """
    lefts, last = _dual(increments)
    return _primal(increments, lefts, last), lefts, last


# --- the dual: whole numbers on the vertices ------------------------------------------------------------


def _dual(increments: Increments) -> tuple[Ints, int]:
    """An optimal λ, by dynamic programming."""
    count = len(increments)
    # An edge: free of charge for |x - y| ≤ 1; y = x - 1 does not exist at x = 0.
    table = np.zeros((2, 3, count))
    table[0, 0] = np.inf
    inside = np.zeros(count)
    choices = []
    for level, n in enumerate(halves(count), start=1):
        table, inside, choice = _widen(level, n, table, inside, increments)
        choices.append(choice)
    # From the last row on, one more costs Σ q = top > 0.
    x, d = np.arange(len(table))[:, None], np.array([-1, 0, 1])
    total = table[:, :, 0] + increments.steps[0] * x + increments.last * (x + d)
    best, direction = np.unravel_index(np.argmin(total), total.shape)
    lefts, rights = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64)
    lefts[0], rights[-1] = best, best + direction - 1
    for n, choice in zip(reversed([*halves(count)]), reversed(choices), strict=True):
        x, y = lefts[:n], rights[count - n :]
        row = np.minimum(x, len(choice) - 1)
        middles = x + choice[row, y - x + 1, np.arange(n)]
        lefts[n : 2 * n] = rights[count - 2 * n : count - n] = middles
    return lefts, int(rights[-1])


def _widen(
    level: int, n: int, table: Floats, inside: Floats, increments: Increments
) -> tuple[Floats, Floats, Offsets]:
    """The tables T[x, y - x + 1] of n blocks from those of their halves, Σ q inside, and the best z - x."""
    rows = (level + 2) // 2 + 1
    step = increments.steps[n : 2 * n]
    left, right = (_extended(table[..., half], inside[half], rows + 1) for half in (slice(n), slice(n, None)))
    x = np.arange(rows)[:, None]
    # through[e] is the cost up to the middle, with λ_m = x - 1 + e. At x = 0, e = 0 it is infinite already.
    through = [left[:rows, e] + step * (x - 1 + e) for e in range(3)]
    # after[e] is the right half from there on; its row 0 stands for one that does not exist at e = 0.
    after = [np.concatenate([right[:1], right[: rows - 1]]), right[:rows], right[1:]]
    # y = x - 1 + d, so that y - z = d - e.
    wide, choice = np.empty((rows, 3, n)), np.empty((rows, 3, n), dtype=np.int8)
    for d, candidates in enumerate(((0, 1), (0, 1, 2), (1, 2))):
        costs = [through[e] + after[e][:, d - e + 1] for e in candidates]
        best, offset = costs[0], np.full((rows, n), candidates[0] - 1, dtype=np.int8)
        for e, cost in zip(candidates[1:], costs[1:], strict=True):
            np.copyto(offset, e - 1, where=cost < best)
            best = np.minimum(best, cost)
        wide[:, d], choice[:, d] = best, offset
    if increments.joined_left is not None and increments.joined_right is not None:
        to_left, to_right = increments.joined_left[n : 2 * n], increments.joined_right[n : 2 * n]
        np.copyto(wide, right[:rows], where=to_left)
        np.copyto(wide, left[:rows], where=to_right)
        np.copyto(choice, 0, where=to_left)
        np.copyto(choice, np.array([-1, 0, 1], dtype=np.int8)[:, None], where=to_right)
    return wide, inside[:n] + inside[n:] + step, choice


def _extended(table: Floats, inside: Floats, rows: int) -> Floats:
    """The table with this many rows: each further one costs Σ q inside more."""
    more = np.arange(1, rows - len(table) + 1)[:, None, None]
    return np.concatenate([table, table[-1] + more * inside])


# --- the primal: a flow on the tight edges --------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Amounts:
    """What blocks can take from their left end, from their right end, and from both together: intervals.

    `least` and `most` have one row each for these three. The bounds are tight: each is attained.
    """

    least: Floats
    most: Floats

    def half(self, which: slice) -> _Amounts:
        return _Amounts(least=self.least[:, which], most=self.most[:, which])

    def with_edge(self, flow: Floats) -> _Amounts:
        """With the block's own edge beside it, whose ν lies between the two rows of `flow`."""
        least, most = self.least.copy(), self.most.copy()
        least[0] -= flow[1]
        most[0] -= flow[0]
        least[1] += flow[0]
        most[1] += flow[1]
        return _Amounts(least=least, most=most)


def _allowed(lefts: Ints, rights: Ints) -> Floats:
    """The least and the most ν of edges, by complementary slackness."""
    difference = lefts - rights
    return np.stack([np.where(difference == -1, -np.inf, 0.0), np.where(difference == 1, np.inf, 0.0)])


def _given_away(step: Floats, level: Ints) -> Floats:
    """The least and the most that vertices give to the blocks beside them: all they have where λ > 0."""
    return np.stack([np.where(level > 0, step, -np.inf), step])


def _series(left: _Amounts, right: _Amounts, given: Floats) -> _Amounts:
    """Two blocks with a middle that gives them what `given` allows together."""
    most_given, least_given = given[1], given[0]
    least_sum = left.least[2] + right.least[2] - most_given
    most_sum = left.most[2] + right.most[2] - least_given
    least_left = np.maximum(left.least[0], left.least[2] + right.least[0] - most_given)
    most_left = np.minimum(left.most[0], left.most[2] + right.most[0] - least_given)
    least_right = np.maximum(right.least[1], right.least[2] + left.least[1] - most_given)
    most_right = np.minimum(right.most[1], right.most[2] + left.most[1] - least_given)
    # Each of the three is bounded by the other two as well.
    return _Amounts(
        least=np.stack(
            [
                np.maximum(least_left, least_sum - most_right),
                np.maximum(least_right, least_sum - most_left),
                np.maximum(least_sum, least_left + least_right),
            ]
        ),
        most=np.stack(
            [
                np.minimum(most_left, most_sum - least_right),
                np.minimum(most_right, most_sum - least_left),
                np.minimum(most_sum, most_left + most_right),
            ]
        ),
    )


def _nearest_to_zero(least: Floats, most: Floats) -> Floats:
    """The number in each interval that is nearest to zero."""
    return _nearest(np.zeros(()), least, most)


def _nearest(target: Floats, least: Floats, most: Floats) -> Floats:
    """The number in each interval that is nearest to the target."""
    return np.maximum(least, np.minimum(most, target))


def _primal(increments: Increments, lefts: Ints, last: int) -> Floats:
    """Optimal ν on the nodes, given an optimal λ."""
    count = len(increments)
    rights = right_ends(lefts, last)
    edges = {n: _allowed(lefts[:n], rights[count - n :]) for n in (count, *halves(count))}
    middles = {n: _given_away(increments.steps[n : 2 * n], lefts[n : 2 * n]) for n in halves(count)}
    inner = {count: _Amounts(least=np.zeros((3, count)), most=np.zeros((3, count)))}
    outer = {count: inner[count].with_edge(edges[count])}
    for n in halves(count):
        inner[n] = _series(outer[2 * n].half(slice(n)), outer[2 * n].half(slice(n, None)), middles[n])
        inner[n] = _joined(n, increments, outer[2 * n], inner[n])
        outer[n] = inner[n].with_edge(edges[n])
    taken = _from_ends(increments, lefts[0], last, outer[1])
    flows = np.zeros(2 * count)
    for n in (*reversed([*halves(count)]), count):
        flow = _nearest_to_zero(
            np.maximum.reduce([edges[n][0], inner[n].least[0] - taken[0], taken[1] - inner[n].most[1]]),
            np.minimum.reduce([edges[n][1], inner[n].most[0] - taken[0], taken[1] - inner[n].least[1]]),
        )
        flows[n : 2 * n] = flow
        if n < count:
            taken = _divided(n, increments, taken + np.stack([flow, -flow]), outer[2 * n], middles[n])
    return flows


def _joined(n: int, increments: Increments, parts: _Amounts, inner: _Amounts) -> _Amounts:
    """Middles that are the same step as one end: only the half between them and the other end takes anything."""
    if increments.joined_left is None or increments.joined_right is None:
        return inner
    to_left, to_right = increments.joined_left[n : 2 * n], increments.joined_right[n : 2 * n]
    left, right = parts.half(slice(n)), parts.half(slice(n, None))
    return _Amounts(
        least=np.where(to_left, right.least, np.where(to_right, left.least, inner.least)),
        most=np.where(to_left, right.most, np.where(to_right, left.most, inner.most)),
    )


def _from_ends(increments: Increments, first_level: int, last_level: int, whole: _Amounts) -> Floats:
    """What the whole tree takes from the vertices 0 and N."""
    first = _given_away(increments.steps[:1], np.array([first_level]))
    last = _given_away(np.array([increments.last]), np.array([last_level]))
    least_last, most_last = np.maximum(last[0], whole.least[1]), np.minimum(last[1], whole.most[1])
    from_first = _nearest(
        _nearest_to_zero(whole.least[2], whole.most[2]) / 2,
        np.maximum.reduce([first[0], whole.least[0], whole.least[2] - most_last]),
        np.minimum.reduce([first[1], whole.most[0], whole.most[2] - least_last]),
    )
    from_last = _nearest_to_zero(
        np.maximum(least_last, whole.least[2] - from_first), np.minimum(most_last, whole.most[2] - from_first)
    )
    return np.stack([from_first, from_last])


def _divided(n: int, increments: Increments, taken: Floats, parts: _Amounts, given: Floats) -> Floats:
    """What the halves of n blocks take from their ends, given what the blocks take without their own edges."""
    left, right = parts.half(slice(n)), parts.half(slice(n, None))
    # What the left half may take from the middle, and the right half.
    least_left = np.maximum(left.least[1], left.least[2] - taken[0])
    most_left = np.minimum(left.most[1], left.most[2] - taken[0])
    least_right = np.maximum(right.least[0], right.least[2] - taken[1])
    most_right = np.minimum(right.most[0], right.most[2] - taken[1])
    # A middle that has to give something away gives half to either side, if it can.
    to_left = _nearest(
        _nearest_to_zero(*given) / 2,
        np.maximum(least_left, given[0] - most_right),
        np.minimum(most_left, given[1] - least_right),
    )
    to_right = _nearest_to_zero(
        np.maximum(least_right, given[0] - to_left), np.minimum(most_right, given[1] - to_left)
    )
    from_left, from_right = taken
    if increments.joined_left is not None and increments.joined_right is not None:
        at_left, at_right = increments.joined_left[n : 2 * n], increments.joined_right[n : 2 * n]
        to_left = np.where(at_left, 0.0, np.where(at_right, from_right, to_left))
        to_right = np.where(at_left, from_left, np.where(at_right, 0.0, to_right))
        from_left = np.where(at_left, 0.0, from_left)
        from_right = np.where(at_right, 0.0, from_right)
    return np.stack([np.concatenate([from_left, to_right]), np.concatenate([to_left, from_right])])
