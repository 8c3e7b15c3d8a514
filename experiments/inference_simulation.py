"""A thousand federations at once, each fitted by federated averaging, and what intervals of each method cover.

Replications are a leading axis of `Path` and of `local_work`: what is simulated is the code that is shipped, but for
the sums over clients, which are plain means here, and for the spread of gradients within clients, which `ClientSpread`
adds up and `Within` keeps for all clients of all replications.

As in the paper (section 4.2): 10 clients that weigh alike, 5 features that are standard normal, no intercept, E_i local
steps with a row each, E_i drawn uniformly, η_t = 0.2 t^-0.505 (linear) or 0.5 t^-0.505 (logistic), from θ = 0. Clients
of a linear model have parameters of their own; of a logistic one, the first half shares one and the others another.
Parameters and E_i are drawn anew for each replication.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path as File

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from experiments.common import generator
from fedassay.summaries.regression.local_work import CORRECTED, LocalSteps, Work, local_work
from fedassay.summaries.regression.losses import Design, IndexLoss, LogLoss, SquaredError, loss_of
from fedassay.tasks.inference import online
from fedassay.tasks.inference.estimate import Normal, RandomScaling, StudentT
from fedassay.tasks.inference.path import ENOUGH_ROWS, IteratePath, StepSizes

Floats = NDArray[np.float64]

LEVEL = 0.95
FIRST: Mapping[str, float] = {"linear": 0.2, "logistic": 0.5}
"""β, as published."""

ROUND, AVERAGED = "round plug-in", "round plug-in, averaged"
PUBLISHED, CORRECTED_SEPARATED = "separated plug-in, published", "separated plug-in, corrected"
SCALING, CORRECTED_SCALING = "random scaling, published", "random scaling, corrected"
ONE_STEP_SEPARATED = "separated plug-in, one step"
NO_RESTARTS = "round plug-in, without restarts"
METHODS = (
    ROUND,
    NO_RESTARTS,
    AVERAGED,
    ONE_STEP_SEPARATED,
    PUBLISHED,
    CORRECTED_SEPARATED,
    SCALING,
    CORRECTED_SCALING,
)
"""The default; without its restarts, which only losses that are no parabolas have; its errors around the mean of the
iterates; errors of the corrected separated plug-in around the one-step estimate; and the published methods, around the
mean of the iterates as it is, or less the bias of local steps (and, for the separated plug-in, with the variance of who
was drawn)."""

_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(200)


class OneRow(IndexLoss):
    """The same sums of a loss, without a product of matrices where there is one row to a step: that is slow."""

    @staticmethod
    def index(theta: Floats, rows: Design) -> Floats:
        """See `IndexLoss`."""
        if rows.rows > 1:
            return IndexLoss.index(theta, rows)
        return np.asarray(_dot(rows.x[..., 0, :], theta)[..., None] + rows.offset)

    def gradient_sum(self, theta: Floats, rows: Design, weight: Floats) -> Floats:
        """See `SmoothLoss`."""
        if rows.rows > 1:
            return super().gradient_sum(theta, rows, weight)
        return np.asarray(weight * self.first(self.index(theta, rows), rows.y) * rows.x[..., 0, :])

    def hessian_products(self, theta: Floats, rows: Design, weight: Floats, vector: Floats) -> Floats:
        """See `SmoothLoss`."""
        if rows.rows > 1:
            return super().hessian_products(theta, rows, weight, vector)
        along = _dot(rows.x[..., 0, :], vector)[..., None]
        return np.asarray(weight * self.second(self.index(theta, rows), rows.y) * along * rows.x[..., 0, :])


class _SquaredError(OneRow, SquaredError):
    pass


class _LogLoss(OneRow, LogLoss):
    pass


ONE_ROW: Mapping[str, IndexLoss] = {"linear": _SquaredError(), "logistic": _LogLoss()}


def _dot(a: Floats, b: Floats) -> Floats:
    return np.asarray(np.einsum("...p,...p->...", a, b))


@dataclass(frozen=True, kw_only=True)
class Case:
    """A law of federations, and how they are averaged.

    `part` is the participation, `steps` are the numbers that E_i is drawn from. `alike`: all clients have the same
    parameters. Not `rescaled`: plain federated averaging, in which a client weighs as much as it walks. `restarts` are
    those of the default (`Path`); all other methods need a path without.
    """

    model: str = "linear"
    part: float = 1.0
    steps: tuple[int, ...] = (1, 2, 3, 4, 5)
    alike: bool = False
    rescaled: bool = True
    local: str = CORRECTED
    clients: int = 10
    features: int = 5
    decay: float = 0.505
    restarts: bool = False

    @property
    def default(self) -> Case:
        """The path of the default."""
        return replace(self, restarts=not loss_of(self.model).quadratic)

    @property
    def drawn(self) -> int:
        """Clients in a round."""
        return round(self.part * self.clients)

    @property
    def chunk(self) -> int:
        """Replications at a time, each chunk with random numbers of its own: as many as fit into a cache."""
        return 1000 if self.drawn * max(self.steps) <= 30 else 250

    @property
    def key(self) -> str:
        """A name for files."""
        values = asdict(self)
        restarts = ",restarts" if values.pop("restarts") else ""
        values["steps"] = "-".join(str(step) for step in self.steps)
        return ",".join(f"{name}={value}" for name, value in values.items()) + restarts


@dataclass(frozen=True, kw_only=True, eq=False)
class Federations:
    """What is drawn once per replication: clients' parameters (R, N, p) and steps (R, N); and the optimum (R, p)."""

    case: Case
    parameters: Floats
    steps: NDArray[np.int64]

    @classmethod
    def draw(cls, case: Case, replications: int, rng: np.random.Generator) -> Federations:
        """So many of them."""
        half = case.clients // 2
        different, times = (1, case.clients) if case.alike else (case.clients, 1)
        if case.model == "logistic" and not case.alike:
            different, times = 2, half
        drawn = rng.standard_normal((replications, different, case.features))
        steps = rng.choice(np.array(case.steps), size=(replications, case.clients))
        return cls(case=case, parameters=np.repeat(drawn, times, axis=1), steps=steps)

    @property
    def optimum(self) -> Floats:
        """θ*: of the mean of all clients' risks.

        For logistic regression on normal features, E[σ(θ·x) x] = θ E[σ'(|θ| Z)] (Stein's identity), so that θ* has the
        direction of the mean of θ_i E[σ'(|θ_i| Z)], and a length that is the root of an increasing function.
        """
        if self.case.model == "linear":
            return np.asarray(self.parameters.mean(axis=1))
        norms = np.linalg.norm(self.parameters, axis=-1)
        slope = (self.parameters * _mean_slope(norms)[..., None]).mean(axis=1)
        size = np.linalg.norm(slope, axis=-1)
        low, high = np.zeros_like(size), np.full_like(size, 16.0)
        for _ in range(80):
            middle = (low + high) / 2
            below = middle * _mean_slope(middle) < size
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return np.asarray(slope * ((low + high) / 2 / size)[:, None])

    @property
    def weights(self) -> Floats:
        """Of clients, with mean 1; those of plain averaging are their steps."""
        if self.case.rescaled:
            return np.ones(self.steps.shape)
        return np.asarray(self.steps / self.steps.mean(axis=1, keepdims=True))

    def who(self, rng: np.random.Generator) -> NDArray[np.int64]:
        """The clients of a round (R, K), uniformly without replacement."""
        n = self.case.clients
        if self.case.drawn == n:
            return np.broadcast_to(np.arange(n), self.steps.shape)
        return np.argsort(rng.random(self.steps.shape), axis=1)[:, : self.case.drawn]

    def visits(
        self, theta: Floats, who: NDArray[np.int64], step: float, rng: np.random.Generator
    ) -> tuple[Work, Floats]:
        """The work of these clients (R, K) from θ (R, p) on, and the gradient of their first row at θ.

        Visits with the same number of steps are done together, over fresh rows, one for each step.
        """
        case, p, loss = self.case, self.case.features, ONE_ROW[self.case.model]
        every = np.arange(len(who))[:, None]
        parameters = self.parameters[every, who].reshape(-1, p)
        steps = self.steps[every, who].reshape(-1)
        begin = np.repeat(theta, who.shape[1], axis=0)
        size = len(begin)
        gradient, drift, first = np.empty((3, size, p))
        hessian = np.empty((size, p, p))
        for count in sorted(set(case.steps)):
            here = np.flatnonzero(steps == count)
            if not len(here):
                continue
            rows = self._rows(parameters[here], count, rng)
            work = local_work(loss, begin[here], rows, step=step, local=case.local)
            gradient[here], drift[here], hessian[here] = work.gradient, work.drift, work.hessian
            first[here] = loss.gradients(begin[here], rows.step(0))[:, 0]
        shape = who.shape
        work = Work(
            gradient=gradient.reshape(*shape, p),
            hessian=hessian.reshape(*shape, p, p),
            drift=drift.reshape(*shape, p),
            steps=steps.reshape(shape).astype(np.float64),
        )
        return work, first.reshape(*shape, p)

    def _rows(self, parameters: Floats, count: int, rng: np.random.Generator) -> LocalSteps:
        x = rng.standard_normal((len(parameters), count, self.case.features))
        u = np.einsum("vep,vp->ve", x, parameters)
        if self.case.model == "linear":
            y = u + rng.standard_normal(u.shape)
        else:
            y = (rng.random(u.shape) < expit(u)).astype(np.float64)
        design = Design(x=x[..., None, :], y=y[..., None], offset=np.broadcast_to(0.0, (*y.shape, 1)))
        return LocalSteps(rows=design, weight=np.ones((*y.shape, 1)))


