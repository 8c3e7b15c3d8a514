"""Answers of a client about a regression: its loss and the loss's derivatives, summed, at public parameters.

Sums over clients are those of the pooled rows: a solver that sees only them finds the pooled fit, however differently
clients are made up. The outer products of gradients give it errors that do not trust the model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Final, Literal

import numpy as np

from fedassay.protocol.arrays import Floats
from fedassay.protocol.parameters import Interval
from fedassay.protocol.vocabulary import (
    Batch,
    Memory,
    Rows,
    Summary,
    Total,
    Vector,
)
from fedassay.summaries.measures import FixedPoint, WithoutNoise
from fedassay.summaries.regression.losses import Design
from fedassay.summaries.regression.moments import AtTheta

Meat = Literal["none", "rows", "clients"]
NO_MEAT: Final = "none"
BY_ROW: Final = "rows"
BY_CLIENT: Final = "clients"

LARGEST_INPUT = 2.0**32
"""Largest feature or target on the common scale. With scales from all rows none of 2^62 rows can be beyond."""

LARGEST_SUM = 2.0**75

_FIXED = FixedPoint(limbs=5, point=80)
_COUNTS = 3


@dataclass(frozen=True, kw_only=True, eq=False)
class DerivativeSums:
    """Sums over all rows, at one theta. `hessian` and `meat` are None where they were not asked for.

    `clients` have rows; at `cut` of them numbers were beyond what counts, so that sums are not what they should be.
    """

    rows: int
    clients: int
    cut: int
    loss: float
    gradient: Floats
    hessian: Floats | None = None
    meat: Floats | None = None


@dataclass(frozen=True, kw_only=True)
class NewtonSums(WithoutNoise, AtTheta, Summary[DerivativeSums]):  # type: ignore[override] # columns
    """Rows, and the sums over them of the loss, its gradient, its Hessian and outer products of gradients at `theta`.

    Parameters
    ----------
    model, theta : see `AtTheta`.
    order : 1 for the gradient only, 2 for the Hessian too.
    meat : ``rows`` for Σ g gᵀ over rows, ``clients`` for Σ G Gᵀ over clients, G being the sum of a client's own g;
        ``none``.

    Enforced: on the common scale features, targets and offsets are cut at ±2^32 and sums at ±2^75, which `cut` counts.
    Each number is rounded to 2^-80 and written as five limbs (`FixedPoint`): totals are exact, nothing but the rounding
    of each client's own sums is lost.

    Sensitivity: none that is finite in practice; under noise it is not asked for.
    """

    name: ClassVar[str] = "newton-sums"

    order: Annotated[int, Interval(ge=1, le=2)] = 2
    meat: Meat = NO_MEAT

    @property
    def _parts(self) -> tuple[int, ...]:
        """Numbers of entries of the loss, the gradient, the Hessian and the meat."""
        p = len(self.theta)
        triangle = p * (p + 1) // 2
        return 1, p, triangle * (self.order == 2), triangle * (self.meat != NO_MEAT)

    @property
    def length(self) -> int:
        """Number of entries: three counts, the loss, the gradient, and upper triangles of what else was requested."""
        return _COUNTS + _FIXED.limbs * sum(self._parts)

    def measure(self, rows: Rows, memory: Memory) -> tuple[Vector, Memory]:
        """Sum over batches and write down the sums; zeros without rows. Linear in the rows, constant in memory."""
        count, cut, total = 0, False, np.zeros(sum(self._parts))
        for batch in rows.batches():
            design, beyond = self._cut(batch)
            count, cut = count + design.rows, cut or beyond
            if design.rows:
                with np.errstate(over="ignore", invalid="ignore"):  # what overflows is cut
                    total = total + self._sums(design)
        if self.meat == BY_CLIENT:
            gradient = total[1 : 1 + len(self.theta)]
            total = np.concatenate([total[: -self._parts[-1]], upper_triangle(np.outer(gradient, gradient))])
        sums = np.clip(np.nan_to_num(total, nan=0.0), -LARGEST_SUM, LARGEST_SUM)
        cut = cut or bool((sums != total).any())
        return np.concatenate([[count, count > 0, cut], _FIXED.write(sums)]).astype(np.int64), memory

    def _cut(self, batch: Batch) -> tuple[Design, bool]:
        with np.errstate(over="ignore", under="ignore"):  # what overflows is cut
            made = self.rows_of(batch)
        parts = (made.x, made.y, made.offset)
        beyond = any(bool((np.abs(part) > LARGEST_INPUT).any()) for part in parts)
        x, y, offset = (np.clip(part, -LARGEST_INPUT, LARGEST_INPUT) for part in parts)
        return Design(x=x, y=y, offset=offset), beyond

    def _sums(self, design: Design) -> Floats:
        """Sum over one batch; the meat of clients, which follows from all batches' gradients, is left at zero."""
        loss, theta, weight = self.loss, np.array(self.theta), np.ones(design.rows)
        value = np.array([loss.losses(theta, design).sum()])
        hessian = meat = np.zeros(0)
        if self.order == 2:
            hessian = upper_triangle(loss.hessian_sum(theta, design, weight))
        if self.meat == BY_CLIENT:
            meat = np.zeros(self._parts[-1])
        if self.meat == BY_ROW:
            gradients = loss.gradients(theta, design)
            meat = upper_triangle(gradients.T @ gradients)
        return np.concatenate([value, loss.gradient_sum(theta, design, weight), hessian, meat])

    def read(self, total: Total) -> DerivativeSums:
        """Return the sums of all rows, correctly rounded to a few units in the last place."""
        rows, clients, cut = (int(count) for count in total[:_COUNTS])
        ends = np.cumsum(self._parts)[:-1]
        loss, gradient, hessian, meat = np.split(_FIXED.read(total[_COUNTS:]), ends)
        p = len(self.theta)
        return DerivativeSums(
            rows=rows,
            clients=clients,
            cut=cut,
            loss=float(loss[0]),
            gradient=gradient,
            hessian=symmetric(hessian, p) if self.order == 2 else None,
            meat=symmetric(meat, p) if self.meat != NO_MEAT else None,
        )


def upper_triangle(matrix: Floats) -> Floats:
    """Return the entries on and above the diagonal, row by row."""
    return np.asarray(matrix[np.triu_indices(len(matrix))])


def symmetric(upper: Floats, p: int) -> Floats:
    """Return the symmetric matrix that has these entries on and above its diagonal."""
    matrix = np.zeros((p, p))
    matrix[np.triu_indices(p)] = upper
    return np.asarray(matrix + np.triu(matrix, 1).T)
