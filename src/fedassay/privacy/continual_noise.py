"""Three ways to hide one event in all totals of a stream at once; `continual.py` describes the use.

==============  =====================================================================  ===================
``path``        total + the noise of the nodes of a binary tree over this step         ⌈(L+1)/2⌉ nodes
``tree``        counts of finished blocks, each with noise, combined by least squares  one block per level
``factorised``  C·counts + noise, and C applied again: C·C sums up                     the first column of C
==============  =====================================================================  ===================

The last column is what one event moves: it raises all totals from its step on. `path` is Theorem 3 of Barczewski,
Mawass and Ramon, for 2^L steps; `tree` is due to Dwork, Naor, Pitassi and Rothblum (2010) and to Chan, Shi and Song
(2011), its least squares over finished blocks to Honaker (2015); `factorised` to Fichtenberger, Henzinger and Upadhyay
(2023).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedassay.errors import UsageError
from fedassay.privacy import accounting
from fedassay.protocol.arrays import Floats
from fedassay.protocol.vocabulary import Budget, Message, Noise, Protection, Sensitivity, Unit
from fedassay.summaries.distribution.grid import power_of_two
from fedassay.summaries.distribution.path import LARGEST_MULTIPLIER, ValuePath
from fedassay.summaries.distribution.roots import ValueRoots, column_norms

LONGEST = 1 << 20
LONGEST_FACTORISED = 1 << 14
"""Longest horizon of ``factorised``, which remembers every step and looks at all of them in each."""

_WIDEST_FAN_OUT = 64

_Draw = Callable[[int], list[int]]


@dataclass(frozen=True, kw_only=True)
class ContinualMechanism(ABC):
    """Public parameters; what has been observed is a state that comes and goes as an argument."""

    name: ClassVar[str]

    horizon: int
    unit_events: int
    budget: Budget

    def __post_init__(self) -> None:
        if type(self.horizon) is not int or not 1 <= self.horizon <= LONGEST:
            raise UsageError(
                f"horizon: got {self.horizon!r}, expected a number of steps from 1 to {LONGEST:,}."
            )
        if type(self.unit_events) is not int or self.unit_events < 1:
            raise UsageError(f"events of a unit: got {self.unit_events!r}, expected a whole number above 0.")

    @property
    def unit(self) -> Protection:
        """Protected unit: a client with at most `unit_events` events, added or removed."""
        return Protection(unit=Unit.CLIENT, rows_per_client=self.unit_events)

    @cached_property
    def noise(self) -> Noise:
        """The law of one draw."""
        return accounting.calibrate(self.budget, self.sensitivity)

    @property
    @abstractmethod
    def sensitivity(self) -> Sensitivity:
        """Bounds on how far one unit moves the values to which the draws are added."""

    @property
    def survives_reactions(self) -> bool:
        """True if the guarantee is proven for streams that react to what has been published."""
        return True

    @abstractmethod
    def factors(self, steps: NDArray[np.int64]) -> Floats:
        """Return the variance of the total after each of these steps, over that of one draw."""

    @abstractmethod
    def start(self) -> Message:
        """Return the state before the first step. Lists keep their length, but empty ones grow with every step."""

    @abstractmethod
    def advance(self, step: int, state: Message, count: int, draw: _Draw) -> tuple[float, Message]:
        """Return the total after this step (the first is 1) and the next state. Nothing is drawn twice."""


@dataclass(frozen=True, kw_only=True)
class PathMechanism(ContinualMechanism):
    """Mechanism that remembers the total, and the noise of one node per level."""

    name: ClassVar[str] = "path"

    multiplier: int = 1

    @property
    def summary(self) -> ValuePath:
        """Steps as points."""
        return ValuePath(lower=0, upper=1, points=power_of_two(self.horizon), multiplier=self.multiplier)

    @property
    def sensitivity(self) -> Sensitivity:
        """Events from a step on are rows up to a point, read backwards."""
        return self.summary.sensitivity(self.unit)

    @property
    def survives_reactions(self) -> bool:
        """True if a shift of the draws proves it; Gaussian noise needs a bound on every step given those before."""
        return self.noise.law != accounting.GAUSSIAN

    def factors(self, steps: NDArray[np.int64]) -> Floats:
        """Return the factors: a draw per level."""
        return np.full(len(steps), self.summary.overlap / self.multiplier**2)

    def start(self) -> Message:
        """Return the state before the first step."""
        return {"total": 0, "noise": [0] * self.summary.overlap}

    def advance(self, step: int, state: Message, count: int, draw: _Draw) -> tuple[float, Message]:
        """Add the count, with new noise for the nodes that begin at this step."""
        before, levels = step - 1, len(state["noise"])
        begun = (before & -before).bit_length() if before else levels
        noise = [*draw(begun), *state["noise"][begun:]]
        total = state["total"] + count
        return (self.multiplier * total + sum(noise)) / self.multiplier, {"total": total, "noise": noise}


@dataclass(frozen=True, kw_only=True)
class TreeMechanism(ContinualMechanism):
    """Blocks of 1, b, b², .. steps. Remembers, per level, one open block and the sum of the closed ones next to it."""

    name: ClassVar[str] = "tree"

    fan_out: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        if type(self.fan_out) is not int or self.fan_out < 2:
            raise UsageError(f"fan-out: got {self.fan_out!r}, expected a whole number above 1.")

    @cached_property
    def widths(self) -> tuple[int, ...]:
        """Widths of the blocks, shorter than the horizon."""
        widths = [1]
        while widths[-1] * self.fan_out < self.horizon:
            widths.append(widths[-1] * self.fan_out)
        return tuple(widths)

    @cached_property
    def block_factors(self) -> tuple[float, ...]:
        """The variance of a closed block that is estimated from its own count and from the blocks inside it."""
        factors = [1.0]
        for _ in self.widths[1:]:
            inside = self.fan_out * factors[-1]
            factors.append(inside / (inside + 1))
        return tuple(factors)

    @property
    def sensitivity(self) -> Sensitivity:
        """Exact sensitivity: an event is in one block of each level."""
        return Sensitivity.of_counts(self.unit, multipliers=(1,) * len(self.widths))

    def factors(self, steps: NDArray[np.int64]) -> Floats:
        """Return the factors: a step's closed blocks are the digits of its number to the base b."""
        total = np.zeros(len(steps))
        for width, factor in zip(self.widths, self.block_factors, strict=True):
            digits = steps // width if width == self.widths[-1] else steps // width % self.fan_out
            total = total + factor * digits
        return total

    def start(self) -> Message:
        """Return the state before the first step: empty blocks."""
        return {"open": [0] * len(self.widths), "closed": [0.0] * len(self.widths)}

    def advance(self, step: int, state: Message, count: int, draw: _Draw) -> tuple[float, Message]:
        """Close the blocks that end with this step; totals are made of closed ones."""
        events, closed = [inside + count for inside in state["open"]], list(state["closed"])
        for level, width in enumerate(self.widths):
            if step % width:
                break
            estimate = float(events[level] + draw(1)[0])
            if level:  # the mean of both, by the inverse of their variances
                own = self.block_factors[level]
                estimate = own * estimate + (1 - own) * closed[level - 1]
                closed[level - 1] = 0.0
            events[level], closed[level] = 0, closed[level] + estimate
        return sum(closed), {"open": events, "closed": closed}


