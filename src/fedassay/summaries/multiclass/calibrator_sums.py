"""Answers of clients about a calibrator: losses and derivatives at public parameters, or the clients' updates of it.

Sums over clients are those of the pooled rows: a solver that sees only them finds the pooled optimum, however
differently classes are spread over clients. How far a client would move a calibrator is cut to a public length by the
client, not by the server: no party has to be trusted with the original update.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

import numpy as np

from fedassay.errors import UsageError
from fedassay.protocol.arrays import Floats
from fedassay.protocol.parameters import Checked, Interval
from fedassay.protocol.vocabulary import (
    LARGEST_ROWS_PER_CLIENT,
    UNBOUNDED,
    Memory,
    Neighbours,
    Protection,
    Rows,
    Sensitivity,
    Summary,
    Total,
    Unit,
    Vector,
)
from fedassay.summaries.measures import SUMS
from fedassay.summaries.multiclass.local_fits import AVERAGED, LARGEST_UPDATE, RIDGE, Averaged, local_fit
from fedassay.summaries.multiclass.losses import FAMILIES, LossSums, loss_sums
from fedassay.summaries.multiclass.maps import logits_of
from fedassay.summaries.scored import NumberOfClasses

# --- losses and their derivatives ----------------------------------------------------------------------------


MOST_NEWTON = 420
"""Most parameters for which Hessians are summed: matrix scaling of 20 classes, 88,410 different entries."""

LARGEST_SUM = 2.0**75


@dataclass(frozen=True, kw_only=True)
class ScalingSums(Checked, Summary[LossSums]):
    """Rows, and the sums over them of the log loss, its gradient and its Hessian's upper triangle at `theta`.

    Parameters
    ----------
    method : ``temperature``, ``vector``, ``matrix`` or ``order-preserving`` (`multiclass.losses`).
    classes : c, from 2 to 1,024. Rows with another number of logits count for nothing: a refusal would reveal that
        there are rows.
    theta : the parameters, within ±2^20; those of order-preserving scaling at least 1e-6.
    order : 1 for the gradient only, 2 for the Hessian too (up to 420 parameters).
    rough : True if sums that are right to about 1e-6 are enough, on the way to an optimum.

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
    classes: NumberOfClasses
    theta: tuple[float, ...]
    order: Annotated[int, Interval(ge=1, le=2)] = 2
    rough: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.method not in FAMILIES:
            raise UsageError(f"method: got {self.method!r}, expected one of {', '.join(FAMILIES)}.")
        object.__setattr__(self, "theta", FAMILIES[self.method].checked(self.theta, self.classes))
        if self.order == 2 and self.size > MOST_NEWTON:
            raise UsageError(
                f"order: got 2 for {self.size:,} parameters, expected 1 for more than {MOST_NEWTON}: Hessians are too "
                "large."
            )

    @property
    def size(self) -> int:
        """Number of parameters."""
        return len(self.theta)

    @property
    def length(self) -> int:
        """Number of entries: a count, the loss, the gradient, and for order 2 the Hessian's upper triangle."""
        return 1 + SUMS.limbs * (1 + self.size + self._second)

    @property
    def _second(self) -> int:
        return self.size * (self.size + 1) // 2 if self.order == 2 else 0

    def measure(self, rows: Rows, memory: Memory) -> tuple[Vector, Memory]:
        """Sum over batches and write down the sums; zeros without rows. Linear in the rows, constant in memory."""
        count, total = 0, np.zeros(1 + self.size + self._second)
        upper = np.triu_indices(self.size)
        for logits, labels in logits_of(rows, self.classes):
            sums = loss_sums(self.method, logits, labels, self.theta, order=self.order, rough=self.rough)
            second = np.zeros(0) if sums.hessian is None else sums.hessian[upper]
            count, total = count + sums.rows, total + np.concatenate([[sums.loss], sums.gradient, second])
        return np.concatenate([[count], SUMS.write(np.clip(total, -LARGEST_SUM, LARGEST_SUM))]), memory

    def sensitivity(self, protection: Protection) -> Sensitivity:
        """Return the sensitivity of entries that move from one end of their range to the other."""
        reach = 2.0 * self.largest
        return Sensitivity(l1=reach * self.length, l2=reach * math.sqrt(self.length))

    def read(self, total: Total) -> LossSums:
        """Return the sums of all rows, correctly rounded to a few units in the last place."""
        numbers = SUMS.read(total[1:])
        hessian = None
        if self.order == 2:
            hessian = np.zeros((self.size, self.size))
            hessian[np.triu_indices(self.size)] = numbers[1 + self.size :]
            hessian = hessian + np.triu(hessian, 1).T
        return LossSums(
            rows=int(total[0]), loss=float(numbers[0]), gradient=numbers[1 : 1 + self.size], hessian=hessian
        )


