"""What a client says about a scaling calibrator: its losses and their derivatives, summed, at public parameters.

Sums over clients are those of the pooled rows: a solver that sees only them finds the pooled optimum, however
differently classes are spread over clients.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedassay.errors import UsageError
from fedassay.protocol.vocabulary import Memory, Protection, Rows, Sensitivity, Summary, Total, Vector
from fedassay.summaries.columns import column
from fedassay.summaries.fixed_point import SUMS
from fedassay.summaries.maps import LARGEST_PARAMETER
from fedassay.summaries.multiclass.losses import FAMILIES, LossSums, loss_sums
from fedassay.summaries.scored import MOST_CLASSES, whole

MOST_NEWTON = 420
"""Hessians are summed for up to so many parameters: matrix scaling of 20 classes, 88,410 different entries."""

LARGEST_SUM = 2.0**75


@dataclass(frozen=True, kw_only=True)
class ScalingSums(Summary[LossSums]):
    """Rows, and the sums over them of the log loss, its gradient and its Hessian's upper triangle at `theta`.

    Parameters
    ----------
    method : ``temperature``, ``vector``, ``matrix`` or ``order-preserving`` (`multiclass.losses`).
    classes : c, from 2 to 1,024. Rows with another number of logits count for nothing: a refusal would say that there
        are rows.
    theta : the parameters, within ±2^20; those of order-preserving scaling at least 1e-6.
    order : 1 for the gradient only, 2 for the Hessian too (up to 420 parameters).
    rough : whether sums that are right to about 1e-6 are enough, on the way to an optimum.

    Enforced: logits are cut at ±2^20 and a client has at most 2^32 rows, so that gradients are at most 2^53 and
    Hessians at most 2^72. Only the loss depends on theta without such a bound; it is cut at 2^75, which is more than
    any loss that a fit accepts. Each number is rounded to 2^-48 and written as four limbs of 32 bits (`FixedPoint`):
    every entry is at most 2^32, no total over up to 2^30 clients wraps, and totals are exact: nothing but the rounding
    of each client's own sums is lost.

    Sensitivity: one row can move an entry from one end of its range to the other. The bound is true and useless: no
    noise that covers it leaves anything to see. Private fits sum clipped updates instead.
    """

    name: ClassVar[str] = "scaling-sums"
    columns: ClassVar[tuple[str, ...]] = ("class", "logits")
    additive: ClassVar[bool] = False

    method: str
    classes: int
    theta: tuple[float, ...]
    order: int = 2
    rough: bool = False

    def __post_init__(self) -> None:
        if self.method not in FAMILIES:
            raise UsageError(f"method: got {self.method!r}, expected one of {', '.join(FAMILIES)}.")
        whole(self.classes, what="classes", least=2, most=MOST_CLASSES)
        whole(self.order, what="order", least=1, most=2)
        if not isinstance(self.rough, bool):
            raise UsageError(f"rough: got {self.rough!r}, expected true or false.")
        family = FAMILIES[self.method]
        size, theta = family.size(self.classes), tuple(float(number) for number in self.theta)
        if len(theta) != size:
            raise UsageError(
                f"theta: got {len(theta)} numbers for {self.method} scaling of {self.classes} classes, expected {size}."
            )
        if not all(family.least <= number <= LARGEST_PARAMETER for number in theta):  # NaN fails too
            raise UsageError(
                f"theta: got numbers outside [{family.least:g}, {LARGEST_PARAMETER:g}], or NaN, expected them within."
            )
        if self.order == 2 and size > MOST_NEWTON:
            raise UsageError(
                f"order: got 2 for {size:,} parameters, expected 1 for more than {MOST_NEWTON}: Hessians are too large."
            )
        object.__setattr__(self, "theta", theta)

    @property
    def size(self) -> int:
        """The number of parameters."""
        return len(self.theta)

    @property
    def length(self) -> int:
        """A count, the loss, the gradient, and for order 2 the Hessian's upper triangle."""
        return 1 + SUMS.limbs * (1 + self.size + self._second)

    @property
    def _second(self) -> int:
        return self.size * (self.size + 1) // 2 if self.order == 2 else 0

    @property
    def largest(self) -> int:
        """A limb, or the rows of a client."""
        return SUMS.largest

    def measure(self, rows: Rows, memory: Memory) -> tuple[Vector, Memory]:
        """Sum over batches, write down; zeros without rows. Linear in the rows, constant in memory."""
        count, total = 0, np.zeros(1 + self.size + self._second)
        upper = np.triu_indices(self.size)
        for batch in rows.batches():
            logits = column(batch, "logits")
            if logits.ndim == 2 and logits.shape[1] != self.classes:
                continue
            labels = column(batch, "class")
            sums = loss_sums(self.method, logits, labels, self.theta, order=self.order, rough=self.rough)
            second = np.zeros(0) if sums.hessian is None else sums.hessian[upper]
            count, total = count + sums.rows, total + np.concatenate([[sums.loss], sums.gradient, second])
        return np.concatenate([[count], SUMS.write(np.clip(total, -LARGEST_SUM, LARGEST_SUM))]), memory

    def sensitivity(self, protection: Protection) -> Sensitivity:
        """Every entry from one end of its range to the other."""
        reach = 2.0 * self.largest
        return Sensitivity(l1=reach * self.length, l2=reach * math.sqrt(self.length))

    def read(self, total: Total) -> LossSums:
        """The sums of all rows, correctly rounded to a few units in the last place."""
        numbers = SUMS.read(total[1:])
        hessian = None
        if self.order == 2:
            hessian = np.zeros((self.size, self.size))
            hessian[np.triu_indices(self.size)] = numbers[1 + self.size :]
            hessian = hessian + np.triu(hessian, 1).T
        return LossSums(
            rows=int(total[0]), loss=float(numbers[0]), gradient=numbers[1 : 1 + self.size], hessian=hessian
        )