@dataclass(frozen=True, kw_only=True)
class Factorised(ContinualMechanism):
    """Mechanism that remembers every step: its events, and its entry of C·counts with noise."""

    name: ClassVar[str] = "factorised"

    @cached_property
    def summary(self) -> ValueRoots:
        """C, in whole numbers."""
        return ValueRoots(lower=0, upper=1, points=power_of_two(self.horizon))

    @cached_property
    def column(self) -> NDArray[np.int64]:
        """The first column of C; the others are the same, further down."""
        return self.summary.of_counts(np.eye(1, self.summary.points, dtype=np.int64)[0])

    @property
    def sensitivity(self) -> Sensitivity:
        """Exact sensitivity: the first column, as far as the horizon."""
        l1, squared = column_norms(self.horizon, self.summary.scale)
        return Sensitivity(l1=float(self.unit_events * l1), l2=float(self.unit_events * np.sqrt(squared)))

    def factors(self, steps: NDArray[np.int64]) -> Floats:
        """Return the factors: every draw so far adds to a total, by how long ago it was."""
        return np.asarray(np.cumsum(self.summary.response**2)[steps - 1])

    def start(self) -> Message:
        """Return the state before the first step."""
        return {"counts": [], "noisy": []}

    def advance(self, step: int, state: Message, count: int, draw: _Draw) -> tuple[float, Message]:
        """Append an entry; the total is computed from noisy entries only, so that rounding reveals nothing."""
        counts = [*state["counts"], count]
        entry = int(self.column[step - 1 :: -1] @ np.array(counts)) + draw(1)[0]
        noisy = [*state["noisy"], entry]
        total = float(self.summary.response[step - 1 :: -1] @ np.array(noisy, dtype=np.float64))
        return total, {"counts": counts, "noisy": noisy}


MECHANISMS: dict[str, type[ContinualMechanism]] = {
    kind.name: kind for kind in (PathMechanism, TreeMechanism, Factorised)
}


def candidates(*, horizon: int, budget: Budget, unit_events: int) -> Iterator[ContinualMechanism]:
    """Yield every mechanism, with all parameters that may be best."""
    common: dict[str, Any] = {"horizon": horizon, "budget": budget, "unit_events": unit_events}
    yield PathMechanism(**common)
    if budget.delta > 0:
        yield PathMechanism(**common, multiplier=LARGEST_MULTIPLIER)
    for fan_out in range(2, max(2, min(_WIDEST_FAN_OUT, horizon)) + 1):
        yield TreeMechanism(**common, fan_out=fan_out)
    if horizon <= LONGEST_FACTORISED:
        yield Factorised(**common)
