"""The standard error of a coefficient to expect: the task is asked in earnest, and answered by rows that do not exist.

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
from fedassay.planning.expectation import PlannedRelease
from fedassay.planning.traffic import bytes_of
from fedassay.planning.typical_regression import SUMS, Regression
from fedassay.protocol import NO_NOISE, Draw, Noise, Query, Released, Sum
from fedassay.summaries.regression.clipped_round import ClippedRound
from fedassay.summaries.regression.losses import LogLoss
from fedassay.summaries.regression.newton_sums import BY_ROW, NewtonSums
from fedassay.summaries.regression.rounds import RoundFields
from fedassay.tasks.inference.infer import NEWTON
from fedassay.tasks.inference.laws import Law, Normal, StudentT
from fedassay.tasks.inference.online import ROUND
from fedassay.tasks.inference.path import ENOUGH_ROWS, LEFT_OUT, MARKS, Path
from fedassay.tasks.inference.private_rounds import PrivatePath

POWER = 0.8

_WAITED = 3
"""Rounds before neighbours are compared (`path`)."""

_NORMAL = Normal()


@dataclass(frozen=True, kw_only=True)
class PredictedFit:
    """One way to the coefficients: the errors to expect of one of them, or the reason why there will be none.

    Parameters
    ----------
    sampling, privacy : standard errors by rows and by noise.
    law : that intervals will use.
    rows : how many different rows the estimate is made of.
    rounds : of federated averaging; None for `newton`.
    answers, bytes : of one client, with questions, and without the keys and corrections of secure sums.
    noise : of one round; `unsure` is how wrong noise makes the mean curvature, relative to what it is.
    again : whether clients come to the end of their rows before the rounds do.
    """

    method: str
    level: float
    sampling: float = math.inf
    privacy: float = 0.0
    law: Law = _NORMAL
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
        """Of both kinds."""
        return math.hypot(self.sampling, self.privacy)

    @property
    def half_width(self) -> float:
        """Of an interval."""
        return self.law.critical(self.level) * self.standard_error

    @property
    def effect(self) -> float:
        """The smallest coefficient whose interval leaves zero out with a probability of 80 %."""
        # Beyond a two-sided 60 % there are 20 % on each side.
        return (self.law.critical(self.level) + self.law.critical(2 * POWER - 1)) * self.standard_error

    def width(self, name: str) -> float:
        """By the name of a target."""
        return self.half_width if name == "precision" else self.effect

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        if self.reason is not None:
            return {"standard_error": None, "half_width": None, "effect": None, "reason": self.reason}
        return {
            "standard_error": self.standard_error,
            "half_width": self.half_width,
            "effect": self.effect,
            "error": {"sampling": self.sampling, "privacy": self.privacy},
            "law": self.law.name,
            "rows": self.rows,
            "rounds": self.rounds,
            "answers": self.answers,
            "bytes": self.bytes,
            "noise": {"law": self.noise.law, "scale": self.noise.scale, "in_curvature": self.unsure},
        }


def predict_fit(study: PlannedRelease, of: Regression, method: str) -> PredictedFit:
    """What to expect of ``newton`` or ``round-plug-in``; too few rows, and too much noise, are answers and not errors.

    Raises what the trust model and the task refuse for other reasons, such as too few clients.
    """
    try:
        if study.trust.private:
            return _private(study, of) if method == ROUND else _refused(study, of, method)
        return _newton(study, of) if method == NEWTON else _streamed(study, of)
    except DataError as problem:
        return PredictedFit(method=method, level=of.level, reason=str(problem))


def _refused(study: PlannedRelease, of: Regression, method: str) -> PredictedFit:
    try:
        next(of.task(method).steps(study.setting))
    except UsageError as problem:
        return PredictedFit(method=method, level=of.level, reason=str(problem))
    raise AssertionError("exact sums are not asked for under noise")


# --- without noise --------------------------------------------------------------------------------------


def _newton(study: PlannedRelease, of: Regression) -> PredictedFit:
    first, sums = _first_two(study, of, NEWTON)
    last = replace(sums, of=replace(cast(NewtonSums, sums.of), meat=BY_ROW))
    many = SUMS[of.model]
    return PredictedFit(
        method=NEWTON,
        level=of.level,
        sampling=_sampling(of, study.rows),
        rows=study.rows,
        answers=1 + many,
        bytes=_bytes(first, study) + (many - 1) * _bytes(sums, study) + _bytes(last, study),
    )


def _streamed(study: PlannedRelease, of: Regression) -> PredictedFit:
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
    return PredictedFit(
        method=ROUND,
        level=of.level,
        sampling=_sampling(of, rows),
        law=StudentT(dof=_freedom(rounds - waited)),
        rows=rows,
        rounds=rounds,
        answers=1 + asked + after,
        bytes=_bytes(first, study) + round(asked * _bytes(query, study)) + after * _bytes(sums, study),
        again=again,
    )


def _first_two(study: PlannedRelease, of: Regression, method: str) -> tuple[Sum[Any], Sum[Any]]:
    """The question about means and scales, and the one that follows."""
    flow = of.task(method).steps(study.setting)
    first = next(flow)
    released = Released(value=of.moments(study), noise=NO_NOISE, clients=study.expectation.clients)
    second = flow.send(released)
    assert isinstance(first, Sum)
    assert isinstance(second, Sum)
    return first, second


def _sampling(of: Regression, rows: float) -> float:
    left = rows - of.parameters
    if left < 1:
        raise DataError(f"rows: {rows:,.0f} are too few for {of.parameters} coefficients.")
    return 1 / math.sqrt(of.curvature * left)


def _visit(study: PlannedRelease, query: Sum[Any]) -> tuple[int, bool]:
    """The rows that a client uses in a round, and whether it will have to begin again."""
    rows, visits = math.floor(study.rows / study.expectation.clients), cast(RoundFields, query.of).visits
    return max(1, rows // visits), rows < visits


_ARRIVING = 2
"""Blocks of rounds until a path has typically arrived."""


def _restart(rounds: int, rows: float, parameters: int) -> int:
    """The rounds that the estimate leaves out: up to the second restart, if it is in the first quarter (`path`)."""
    began = [0]
    for mark in sorted(mark for mark in MARKS if mark <= LEFT_OUT * rounds):
        if (mark - began[-1]) * rows >= ENOUGH_ROWS * parameters:
            began.append(mark)
    return began[: _ARRIVING + 1][-1]


def _freedom(compared: int) -> float:
    path, count = Path.start(np.zeros(1)), np.array(compared)
    return float(replace(path, sums=replace(path.sums, rounds=count, compared=count)).freedom)


# --- under noise ----------------------------------------------------------------------------------------


def _private(study: PlannedRelease, of: Regression) -> PredictedFit:
    setting, task = study.setting, of.task(ROUND)
    query = next(task.steps(replace(setting, clients=0)))  # for which nothing is refused yet
    assert isinstance(query, Sum)
    noise = setting.noise(query)
    try:
        next(task.steps(setting))
    except UsageError as problem:  # noise that hides everything, before anything is spent
        return PredictedFit(method=ROUND, level=of.level, noise=noise, reason=str(problem))
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
    return PredictedFit(
        method=ROUND,
        level=of.level,
        sampling=_sampling(of, rows),
        privacy=in_gradient / math.sqrt(counted) / of.curvature,
        law=StudentT(dof=_freedom(max(1, counted - _WAITED))),
        rows=rows,
        rounds=rounds,
        answers=asked,
        bytes=round(asked * _bytes(query, study)),
        noise=noise,
        unsure=in_slopes * math.sqrt(doubt * of.parameters) / of.curvature,
        again=again,
    )


@lru_cache(maxsize=64)
def _private_path(rounds: int) -> tuple[int, float]:
    """The rounds that do not count, and how much of the noise in one round's derivative is left in their mean."""
    path = PrivatePath.start(np.zeros(1), rounds)
    for _ in range(rounds):
        path = path.after(np.zeros(1), np.ones((1, 1)), unsure=0.0, decay=1.0)
    return path.begin, path.doubt


def _bytes(query: Query[Any], study: PlannedRelease) -> int:
    return bytes_of([study.setting.plan(query)], study, task="infer")
