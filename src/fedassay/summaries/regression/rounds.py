"""Answers of clients in one round of federated averaging: their weighted mean gradients and Hessians, added up.

Under noise for whole clients a part of a round is one vector of norm at most one. A client's mean gradient g is
shortened to the norm C, g' = g·min(1, C/|g|). What rounds then average is no longer the gradient of the loss, and
intervals must know it: where |g| > C the derivative of g' by the parameters is

    (C/|g|) (I - g gᵀ/|g|²) H,

H being the client's mean Hessian. That matrix is sent in addition to g', shortened to a public norm of its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from fedassay.protocol.arrays import Floats
from fedassay.protocol.parameters import Checked, Interval
from fedassay.protocol.vocabulary import Memory, Protection, Rows, Sensitivity, Summary, Total, Vector
from fedassay.summaries.measures import FixedPoint, WithoutNoise, client_sensitivity
from fedassay.summaries.regression.local_work import RoundFields
from fedassay.summaries.regression.losses import Design
from fedassay.summaries.regression.newton_sums import symmetric

LARGEST_ENTRY = 2.0**50
"""Largest entry of a client's weighted mean gradient or Hessian; larger ones are cut: their iterates diverge."""

_FIXED = FixedPoint(limbs=4, point=64)
_COUNTS = 4


@dataclass(frozen=True, kw_only=True, eq=False)
class RoundSums:
    """Sums over the clients of a round: clients with rows, their local steps, those that began their rows again, rows
    used.

    `gradient`, `hessian` and `drift` are weighted sums of what `local_work` found.
    """

    clients: int
    steps: int
    again: int
    rows: int
    gradient: Floats
    hessian: Floats
    drift: Floats