def _mean_slope(norm: Floats) -> Floats:
    """E σ'(norm Z) of a standard normal Z."""
    u = norm[..., None] * _NODES
    return np.asarray((expit(u) * expit(-u)) @ _WEIGHTS / _WEIGHTS.sum())


@dataclass(frozen=True, kw_only=True, eq=False)
class Within:
    """Sums over each client's visits of one row's gradient at θ_t and of its square (Algorithm 2), changed in place."""

    outer: Floats
    gradient: Floats
    taken: Floats

    @classmethod
    def empty(cls, replications: int, clients: int, features: int) -> Within:
        """Before the first round."""
        shape = (replications, clients, features)
        return cls(outer=np.zeros((*shape, features)), gradient=np.zeros(shape), taken=np.zeros(shape[:2]))

    def add(self, who: NDArray[np.int64], gradients: Floats) -> None:
        """One visit to each of these clients."""
        place = (np.arange(len(who))[:, None], who)
        self.outer[place] += gradients[..., :, None] * gradients[..., None, :]
        self.gradient[place] += gradients
        self.taken[place] += 1

    def spread(self, of: Federations, *, corrected: bool) -> Floats:
        """V = (1/ν)[Σ p² S/E + (1-ν)(N/(N-1)) Σ p² ∇R ∇Rᵀ]; the published one leaves the second term out."""
        n, part = of.case.clients, of.case.drawn / of.case.clients
        visits = np.maximum(self.taken, 1)[..., None]
        mean = self.gradient / visits
        between = mean[..., :, None] * mean[..., None, :]
        within = (self.outer / visits[..., None] - between) / of.steps[..., None, None]
        found = within + ((1 - part) * n / (n - 1) * between if corrected else 0.0)
        square = of.weights[..., None, None] ** 2
        return np.asarray((square * found).sum(axis=1) / (part * n**2))


