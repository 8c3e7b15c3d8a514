"""Standard error of a coefficient: the task is asked as in a run, and answered by rows that do not exist.

Which rows a round uses, how many rounds there are and which noise they get are the task's own decisions. For a feature
with a variance of one that is uncorrelated with the others, with n rows in all of which n' are used,

    standard error² = (v/n' + σ²/T') / h²,

where h is the curvature of the loss (1, or π(1-π) in logistic regression with a share π of positives), v the variance
of a row's gradient (h too, if the target has a variance of one and effects are small), and σ² the variance of the noise
in the mean gradient of one of the T' rounds that count.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, cast

import numpy as np

from fedassay.errors import DataError, UsageError
from fedassay.protocol.parameters import made
from fedassay.protocol.vocabulary import NO_NOISE, Draw, Noise, Released, Sum
from fedassay.summaries.regression.local_work import RoundFields
from fedassay.summaries.regression.losses import LogLoss, SquaredError
from fedassay.summaries.regression.moments import MOST_FEATURES, Moments
from fedassay.summaries.regression.newton_sums import BY_ROW, NewtonSums
from fedassay.summaries.regression.rounds import ClippedRound
from fedassay.summaries.scored import whole
from fedassay.tasks.expectation import Expectation, PlannedStudy
from fedassay.tasks.inference.estimate import Normal, StudentisedLaw, StudentT
from fedassay.tasks.inference.infer import NEWTON, Infer
from fedassay.tasks.inference.online import ROUND
from fedassay.tasks.inference.path import ENOUGH_ROWS, LEFT_OUT, MARKS, IteratePath
from fedassay.tasks.inference.private_rounds import PrivatePath

PREVALENCE = 0.1

SUMS = {SquaredError.name: 2, LogLoss.name: 6}
"""Number of sums of `newton` after that of means and scales; for logistic regression a typical number."""

POWER = 0.8

_WAITED = 3
"""Number of rounds before neighbours are compared (`path`)."""

_NORMAL = Normal()


@dataclass(frozen=True, kw_only=True)
class Regression:
    """Model that is fitted: standardised features, uncorrelated and with small effects, and an intercept.

    Parameters
    ----------
    prevalence : of logistic regression, the share of positive rows; 0.1 if it is not given.
    rounds, participation : see `Infer`.

    Examples
    --------
    >>> Regression(features=4, model="logistic", prevalence=0.5).curvature
    0.25
    """

    features: int
    model: str = SquaredError.name
    prevalence: float | None = None
    rounds: int | None = None
    participation: float = 1.0
    level: float = 0.95

    def __post_init__(self) -> None:
        whole(self.features, what="features", least=1, most=MOST_FEATURES)
        if self.model == LogLoss.name and self.prevalence is None:
            object.__setattr__(self, "prevalence", PREVALENCE)

    @classmethod
    def of(cls, task: Infer, expectation: Expectation) -> Regression:
        """Return the regression of a task; of its features only the number matters."""
        expected = 1 if expectation.features is None else expectation.features
        alike = {name: getattr(task, name) for name in ("model", "rounds", "participation", "level")}
        prevalence = expectation.prevalence if task.model == LogLoss.name else None
        return cls(features=len(task.features) or expected, prevalence=prevalence, **alike)

    @property
    def parameters(self) -> int:
        """Number of coefficients, with the intercept."""
        return 1 + self.features

    @property
    def curvature(self) -> float:
        """Curvature of the loss along a standardised feature, and variance of a row's gradient there."""
        return 1.0 if self.prevalence is None else self.prevalence * (1 - self.prevalence)

    def task(self, method: str) -> Infer:
        """Return the task with these options."""
        names = tuple(f"x{place}" for place in range(self.features))
        alike = {"model": self.model, "features": names, "method": method, "level": self.level}
        if method == NEWTON:
            return made(Infer, alike)
        scaled = names if self.model != SquaredError.name else (*names, "target")
        scales = tuple(f"{name}=0:1" for name in scaled)
        return made(
            Infer, {**alike, "scales": scales, "rounds": self.rounds, "participation": self.participation}
        )

    def moments(self, study: PlannedStudy) -> Moments:
        """Return the moments of rows like these."""
        mean = 0.0 if self.prevalence is None else self.prevalence
        return Moments(
            rows=math.floor(study.rows),
            clients=study.expectation.clients,
            constant_targets=0,
            not_binary=0,
            cut=0,
            means=np.zeros(self.features),
            deviations=np.ones(self.features),
            target_mean=mean,
            target_deviation=math.sqrt(self.curvature),
        )


