"""Predictions of the tasks that need no model of scores: prediction sets, distributions, quantiles, regressions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from fedassay.estimation.intervals import Estimate, bounded, z_value
from fedassay.estimation.metric import Undefined
from fedassay.planning import conformal, distribution, inference
from fedassay.planning.distribution import Shape, predict_curve
from fedassay.planning.expectation import PlannedRelease
from fedassay.planning.predicted_coverage import (
    LARGEST_TRIED,
    MOST_CHOOSING,
    MOST_TRIED,
    PredictedCoverage,
    predict,
)
from fedassay.planning.predicted_fit import predict_fit
from fedassay.planning.study_expectation import PlannedStudy
from fedassay.planning.study_forecast import Forecast, Foreseen
from fedassay.planning.typical_regression import Regression
from fedassay.protocol import Points
from fedassay.summaries.regression.losses import LogLoss
from fedassay.tasks.conformal.conformal import Conformal
from fedassay.tasks.conformal.held_out import Asked
from fedassay.tasks.conformal.judged import CLEAR
from fedassay.tasks.distribution.accuracy import quantile_errors
from fedassay.tasks.distribution.ecdf import Ecdf
from fedassay.tasks.distribution.quantile_grid import FIRST_SHARE
from fedassay.tasks.distribution.search import SearchQuantiles
from fedassay.tasks.inference.infer import NEWTON, Infer
from fedassay.tasks.inference.online import ROUND

COVERAGE = "coverage"


@dataclass(frozen=True, kw_only=True)
class ConformalForecast(Forecast[Conformal]):
    """What sets will cover, and how well held-out rows will show it (`coverage`, half its interval)."""

    targets: ClassVar[Mapping[str, float | None]] = MappingProxyType({**conformal.TARGETS, COVERAGE: 0.02})
    main: ClassVar[tuple[str, ...]] = ("excess", "spread", COVERAGE)

    def at(self, study: PlannedStudy, names: Sequence[str]) -> dict[str, Foreseen]:
        """See `Forecast`: `excess` is signed, all others are not."""
        if study.budget is not None and study.budget.epsilon > LARGEST_TRIED:
            study = study.with_epsilon(LARGEST_TRIED)
        predicted = predict(self._release(study), replace(self.task, conditional="none", groups=()))
        widths = {name: _width(predicted, name) for name in names if name != COVERAGE}
        found = {
            name: Foreseen(width=width, reason=predicted.reason)
            for name, width in widths.items()
            if width is not None
        }
        if COVERAGE in names and self.task.holdout:
            found[COVERAGE] = self._coverage(study, predicted)
        return found

    def most_tried(self, study: PlannedStudy) -> tuple[float, float]:
        """See `Forecast`: ranks take longer to work out the more clients there are."""
        return MOST_CHOOSING if self.task.chooses(study.setting) else MOST_TRIED

    def _release(self, study: PlannedStudy) -> PlannedRelease:
        """The rows of the rarer class, or of one of the groups, which are taken to be of the same size."""
        seen = study.fit_part if self.task.holdout else 1.0
        rarer = self._rarer(study)
        return study.of_rows(seen / len(self.task.names) if rarer is None else seen * rarer)

    def _rarer(self, study: PlannedStudy) -> float | None:
        """The share of the rarer of two outcomes, if sets are conditional on them and it is known what to expect."""
        prevalence = study.expectation.prevalence
        if self.task.condition != "class" or self.task.sets != "binary" or prevalence is None:
            return None
        return min(prevalence, 1 - prevalence)

    def _coverage(self, study: PlannedStudy, predicted: PredictedCoverage) -> Foreseen:
        parts = len(self.task.names)
        step: Any = next(Asked(task=self.task, thresholds=(0.5,) * parts).sums(study.setting))
        query = step[0] if isinstance(step, tuple) else step
        noise, n = study.setting.noise(query), study.rows * study.holdout
        counts = query.of.read(np.zeros(query.of.length, dtype=np.int64))
        cells = len(counts) * next(iter(counts.values())).sizes.size
        if n <= CLEAR * math.sqrt(2 * cells * noise.variance):
            return Foreseen(width=math.inf, reason="not enough held-out rows for the noise")
        v = self.task.level if predicted.expected is None else min(1.0, predicted.expected.mean)
        sampling = v * (1 - v) / n
        privacy = cells * noise.variance * ((1 - v) ** 2 + v**2) / n**2 + (
            sampling if noise.reporting else 0.0
        )
        estimate = Estimate(value=v, sampling_variance=sampling, privacy_variance=privacy)
        return Foreseen.of(bounded(estimate, size=n, level=self.task.report_level))

    def notes(self, study: PlannedStudy) -> tuple[str, ...]:
        """See `Forecast`."""
        if not self.task.condition:
            return ()
        rarer = self._rarer(study)
        if rarer is not None:
            return (f"{self.name}: predicted for the rarer outcome, {rarer:.3g} of the rows.",)
        return (
            f"{self.name}: predicted for one {self.task.condition} of {len(self.task.names)} of equal size.",
        )


def _width(predicted: PredictedCoverage, name: str) -> float | None:
    """As predicted; but where clients report on one level each, only a law below that of the coverage is known.

    What is above the level then is the margin for the noise, and half a bin.
    """
    rehearsed = predicted.rehearsed
    if rehearsed is None or not predicted.finite or not rehearsed.noise.reporting:
        return predicted.width(name)
    if name == "excess":
        details, rows = rehearsed.found.details, rehearsed.clients * rehearsed.rows
        return float(details["margin"] / rows + details["step"] / 2)
    return None if name == "spread" else predicted.width(name)


@dataclass(frozen=True, kw_only=True)
class DistributionForecast(Forecast[Ecdf]):
    """The simultaneous band of a distribution function, and what noise adds to it."""

    targets: ClassVar[Mapping[str, float | None]] = distribution.TARGETS
    main: ClassVar[tuple[str, ...]] = ("band",)

    def at(self, study: PlannedStudy, names: Sequence[str]) -> dict[str, Foreseen]:
        """See `Forecast`: half-widths, as shares of the rows."""
        task = self.task
        share = study.share * (1 - FIRST_SHARE if task.grid == "quantile" else 1.0)
        shape = Shape(
            points=len(task.grid) + 1 if isinstance(task.grid, tuple) else task.points,
            labelled=task.labelled,
            public_labels=task.public_labels,
            mechanism=task.mechanism,
            level=task.level,
        )
        try:
            curve = predict_curve(replace(study.of_rows(), share=share), shape)
        except Undefined as problem:
            return {name: Foreseen(width=math.inf, reason=str(problem)) for name in names}
        return {name: Foreseen(width=curve.width(name)) for name in names}


@dataclass(frozen=True, kw_only=True)
class QuantilesForecast(Forecast[SearchQuantiles]):
    """Half the widest interval of the quantiles, as a share of the range, for values that are spread evenly over it."""

    targets: ClassVar[Mapping[str, float | None]] = MappingProxyType({"quantile": 0.05})
    main: ClassVar[tuple[str, ...]] = ("quantile",)

    def at(self, study: PlannedStudy, names: Sequence[str]) -> dict[str, Foreseen]:
        """See `Forecast`."""
        path = self.task.summary
        noise = study.setting.noise(Points(of=path, at=(path.points - 1,)))
        density = 1 / (self.task.upper - self.task.lower)
        found = []
        for quantile in self.task.quantiles:
            errors = quantile_errors(path, noise, quantile=quantile, rows=study.rows, density=density)
            sampling, privacy = (one * density for one in errors)
            width = z_value(self.task.level) * math.hypot(sampling, privacy)
            found.append(Foreseen(width=width, sampling=sampling, privacy=privacy))
        return dict.fromkeys(names, max(found, key=lambda one: one.width))


@dataclass(frozen=True, kw_only=True)
class InferenceForecast(Forecast[Infer]):
    """A standardised coefficient: half its interval, and the smallest one that is seen with 80 % power."""

    targets: ClassVar[Mapping[str, float | None]] = MappingProxyType({**inference.TARGETS, "precision": None})
    main: ClassVar[tuple[str, ...]] = ("effect",)

    def at(self, study: PlannedStudy, names: Sequence[str]) -> dict[str, Foreseen]:
        """See `Forecast`."""
        task = self.task
        method = NEWTON if task.method == NEWTON and not study.trust.private else ROUND
        of = Regression(
            features=max(1, len(task.features)),
            model=task.model,
            prevalence=study.expectation.prevalence if task.model == LogLoss.name else None,
            rounds=None if method == NEWTON else task.rounds,
            participation=1.0 if method == NEWTON else task.participation,
            level=task.level,
        )
        fit = predict_fit(study.of_rows(), of, method)
        return {
            name: Foreseen(
                width=math.inf if fit.reason is not None else fit.width(name),
                sampling=None if fit.reason is not None else fit.sampling,
                privacy=None if fit.reason is not None else fit.privacy,
                reason=fit.reason,
            )
            for name in names
        }

    def notes(self, study: PlannedStudy) -> tuple[str, ...]:
        """See `Forecast`."""
        if self.task.features:
            return ()
        return (f"{self.name}: which features there are is not said; predicted for one.",)
