"""The least sum of absolute tree corrections under which no count is negative, and the flow that is its solution.

The flow on a tree that an optimal dual solution of `smoothing_l1` leaves: its primal solution.

By complementary slackness the optimal ν are exactly the flows that satisfy: ν ≥ 0 on edges with λ_a - λ_b = 1, ν ≤ 0
with -1, ν = 0 otherwise; and w = q + Bν is zero where λ > 0. What a block can take from its two ends is then a set
given by an interval for each of the two amounts and one for their sum (what a network can take from two terminals
always is). These intervals are computed from the narrowest blocks up, and amounts chosen within them from the widest
down.

The solution is not unique: where there is a choice, the amount nearest to zero is taken, half of it from either
side. Measured, that is as close to the truth as what solvers of linear programs happen to return, and several times
closer where the curve is flat (docs/explanation/smoothing.md).

The least sum of absolute tree corrections under which no step of a curve is negative.

With q the steps on the vertices and B the incidence matrix of the tree's edges (see `dyadic`), the problem and its
dual are

    minimise Σ |ν|  subject to  q + Bν ≥ 0         maximise -Σ q_v λ_v  subject to  λ ≥ 0, |λ_a - λ_b| ≤ 1 on edges.

The first is a flow of least cost, so the dual has a solution in whole numbers.

**Dual.** T(x, y), the least Σ q_v λ_v over the inside of a block whose ends have λ_a = x and λ_b = y, |x - y| ≤ 1,
follows from those of its halves: T(x, y) = min_z T_left(x, z) + q_m z + T_right(z, y). No vertex of a block of 2^l
values is further from either end than k = ⌈(l+1)/2⌉ edges (Lemma 1 of the paper), so that from x = k on λ ≥ 0 says
nothing and T(x+1, y+1) = T(x, y) + Σ q over the inside. The table of a block has k + 1 rows: linear time in all.

**Primal.** Given λ, what is left is a flow: `smoothing_flow`.

Reference: Barczewski, Mawass and Ramon, *Differentially Private Empirical Cumulative Distribution Functions*, Eq. 3
with p = 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedassay.protocol.arrays import Floats, Ints
from fedassay.tasks.distribution.smoothing.dyadic import Increments, halves, right_ends

_Pair = tuple[Floats, Floats]
"""Least and most of an amount; or the amounts that are taken from the left end and from the right end."""


def optimal_flow(increments: Increments, lefts: Ints, last: int) -> Floats:
    """Return ν on the nodes, given an optimal λ on the vertices 0..N-1 (bit-reversed) and on N."""
    count = len(increments)
    rights = right_ends(lefts, last)
    edges = {n: _allowed(lefts[:n], rights[count - n :]) for n in (count, *halves(count))}
    middles = {n: _given_away(increments.steps[n : 2 * n], lefts[n : 2 * n]) for n in halves(count)}
    inner = {count: _Amounts(least=np.zeros((3, count)), most=np.zeros((3, count)))}
    for n in halves(count):
        inner[n] = _series(n, increments, inner[2 * n].with_edge(edges[2 * n]), middles[n])
    taken = _from_ends(increments, lefts[:1], np.array([last]), inner[1].with_edge(edges[1]))
    flows = np.zeros(2 * count)
    for n in (*reversed([*halves(count)]), count):
        flow = inner[n].left_to_edge(edges[n], taken)
        flows[n : 2 * n] = flow
        if n < count:
            parts = inner[2 * n].with_edge(edges[2 * n])
            taken = _divided(n, increments, (taken[0] + flow, taken[1] - flow), parts, middles[n])
    return flows


@dataclass(frozen=True, kw_only=True)
class _Amounts:
    """Intervals of what blocks can take from their left end, from their right end, and from both together.

    `least` and `most` have one row each for these three. The bounds are tight: each is attained.
    """

    least: Floats
    most: Floats

    def half(self, which: slice) -> _Amounts:
        return _Amounts(least=self.least[:, which], most=self.most[:, which])

    def with_edge(self, flow: _Pair) -> _Amounts:
        """Add the block's own edge in parallel, whose ν lies between the two rows of `flow`."""
        least, most = np.empty_like(self.least), np.empty_like(self.most)
        np.subtract(self.least[0], flow[1], out=least[0])
        np.subtract(self.most[0], flow[0], out=most[0])
        np.add(self.least[1], flow[0], out=least[1])
        np.add(self.most[1], flow[1], out=most[1])
        least[2], most[2] = self.least[2], self.most[2]
        return _Amounts(least=least, most=most)

    def left_to_edge(self, flow: _Pair, taken: _Pair) -> Floats:
        """Return the ν of the block's own edge, given what block and edge take together."""
        least = np.maximum(flow[0], np.maximum(self.least[0] - taken[0], taken[1] - self.most[1]))
        most = np.minimum(flow[1], np.minimum(self.most[0] - taken[0], taken[1] - self.least[1]))
        return _nearest_to_zero(least, most)