@dataclass(frozen=True, kw_only=True, eq=False)
class Found:
    """Of one method after so many rounds: estimate less truth, and half the interval's width, (R, p) each.

    `told` says in which replications the library tells intervals (`tasks.inference.arrival`); published methods and
    tables know nothing of that, and count all.
    """

    error: Floats
    radius: Floats
    told: NDArray[np.bool_]

    @property
    def of_told(self) -> Found:
        """The replications in which intervals are told."""
        return Found(error=self.error[self.told], radius=self.radius[self.told], told=self.told[self.told])

    @property
    def coverage(self) -> float:
        """The part of intervals that cover."""
        return float((np.abs(self.error) <= self.radius).mean())

    @property
    def deviation(self) -> float:
        """The standard error of `coverage`: replications are independent, coefficients of one are not."""
        each = (np.abs(self.error) <= self.radius).mean(axis=1)
        return float(each.std(ddof=1) / math.sqrt(len(each)))

    @property
    def distance(self) -> float:
        """The mean Euclidean distance of the estimate from the truth."""
        return float(np.linalg.norm(self.error, axis=1).mean())


_KEPT = ("error", "radius", "told")

Runs = dict[tuple[str, int], Found]
"""By method and number of rounds."""


def judged(path: IteratePath, within: Within, of: Federations, truth: Floats) -> dict[str, Found]:
    """All methods, after the rounds so far."""
    quadratic = loss_of(of.case.model).quadratic
    step, spread = path.one_step(quadratic=quadratic), path.sandwich(path.spread)
    # Freedom differs between replications only by where their windows begin, which are few places.
    known, which = np.unique(path.freedom, return_inverse=True)
    student = np.array([StudentT(dof=float(dof)).critical(LEVEL) for dof in known])[which][:, None]
    normal, scaling = (np.array(law.critical(LEVEL)) for law in (Normal(), RandomScaling()))
    ways: dict[str, tuple[Floats, Floats, Floats]] = {
        ROUND if quadratic or of.case.restarts else NO_RESTARTS: (step, spread, student)
    }
    if not of.case.restarts:
        separated = {flag: path.sandwich(within.spread(of, corrected=flag)) for flag in (False, True)}
        ways |= {
            AVERAGED: (path.averaged, spread, student),
            ONE_STEP_SEPARATED: (step, separated[True], normal),
            PUBLISHED: (path.mean, separated[False], normal),
            CORRECTED_SEPARATED: (path.averaged, separated[True], normal),
            SCALING: (path.mean, path.scaling, scaling),
            CORRECTED_SCALING: (path.averaged, path.scaling, scaling),
        }
    return {
        name: Found(
            error=value - truth,
            radius=critical * np.sqrt(np.einsum("rii->ri", covariance)),
            told=_told(name, path, value, covariance, quadratic=quadratic),
        )
        for name, (value, covariance, critical) in ways.items()
    }


