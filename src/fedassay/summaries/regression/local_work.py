"""Work of a client in one round of federated averaging: some steps over rows that it has not used before.

With E steps of size η from θ, over rows (or small batches of them) 1, .., E,

    θ^0 = θ,   θ^k = θ^{k-1} - η g_k(θ^{k-1}),   gradient = (1/E) Σ_k g_k(θ^{k-1}) = (θ - θ^E)/(ηE).

Clients that do more steps do not weigh more: the *mean* gradient is what rescaled federated averaging adds up (Wang et
al. 2020; METHODS E). But a walk bends what it measures. To first order in η

    E gradient = ∇R_i - η c_i,   c_i = ((E-1)/2) H_i ∇R_i,

which moves the mean of all iterates by η̄ H^{-1} Σ p_i c_i, a bias that hardly fades when steps shrink slowly. Either
c_i is estimated (``corrected``, without bias, from products of Hessians and gradients of *different* rows), or all
gradients are taken at θ (``fixed``), or nothing is done about it (``published``).

A client goes through its rows in an order of its own, each row once before any row again, some in each round it takes
part in. All that it remembers is how far it has come.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from fedassay.protocol.arrays import Floats
from fedassay.protocol.parameters import Interval
from fedassay.protocol.vocabulary import Batch, Memory, Rows
from fedassay.summaries.measures import column
from fedassay.summaries.regression.losses import Design, SmoothLoss
from fedassay.summaries.regression.moments import AtTheta, Standard

LocalBias = Literal["corrected", "fixed", "published"]
CORRECTED: Final = "corrected"
FIXED: Final = "fixed"
PUBLISHED: Final = "published"
LOCAL = (CORRECTED, FIXED, PUBLISHED)

RoundWeights = Literal["rows", "clients"]
BY_ROWS: Final = "rows"
BY_CLIENTS: Final = "clients"

MOST_LOCAL_STEPS = 1024


@dataclass(frozen=True, kw_only=True, eq=False)
class LocalSteps:
    """Rows, dealt to steps: `rows` are (.., E, B, features), `weight` (.., E, B) is one for a row and zero for a gap.

    Clients that do fewer steps than others, or have fewer rows in a step, have gaps. A step without rows is none.
    """

    rows: Design
    weight: Floats

    @classmethod
    def deal(cls, rows: Design, steps: int) -> LocalSteps:
        """Deal the rows of one client in turn to at most this many steps, as evenly as can be.

        Examples
        --------
        >>> LocalSteps.deal(Design.of([[1.0], [2.0], [3.0]], [0, 0, 0]), 2).weight
        array([[1., 1.],
               [1., 0.]])
        """
        steps = max(1, min(steps, rows.rows))
        batch = max(1, -(-rows.rows // steps))
        place = np.arange(steps)[:, None] + steps * np.arange(batch)
        there = place < rows.rows
        some = rows if rows.rows else Design.of(np.zeros((1, rows.features)), np.zeros(1))
        dealt = some.take(np.where(there, place, 0))
        return cls(rows=dealt, weight=there.astype(np.float64))

    @property
    def share(self) -> Floats:
        """Share of each row in its step, which add up to one; zeros for a step without rows."""
        return np.asarray(self.weight / np.maximum(self.weight.sum(axis=-1, keepdims=True), 1.0))

    @property
    def count(self) -> Floats:
        """Number of steps, E."""
        return np.asarray((self.weight.sum(axis=-1) > 0).sum(axis=-1), dtype=np.float64)

    def step(self, place: int) -> Design:
        """Return the rows of one step."""
        return Design(
            x=self.rows.x[..., place, :, :],
            y=self.rows.y[..., place, :],
            offset=self.rows.offset[..., place, :],
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Work:
    """Result of the work: the mean gradient, the mean Hessian at θ, c_i (zero unless it is ``corrected``), and E."""

    gradient: Floats
    hessian: Floats
    drift: Floats
    steps: Floats


def local_work(
    loss: SmoothLoss, theta: Floats, dealt: LocalSteps, *, step: float, local: str = CORRECTED
) -> Work:
    """Take the steps of one client, or of many at once (leading axes); zeros where there are no rows.

    Examples
    --------
    >>> from fedassay.summaries.regression.losses import SquaredError
    >>> rows = LocalSteps.deal(Design.of([[1.0], [1.0]], [1.0, 1.0]), 2)
    >>> local_work(SquaredError(), np.zeros(1), rows, step=0.5, local="published").gradient
    array([-0.75])
    >>> work = local_work(SquaredError(), np.zeros(1), rows, step=0.5)
    >>> work.gradient + 0.5 * work.drift  # the gradient at theta: exact for squared errors and two steps
    array([-1.])
    """
    share, count = dealt.share, dealt.count
    gradients = _fixed(loss, theta, dealt) if local == FIXED else _walked(loss, theta, dealt, step=step)
    total = gradients.sum(axis=-2)
    each = np.maximum(count, 1.0)[..., None]
    # All rows at once: steps are equally long, and rows share their step.
    flat = Design(
        x=dealt.rows.x.reshape(*dealt.rows.x.shape[:-3], -1, dealt.rows.features),
        y=dealt.rows.y.reshape(*dealt.rows.y.shape[:-2], -1),
        offset=dealt.rows.offset.reshape(*dealt.rows.offset.shape[:-2], -1),
    )
    hessian = loss.hessian_sum(theta, flat, share.reshape(*share.shape[:-2], -1)) / each[..., None]
    drift = np.zeros_like(total)
    if local == CORRECTED:
        there = _fixed(loss, theta, dealt)
        others = there.sum(axis=-2, keepdims=True) - there
        products = loss.hessian_products(theta[..., None, :], dealt.rows, share, others)
        drift = products.sum(axis=-2) / (2 * each)
    return Work(gradient=total / each, hessian=hessian, drift=drift, steps=count)


def _fixed(loss: SmoothLoss, theta: Floats, dealt: LocalSteps) -> Floats:
    return loss.gradient_sum(theta[..., None, :], dealt.rows, dealt.share)


def _walked(loss: SmoothLoss, theta: Floats, dealt: LocalSteps, *, step: float) -> Floats:
    point, share = theta, dealt.share
    gradients = []
    for place in range(share.shape[-2]):
        gradient = loss.gradient_sum(point, dealt.step(place), share[..., place, :])
        point = point - step * gradient
        gradients.append(gradient)
    return np.stack(gradients, axis=-2)


# --- the rows of a round ------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class RoundFields(AtTheta):
    """Start of a round, and the way clients work in it.

    Parameters
    ----------
    model, theta : see `AtTheta`; the round starts at theta.
    step : η, of each local step.
    local_steps : the most that a client does. It deals the rows of a round to as many steps.
    local : ``corrected``, ``fixed`` or ``published``, see `local_work`.
    visits : the number of rounds in which a client will take part. It uses the same part of its rows in each, at least
        one row.
    weights, per : clients weigh (their rows)/`per`, or 1/`per` each.
    seed : of the order in which clients go through their rows; public. None: as they are stored.
    """

    step: Annotated[float, Interval(gt=0, lt=1e6)]
    local_steps: Annotated[int, Interval(ge=1, le=MOST_LOCAL_STEPS)] = 1
    local: LocalBias = CORRECTED
    visits: Annotated[int, Interval(ge=1, le=1 << 30)] = 1
    weights: RoundWeights = BY_ROWS
    per: Annotated[float, Interval(gt=0, lt=1e18)] = 1.0
    seed: Annotated[int, Interval(ge=0, le=(1 << 63) - 1)] | None = None

    def weight(self, rows: int) -> float:
        """Return the weight of a client with this many rows."""
        return (rows if self.weights == BY_ROWS else float(rows > 0)) / self.per

    def worked(self, rows: Rows, memory: Memory) -> tuple[Work, Design, Turn]:
        """Return the client's part of the round, the rows it used, and its turn with what it has to remember."""
        turn = Turn.next(
            _count(rows, self.features), self.visits, self.seed, memory, salt=lambda: _salt(rows)
        )
        with np.errstate(all="ignore"):  # an iterate that diverges is the server's to see
            used = self.rows_of(_picked(rows, turn.places, self))
            dealt = LocalSteps.deal(used, self.local_steps)
            work = local_work(self.loss, np.array(self.theta), dealt, step=self.step, local=self.local)
        return work, used, turn


@dataclass(frozen=True, kw_only=True, eq=False)
class Turn:
    """Rows that are next: places among the client's rows, and the number of times it has been through all of them."""

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
        """Choose the rows of this visit. A part at the end that is too short is left out, and a new pass begins.

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
    """Return a number that differs between clients with different rows."""
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
    """Return the rows at these places, in this order."""
    found: dict[str, list[NDArray[Any]]] = {role: [] for role in standard.columns}
    order, start = [], 0
    for batch in rows.batches():
        x = column(batch, "features")
        if x.ndim != 2 or x.shape[1] != standard.features:
            continue
        inside = np.flatnonzero((places >= start) & (places < start + len(x)))
        for role in standard.columns:
            found[role].append(column(batch, role)[places[inside] - start])
        order.append(inside)
        start += len(x)
    if not order:
        return {role: np.zeros((0, standard.features) if role == "features" else 0) for role in found}
    back = np.argsort(np.concatenate(order), kind="stable")
    return {role: np.concatenate(parts)[back] for role, parts in found.items()}