def _allowed(lefts: Ints, rights: Ints) -> _Pair:
    """Return the least and the most ν of edges, by complementary slackness."""
    difference = lefts - rights
    return np.where(difference == -1, -np.inf, 0.0), np.where(difference == 1, np.inf, 0.0)


def _given_away(step: Floats, multiplier: Ints) -> _Pair:
    """Return the least and the most that vertices give to the adjacent blocks: all they have where λ > 0."""
    return np.where(multiplier > 0, step, -np.inf), step


def _series(n: int, increments: Increments, parts: _Amounts, given: _Pair) -> _Amounts:
    """Combine two halves each into blocks, with a middle that gives them what `given` allows together."""
    left, right = parts.half(slice(n)), parts.half(slice(n, None))
    least_sum = left.least[2] + right.least[2] - given[1]
    most_sum = left.most[2] + right.most[2] - given[0]
    least_left = np.maximum(left.least[0], left.least[2] + right.least[0] - given[1])
    most_left = np.minimum(left.most[0], left.most[2] + right.most[0] - given[0])
    least_right = np.maximum(right.least[1], right.least[2] + left.least[1] - given[1])
    most_right = np.minimum(right.most[1], right.most[2] + left.most[1] - given[0])
    # Each of the three is bounded by the other two as well.
    least, most = np.empty((3, n)), np.empty((3, n))
    np.maximum(least_left, least_sum - most_right, out=least[0])
    np.maximum(least_right, least_sum - most_left, out=least[1])
    np.maximum(least_sum, least_left + least_right, out=least[2])
    np.minimum(most_left, most_sum - least_right, out=most[0])
    np.minimum(most_right, most_sum - least_left, out=most[1])
    np.minimum(most_sum, most_left + most_right, out=most[2])
    joined = increments.joined_middles(n)
    if joined is not None:
        # A middle that is the same step as one end: only the half between it and the other end takes anything.
        for mine, its_left, its_right in ((least, left.least, right.least), (most, left.most, right.most)):
            np.copyto(mine, its_right, where=joined[0])
            np.copyto(mine, its_left, where=joined[1])
    return _Amounts(least=least, most=most)


def _nearest_to_zero(least: Floats, most: Floats) -> Floats:
    """Return the number in each interval that is nearest to zero."""
    return _nearest(np.zeros(()), least, most)


def _nearest(target: Floats, least: Floats, most: Floats) -> Floats:
    """Return the number in each interval that is nearest to the target."""
    return np.maximum(least, np.minimum(most, target))


def _from_ends(increments: Increments, first: Ints, last: Ints, whole: _Amounts) -> _Pair:
    """Return what the whole tree takes from the vertices 0 and N, whose λ are given."""
    least_first, most_first = _given_away(increments.steps[:1], first)
    least_last, most_last = _given_away(np.array([increments.last]), last)
    least_last, most_last = np.maximum(least_last, whole.least[1]), np.minimum(most_last, whole.most[1])
    least_first = np.maximum(least_first, np.maximum(whole.least[0], whole.least[2] - most_last))
    most_first = np.minimum(most_first, np.minimum(whole.most[0], whole.most[2] - least_last))
    from_first = _nearest(_nearest_to_zero(whole.least[2], whole.most[2]) / 2, least_first, most_first)
    from_last = _nearest_to_zero(
        np.maximum(least_last, whole.least[2] - from_first), np.minimum(most_last, whole.most[2] - from_first)
    )
    return from_first, from_last


def _divided(n: int, increments: Increments, taken: _Pair, parts: _Amounts, given: _Pair) -> _Pair:
    """Return what the halves of n blocks take from their ends, given what the blocks take without their own edges."""
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
    joined = increments.joined_middles(n)
    if joined is not None:
        at_left, at_right = joined
        to_left = np.where(at_left, 0.0, np.where(at_right, from_right, to_left))
        to_right = np.where(at_left, from_left, np.where(at_right, 0.0, to_right))
        from_left = np.where(at_left, 0.0, from_left)
        from_right = np.where(at_right, 0.0, from_right)
    return np.concatenate([from_left, to_right]), np.concatenate([to_left, from_right])


# --- the least sum of absolute tree corrections under which no step of a ------------------------------------

Offsets = NDArray[np.int8]


