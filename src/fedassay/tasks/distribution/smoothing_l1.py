"""The least sum of absolute tree corrections under which no step of a curve is negative.

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

from fedassay.tasks.distribution.dyadic import Floats, Increments, Ints, halves
from fedassay.tasks.distribution.smoothing_flow import optimal_flow

Offsets = NDArray[np.int8]


def least_absolute(increments: Increments) -> tuple[Floats, Ints, int]:
    """ν on the nodes, and λ on the vertices 0..N-1 (bit-reversed) and on N.

    Guarantee: exact up to rounding; see the module. Assumption: the steps add up to more than zero.
    """
    lefts, last = _dual(increments)
    return optimal_flow(increments, lefts, last), lefts, last


def _dual(increments: Increments) -> tuple[Ints, int]:
    """An optimal λ, by dynamic programming."""
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
    """For blocks: the cost T[x, y - x + 1], the best z - x for each, and Σ q over the inside."""

    cost: Floats
    choice: Offsets
    inside: Floats

    def rows(self, half: slice, rows: int) -> Floats:
        """The costs of some blocks with this many rows: each further one costs Σ q inside more."""
        more = np.arange(1, rows - len(self.cost) + 1)[:, None, None]
        cost = self.cost[..., half]
        return np.concatenate([cost, cost[-1] + more * self.inside[half]])


def _over_edges(step: Floats) -> _Tables:
    """Two edges with a middle of cost q z, where z is free but for |z - x| ≤ 1, |z - y| ≤ 1 and z ≥ 0."""
    once, negative = np.minimum(step, 0.0), step < 0
    impossible = np.full_like(step, np.inf)
    cost = np.stack([[impossible, once, once], [once, 2 * once, step + once]])
    lowest = np.array([[0, 0, 0], [-1, -1, 0]], dtype=np.int8)
    highest = np.array([[0, 1, 1], [0, 1, 1]], dtype=np.int8)
    choice = np.where(negative, highest[..., None], lowest[..., None])
    return _Tables(cost=cost, choice=choice, inside=step)


def _widen(level: int, n: int, parts: _Tables, increments: Increments) -> _Tables:
    """The tables of n blocks from those of their halves."""
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
    if increments.joined_left is not None and increments.joined_right is not None:
        np.copyto(cost, right[:rows], where=increments.joined_left[n : 2 * n])
        np.copyto(cost, left[:rows], where=increments.joined_right[n : 2 * n])
    return _Tables(cost=cost, choice=choice, inside=parts.inside[:n] + parts.inside[n:] + step)


def _improve(best: Floats, offset: Offsets, cost: Floats, candidate: int) -> None:
    np.copyto(offset, candidate, where=cost < best)
    np.minimum(best, cost, out=best)


def _joined_choice(n: int, increments: Increments, choice: Offsets) -> Offsets:
    """Middles that are the same step as an end have its λ: z = x, or z = y."""
    if increments.joined_left is None or increments.joined_right is None:
        return choice
    to_left, to_right = increments.joined_left[n : 2 * n], increments.joined_right[n : 2 * n]
    difference = np.array([-1, 0, 1], dtype=np.int8)[:, None]
    return np.where(to_left, np.int8(0), np.where(to_right, difference, choice))
