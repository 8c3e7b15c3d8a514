"""What clients say in one round of federated averaging: their weighted mean gradients and Hessians, added up.

A client goes through its rows in an order of its own, each row once before any row again, some in each round it takes
part in. All that it remembers is how far it has come.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

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
from fedassay.summaries.columns import column
from fedassay.summaries.fixed_point import FixedPoint
from fedassay.summaries.regression.local_work import CORRECTED, LOCAL, LocalSteps, Work, local_work
from fedassay.summaries.regression.losses import Design, SmoothLoss, SquaredError, loss_of
from fedassay.summaries.regression.moments import Standard
from fedassay.summaries.regression.newton_sums import fields_of, symmetric
from fedassay.summaries.scored import whole

BY_ROWS, BY_CLIENTS = "rows", "clients"
WEIGHTS = (BY_ROWS, BY_CLIENTS)

MOST_LOCAL_STEPS = 1024
LARGEST_THETA = 2.0**40
LARGEST_ENTRY = 2.0**50
"""Of a client's weighted mean gradient or Hessian; what is beyond is cut, and an iterate that led there diverges."""

_FIXED = FixedPoint(limbs=4, point=64)
_COUNTS = 4


@dataclass(frozen=True, kw_only=True, eq=False)
class RoundSums:
    """Sums over the clients of a round: who had rows, their local steps, how many began their rows again, rows used.

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
class RoundFields(Standard):
    """Where a round starts and how clients work in it; the fields of `Standard` say how rows are scaled.

    Parameters
    ----------
    model : a loss that every site knows (`regression.losses`).
    theta : where the round starts, on the common scale.
    step : η, of each local step.
    local_steps : the most that a client does. It deals the rows of a round to as many steps.
    local : ``corrected``, ``fixed`` or ``published``, see `local_work`.
    visits : in how many rounds a client will take part. It uses the same part of its rows in each, at least one row.
    weights, per : clients weigh (their rows)/`per`, or 1/`per` each.
    seed : of the order in which clients go through their rows; public. None: as they are stored.
    """

    model: str
    theta: tuple[float, ...]
    step: float
    local_steps: int = 1
    local: str = CORRECTED
    visits: int = 1
    weights: str = BY_ROWS
    per: float = 1.0
    seed: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        size, theta = self.loss.parameters(self.parameters), tuple(float(number) for number in self.theta)
        if len(theta) != size or not all(abs(number) <= LARGEST_THETA for number in theta):
            raise UsageError(f"theta: expected {size} numbers within ±{LARGEST_THETA:g}.")
        whole(self.local_steps, what="local steps", least=1, most=MOST_LOCAL_STEPS)
        whole(self.visits, what="visits", least=1, most=1 << 30)
        for what, got, expected in (("local", self.local, LOCAL), ("weights", self.weights, WEIGHTS)):
            if got not in expected:
                raise UsageError(f"{what}: got {got!r}, expected one of {', '.join(expected)}.")
        if not (0 < self.step < 1e6 and 0 < self.per < 1e18):
            raise UsageError(f"step, per: got {self.step:g} and {self.per:g}, expected numbers above 0.")
        if self.seed is not None:
            whole(self.seed, what="seed", least=0, most=(1 << 63) - 1)
        object.__setattr__(self, "theta", theta)

    @classmethod
    def of(cls, standard: Standard, **others: Any) -> Self:
        """For rows as this standard makes them."""
        return cls(**fields_of(standard), **others)

    @property
    def loss(self) -> SmoothLoss:
        """What is minimised."""
        return loss_of(self.model)

    def weight(self, rows: int) -> float:
        """Of a client with so many rows."""
        return (rows if self.weights == BY_ROWS else float(rows > 0)) / self.per

    def worked(self, rows: Rows, memory: Memory) -> tuple[Work, Design, Turn, Memory]:
        """The client's part of the round, the rows it used, and what it has to remember."""
        turn = Turn.next(
            _count(rows, self.features), self.visits, self.seed, memory, salt=lambda: _salt(rows)
        )
        with np.errstate(all="ignore"):  # an iterate that diverges is the server's to see
            used = self.design(_picked(rows, turn.places, self), linear=self.model == SquaredError.name)
            dealt = LocalSteps.deal(used, self.local_steps)
            work = local_work(self.loss, np.array(self.theta), dealt, step=self.step, local=self.local)
        return work, used, turn, turn.memory