def least_absolute(increments: Increments) -> tuple[Floats, Ints, int]:
    """Return ν on the nodes, and λ on the vertices 0..N-1 (bit-reversed) and on N.

    Guarantee: exact up to rounding; see the module. Assumption: the steps add up to more than zero.
    """
    lefts, last = _dual(increments)
    return optimal_flow(increments, lefts, last), lefts, last


def _dual(increments: Increments) -> tuple[Ints, int]:
    """Return an optimal λ, by dynamic programming."""
    count = len(increments)
    tables, choices = _over_edges(increments.steps[count // 2 :]), []
    for level, n in enumerate(halves(count), start=1):
        if level > 1:
            tables = _widen(level, n, tables, increments)
        choices.append(_joined_choice(n, increments, tables.choice))
    # From the last row on, one more costs Σ q = top > 0.
    x, d = np.arange(len(tables.cost))[:, None], np.array([-1, 0, 1])
    total = tables.cost[:, :, 0] + increments.steps[0] * x + increments.last * (x + d)
    best, direction = np.unravel_index(np.argmin(total), total.shape)
    lefts, rights = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64)
    lefts[0], rights[-1] = best, best + direction - 1
    for n, choice in zip(reversed([*halves(count)]), reversed(choices), strict=True):
        x, y = lefts[:n], rights[count - n :]
        row = np.minimum(x, len(choice) - 1)
        middles = x + choice[row, y - x + 1, np.arange(n)]
        lefts[n : 2 * n] = rights[count - 2 * n : count - n] = middles
    return lefts, int(rights[-1])


@dataclass(frozen=True, kw_only=True)
class _Tables:
    """Tables of blocks: the cost T[x, y - x + 1], the best z - x for each, and Σ q over the inside."""

    cost: Floats
    choice: Offsets
    inside: Floats

    def rows(self, half: slice, rows: int) -> Floats:
        """Return the costs of some blocks with this many rows: each further row costs Σ q inside more."""
        more = np.arange(1, rows - len(self.cost) + 1)[:, None, None]
        cost = self.cost[..., half]
        return np.concatenate([cost, cost[-1] + more * self.inside[half]])


def _over_edges(step: Floats) -> _Tables:
    """Tabulate two edges with a middle of cost q z, where z is free but for |z - x| ≤ 1, |z - y| ≤ 1 and z ≥ 0."""
    once, negative = np.minimum(step, 0.0), step < 0
    impossible = np.full_like(step, np.inf)
    cost = np.stack([[impossible, once, once], [once, 2 * once, step + once]])
    lowest = np.array([[0, 0, 0], [-1, -1, 0]], dtype=np.int8)
    highest = np.array([[0, 1, 1], [0, 1, 1]], dtype=np.int8)
    choice = np.where(negative, highest[..., None], lowest[..., None])
    return _Tables(cost=cost, choice=choice, inside=step)


def _widen(level: int, n: int, parts: _Tables, increments: Increments) -> _Tables:
    """Return the tables of n blocks from those of their halves."""
    rows = (level + 2) // 2 + 1
    step = increments.steps[n : 2 * n]
    left, right = parts.rows(slice(n), rows + 1), parts.rows(slice(n, None), rows + 1)
    x = np.arange(rows)[:, None]
    same, more = left[:rows, 1] + step * x, left[:rows, 2] + step * (x + 1)
    less = left[1:rows, 0] + step * x[:-1]  # from x = 1 on
    cost, choice = np.empty((rows, 3, n)), np.zeros((rows, 3, n), dtype=np.int8)
    for d in range(3):  # y = x - 1 + d; z is x, or x + 1 if y >= x, or x - 1 if y <= x
        best, offset = cost[:, d], choice[:, d]
        np.add(same, right[:rows, d], out=best)
        if d > 0:
            _improve(best, offset, more + right[1:, d - 1], 1)
        if d < 2:
            _improve(best[1:], offset[1:], less + right[: rows - 1, d + 1], -1)
    joined = increments.joined_middles(n)
    if joined is not None:
        np.copyto(cost, right[:rows], where=joined[0])
        np.copyto(cost, left[:rows], where=joined[1])
    return _Tables(cost=cost, choice=choice, inside=parts.inside[:n] + parts.inside[n:] + step)


def _improve(best: Floats, offset: Offsets, cost: Floats, candidate: int) -> None:
    np.copyto(offset, candidate, where=cost < best)
    np.minimum(best, cost, out=best)


def _joined_choice(n: int, increments: Increments, choice: Offsets) -> Offsets:
    """Give middles that are the same step as an end its λ: z = x, or z = y."""
    joined = increments.joined_middles(n)
    if joined is None:
        return choice
    to_left, to_right = joined
    difference = np.array([-1, 0, 1], dtype=np.int8)[:, None]
    return np.where(to_left, np.int8(0), np.where(to_right, difference, choice))
