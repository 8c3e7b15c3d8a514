"""Predictions of the tasks that read scores and labels: evaluation, calibration, and the Hosmer-Lemeshow test."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from fedassay.estimation.buckets import Buckets, equi_depth_edges
from fedassay.estimation.intervals import z_value
from fedassay.estimation.metric import Undefined
from fedassay.metrics import METRICS, planned
from fedassay.planning.calibration import MAP_TARGETS
from fedassay.planning.study_expectation import PlannedStudy
from fedassay.planning.study_forecast import Forecast, Foreseen
from fedassay.protocol import Noise, Part, Setting, Sum
from fedassay.summaries.grouped_histogram import GroupedHistogram
from fedassay.summaries.score_histogram import ScoreHistogram
from fedassay.tasks.calibration.accuracy import PREDICTED, MapError, predict_map
from fedassay.tasks.calibration.calibrate import Calibrate
from fedassay.tasks.calibration.methods import AUTO
from fedassay.tasks.distribution.hosmer_lemeshow import HosmerLemeshow
from fedassay.tasks.evaluation.accuracy import expected_evidence, predict
from fedassay.tasks.evaluation.evaluate import Evaluate

HELD_OUT_TARGETS: Mapping[str, float | None] = MappingProxyType(
    {
        "roc_auc": None,
        "brier_score": METRICS["brier_score"].target,
        "log_loss": METRICS["log_loss"].target,
        "expected_calibration_error": None,
        "calibration_slope": None,
    }
)
"""What held-out rows show: a map is recommended if they see that it helps, so that the losses have targets."""

_HELD_OUT = "held_out_"


@dataclass(frozen=True, kw_only=True)
class EvaluationForecast(Forecast[Evaluate]):
    """Every metric that has an interval, of all rows."""

    targets: ClassVar[Mapping[str, float | None]] = MappingProxyType(planned())
    main: ClassVar[tuple[str, ...]] = ("roc_auc", "expected_calibration_error", "brier_score")
    varies: ClassVar[bool] = True

    def at(self, study: PlannedStudy, names: Sequence[str]) -> dict[str, Foreseen]:
        """See `Forecast`: half-widths of intervals."""
        scores = study.of_scores(self.name)
        histogram, noise = asked(self.task, scores.setting)
        metrics = predict(
            histogram,
            rows=scores.rows,
            prevalence=scores.expectation.prevalence,
            auc=scores.expectation.auc,
            noise=noise,
            threshold=self.task.thresholds[0],
            buckets=self.task.buckets,
            level=self.task.level,
            metrics=tuple(names),
        )
        return {name: Foreseen.of(metric) for name, metric in metrics.items()}

    def notes(self, study: PlannedStudy) -> tuple[str, ...]:
        """See `Forecast`."""
        found = []
        if self.task.groups:
            found.append(
                f"{self.name}: errors are those of all rows together; single groups have larger ones."
            )
        if self.task.versus:
            found.append(
                f"{self.name}: errors are those of one model; of the difference nothing is predicted."
            )
        return tuple(found)


def asked(task: Evaluate, setting: Setting) -> tuple[ScoreHistogram, Noise]:
    """The histogram of all rows that an evaluation gets, and its noise, whatever else it asks for."""
    step = next(task.steps(setting))
    query: Any = step[0] if isinstance(step, tuple) else step
    of, noise = query.of, setting.noise(query)
    if isinstance(of, GroupedHistogram):  # all rows are the sum of the groups and of those outside
        times = len(of.groups) + 1
        noise = replace(noise, variance=times * noise.variance, copies=times * noise.copies)
    return of if isinstance(of, ScoreHistogram) else of.histogram, noise


@dataclass(frozen=True, kw_only=True)
class CalibrationForecast(Forecast[Calibrate]):
    """How far the map will be from the truth, and what held-out rows will show.

    Sigmoids are predicted as Platt scaling, all that bins as histogram binning, and ``auto`` as the better of the two.
    """

    targets: ClassVar[Mapping[str, float | None]] = MappingProxyType(
        {**MAP_TARGETS, **{f"{_HELD_OUT}{name}": target for name, target in HELD_OUT_TARGETS.items()}}
    )
    main: ClassVar[tuple[str, ...]] = ("expected_calibration_error", "held_out_brier_score")
    varies: ClassVar[bool] = True

    def at(self, study: PlannedStudy, names: Sequence[str]) -> dict[str, Foreseen]:
        """See `Forecast`: errors of the map, and half-widths on held-out rows."""
        fit, judging = self.task.histograms(study.setting)
        found: dict[str, Foreseen] = {}
        if any(name in MAP_TARGETS for name in names):
            found |= self._map(study, fit)
        judged = tuple(name.removeprefix(_HELD_OUT) for name in names if name.startswith(_HELD_OUT))
        if judged:
            scores = study.of_scores(self.name)
            metrics = predict(
                judging,
                rows=scores.rows * study.holdout,
                prevalence=scores.expectation.prevalence,
                auc=scores.expectation.auc,
                noise=study.setting.noise(Sum(of=judging, part=Part.HELD_OUT)),
                buckets=self.task.buckets,
                level=self.task.level,
                metrics=judged,
            )
            found |= {f"{_HELD_OUT}{name}": Foreseen.of(metric) for name, metric in metrics.items()}
        return {name: found[name] for name in names}

    def _map(self, study: PlannedStudy, histogram: ScoreHistogram) -> dict[str, Foreseen]:
        tried = [self._error(study, histogram, method) for method in self._methods]
        errors = [one for one in tried if isinstance(one, MapError)]
        if not errors:
            nothing = Foreseen(width=math.inf, reason=str(tried[0]))
            return dict.fromkeys(MAP_TARGETS, nothing)
        best = min(errors, key=lambda one: one.brier_excess)
        return {
            "expected_calibration_error": Foreseen(width=best.calibration_error),
            "brier_excess": Foreseen(width=best.brier_excess),
        }

    @property
    def _methods(self) -> tuple[str, ...]:
        if self.task.method == AUTO:
            return tuple(PREDICTED)
        return ("platt",) if self.task.method in ("platt", "beta") else ("histogram",)

    def _error(self, study: PlannedStudy, histogram: ScoreHistogram, method: str) -> MapError | str:
        scores = study.of_scores(self.name)
        try:
            return predict_map(
                histogram,
                method=method,
                rows=scores.rows * study.fit_part,
                prevalence=scores.expectation.prevalence,
                auc=scores.expectation.auc,
                noise=study.setting.noise(Sum(of=histogram, part=Part.FIT)),
                buckets=self.task.bins if method == "histogram" else None,
            )
        except Undefined as problem:
            return str(problem)


@dataclass(frozen=True, kw_only=True)
class GroupTestForecast(Forecast[HosmerLemeshow]):
    """The gap between observed and expected positives that can be told from none, in a typical group.

    Half its 95 % interval, as a share of the group's rows; a test of all groups together sees smaller ones. For the
    method ``free``; the others are taken to be as good.
    """

    targets: ClassVar[Mapping[str, float | None]] = MappingProxyType({"gap": 0.05})
    main: ClassVar[tuple[str, ...]] = ("gap",)
    varies: ClassVar[bool] = True

    def at(self, study: PlannedStudy, names: Sequence[str]) -> dict[str, Foreseen]:
        """See `Forecast`."""
        scores, task = study.of_scores(self.name), self.task
        evaluate = Evaluate(height=task.height, transform=task.transform, level=task.level)
        histogram, noise = asked(evaluate, scores.setting)
        evidence = expected_evidence(
            histogram,
            rows=scores.rows,
            prevalence=scores.expectation.prevalence,
            auc=scores.expectation.auc,
            noise=noise,
        )
        try:
            evidence.require_rows()
        except Undefined as problem:
            return {"gap": Foreseen(width=math.inf, reason=str(problem))}
        table = Buckets(evidence=evidence, edges=tuple(equi_depth_edges(evidence, task.groups)))
        parts = (table.share_sampling_covariance, table.share_noise_covariance)
        sampling, privacy = (math.sqrt(float(np.median(np.diag(one)))) * task.groups for one in parts)
        return {
            "gap": Foreseen(
                width=z_value(task.level) * math.hypot(sampling, privacy), sampling=sampling, privacy=privacy
            )
        }

    def notes(self, study: PlannedStudy) -> tuple[str, ...]:
        """See `Forecast`."""
        if self.task.method == "free" or not study.trust.private:
            return ()
        return (f"{self.name}: predicted as with the method free, not {self.task.method}.",)
