"""Where rounds lead: damped Newton steps from one block of rounds to the next, taken back where they made things worse.

Levenberg and Marquardt: from a block of rounds with mean start m, mean gradient g and mean Hessian H, the next one
starts at m - c (H + λF)^{-1} g, with F the Hessian of the first block, where nothing was saturated yet. λ falls to a
third (and not below 0.03) after each block that is not worse than the one before (by its gradient, as F measures it),
and grows tenfold after one that is, which is then begun again from where the last good block was. The block after that
is always believed: it began close to the good one and has more rounds, and if it looks worse, the good one was good by
chance. c is the part of the step that chance does not explain (the positive part, as in James and Stein, 1961): who has
arrived is left where they are. Leading axes are allowed everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedassay.tasks.inference.sums import Sums, solved, sound, times

Floats = NDArray[np.float64]

DAMPING, LEAST = 0.1, 0.03
WORSE = 4.0
"""A block is worse if its gradient, squared and measured by F, is above so many times that of the last good one: chance
alone makes less of a difference, mostly."""

LONGEST = 2.0
"""No step is longer, as F measures it: in a logistic model log odds change by a root mean square of 4 at most."""

CHANCE = 0.5
"""The part of what chance makes of no gradient at all that is taken off. All of it would make the way too slow where
rounds are few; nothing, and rare features are thrown far off by single rows."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Guide:
    """The last good block, F and λ; and whether the block after it was taken back."""

    start: Floats
    gradient: Floats
    hessian: Floats
    first: Floats
    damping: Floats
    spread: Floats
    back: NDArray[np.bool_]

    @classmethod
    def begin(cls, block: Sums, spread: Floats) -> Guide:
        """After the first block, which is good for want of another; `spread` is that of one round's g, 0 if unknown."""
        start = block.mean(block.starts)
        return cls(
            start=start,
            gradient=block.mean(block.gradients),
            hessian=block.hessian,
            first=sound(block.hessian, part=1e-6),
            damping=np.full((*start.shape[:-1], 1), DAMPING),
            spread=block.mean(spread),
            back=np.zeros((*start.shape[:-1], 1), dtype=np.bool_),
        )

    def after(self, block: Sums, spread: Floats) -> Guide:
        """After one more block."""
        start, gradient = block.mean(block.starts), block.mean(block.gradients)
        worse = ~self.back & (self._size(gradient) > WORSE * self._size(self.gradient))
        return Guide(
            start=np.where(worse, self.start, start),
            gradient=np.where(worse, self.gradient, gradient),
            hessian=np.where(worse[..., None], self.hessian, block.hessian),
            first=self.first,
            damping=np.where(worse, 10 * self.damping, np.maximum(LEAST, self.damping / 3)),
            spread=np.where(worse[..., None], self.spread, block.mean(spread)),
            back=worse,
        )

    def _size(self, gradient: Floats) -> Floats:
        return np.asarray((gradient * solved(self.first, gradient)).sum(axis=-1, keepdims=True))

    @property
    def target(self) -> Floats:
        """Where the next block starts."""
        damped = self.hessian + self.damping[..., None] * self.first
        step = solved(damped, self.gradient)
        gain = (step * self.gradient).sum(axis=-1, keepdims=True)
        by_chance = np.trace(np.linalg.solve(damped, self.spread), axis1=-1, axis2=-2)[..., None]
        step = step * np.clip(1 - CHANCE * by_chance / np.maximum(gain, 1e-300), 0.0, 1.0)
        length = np.sqrt(np.maximum(1e-300, (step * times(self.first, step)).sum(axis=-1, keepdims=True)))
        return np.asarray(self.start - step * np.minimum(1.0, LONGEST / length))

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return {field.name: getattr(self, field.name).tolist() for field in fields(self)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Guide:
        """What `to_json` was made from, to the last bit."""
        names = [field.name for field in fields(cls) if field.name != "back"]
        floats: dict[str, Any] = {name: np.array(values[name], dtype=np.float64) for name in names}
        return cls(**floats, back=np.array(values["back"], dtype=np.bool_))