# --- updates of a calibrator ---------------------------------------------------------------------------------


UpdateWeights = Literal["clients", "rows", "fixed"]
"""Weight of a client with rows: one, its rows, or nothing, where the server divides by a fixed number."""

RADIUS = 2**24
"""Clip in whole units: rounding moves a mean update by less than 6e-8 of the clip in each parameter."""

LEAST_PER_ROW = 2**10
"""Clip in whole units of a client with one row, if rows are weights."""

LEAST_CLIP, MOST_CLIP = 2.0**-20, 2.0**20

_POINT = 20
_WITHIN = 1 - 2.0**-30
"""Factor that keeps vectors within the radius: norms of up to 2^21 numbers are right to 2^-32."""


@dataclass(frozen=True, kw_only=True, eq=False)
class UpdateSums:
    """Sum over clients of weight times update, and of the weights (None where weights are fixed).

    Noise of standard deviation σ in an entry of the vector is `resolution`·σ in one of `total`, and
    `weight_resolution`·σ in `weight`.
    """

    total: Floats
    weight: float | None
    resolution: float
    weight_resolution: float


@dataclass(frozen=True, kw_only=True)
class ClippedUpdates(Checked, Summary[UpdateSums]):
    """theta_k - theta, with theta_k what the client's rows make of theta (`local_fit`); clipped, weighted, whole.

    Parameters
    ----------
    method : ``temperature``, ``vector``, ``matrix``, ``order-preserving`` or ``fedcal`` (`AVERAGED`).
    classes : c, from 2 to 1,024. Rows with another number of logits count for nothing.
    theta : the current parameters of the federation; for ``temperature`` the temperature itself.
    clip : C, the L2 norm beyond which an update is shortened; 0 for none.
    weights : ``clients``, a client with rows weighs one; ``rows``, as much as it has rows; ``fixed``, weights are not
        sent. The first entry is the weight where there is one.
    most_rows : with ``rows``, more rows weigh no more than these.
    ridge : of the local fit, per row.

    With a clip, an update is written in units of C/R, rounded toward zero, with R = 2^24; the weight of a client is R.
    Weighted by rows, R is k times `most_rows`, with a whole number k of at least 2^10 such that R is about 2^24 if it
    can be; the weight w is k times the client's rows, and its update is written in units of C/w. Enforced: the L2 norm
    of the update's part is at most w, exactly, in whole numbers. Without a clip, updates times weights are rounded to
    2^-20, and no parameter moves by more than 2^10.

    A client without rows sends zeros.

    Sensitivity: vectors are (w u, w) with |u| <= R and w <= R. One client that is added or removed moves
    the total by its vector: R, or √2·R with a weight. Where one is replaced, or rows of it change (one row can lead a
    fit anywhere), it moves by |(w u - w' u', w - w')|, at most √((w + w')² + (w - w')²) = √(2w² + 2w'²) <= 2R. L1 norms
    are at most √size times as large for the update; in the second case (w + w')√size + |w - w'| <= 2R√size. Without a
    clip there is no useful bound: it is not asked under noise.

    The client needs its rows in memory at once.

    Reference: McMahan, Ramage, Talwar and Zhang, Learning Differentially Private Recurrent Language Models, 2018,
    Section 2 (flat clipping of updates).
    """

    name: ClassVar[str] = "clipped-updates"
    columns: ClassVar[tuple[str, ...]] = ("class", "logits")
    additive: ClassVar[bool] = False

    method: str
    classes: NumberOfClasses
    theta: tuple[float, ...] = field(repr=False)
    clip: float = 0.0
    weights: UpdateWeights = "clients"
    most_rows: Annotated[int, Interval(ge=0, le=LARGEST_ROWS_PER_CLIENT)] = 0
    ridge: Annotated[float, Interval(ge=1e-9, le=1e6)] = RIDGE

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.method not in AVERAGED:
            raise UsageError(f"method: got {self.method!r}, expected one of {', '.join(AVERAGED)}.")
        object.__setattr__(self, "theta", self.averaged.checked(self.theta, self.classes))
        if self.clip != 0 and not LEAST_CLIP <= self.clip <= MOST_CLIP:  # NaN fails too
            raise UsageError(
                f"clip: got {self.clip:.3g}, expected 0 for none, or {LEAST_CLIP:.3g} to {MOST_CLIP:.3g}."
            )
        if self.weights == "rows" and not self.most_rows:
            raise UsageError("most_rows: got 0, expected at least 1, as rows are weights.")

    @property
    def averaged(self) -> Averaged:
        """Quantity that is averaged."""
        return AVERAGED[self.method]

    @property
    def weighted(self) -> bool:
        """True if weights are sent."""
        return self.weights != "fixed"

    @property
    def length(self) -> int:
        """Number of entries: one for each parameter, and the weight."""
        return len(self.theta) + self.weighted

    @property
    def per_row(self) -> int:
        """Weight k, in whole units, of a row, or of a client where rows do not count, if there is a clip."""
        return max(LEAST_PER_ROW, RADIUS // self.most_rows) if self.weights == "rows" else RADIUS

    @property
    def radius(self) -> int:
        """Radius R: the longest update in whole units, and the largest weight."""
        return self.per_row * (self.most_rows if self.weights == "rows" else 1)

    @property
    def largest(self) -> int:
        """Largest entry: the radius; without a clip, the largest update times the largest weight."""
        if self.clip:
            return self.radius
        return int(LARGEST_UPDATE * 2**_POINT) * (self.most_rows if self.weights == "rows" else 1)

    def measure(self, rows: Rows, memory: Memory) -> tuple[Vector, Memory]:
        """Fit, subtract, clip, round; zeros without rows."""
        logits, labels = self._gathered(rows)
        if not len(labels):
            return np.zeros(self.length, dtype=np.int64), memory
        theta = np.array(self.theta)
        update = local_fit(self.method, logits, labels, theta, ridge=self.ridge) - theta
        weight = min(len(labels), self.most_rows) if self.weights == "rows" else 1
        if self.clip:
            weight = weight * self.per_row
            vector = clipped(update, clip=self.clip, radius=weight)
        else:
            vector = np.rint(update * (weight * 2.0**_POINT)).astype(np.int64)
        return np.concatenate([np.full(int(self.weighted), weight), vector]), memory

    def _gathered(self, rows: Rows) -> tuple[Floats, Vector]:
        batches = list(logits_of(rows, self.classes))
        if not batches:
            return np.zeros((0, self.classes)), np.zeros(0, dtype=np.int64)
        logits, labels = (np.concatenate(columns) for columns in zip(*batches, strict=True))
        return logits, labels

    def sensitivity(self, protection: Protection) -> Sensitivity:
        """Return the sensitivity that the class states."""
        if not self.clip:
            return UNBOUNDED
        root, radius = math.sqrt(len(self.theta)), self.radius
        if protection.unit is Unit.CLIENT and protection.neighbours is Neighbours.ADD_REMOVE:
            return Sensitivity(l1=radius * (root + self.weighted), l2=radius * math.sqrt(1 + self.weighted))
        return Sensitivity(l1=2 * radius * root, l2=2.0 * radius)

    def read(self, total: Total) -> UpdateSums:
        """Return the sums of updates, in units of theta, times weights, and of weights: clients, or rows."""
        numbers = np.asarray(total, dtype=np.float64)
        unit, one = (self.clip / self.per_row, 1 / self.per_row) if self.clip else (2.0**-_POINT, 1.0)
        return UpdateSums(
            total=unit * numbers[int(self.weighted) :],
            weight=one * float(numbers[0]) if self.weighted else None,
            resolution=unit,
            weight_resolution=one,
        )


def clipped(update: Floats, *, clip: float, radius: int) -> Vector:
    """Return the update in units of clip/radius, shortened to the radius, rounded toward zero: its L2 norm is at most
    that.

    Examples
    --------
    >>> clipped(np.array([3.0, -4.0]), clip=1.0, radius=1000)
    array([ 599, -799])
    >>> clipped(np.array([0.25, -0.3999]), clip=1.0, radius=1000)
    array([ 250, -399])
    """
    units = update * (radius / clip)
    norm = float(np.sqrt(units @ units))
    if not math.isfinite(norm):
        return np.zeros(len(units), dtype=np.int64)
    return np.trunc(units * min(1.0, _WITHIN * radius / norm) if norm else units).astype(np.int64)