@dataclass(frozen=True, kw_only=True)
class CoefficientError:
    """Errors to expect of a coefficient with one method, or the reason why there will be none.

    Parameters
    ----------
    sampling, privacy : standard errors by rows and by noise.
    law : that intervals will use.
    rows : number of different rows in the estimate.
    rounds : of federated averaging; None for `newton`.
    answers, bytes : of one client, with questions, and without the keys and corrections of secure sums.
    noise : of one round; `unsure` is how wrong noise makes the mean curvature, relative to what it is.
    again : whether clients come to the end of their rows before the rounds do.
    """

    method: str
    level: float
    sampling: float = math.inf
    privacy: float = 0.0
    law: StudentisedLaw = _NORMAL
    rows: float = 0.0
    rounds: int | None = None
    answers: float = 0.0
    bytes: int = 0
    noise: Noise = NO_NOISE
    unsure: float = 0.0
    again: bool = False
    reason: str | None = None

    @property
    def standard_error(self) -> float:
        """Standard error from sampling and privacy together."""
        return math.hypot(self.sampling, self.privacy)

    @property
    def half_width(self) -> float:
        """Half-width of an interval."""
        return self.law.critical(self.level) * self.standard_error

    @property
    def effect(self) -> float:
        """Smallest coefficient whose interval leaves zero out with a probability of 80 %."""
        # Beyond a two-sided 60 % there are 20 % on each side.
        return (self.law.critical(self.level) + self.law.critical(2 * POWER - 1)) * self.standard_error

    def width(self, name: str) -> float:
        """Return the value of a target, by its name."""
        return self.half_width if name == "precision" else self.effect


def coefficient_error(study: PlannedStudy, of: Regression, method: str) -> CoefficientError:
    """Predict ``newton`` or ``round-plug-in``; too few rows, and too much noise, are answers and not errors.

    Raises what the trust model and the task refuse for other reasons, such as too few clients.
    """
    try:
        if study.trust.private:
            return _private(study, of, method)
        return _newton(study, of) if method == NEWTON else _streamed(study, of)
    except DataError as problem:
        return CoefficientError(method=method, level=of.level, reason=str(problem))


# --- without noise --------------------------------------------------------------------------------------


def _newton(study: PlannedStudy, of: Regression) -> CoefficientError:
    first, sums = _first_two(study, of, NEWTON)
    last = replace(sums, of=replace(cast(NewtonSums, sums.of), meat=BY_ROW))
    many = SUMS[of.model]
    return CoefficientError(
        method=NEWTON,
        level=of.level,
        sampling=_sampling(of, study.rows),
        rows=study.rows,
        answers=1 + many,
        bytes=study.bytes_of(first) + (many - 1) * study.bytes_of(sums) + study.bytes_of(last),
    )


def _streamed(study: PlannedStudy, of: Regression) -> CoefficientError:
    first, query = _first_two(study, of, ROUND)
    rounds = round(1 / query.share / 2 - 1)  # of 2 T + 2 shares
    clients = study.expectation.clients
    drawn = query.cohort.clients if isinstance(query.cohort, Draw) else clients
    each, again = _visit(study, query)
    began = _restart(rounds, drawn * each, of.parameters) if of.model == LogLoss.name else 0
    waited = max(_WAITED, began, math.ceil(2 * of.parameters / (drawn * each)))
    if rounds - waited < 1:
        raise DataError(
            f"rounds: {rounds} with {drawn * each:,} rows each are too few for {of.parameters} coefficients."
        )
    rows = min(study.rows, (rounds - began) * drawn * each)
    asked = rounds * drawn / clients
    # Sums over all rows that look for a separation.
    after = SUMS[of.model] if of.model == LogLoss.name else 0
    sums = _first_two(study, of, NEWTON)[1]
    return CoefficientError(
        method=ROUND,
        level=of.level,
        sampling=_sampling(of, rows),
        law=StudentT(dof=_freedom(rounds - waited)),
        rows=rows,
        rounds=rounds,
        answers=1 + asked + after,
        bytes=study.bytes_of(first) + round(asked * study.bytes_of(query)) + after * study.bytes_of(sums),
        again=again,
    )


