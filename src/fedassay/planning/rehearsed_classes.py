"""What a calibration of logits would find: its flows are asked in earnest, and answered by typical clients.

Questions, noise and everything that is computed from answers are the task's own; only the rows are made up
(`typical_classes`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any, cast

import numpy as np

from fedassay.planning.expectation import PlannedRelease
from fedassay.planning.traffic import bytes_of
from fedassay.planning.typical_classes import ClassExpectation, TypicalClients, TypicalModel, held_out_total
from fedassay.protocol import NO_NOISE, Noise, Part, Query, Released, Setting, Step, Unit, Vector
from fedassay.summaries.multiclass.logit_map import LogitMap
from fedassay.summaries.multiclass.loss_curves import LossCurves
from fedassay.tasks.calibration.multiclass.choice import AUTO, ONE_SHOT, Choice
from fedassay.tasks.calibration.multiclass.exact import Fit
from fedassay.tasks.calibration.multiclass.one_shot import EXACT_GRID, exact_fit
from fedassay.tasks.calibration.parameters import ClassMethod
from fedassay.tasks.shared_parameters import HOLDOUT

DRAWS = 200
"""Standard deviations are then right to 5 %."""

_SEED = 7004


@dataclass(frozen=True, kw_only=True)
class ClassStudy(PlannedRelease):
    """What is expected of a model with several classes, under a trust model, a budget and a protection.

    `holdout` is the share of the units that judge the calibrator.
    """

    expectation: ClassExpectation
    holdout: float = HOLDOUT

    @property
    def fit_rows(self) -> float:
        """About how many rows the calibrator is fitted to."""
        half = 1.0 if self.fits_on is Part.FIT else 0.5
        return half * self.rows * (1 - self.holdout)

    @property
    def held_out_rows(self) -> float:
        """About how many rows judge it."""
        return self.rows * self.holdout

    @property
    def each(self) -> int:
        """How many rows a client has in the fit part, if it has any there."""
        whole_clients = self.setting.protection.unit is Unit.CLIENT
        rows = self.rows if whole_clients else self.fit_rows
        return max(1, round(rows / self.expectation.clients))

    @property
    def typical(self) -> TypicalClients:
        """Clients that stand for those of the fit part."""
        model = self.expectation.model
        return TypicalClients(model=model, each=min(self.each, model.most_each))

    @property
    def typical_clients(self) -> float:
        """How many of them have as much to say as those of the fit part.

        Where noise protects clients, each says at most so much, however many rows it has.
        """
        clients = max(1.0, self.fit_rows / self.each)
        bounded = self.trust.private and self.setting.protection.unit is Unit.CLIENT
        return clients if bounded else clients * self.each / self.typical.each


# --- asking ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a client sends and gets: how many answers, and the bytes of questions and answers together.

    Without what hiding answers adds: the keys and corrections of secure sums.
    """

    answers: float
    bytes: int
    at_most: bool = False


def cost_of(step: Step, study: ClassStudy, *, times: float) -> Cost:
    """The cost of a step that is asked this often."""
    plans = [study.setting.plan(query) for query in queries_of(step)]
    return Cost(answers=times, bytes=round(times * bytes_of(plans, study, task="calibrate")))


def queries_of(step: Step) -> tuple[Query[Any], ...]:
    """The queries of one step."""
    return step if isinstance(step, tuple) else (step,)


def drive(flow: Generator[Step, Any, Fit], answer: Callable[[Query[Any]], Released[Any]]) -> Fit:
    """Ask all that a flow asks, one query a step."""
    step = next(flow)
    while True:
        assert isinstance(step, Query), "a scaling is fitted with one question at a time"
        try:
            step = flow.send(answer(step))
        except StopIteration as end:
            return cast(Fit, end.value)


# --- the temperature ------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class TemperatureError:
    """How far log s will be from that of all rows in one place: standard deviations, and a systematic part.

    A number of 0.1 is about 10 % of the temperature. `bias` is what bounding clients, and holding on to the identity
    where noise is large, do on average. `queries` are the releases it comes from, `noises` their noise.
    """

    sampling: float
    privacy: float = 0.0
    bias: float = 0.0
    queries: tuple[Query[Any], ...] = ()
    noises: tuple[Noise, ...] = ()

    @property
    def total(self) -> float:
        """The root of the mean squared error."""
        return math.hypot(self.sampling, self.privacy, self.bias)


