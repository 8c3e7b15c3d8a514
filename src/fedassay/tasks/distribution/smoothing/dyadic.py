"""Vectors on the nodes and vertices of a binary tree, laid out so that every step is a slice.

A curve of N = 2^L values has N + 1 increments, the *vertices* 0..N: vertex v is the step from value v to value
v + 1, vertex 0 the first value itself, vertex N what is missing from the last value to the top. A *node* of n equal
blocks covers the values a+1..b of its block; adding ν to it moves ν from vertex b to vertex a, so it is an edge a-b.
Nodes of one level share their ends, and the vertex in the middle of a block belongs to no wider node.

The order is bit-reversed, because then the left children of n blocks are the first half of 2n blocks, and the
right children the second half:

    vertices 0..N-1    x[:n] are the left ends of n blocks, x[n:2n] their middles; the vertex N is kept apart
    right ends         y[N-n:] are the right ends of n blocks (`right_ends`)
    nodes              z[n:2n] are n blocks, z[2n:3n] their left and z[3n:4n] their right children; z[0] is unused
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from fedassay.protocol.arrays import Bools, Floats, Ints

T = TypeVar("T", bound=np.generic)


def bit_reversed(count: int) -> Ints:
    """Return the numbers below a power of two, in the order of their mirrored binary digits.

    Examples
    --------
    >>> bit_reversed(8)
    array([0, 4, 2, 6, 1, 5, 3, 7])
    """
    order = np.zeros(1, dtype=np.int64)
    while len(order) < count:
        order = np.concatenate([2 * order, 2 * order + 1])
    return order


def halves(count: int) -> Iterator[int]:
    """Yield count/2, count/4, .., 1: the numbers of blocks, from the narrowest that have a middle up."""
    while count > 1:
        count //= 2
        yield count


def right_ends(vertices: NDArray[T], last: float) -> NDArray[T]:
    """Return where the blocks of every level end: the last n entries are those of n blocks.

    Examples
    --------
    Of the vertices 0..7 (and 8), the four blocks that start at 0, 4, 2, 6 end at 2, 6, 4, 8:

    >>> right_ends(bit_reversed(8), 8)
    array([1, 5, 3, 7, 2, 6, 4, 8])
    """
    count = len(vertices)
    last_one = np.array([last], dtype=vertices.dtype)
    return np.concatenate([*(vertices[n : 2 * n] for n in halves(count)), last_one])


def levels_of(nodes: Floats) -> tuple[Floats, ...]:
    """Return the nodes per level, from the N narrowest to the node that covers all, in the natural order."""
    count = len(nodes) // 2
    order = bit_reversed(count)
    levels = []
    for n in (count, *halves(count)):
        level = np.empty(n)
        level[order[:n] // (count // n)] = nodes[n : 2 * n]
        levels.append(level)
    return tuple(levels)


@dataclass(frozen=True, kw_only=True)
class Increments:
    """Steps of a noisy curve that may not be negative, on the vertices of the tree.

    Where only some values of the curve count, all vertices between two of them are one: the step from one to the
    next. One of them stands for it, the one in the middle of the widest block; the others are joined to it and have
    no step of their own.

    Parameters
    ----------
    steps : the steps of the vertices 0..N-1, bit-reversed; zero where joined.
    last : the step of the vertex N.
    ranks : the number of the step that each of these vertices is part of, bit-reversed.
    count : the number of values that count.
    joined : the vertices that are part of the same step as the left end of the block of which they are the middle, and
        those of the right end; None if all values count. A vertex is in one of them at most.
    """

    steps: Floats
    last: float
    ranks: Ints
    count: int
    joined: tuple[Bools, Bools] | None = None

    @classmethod
    def of(cls, curve: Floats, top: float, points: Ints | None) -> Increments:
        """Return the steps of the curve, from zero to the top, on all values or some."""
        order = bit_reversed(len(curve))
        if points is None:
            steps = np.diff(curve, prepend=0.0, append=top)
            return cls(steps=steps[order], last=float(steps[-1]), ranks=order, count=len(curve))
        steps = np.diff(curve[points], prepend=0.0, append=top)
        ranks = np.searchsorted(points, np.arange(len(curve)))[order]
        ends = right_ends(ranks, len(points))
        left, right = np.zeros(len(curve), dtype=bool), np.zeros(len(curve), dtype=bool)
        for n in halves(len(curve)):
            middles = ranks[n : 2 * n]
            left[n : 2 * n] = middles == ranks[:n]
            right[n : 2 * n] = (middles == ends[len(curve) - n :]) & ~left[n : 2 * n]
        own = np.where(left | right, 0.0, steps[ranks])
        return cls(
            steps=own,
            last=float(steps[-1]),
            ranks=ranks,
            count=len(points),
            joined=(left, right),
        )

    def joined_middles(self, n: int) -> tuple[Bools, Bools] | None:
        """Return which middles of n blocks are joined to the left, and to the right end of their block."""
        return None if self.joined is None else (self.joined[0][n : 2 * n], self.joined[1][n : 2 * n])

    def per_step(self, vertices: NDArray[T], last: float) -> NDArray[T]:
        """Return values on the vertices, one per step in the natural order."""
        values = np.empty(self.count + 1, dtype=vertices.dtype)
        values[self.ranks], values[-1] = vertices, last
        return values

    def __len__(self) -> int:
        """Return N, the number of values of the curve."""
        return len(self.steps)
