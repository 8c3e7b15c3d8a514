"""Walking down the trees of comparison functions: one party's shares at a set of points (see `fedassay.crypto.dcf`)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedassay.crypto.dcf_keys import Keys
from fedassay.crypto.dcf_path import fold_in_place, spread_top_bit
from fedassay.crypto.field61 import Elements, P, negate, reduce
from fedassay.crypto.prg import Generator, Purpose, room

Points = NDArray[np.uint64]

Index = slice | NDArray[np.intp]

_ONE, _ONES = np.uint64(1), np.uint64(2**64 - 1)
_ALL, _NONE = slice(None), slice(0)


@dataclass(frozen=True, kw_only=True)
class Route:
    """How to reach a set of points so that every node on the way is expanded once.

    `parents` says for each level which nodes have a left child on the way and which a right one; the former children
    come first. `places` says where each point is among the `width` leaves in the end.
    """

    parents: tuple[tuple[Index, Index], ...]
    places: NDArray[np.intp]
    width: int

    @classmethod
    def to(cls, points: Points, *, bits: int) -> Route:
        """The route to these points (at least one), in any order; a point may come twice."""
        prefixes, places = np.unique(points, return_inverse=True)
        levels = []
        for _ in range(bits):
            levels.append(prefixes)
            above = prefixes >> _ONE
            prefixes = above[np.flatnonzero(np.diff(above, prepend=_ONES))]
        parents, nodes = [], prefixes
        for wanted in reversed(levels):
            left, right = nodes << _ONE, (nodes << _ONE) | _ONE
            some_left, some_right = _among(left, wanted), _among(right, wanted)
            nodes = np.concatenate([left[some_left], right[some_right]])
            parents.append((some_left, some_right))
        return cls(parents=tuple(parents), places=np.argsort(nodes)[places], width=len(nodes))


def _among(children: Points, wanted: Points) -> Index:
    """Which of the children are wanted; all and none are slices, which spare a copy."""
    if len(wanted) == 2 * len(children):
        return _ALL
    chosen = np.flatnonzero(np.isin(children, wanted))
    return _NONE if len(chosen) == 0 else _ALL if len(chosen) == len(children) else chosen


class Walker:
    """Takes some keys at a time down a route, in memory that it uses again. Not to be shared between threads."""

    def __init__(self, keys: Keys, route: Route, *, at_once: int) -> None:
        self._keys, self._route, self._generator = keys, route, Generator()
        self._wide = [room(route.width * at_once * 2) for _ in range(5)]
        self._narrow = np.empty((6, route.width * at_once), np.uint64)

    def __call__(self, rows: slice) -> Elements:
        """The shares of these keys (`at_once` of them at most): a row for each point, a column for each key.

        Numbers of at most p are added to `value`, which is folded at every third level: after that it is at most
        p + 7, and seven more fit into a word (8p + 7).
        """
        keys, count = self._keys, len(self._keys.seeds[rows])
        size = self._route.width * count
        here, there, child, drawn, feed = (memory[: 2 * size].reshape(-1, count, 2) for memory in self._wide)
        t, next_t, value, next_value, word, spare = (m[:size].reshape(-1, count) for m in self._narrow)
        here[0], t[0], value[0], nodes = keys.seeds[rows], _ONES if keys.party else 0, 0, slice(1)
        for level, parents in enumerate(self._route.parents):
            np.bitwise_and(t[nodes], keys.value_words[level, rows], out=word[nodes])
            np.bitwise_and(word[nodes], P, out=spare[nodes])
            value[nodes] += spare[nodes]
            if level % 3 == 2:
                fold_in_place(value[nodes], spare[nodes])
            # A child's seed is AES(s) ⊕ s, and ⊕ the correction where t = 1: the last two in one pass.
            for half in (0, 1):
                np.bitwise_and(t[nodes], keys.seed_words[level, rows, half], out=feed[nodes, :, half])
            feed[nodes] ^= here[nodes]
            self._generator.expand(Purpose.VALUES, here[nodes], out=drawn[nodes])
            first = 0
            for side, some in enumerate(parents):
                if side:
                    word[nodes] <<= _ONE  # the right control bit comes to the top
                if some is _NONE:
                    continue
                seeds, block = here[nodes][some], drawn[nodes][some, :, side]
                children = slice(first, first := first + len(seeds))
                self._generator.encrypt(Purpose(side), seeds, out=child[: len(seeds)])
                np.bitwise_xor(child[: len(seeds)], feed[nodes][some], out=there[children])
                np.bitwise_xor(block, word[nodes][some], out=next_t[children])
                np.bitwise_and(block, P, out=next_value[children])
                next_value[children] += value[nodes][some]
            nodes = slice(first)
            spread_top_bit(next_t[nodes])
            here, there, t, next_t, value, next_value = there, here, next_t, t, next_value, value
        shares = reduce(value[nodes] + (here[nodes, :, 0] & P) + (t[nodes] & keys.leaf[rows]))
        return (negate(shares) if keys.party else shares)[self._route.places]