@lru_cache(maxsize=64)
def temperature_error(
    study: ClassStudy, *, method: ClassMethod = AUTO, draws: int = DRAWS
) -> TemperatureError:
    """Of the temperature from one release (or two), by drawing the noise; without noise, of the pooled temperature.

    Only the noise of the last release is drawn; the one before, if there is one, only says where to look, and is taken
    as it will be on average. Rows make the pooled temperature vary; under noise it varies about as much.

    Parameters
    ----------
    method : ``temperature``, ``vector`` (with shifts of the classes; for whole clients) or what ``auto`` makes of it.
    """
    model = study.expectation.model
    sampling = _deviation_by_row(model) / math.sqrt(study.fit_rows)
    if not study.trust.private:
        return TemperatureError(sampling=sampling)
    rehearsal, typical = _OneShot.of(study, method), study.typical
    of, noise = rehearsal.queries[-1].of, rehearsal.answers[-1].noise
    # Many numbers make one: whatever the law of each is, what becomes of them is nearly normal.
    rng = np.random.default_rng(_SEED)
    drawn = np.rint(rng.normal(scale=math.sqrt(noise.variance), size=(draws, of.length))).astype(np.int64)
    total = typical.total(of, study.typical_clients)
    noisy = [rehearsal.found(total + one) for one in drawn]
    return TemperatureError(
        sampling=sampling,
        privacy=float(np.std(noisy, ddof=1)),
        bias=float(np.mean(noisy)) - _pooled(typical),
        queries=rehearsal.queries,
        noises=tuple(one.noise for one in rehearsal.answers),
    )


@dataclass(frozen=True, kw_only=True)
class _Remembering(Setting):
    """A setting that works out the noise of a question once, however often it is asked."""

    known: dict[Query[Any], Noise] = field(default_factory=dict, compare=False, repr=False)

    def noise(self, query: Query[Any]) -> Noise:
        """See `Setting`."""
        if query not in self.known:
            self.known[query] = super().noise(query)
        return self.known[query]


@dataclass(frozen=True, kw_only=True, eq=False)
class _OneShot:
    """A fit in one release or two: what it asks, and what it is answered on average."""

    choice: Choice
    setting: Setting
    queries: tuple[Query[Any], ...]
    answers: tuple[Released[Any], ...]

    @classmethod
    def of(cls, study: ClassStudy, method: ClassMethod) -> _OneShot:
        """As the study has it."""
        public, asked = study.setting, list[tuple[Query[Any], Released[Any]]]()
        setting = _Remembering(**{one.name: getattr(public, one.name) for one in fields(public)})
        choice = Choice(
            classes=study.expectation.classes, method=method, solver=ONE_SHOT, holdout=study.holdout
        ).settled(setting)

        def answer(query: Query[Any]) -> Released[Any]:
            value = query.of.read(study.typical.total(query.of, study.typical_clients))
            released = Released(value=value, noise=setting.noise(query), clients=setting.clients)
            asked.append((query, released))
            return released

        drive(choice.fit(setting), answer)
        queries, answers = zip(*asked, strict=True)
        return cls(choice=choice, setting=setting, queries=queries, answers=answers)

    def found(self, total: Vector) -> float:
        """Log s, if this is the last total."""
        last = self.answers[-1].with_value(self.queries[-1].of.read(total))
        answers = iter((*self.answers[:-1], last))
        return log_scale(drive(self.choice.fit(self.setting), lambda _: next(answers)).map)


@lru_cache(maxsize=8)
def _deviation_by_row(model: TypicalModel) -> float:
    """Of log s of pooled rows, times the root of their number: one over the root of a row's Fisher information.

    That is the mean curvature of its loss by log s at the true temperature, s²L'', as the model is calibrated there.
    """
    of = LossCurves(classes=model.classes, grid=(1 / model.temperature,))
    curves = of.read(held_out_total(model, of, model.rows_drawn))
    assert curves.slopes is not None
    assert curves.second is not None
    return math.sqrt(model.rows_drawn / float(curves.second[0] - curves.slopes[0]))


@lru_cache(maxsize=8)
def _pooled(typical: TypicalClients) -> float:
    """Log s of all rows of typical clients in one place."""
    of = LossCurves(classes=typical.model.classes, grid=EXACT_GRID)
    total = typical.total(of, len(typical.rows))
    return log_scale(exact_fit(Released(value=of.read(total), noise=NO_NOISE, clients=1), of.classes).map)


def log_scale(found: LogitMap) -> float:
    """Log s of a temperature, or of a vector scaling with one scale for all classes."""
    assert found.kind in ("temperature", "vector")
    return math.log(found.theta[0])
