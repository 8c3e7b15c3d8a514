"""Rounds of rescaled federated averaging, and intervals from what the server sees in them.

Reference: Wang, Cui and Xu, JUSTC 53(11), 2023, Algorithms 1 and 2, with the corrections of METHODS E: clients are
drawn uniformly and weighted; the draw of clients adds to the spread; what local steps bend is put right.

Arrival of rounds at the optimum: before that, no interval and no p-value says anything true.

The mean of the iterates and the one-step estimate (`path`) have the same limit and the same first-order error. Where
they differ by more than their standard errors, at least one of them is still on its way. What was measured, coverage of
95 % intervals with and without these rules, is in docs/explanation/inference.md.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from fedassay.errors import DataError, UsageError
from fedassay.protocol.arrays import Floats
from fedassay.protocol.vocabulary import All, Draw, Released, Step, Sum
from fedassay.summaries.regression.local_work import BY_ROWS, CORRECTED
from fedassay.summaries.regression.losses import loss_of
from fedassay.summaries.regression.moments import LARGEST_THETA, Standard
from fedassay.summaries.regression.rounds import ClientSpread, RegressionRound, RoundSums, SpreadSums
from fedassay.tasks.inference.diagnosis import is_singular, singular
from fedassay.tasks.inference.estimate import (
    CoefficientEstimate,
    Normal,
    RandomScaling,
    StudentisedLaw,
    StudentT,
)
from fedassay.tasks.inference.path import ENOUGH_ROWS, IteratePath, StepSizes

# --- whether rounds have arrived at the optimum -------------------------------------------------------------


LEVEL = 0.95
"""Level of the intervals by which the errors of laws are compared."""

MEAN = 1.0
"""Largest distance of a mean of iterates with intervals from the one-step estimate, in standard errors."""

UNDER_NOISE = 2.0
"""Largest distance for the one-step estimate under noise, where the mean of few iterates is itself uncertain."""

ON_THE_WAY = 0.5
"""Largest move by its path of a one-step estimate that has intervals, in standard errors (`Path.unsettled`)."""

_WITHHELD = "standard errors, intervals and p-values are withheld"

HIDDEN = (
    "noise hides the curvature of the loss in some direction, and random scaling cannot tell how far rounds have to "
    f"go, so that {_WITHHELD}; use more clients or a larger epsilon, or take the method round-plug-in"
)
"""Reason why random scaling gets no intervals where noise hides the curvature."""


def distance(one: Floats, other: Floats, *covariances: Floats) -> Floats:
    """Return the standard errors by which two estimates differ, by coefficient; the smaller errors count.

    Arrays may have leading axes, as those of a `Path`.

    Examples
    --------
    >>> distance(np.array([1.0, 2.0]), np.array([1.0, 5.0]), np.diag([1.0, 4.0]), np.diag([1.0, 9.0]))
    array([0. , 1.5])
    """
    smallest = np.min([np.diagonal(each, axis1=-2, axis2=-1) for each in covariances], axis=0)
    errors, apart = np.sqrt(np.maximum(0.0, smallest)), np.abs(one - other)
    far = np.divide(apart, errors, out=np.where(apart > 0, math.inf, 0.0), where=errors > 0)
    return np.where(np.isfinite(apart), far, math.inf)


def from_mean(
    mean: Floats, covariance: Floats, law: StudentisedLaw, path: IteratePath, *, quadratic: bool
) -> Floats:
    """Return the distance of the mean of the iterates, whose intervals follow this law, from the one-step estimate.

    Errors of random scaling are not standard errors: what counts is half of an interval, in those of a normal law.
    """
    errors = covariance * (law.critical(LEVEL) / Normal().critical(LEVEL)) ** 2
    return distance(mean, path.one_step(quadratic=quadratic), errors, path.sandwich(path.spread))


def of_mean(
    mean: Floats,
    covariance: Floats,
    law: StudentisedLaw,
    path: IteratePath,
    names: Sequence[str],
    *,
    quadratic: bool = False,
) -> str:
    """Return why the mean of the iterates gets no intervals; empty if it has arrived."""
    apart = from_mean(mean, covariance, law, path, quadratic=quadratic)
    return _apart(apart, names, most=MEAN, fix="ask for more rounds, or take the method round-plug-in")


def of_one_step(path: IteratePath) -> str:
    """Return why the one-step estimate gets no intervals; empty if it has arrived, as it always has for a parabola."""
    moved = float(path.unsettled)
    if moved <= ON_THE_WAY:
        return ""
    return (
        f"the rounds have not arrived (the estimate counts some that may move it {_by(moved)}, as they were far from "
        f"the optimum), so that {_WITHHELD}; ask for more rounds, or for more rows in each, or take the method newton"
    )


def under_noise(path: IteratePath, names: Sequence[str]) -> str:
    """Return why the one-step estimate of rounds under noise gets no intervals; empty if they have arrived."""
    step = path.one_step(quadratic=False)
    apart = distance(path.mean, step, path.sandwich(path.spread))
    fix = "ask for more rounds, or give scales with which coefficients are smaller"
    return _apart(apart, names, most=UNDER_NOISE, fix=fix)


def _by(errors: float) -> str:
    return f"by {errors:.2g} standard errors" if math.isfinite(errors) else "by more than can be told"


def _apart(apart: Floats, names: Sequence[str], *, most: float, fix: str) -> str:
    place = int(apart.argmax())
    if apart[place] <= most:
        return ""
    return (
        "the rounds have not arrived (the mean of the iterates and the one-step estimate differ "
        f"{_by(apart[place])} in {names[place]!r}), so that {_WITHHELD}; {fix}"
    )


# --- rounds of rescaled federated averaging -----------------------------------------------------------------

ROUND: Final = "round-plug-in"
SEPARATED: Final = "separated-plug-in"
CORRECTED_SEPARATED: Final = "separated-plug-in-corrected"
SCALING: Final = "random-scaling"
INTERVALS = (ROUND, SEPARATED, CORRECTED_SEPARATED, SCALING)

_COUNTS = ("answers", "steps", "rows", "recent", "again")

_SHOWN = 50
"""Number of rounds at which the path is kept, for a plot of how intervals shrink."""


@dataclass(frozen=True, kw_only=True)
class Course:
    """Settings of the rounds.

    Parameters
    ----------
    model : a loss by name.
    rounds, participation : T, and the part of the clients that is drawn in each.
    local_steps, local : see `RoundFields`.
    sizes : η_t.
    weights : ``rows`` (p_i = n_i/n, as if rows were pooled) or ``clients`` (each counts alike).
    intervals : one of `INTERVALS`.
    seed : of the order of rows, public; None for rows as they are stored.
    """

    model: str
    rounds: int
    participation: float = 1.0
    local_steps: int = 1
    local: str = CORRECTED
    sizes: StepSizes
    weights: str = BY_ROWS
    intervals: str = ROUND
    seed: int | None = 0

    @property
    def restarts(self) -> bool:
        """True if the iterate is moved to what rounds so far have found, now and then (`path`)."""
        return self.intervals == ROUND and not loss_of(self.model).quadratic

    def drawn(self, clients: int) -> int:
        """Return the number of clients that take part in a round."""
        return max(1, min(clients, round(self.participation * clients)))

    def visits(self, clients: int) -> int:
        """Return the number of rounds in which a client takes part: the expected number plus two standard deviations.

        Few clients then come to the end of their rows before the rounds do.
        """
        part = self.drawn(clients) / max(1, clients)
        spread = 2 * math.sqrt(self.rounds * part * (1 - part))
        return max(1, min(self.rounds, math.ceil(self.rounds * part + spread)))


@dataclass(frozen=True, kw_only=True, eq=False)
class RoundHistory:
    """Results of the rounds: the path, sums over rounds, and snapshots (round, values, covariance).

    `recent` are the rows since the iterate was last moved.
    """

    path: IteratePath
    answers: int = 0
    steps: int = 0
    rows: int = 0
    recent: int = 0
    again: int = 0
    shown: tuple[tuple[int, Floats, Floats], ...] = field(default=())

    @property
    def mean_steps(self) -> float:
        """Mean number Ē of local steps of a client in a round, so far."""
        return self.steps / self.answers if self.answers else 1.0

    def to_json(self) -> dict[str, Any]:
        """Return what is needed to go on."""
        counts = {name: getattr(self, name) for name in _COUNTS}
        return {"path": self.path.to_json(), **counts}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> RoundHistory:
        """Restore a history from the output of `to_json`."""
        counts: dict[str, Any] = {name: int(values[name]) for name in _COUNTS}
        return cls(path=IteratePath.from_json(values["path"]), **counts)

    def after(
        self, sums: RoundSums, asked: float, *, step: float, restarts: bool = False, pace: float = 1.0
    ) -> RoundHistory:
        """Add a round; `asked` clients answered. `pace` makes the step longer or shorter, and nothing else."""
        answers, steps = self.answers + sums.clients, self.steps + sums.steps
        many, recent = max(1e-12, asked), self.recent + sums.rows
        path = self.path.after(
            sums.gradient / many,
            sums.hessian / many,
            sums.drift / many,
            step=step,
            mean_steps=pace * (steps / answers if answers else 1.0),
            compare=self.rows >= 2 * self.path.parameters,
            restarts=restarts and recent >= ENOUGH_ROWS * self.path.parameters,
        )
        return replace(
            self,
            path=path,
            answers=answers,
            steps=steps,
            rows=self.rows + sums.rows,
            recent=0 if path.has_restarted else recent,
            again=self.again + sums.again,
        )


def run_rounds(
    course: Course,
    standard: Standard,
    *,
    clients: int,
    per: float,
    begin: RoundHistory | None = None,
) -> Generator[Step, Released[RoundSums], RoundHistory]:
    """Run T rounds, from the start or from where an earlier run has come to. Tasks `yield from` it.

    Only sums leave the clients. A round moves the iterate by the mean over the clients that answered.

    Parameters
    ----------
    clients, per : number of clients, and divisor of the weights (`RoundFields`).
    """
    p = loss_of(course.model).parameters(standard.parameters)
    seen = RoundHistory(path=IteratePath.start(np.zeros(p))) if begin is None else begin
    drawn, visits, first = course.drawn(clients), course.visits(clients), seen.path.rounds
    shown = set(np.unique(np.geomspace(min(2 * p + 2, course.rounds), course.rounds, _SHOWN).astype(int)))
    for turn in range(1, course.rounds + 1):
        t = first + turn
        step = course.sizes.at(t)
        of = RegressionRound.of(
            standard,
            model=course.model,
            theta=tuple(seen.path.theta.tolist()),
            step=step,
            local_steps=course.local_steps,
            local=course.local,
            visits=visits,
            weights=course.weights,
            per=per,
            seed=course.seed,
            remembers=course.intervals in (SEPARATED, CORRECTED_SEPARATED),
        )
        cohort = All() if drawn == clients else Draw(clients=drawn)
        released = yield Sum(of=of, share=1 / (2 * course.rounds + 2), cohort=cohort)
        seen = seen.after(released.value, released.clients, step=step, restarts=course.restarts)
        _check(seen.path, course.sizes)
        if turn in shown:
            seen = _with_snapshot(seen, course)
    return seen


def _check(path: IteratePath, sizes: StepSizes) -> None:
    size = float(np.abs(path.theta).max())
    if not size < LARGEST_THETA:  # NaN too
        raise UsageError(
            f"step: got {sizes.first:.3g}, with which the iterates diverge (round {path.rounds}), expected a smaller "
            f"one; try `step={sizes.first / 10:.2g}`."
        )


def _with_snapshot(seen: RoundHistory, course: Course) -> RoundHistory:
    """Add the present estimate and its errors; nothing where rounds do not yet suffice."""
    if is_singular(seen.path.hessian) or not seen.path.compared:
        return seen
    path = seen.path
    covariance = path.scaling if course.intervals == SCALING else path.sandwich(path.spread)
    quadratic = loss_of(course.model).quadratic
    value = path.one_step(quadratic=quadratic) if course.intervals == ROUND else path.averaged
    return replace(seen, shown=(*seen.shown, (path.rounds, value, covariance)))


def infer_rounds(
    course: Course, seen: RoundHistory, names: Sequence[str], *, clients: int
) -> Generator[Step, Released[SpreadSums], CoefficientEstimate]:
    """Compute estimate and covariance on the common scale from the rounds; the separated plug-in asks once more.

    Guarantee: none but the limit, and `Estimate.withheld` says where rounds have not arrived. With `round-plug-in` the
    covariance is that of what rounds differ by, whatever makes them differ: rows, the draw of clients, noise.
    """
    path = seen.path
    if is_singular(path.hessian):
        raise singular(path.hessian, names)
    quadratic = loss_of(course.model).quadratic
    if course.intervals == ROUND:
        if not path.compared:
            raise DataError(
                f"rounds: got {path.rounds} with {seen.rows:,} rows in all, expected more of both: the spread of "
                f"{len(names)} coefficients cannot be told from them."
            )
        return CoefficientEstimate(
            names=tuple(names),
            value=path.one_step(quadratic=quadratic),
            covariance=path.sandwich(path.spread),
            law=StudentT(dof=float(path.freedom)),
            withheld="" if quadratic else of_one_step(path),
        )
    law: StudentisedLaw = RandomScaling()
    if course.intervals == SCALING:
        covariance = path.scaling
    else:
        released = yield Sum(of=ClientSpread(parameters=len(names)), share=1 / (2 * course.rounds + 2))
        law, covariance = Normal(), path.sandwich(_separated(released.value, course, clients))
    withheld = of_mean(path.averaged, covariance, law, path, names, quadratic=quadratic)
    return CoefficientEstimate(
        names=tuple(names), value=path.averaged, covariance=covariance, law=law, withheld=withheld
    )


def _separated(sums: SpreadSums, course: Course, clients: int) -> Floats:
    """Return V = (1/ν)[Σ p² S/E + (1-ν)(N/(N-1)) Σ p² ∇R ∇Rᵀ]; the published form leaves the second term out."""
    part = course.drawn(clients) / clients
    spread = sums.within
    if course.intervals == CORRECTED_SEPARATED and clients > 1:
        spread = spread + (1 - part) * clients / (clients - 1) * sums.between
    return np.asarray(spread / (part * clients**2))
