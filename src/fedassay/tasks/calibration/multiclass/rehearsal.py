"""Rehearsal of a calibration of logits: its flows are run as usual, and answered by typical clients.

Queries, noise and all computations on answers are the task's own; only the rows are synthetic
(`evaluation.typical_model`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from typing import Any, cast

import numpy as np

from fedassay.protocol.vocabulary import NO_NOISE, Noise, Part, Query, Released, Setting, Step, Unit, Vector
from fedassay.summaries.multiclass.loss_curves import LossCurves
from fedassay.summaries.multiclass.maps import LOGIT_MAPS
from fedassay.summaries.multiclass.scaling_maps import LogitMap, Temperature
from fedassay.tasks.calibration.multiclass.calibrate import AUTO, ONE_SHOT, CalibratorChoice
from fedassay.tasks.calibration.multiclass.exact import Fit
from fedassay.tasks.calibration.multiclass.held_out_judge import Judging
from fedassay.tasks.calibration.multiclass.one_shot import EXACT_GRID, exact_fit
from fedassay.tasks.calibration.parameters import ClassMethod
from fedassay.tasks.evaluation.typical_model import (
    TypicalClients,
    TypicalModel,
    held_out_release,
    held_out_total,
)
from fedassay.tasks.expectation import PlannedStudy
from fedassay.tasks.forecast import half_width

DRAWS = 200
"""Number of draws of the noise, with which standard deviations are right to 5 %."""

_SEED = 7004


@dataclass(frozen=True, kw_only=True)
class LogitsStudy:
    """Planned study of a model with several classes: rows that fit its calibrator, and rows that judge it."""

    study: PlannedStudy
    model: TypicalModel

    @classmethod
    def of(cls, study: PlannedStudy, task: str, classes: int | None = None) -> LogitsStudy:
        """Make the planned study with the model that the study expects."""
        return cls(study=study, model=TypicalModel.of(study.expectation, task, classes))

    @property
    def setting(self) -> Setting:
        """Terms of the task."""
        return self.study.setting

    @property
    def fit_rows(self) -> float:
        """Number of rows that the calibrator is fitted to."""
        return self.study.rows * self.study.fit_part

    @property
    def held_out_rows(self) -> float:
        """Number of rows that judge the calibrator."""
        return self.study.rows * self.study.part_of(Part.HELD_OUT)

    @property
    def each(self) -> int:
        """Rows of a client in the fit part, if it has any there."""
        whole_clients = self.setting.protection.unit is Unit.CLIENT
        rows = self.study.rows if whole_clients else self.fit_rows
        return max(1, round(rows / self.study.expectation.clients))

    @property
    def typical(self) -> TypicalClients:
        """Clients that stand for those of the fit part."""
        return TypicalClients(model=self.model, each=min(self.each, self.model.most_each))

    @property
    def typical_clients(self) -> float:
        """Number of typical clients with the same total contribution as those of the fit part.

        Where noise protects clients, the contribution of each is bounded, for any number of rows.
        """
        clients = max(1.0, self.fit_rows / self.each)
        bounded = self.study.trust.private and self.setting.protection.unit is Unit.CLIENT
        return clients if bounded else clients * self.each / self.typical.each

    def choice(self, method: ClassMethod, solver: Any, **others: Any) -> CalibratorChoice:
        """Return a method that could be asked for."""
        given = {"holdout": self.study.holdout, **others}
        return CalibratorChoice(classes=self.model.classes, method=method, solver=solver, **given)


def queries_of(step: Step) -> tuple[Query[Any], ...]:
    """Return the queries of one step."""
    return step if isinstance(step, tuple) else (step,)


def drive(flow: Generator[Step, Any, Fit], answer: Callable[[Query[Any]], Released[Any]]) -> Fit:
    """Answer all queries of a flow, one query a step, and return its fit."""
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
    """Distance of log s from that of all rows in one place: standard deviations, and a systematic part.

    A number of 0.1 is about 10 % of the temperature. `bias` is the mean effect of bounding clients, and of shrinking to
    the identity where noise is large. `queries` are the releases it comes from, `noises` their noise.
    """

    sampling: float
    privacy: float = 0.0
    bias: float = 0.0
    queries: tuple[Query[Any], ...] = ()
    noises: tuple[Noise, ...] = ()

    @property
    def total(self) -> float:
        """Root of the mean squared error."""
        return math.hypot(self.sampling, self.privacy, self.bias)


@lru_cache(maxsize=64)
def temperature_error(
    case: LogitsStudy, *, method: ClassMethod = AUTO, draws: int = DRAWS
) -> TemperatureError:
    """Predict the error of the temperature from one release (or two), by drawing the noise.

    Without noise it is that of the pooled temperature. Only the noise of the last release is drawn; the release before,
    if there is one, only locates the minimum, and is taken as it will be on average. Rows make the pooled temperature
    vary; under noise it varies about as much.

    Parameters
    ----------
    method : ``temperature``, ``vector`` (with shifts of the classes; for whole clients) or the choice of ``auto``.
    """
    sampling = _deviation_by_row(case.model) / math.sqrt(case.fit_rows)
    if not case.study.trust.private:
        return TemperatureError(sampling=sampling)
    rehearsal, typical = _OneShot.of(case, method), case.typical
    of, noise = rehearsal.queries[-1].of, rehearsal.answers[-1].noise
    # Log s is made of many numbers: whatever the law of each, it is nearly normal.
    rng = np.random.default_rng(_SEED)
    drawn = np.rint(rng.normal(scale=math.sqrt(noise.variance), size=(draws, of.length))).astype(np.int64)
    total = typical.total(of, case.typical_clients)
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
    """Setting that computes the noise of a query once and remembers it."""

    known: dict[Query[Any], Noise] = field(default_factory=dict, compare=False, repr=False)

    def noise(self, query: Query[Any]) -> Noise:
        """See `Setting`."""
        if query not in self.known:
            self.known[query] = super().noise(query)
        return self.known[query]


@dataclass(frozen=True, kw_only=True, eq=False)
class _OneShot:
    """Fit in one release or two: its queries, and their mean answers."""

    choice: CalibratorChoice
    setting: Setting
    queries: tuple[Query[Any], ...]
    answers: tuple[Released[Any], ...]

    @classmethod
    def of(cls, case: LogitsStudy, method: ClassMethod) -> _OneShot:
        """Rehearse the fit of the study."""
        public, asked = case.setting, list[tuple[Query[Any], Released[Any]]]()
        setting = _Remembering(**{one.name: getattr(public, one.name) for one in fields(public)})
        choice = case.choice(method, ONE_SHOT).settled(setting)

        def answer(query: Query[Any]) -> Released[Any]:
            value = query.of.read(case.typical.total(query.of, case.typical_clients))
            released = Released(value=value, noise=setting.noise(query), clients=setting.clients)
            asked.append((query, released))
            return released

        drive(choice.fit(setting), answer)
        queries, answers = zip(*asked, strict=True)
        return cls(choice=choice, setting=setting, queries=queries, answers=answers)

    def found(self, total: Vector) -> float:
        """Return log s, if this is the last total."""
        last = self.answers[-1].with_value(self.queries[-1].of.read(total))
        answers = iter((*self.answers[:-1], last))
        return log_scale(drive(self.choice.fit(self.setting), lambda _: next(answers)).map)


@lru_cache(maxsize=8)
def _deviation_by_row(model: TypicalModel) -> float:
    """Compute the deviation of log s of pooled rows, times the root of their number.

    It is one over the root of a row's Fisher information. That information is the mean curvature
    of its loss by log s at the true temperature, s²L'', as the model is calibrated there.
    """
    of = LossCurves(classes=model.classes, grid=(1 / model.temperature,))
    curves = of.read(held_out_total(model, of, model.rows_drawn))
    assert curves.slopes is not None
    assert curves.second is not None
    return math.sqrt(model.rows_drawn / float(curves.second[0] - curves.slopes[0]))


@lru_cache(maxsize=8)
def _pooled(typical: TypicalClients) -> float:
    """Return log s of all rows of typical clients in one place."""
    of = LossCurves(classes=typical.model.classes, grid=EXACT_GRID)
    total = typical.total(of, len(typical.rows))
    return log_scale(exact_fit(Released(value=of.read(total), noise=NO_NOISE, clients=1), of.classes).map)


def log_scale(found: LogitMap) -> float:
    """Return log s of a temperature, or of a vector scaling with one scale for all classes."""
    assert found.kind in ("temperature", "vector")
    return math.log(found.theta[0])


# --- the judgement --------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """Expected judgement of the best temperature on held-out rows, if the model is as assumed.

    Parameters
    ----------
    changes : changes of log loss, Brier score and accuracy, as a result would have them. That of the accuracy is of a
        map that can change the order of classes; its interval must exclude a fall of 1 %.
    recommended, reason : the verdict.
    queries : queries of the judgement: 3 if metrics before and after can be seen too, else 1.
    """

    changes: Mapping[str, Mapping[str, Any]]
    recommended: bool
    reason: str
    queries: tuple[Query[Any], ...]

    @property
    def visible(self) -> float:
        """Smallest improvement of the log loss that will be seen: half the interval. Infinite if none will be."""
        return half_width(self.changes["log_loss"]["interval"])


def judgement(case: LogitsStudy, *, level: float) -> Judgement:
    """Judge the best temperature on the held-out rows of a typical model."""
    s, c = 1 / case.model.temperature, case.model.classes
    scaled = Judging(map=Temperature(inverse_temperature=s, classes=c), level=level)
    # The same map, but of a kind that is not known to keep the order.
    other = replace(scaled, map=LOGIT_MAPS["vector"].of(np.array([s] * c + [0.0] * c), c))

    def judged(by: Judging) -> Mapping[str, Any]:
        query = by.queries(case.setting)[0]
        return by.results((held_out_release(case.model, query, case.held_out_rows, case.setting),))

    results, queries = judged(scaled), scaled.queries(case.setting)
    changes = {name: results["difference"][name] for name in ("log_loss", "brier_score")}
    return Judgement(
        changes={**changes, "accuracy": judged(other)["difference"]["accuracy"]},
        recommended=results["recommended"],
        reason=results["reason"],
        queries=queries,
    )