@dataclass(frozen=True, kw_only=True)
class RegressionRound(WithoutNoise, RoundFields, Summary[RoundSums]):  # type: ignore[override] # columns
    """Summary of one round. See `RoundFields` for its parameters.

    Parameters
    ----------
    remembers : True if clients also add up the gradients of single rows, for `ClientSpread`.

    Guarantee: sums are exact but for the rounding of each client's numbers to 2^-64, and cut at ±2^50 each.
    Sensitivity: none that is finite in practice; under noise `ClippedRound` is asked for.
    """

    name: ClassVar[str] = "regression-round"

    remembers: bool = False

    @property
    def length(self) -> int:
        """Number of entries: four counts, the gradient, the drift, and the Hessian's upper triangle."""
        p = len(self.theta)
        return _COUNTS + _FIXED.limbs * (2 * p + p * (p + 1) // 2)

    def measure(self, rows: Rows, memory: Memory) -> tuple[Vector, Memory]:
        """Work on the rows of the round; the others are only counted. Zeros without rows."""
        work, used, turn = self.worked(rows, memory)
        kept, p = turn.memory, len(self.theta)
        with np.errstate(all="ignore"):
            all_numbers = np.concatenate([work.gradient, work.drift, work.hessian[np.triu_indices(p)]])
            numbers = _within(self.weight(turn.rows) * all_numbers)
        counts = [turn.rows > 0, int(work.steps), turn.passes > 0, used.rows]
        if self.remembers and used.rows:
            kept = _remembered(self, used, turn.rows, kept)
        return np.concatenate([counts, _FIXED.write(numbers)]).astype(np.int64), kept

    def read(self, total: Total) -> RoundSums:
        """Return the sums."""
        p = len(self.theta)
        clients, steps, again, rows = (int(count) for count in total[:_COUNTS])
        gradient, drift, upper = np.split(_FIXED.read(total[_COUNTS:]), [p, 2 * p])
        return RoundSums(
            clients=clients,
            steps=steps,
            again=again,
            rows=rows,
            gradient=gradient,
            drift=drift,
            hessian=symmetric(upper, p),
        )


def _remembered(asked: RegressionRound, used: Design, rows: int, memory: Memory) -> Memory:
    """Return the sums of one row's gradient at theta, and of its square, that `ClientSpread` reads (Algorithm 2)."""
    p = len(asked.theta)
    # Rounds of another question, with other parameters, are forgotten.
    before = memory if np.shape(memory.get("gradient", 0.0)) == (p,) else {}
    with np.errstate(all="ignore"):
        gradient = _within(asked.loss.gradients(np.array(asked.theta), used.take(slice(0, 1)))[0])
        outer = np.outer(gradient, gradient)
    return {
        **memory,
        "outer": before.get("outer", np.zeros((p, p))) + outer,
        "gradient": before.get("gradient", np.zeros(p)) + gradient,
        "taken": int(before.get("taken", 0)) + 1,
        "each": used.rows,
        "weight": asked.weight(rows),
    }


@dataclass(frozen=True, kw_only=True, eq=False)
class SpreadSums:
    """Spread of gradients within clients, Σ w² S/m, and between them, Σ w² ḡ ḡᵀ; over `clients` with both."""

    within: Floats
    between: Floats
    clients: int


@dataclass(frozen=True, kw_only=True)
class ClientSpread(WithoutNoise, Checked, Summary[SpreadSums]):
    """Sums over clients of the gradients that each remembers, at the end: for the separated plug-in.

    With S_i the covariance of one row's gradient at client i and ḡ_i its mean, over the rounds it took part in:
    Σ_i w_i² S_i/m_i and Σ_i w_i² ḡ_i ḡ_iᵀ, m_i being the rows of a visit (as published, one for each step). Rows are
    not read.
    """

    name: ClassVar[str] = "client-spread"
    columns: ClassVar[tuple[str, ...]] = ()

    parameters: Annotated[int, Interval(ge=1, le=1 << 10)]

    @property
    def length(self) -> int:
        """Number of entries: a count, and two upper triangles."""
        return 1 + _FIXED.limbs * self.parameters * (self.parameters + 1)

    def measure(self, rows: Rows, memory: Memory) -> tuple[Vector, Memory]:
        """Write down the remembered sums; zeros for a client that was in no round."""
        p, taken = self.parameters, int(memory.get("taken", 0))
        if not taken or np.shape(memory["gradient"]) != (p,):
            return np.zeros(self.length, dtype=np.int64), memory
        mean, upper = memory["gradient"] / taken, np.triu_indices(p)
        with np.errstate(all="ignore"):
            spread = memory["outer"] / taken - np.outer(mean, mean)
            both = [(spread / max(1, memory["each"]))[upper], np.outer(mean, mean)[upper]]
            numbers = _within(np.square(np.float64(memory["weight"])) * np.concatenate(both))
        return np.concatenate([[1], _FIXED.write(numbers)]).astype(np.int64), memory

    def read(self, total: Total) -> SpreadSums:
        """Return the sums."""
        within, between = np.split(_FIXED.read(total[1:]), 2)
        p = self.parameters
        return SpreadSums(within=symmetric(within, p), between=symmetric(between, p), clients=int(total[0]))


def _within(numbers: Floats) -> Floats:
    """Return numbers that can be written down; what is no number becomes the largest."""
    return np.clip(np.nan_to_num(numbers, nan=LARGEST_ENTRY), -LARGEST_ENTRY, LARGEST_ENTRY)


# --- a round under noise ------------------------------------------------------------------------------------

UNITS = 1 << 24
"""Whole numbers per unit of norm: rounding takes less than one of them from an entry."""

SLOPES = 0.3
"""Part of the squared norm for the derivative."""

_NORMS = (math.sqrt(1 - SLOPES), math.sqrt(SLOPES))
"""Norms of the gradient and of its derivative."""

_BELOW = 1 - 2.0**-40
"""Factor that makes vectors a little shorter than the norm: more than what floating point can get wrong."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ClippedSums:
    """Sums over clients of g' and of its derivative, with noise.

    Noise of standard deviation σ in each entry of the released vector is σ·`units` in each of these, in this order.
    """

    gradient: Floats
    slopes: Floats
    units: tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class ClippedRound(RoundFields, Summary[ClippedSums]):  # type: ignore[override] # columns
    """Summary of one round under noise. See `RoundFields`; clients take one step, and each weighs the same.

    Parameters
    ----------
    clip : C, the norm of a mean gradient that counts in full.
    slopes_clip : the Frobenius norm of a derivative that counts in full.

    Sent are √0.7·g'/C and √0.3·(derivative)/(its clip), in units of 2^-24, rounded toward zero.

    Sensitivity: both parts have norms of at most √0.7 and √0.3. So the vector is at most 1 away from that of a client
    without rows, which is zero, and at most 2 from any other.
    """

    name: ClassVar[str] = "clipped-round"
    additive: ClassVar[bool] = False

    clip: Annotated[float, Interval(gt=0, le=2.0**20)]
    slopes_clip: Annotated[float, Interval(gt=0, le=2.0**20)]

    @property
    def length(self) -> int:
        """Number of entries: the gradient, and its derivative."""
        p = len(self.theta)
        return p + p * p

    @property
    def largest(self) -> int:
        """Largest entry: the norm."""
        return UNITS

    def measure(self, rows: Rows, memory: Memory) -> tuple[Vector, Memory]:
        """Clip and sum the gradient and its derivative; zeros without rows."""
        work, used, turn = self.worked(rows, memory)
        if not used.rows:
            return np.zeros(self.length, dtype=np.int64), turn.memory
        with np.errstate(all="ignore"):
            gradient, hessian = np.nan_to_num(work.gradient), np.nan_to_num(work.hessian)
            slopes = np.nan_to_num(derivative(gradient, hessian, self.clip)).reshape(-1)
            parts = shortened(gradient, self.clip), shortened(slopes, self.slopes_clip)
            vector = np.concatenate([norm * part for norm, part in zip(_NORMS, parts, strict=True)])
        return np.trunc(vector * (UNITS * _BELOW)).astype(np.int64), turn.memory

    def sensitivity(self, protection: Protection) -> Sensitivity:
        """Return the sensitivity that the class states."""
        return client_sensitivity(protection, norm=UNITS, length=self.length)

    def read(self, total: Total) -> ClippedSums:
        """Return the sums."""
        p, values = len(self.theta), np.asarray(total, dtype=np.float64)
        first, second = (
            clip / (UNITS * norm) for clip, norm in zip((self.clip, self.slopes_clip), _NORMS, strict=True)
        )
        slopes = values[p:].reshape(p, p) * second
        return ClippedSums(gradient=values[:p] * first, slopes=slopes, units=(first, second))


def shortened(vector: Floats, clip: float) -> Floats:
    """Return vectors (the last axis) divided by the clip, with norms of at most one, whatever their size."""
    largest = np.abs(vector).max(axis=-1, keepdims=True, initial=0.0)
    scaled = vector / np.where(largest > 0, largest, 1.0)
    norm = np.linalg.norm(scaled, axis=-1, keepdims=True)  # 0, or between 1 and √length: nothing overflows
    return np.asarray(scaled / np.where(norm > 0, norm, 1.0) * np.minimum(1.0, largest * norm / clip))


def derivative(gradient: Floats, hessian: Floats, clip: float) -> Floats:
    """Return the derivative of the shortened gradient by the parameters; leading axes as in `regression.losses`."""
    norm = np.linalg.norm(gradient, axis=-1)[..., None, None]
    along = gradient[..., None, :] / np.where(norm > 0, norm, 1.0)
    across = hessian - np.swapaxes(along, -1, -2) @ (along @ hessian)
    return np.asarray(np.where(norm > clip, clip / np.where(norm > 0, norm, 1.0) * across, hessian))