@dataclass(frozen=True, kw_only=True, eq=False)
class Turn:
    """Which rows are next: places among the client's rows, and how often it has been through all of them."""

    rows: int
    places: NDArray[np.int64]
    passes: int
    memory: Memory

    @classmethod
    def next(
        cls,
        rows: int,
        visits: int,
        seed: int | None,
        memory: Memory,
        *,
        salt: Callable[[], int] = lambda: 0,
    ) -> Turn:
        """The rows of this visit. A part at the end that is too short is left out, and a new pass begins.

        `salt` makes the orders of clients differ, if a new one is due: where files are sorted alike, the same order for
        all would bring rows together that are alike.

        Examples
        --------
        >>> first = Turn.next(5, 2, None, {})
        >>> second = Turn.next(5, 2, None, first.memory)
        >>> first.places, second.places, Turn.next(5, 2, None, second.memory).passes
        (array([0, 1]), array([2, 3]), 1)
        """
        at, passes = int(memory.get("at", 0)), int(memory.get("passes", 0))
        order = memory.get("order")
        many = max(1, rows // visits) if rows else 0
        if at + many > rows:
            at, passes, order = 0, passes + 1, None
        if order is None or len(order) != rows:
            order = np.arange(rows) if seed is None else _permuted(rows, seed, passes, salt())
        # What else a task has remembered stays.
        kept = {**memory, "at": at + many, "passes": passes, "order": order}
        return cls(rows=rows, places=order[at : at + many], passes=passes, memory=kept)


def _permuted(rows: int, seed: int, passes: int, salt: int) -> NDArray[np.int64]:
    # That rows are in a random order makes a stream of them; it hides nothing.
    return np.random.default_rng([seed, passes, salt]).permutation(rows)


def _salt(rows: Rows) -> int:
    """A number that clients with other rows have other ones of."""
    found = 0
    for batch in rows.batches():
        found = zlib.crc32(np.ascontiguousarray(column(batch, "target")).tobytes(), found)
    return found


def _count(rows: Rows, features: int) -> int:
    total = 0
    for batch in rows.batches():
        x = column(batch, "features")
        total += len(x) if x.ndim == 2 and x.shape[1] == features else 0
    return total


def _picked(rows: Rows, places: NDArray[np.int64], standard: Standard) -> Batch:
    """The rows at these places, in this order."""
    found: dict[str, list[NDArray[Any]]] = {role: [] for role in standard.roles}
    order, start = [], 0
    for batch in rows.batches():
        x = column(batch, "features")
        if x.ndim != 2 or x.shape[1] != standard.features:
            continue
        inside = np.flatnonzero((places >= start) & (places < start + len(x)))
        for role in standard.roles:
            found[role].append(column(batch, role)[places[inside] - start])
        order.append(inside)
        start += len(x)
    if not order:
        return {role: np.zeros((0, standard.features) if role == "features" else 0) for role in found}
    back = np.argsort(np.concatenate(order), kind="stable")
    return {role: np.concatenate(parts)[back] for role, parts in found.items()}


@dataclass(frozen=True, kw_only=True)
class RegressionRound(RoundFields, Summary[RoundSums]):
    """One round. See `RoundFields` for its parameters.

    Parameters
    ----------
    remembers : whether clients also add up the gradients of single rows, for `ClientSpread`.

    Guarantee: sums are exact but for the rounding of each client's numbers to 2^-64, and cut at ±2^50 each.
    Sensitivity: none that is finite in practice; under noise `ClippedRound` is asked for.
    """

    name: ClassVar[str] = "regression-round"
    additive: ClassVar[bool] = False

    remembers: bool = False

    @property
    def columns(self) -> tuple[str, ...]:  # type: ignore[override]
        """See `Standard.roles`."""
        return self.roles

    @property
    def length(self) -> int:
        """Four counts, the gradient, the drift, and the Hessian's upper triangle."""
        p = len(self.theta)
        return _COUNTS + _FIXED.limbs * (2 * p + p * (p + 1) // 2)

    @property
    def largest(self) -> int:
        """A limb, or the rows of a client."""
        return _FIXED.largest

    def measure(self, rows: Rows, memory: Memory) -> tuple[Vector, Memory]:
        """Zeros without rows. The rows of the round are worked on; the others are only counted."""
        work, used, turn, kept = self.worked(rows, memory)
        p = len(self.theta)
        with np.errstate(all="ignore"):
            all_numbers = np.concatenate([work.gradient, work.drift, work.hessian[np.triu_indices(p)]])
            numbers = _within(self.weight(turn.rows) * all_numbers)
        counts = [turn.rows > 0, int(work.steps), turn.passes > 0, used.rows]
        if self.remembers and used.rows:
            kept = _remembered(self, used, turn.rows, kept)
        return np.concatenate([counts, _FIXED.write(numbers)]).astype(np.int64), kept

    def sensitivity(self, protection: Protection) -> Sensitivity:
        """One row can move a sum as far as numbers go."""
        return UNBOUNDED

    def read(self, total: Total) -> RoundSums:
        """The sums."""
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
    """The sums of one row's gradient at theta, and of its square, that `ClientSpread` reads (Algorithm 2)."""
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
    """Σ w² S/m, the spread of gradients within clients, and Σ w² ḡ ḡᵀ, how clients differ; over `clients` with both."""

    within: Floats
    between: Floats
    clients: int


@dataclass(frozen=True, kw_only=True)
class ClientSpread(Summary[SpreadSums]):
    """What each client remembers of its gradients, added up at the end: for the separated plug-in.

    With S_i the covariance of one row's gradient at client i and ḡ_i its mean, over the rounds it took part in:
    Σ_i w_i² S_i/m_i and Σ_i w_i² ḡ_i ḡ_iᵀ, m_i being the rows of a visit (as published, one for each step). Rows are
    not read.
    """

    name: ClassVar[str] = "client-spread"
    columns: ClassVar[tuple[str, ...]] = ()
    additive: ClassVar[bool] = False

    parameters: int

    def __post_init__(self) -> None:
        whole(self.parameters, what="parameters", least=1, most=1 << 10)

    @property
    def length(self) -> int:
        """A count, and two upper triangles."""
        return 1 + _FIXED.limbs * self.parameters * (self.parameters + 1)

    @property
    def largest(self) -> int:
        """A limb."""
        return _FIXED.largest

    def measure(self, rows: Rows, memory: Memory) -> tuple[Vector, Memory]:
        """Zeros for a client that was in no round."""
        p, taken = self.parameters, int(memory.get("taken", 0))
        if not taken or np.shape(memory["gradient"]) != (p,):
            return np.zeros(self.length, dtype=np.int64), memory
        mean, upper = memory["gradient"] / taken, np.triu_indices(p)
        with np.errstate(all="ignore"):
            spread = memory["outer"] / taken - np.outer(mean, mean)
            both = [(spread / max(1, memory["each"]))[upper], np.outer(mean, mean)[upper]]
            numbers = _within(np.square(np.float64(memory["weight"])) * np.concatenate(both))
        return np.concatenate([[1], _FIXED.write(numbers)]).astype(np.int64), memory

    def sensitivity(self, protection: Protection) -> Sensitivity:
        """One row can move a sum as far as numbers go."""
        return UNBOUNDED

    def read(self, total: Total) -> SpreadSums:
        """The sums."""
        within, between = np.split(_FIXED.read(total[1:]), 2)
        p = self.parameters
        return SpreadSums(within=symmetric(within, p), between=symmetric(between, p), clients=int(total[0]))


def _within(numbers: Floats) -> Floats:
    """Numbers that can be written down; what is none is as large as they get."""
    return np.clip(np.nan_to_num(numbers, nan=LARGEST_ENTRY), -LARGEST_ENTRY, LARGEST_ENTRY)