def _told(
    name: str, path: IteratePath, value: Floats, covariance: Floats, *, quadratic: bool
) -> NDArray[np.bool_]:
    """In which replications intervals are not withheld."""
    if name in (ROUND, NO_RESTARTS, ONE_STEP_SEPARATED):
        return np.asarray(quadratic | (path.unsettled <= online.ON_THE_WAY))
    law = RandomScaling() if name in (SCALING, CORRECTED_SCALING) else Normal()
    apart = online.from_mean(value, covariance, law, path, quadratic=quadratic)
    return np.asarray(apart.max(axis=1) <= online.MEAN)


def simulate(case: Case, replications: int, snapshots: Iterable[int], rng: np.random.Generator) -> Runs:
    """Rounds up to the last snapshot; all snapshots are of one run."""
    wanted = sorted(set(snapshots))
    of = Federations.draw(case, replications, rng)
    optimum = of.optimum
    sizes = StepSizes(first=FIRST[case.model], decay=case.decay)
    path = IteratePath.start(np.zeros((replications, case.features)))
    within = Within.empty(replications, case.clients, case.features)
    mean_steps, weights = of.steps.mean(axis=1, keepdims=True), of.weights
    every = np.arange(replications)[:, None]
    # Rows of a round, on average: all replications restart together.
    rows, moved = case.drawn * float(np.mean(case.steps)), 0
    runs: Runs = {}
    for t in range(1, wanted[-1] + 1):
        who, step = of.who(rng), sizes.at(t)
        work, first = of.visits(path.theta, who, step, rng)
        if not case.restarts:  # only methods that have no restarts ask for it
            within.add(who, first)
        weight = weights[every, who][..., None]
        path = path.after(
            (weight * work.gradient).mean(axis=1),
            (weight[..., None] * work.hessian).mean(axis=1),
            (weight * work.drift).mean(axis=1),
            step=step,
            mean_steps=mean_steps,
            compare=(t - 1) * rows >= 2 * case.features,
            restarts=case.restarts and (t - moved) * rows >= ENOUGH_ROWS * case.features,
        )
        moved = t if path.has_restarted else moved
        if t in wanted:
            runs |= {(name, t): found for name, found in judged(path, within, of, optimum).items()}
    return runs


# --- many of them, kept in files ----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How much is simulated, and where results are kept (nowhere if there is no folder)."""

    replications: int = 1000
    snapshots: tuple[int, ...] = (100, 200, 500, 1000, 2000, 3000, 4000, 5000)
    seed: int = 8
    folder: File | None = field(default=None, compare=False)

    def runs(self, case: Case) -> Runs:
        """All methods: the default on a path of its own where it needs one."""
        found = self.path(case)
        return found if case == case.default else found | self.path(case.default)

    def path(self, case: Case) -> Runs:
        """All replications of one path, in chunks."""
        chunks = -(-self.replications // case.chunk)
        return joined([self.chunk(case, number) for number in range(chunks)])

    def chunk(self, case: Case, number: int) -> Runs:
        """Some of them: from their file if it exists."""
        size = min(case.chunk, self.replications - number * case.chunk)
        said = ",".join(str(t) for t in self.snapshots)
        name = f"{case.key};rounds={said};seed={self.seed};{number}x{size}.npz"
        file = None if self.folder is None else self.folder / name
        if file is not None and file.exists():
            return loaded(file)
        runs = simulate(case, size, self.snapshots, generator(self.seed, case.key, str(number)))
        if file is not None:
            saved(runs, file)
        return runs

    def only(self, *snapshots: int) -> Plan:
        """With other numbers of rounds."""
        return replace(self, snapshots=snapshots)


def joined(parts: Sequence[Runs]) -> Runs:
    """Replications of all parts."""
    return {
        key: Found(**{name: np.concatenate([getattr(part[key], name) for part in parts]) for name in _KEPT})
        for key in parts[0]
    }


def saved(runs: Runs, file: File) -> None:
    """Write to a file, as a whole or not at all."""
    file.parent.mkdir(parents=True, exist_ok=True)
    arrays = {
        f"{method}|{t}|{name}": getattr(found, name) for (method, t), found in runs.items() for name in _KEPT
    }
    half = file.with_suffix(".part.npz")
    np.savez_compressed(half, **arrays)
    half.replace(file)


def loaded(file: File) -> Runs:
    """What `saved` wrote."""
    with np.load(file) as arrays:
        keys = {tuple(name.split("|")[:2]) for name in arrays.files}
        return {
            (method, int(t)): Found(**{name: arrays[f"{method}|{t}|{name}"] for name in _KEPT})
            for method, t in keys
        }
