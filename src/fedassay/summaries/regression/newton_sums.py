"""What a client says about a regression: its loss and the loss's derivatives, summed, at public parameters.

Sums over clients are those of the pooled rows: a solver that sees only them finds the pooled fit, however differently
clients are made up, and the outer products of gradients give it errors that do not trust the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

import numpy as np

from fedassay.errors import UsageError
from fedassay.protocol.arrays import Floats
from fedassay.protocol.vocabulary import (
    UNBOUNDED,
    Batch,
    Memory,
    Protection,
    Rows,
    Sensitivity,
    Summary,
    Total,
    Vector,
)
from fedassay.summaries.fixed_point import FixedPoint
from fedassay.summaries.regression.losses import Design, SmoothLoss, SquaredError, loss_of
from fedassay.summaries.regression.moments import MOST_FEATURES, Standard
from fedassay.summaries.scored import whole

NO_MEAT, BY_ROW, BY_CLIENT = "none", "rows", "clients"
MEATS = (NO_MEAT, BY_ROW, BY_CLIENT)

LARGEST_PARAMETER = 2.0**40
LARGEST_INPUT = 2.0**32
"""Of features and targets on the common scale. With scales from all rows none of 2^62 rows can be beyond."""

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
class NewtonSums(Standard, Summary[DerivativeSums]):
    """Rows, and the sums over them of the loss, its gradient, its Hessian and outer products of gradients at `theta`.

    The fields of `Standard` say how rows are scaled; `NewtonSums.of` takes them from one.

    Parameters
    ----------
    model : ``linear`` or ``logistic`` (`regression.losses`).
    theta : the parameters on the common scale, within ±2^40.
    order : 1 for the gradient only, 2 for the Hessian too.
    meat : ``rows`` for Σ g gᵀ over rows, ``clients`` for Σ G Gᵀ over clients, G being the sum of a client's own g;
        ``none``.

    Enforced: on the common scale features, targets and offsets are cut at ±2^32 and sums at ±2^75, which `cut` counts.
    Each number is rounded to 2^-80 and written as five limbs (`FixedPoint`): totals are exact, nothing but the rounding
    of each client's own sums is lost.

    Sensitivity: none that is finite in practice; under noise it is not asked for.
    """

    name: ClassVar[str] = "newton-sums"
    additive: ClassVar[bool] = False

    model: str
    theta: tuple[float, ...]
    order: int = 2
    meat: str = NO_MEAT

    def __post_init__(self) -> None:
        whole(self.features, what="features", least=0, most=MOST_FEATURES)
        super().__post_init__()
        whole(self.order, what="order", least=1, most=2)
        if self.meat not in MEATS:
            raise UsageError(f"meat: got {self.meat!r}, expected one of {', '.join(MEATS)}.")
        size, theta = self.loss.parameters(self.parameters), tuple(float(number) for number in self.theta)
        if len(theta) != size:
            raise UsageError(f"theta: got {len(theta)} numbers, expected {size} for the model {self.model}.")
        if not all(abs(number) <= LARGEST_PARAMETER for number in theta):  # NaN fails too
            raise UsageError(
                f"theta: got numbers beyond ±{LARGEST_PARAMETER:g}, or NaN, expected them within."
            )
        object.__setattr__(self, "theta", theta)

    @classmethod
    def of(cls, standard: Standard, **others: Any) -> Self:
        """For rows as this standard makes them."""
        return cls(**fields_of(standard), **others)

    @property
    def columns(self) -> tuple[str, ...]:  # type: ignore[override]
        """See `Standard.roles`."""
        return self.roles

    @property
    def loss(self) -> SmoothLoss:
        """What is summed."""
        return loss_of(self.model)

    @property
    def _parts(self) -> tuple[int, ...]:
        """How many numbers the loss, the gradient, the Hessian and the meat have."""
        p = len(self.theta)
        triangle = p * (p + 1) // 2
        return 1, p, triangle * (self.order == 2), triangle * (self.meat != NO_MEAT)

    @property
    def length(self) -> int:
        """Three counts, the loss, the gradient, and upper triangles of what else was asked for."""
        return _COUNTS + _FIXED.limbs * sum(self._parts)

    @property
    def largest(self) -> int:
        """A limb, or the rows of a client."""
        return _FIXED.largest

    def measure(self, rows: Rows, memory: Memory) -> tuple[Vector, Memory]:
        """Sum over batches, write down; zeros without rows. Linear in the rows, constant in memory."""
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
            made = self.design(batch, linear=self.model == SquaredError.name)
        parts = (made.x, made.y, made.offset)
        beyond = any(bool((np.abs(part) > LARGEST_INPUT).any()) for part in parts)
        x, y, offset = (np.clip(part, -LARGEST_INPUT, LARGEST_INPUT) for part in parts)
        return Design(x=x, y=y, offset=offset), beyond

    def _sums(self, design: Design) -> Floats:
        """Of one batch; the meat of clients, which follows from the gradients of all batches, is left at zero."""
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

    def sensitivity(self, protection: Protection) -> Sensitivity:
        """One row can move a sum as far as numbers go."""
        return UNBOUNDED

    def read(self, total: Total) -> DerivativeSums:
        """The sums of all rows, correctly rounded to a few units in the last place."""
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


def fields_of(standard: Standard) -> Mapping[str, Any]:
    """The fields of a standard, for summaries that carry them."""
    return {field.name: getattr(standard, field.name) for field in fields(Standard)}


def upper_triangle(matrix: Floats) -> Floats:
    """The entries on and above the diagonal, row by row."""
    return np.asarray(matrix[np.triu_indices(len(matrix))])


def symmetric(upper: Floats, p: int) -> Floats:
    """The symmetric matrix that has these entries on and above its diagonal."""
    matrix = np.zeros((p, p))
    matrix[np.triu_indices(p)] = upper
    return np.asarray(matrix + np.triu(matrix, 1).T)