def _first_two(study: PlannedStudy, of: Regression, method: str) -> tuple[Sum[Any], Sum[Any]]:
    """Return the question about means and scales, and the question that follows."""
    flow = of.task(method).steps(study.setting)
    first = next(flow)
    released = Released(value=of.moments(study), noise=NO_NOISE, clients=study.expectation.clients)
    try:
        second = flow.send(released)
    except StopIteration as end:  # no coefficient has a value
        raise DataError(end.value["fit"]["reason"]) from None
    assert isinstance(first, Sum)
    assert isinstance(second, Sum)
    return first, second


def _sampling(of: Regression, rows: float) -> float:
    left = rows - of.parameters
    if left < 1:
        raise DataError(f"rows: {rows:,.0f} are too few for {of.parameters} coefficients.")
    return 1 / math.sqrt(of.curvature * left)


def _visit(study: PlannedStudy, query: Sum[Any]) -> tuple[int, bool]:
    """Return the rows that a client uses in a round, and whether it will have to begin again."""
    rows, visits = math.floor(study.rows / study.expectation.clients), cast(RoundFields, query.of).visits
    return max(1, rows // visits), rows < visits


_ARRIVING = 2
"""Number of blocks of rounds until a path has typically arrived."""


def _restart(rounds: int, rows: float, parameters: int) -> int:
    """Return the rounds that the estimate leaves out: up to the second restart, if in the first quarter (`path`)."""
    began = [0]
    for mark in sorted(mark for mark in MARKS if mark <= LEFT_OUT * rounds):
        if (mark - began[-1]) * rows >= ENOUGH_ROWS * parameters:
            began.append(mark)
    return began[: _ARRIVING + 1][-1]


def _freedom(compared: int) -> float:
    path, count = IteratePath.start(np.zeros(1)), np.array(compared)
    return float(replace(path, sums=replace(path.sums, rounds=count, compared=count)).freedom)


# --- under noise ----------------------------------------------------------------------------------------


def _private(study: PlannedStudy, of: Regression, method: str) -> CoefficientError:
    setting, task, noise = study.setting, of.task(method), NO_NOISE
    try:
        query = next(task.steps(replace(setting, clients=0)))  # for which noise is not refused yet
        assert isinstance(query, Sum)
        noise = setting.noise(query)
        next(task.steps(setting))
    except UsageError as problem:  # exact sums, or noise that hides everything, before anything is spent
        return CoefficientError(method=method, level=of.level, noise=noise, reason=str(problem))
    rounds = round(1 / query.share)
    begun, doubt = _private_path(rounds)
    counted, many = rounds - begun, of.participation * study.expectation.clients
    each, again = _visit(study, query)
    rows = min(study.rows, counted * many * each)
    clipped = cast(ClippedRound, query.of)
    in_gradient, in_slopes = (
        math.sqrt(noise.variance) * unit / max(1.0, many)
        for unit in clipped.read(np.zeros(clipped.length, dtype=np.int64)).units
    )
    asked = rounds * (1.0 if study.trust.clients_sample else of.participation)
    return CoefficientError(
        method=method,
        level=of.level,
        sampling=_sampling(of, rows),
        privacy=in_gradient / math.sqrt(counted) / of.curvature,
        law=StudentT(dof=_freedom(max(1, counted - _WAITED))),
        rows=rows,
        rounds=rounds,
        answers=asked,
        bytes=round(asked * study.bytes_of(query)),
        noise=noise,
        unsure=in_slopes * math.sqrt(doubt * of.parameters) / of.curvature,
        again=again,
    )


@lru_cache(maxsize=64)
def _private_path(rounds: int) -> tuple[int, float]:
    """Return the rounds that do not count, and how much of the noise in a round's derivative is left in their mean."""
    path = PrivatePath.start(np.zeros(1), rounds)
    for _ in range(rounds):
        path = path.after(np.zeros(1), np.ones((1, 1)), unsure=0.0, decay=1.0)
    return path.begin, path.doubt
