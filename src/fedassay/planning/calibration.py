"""The plan of a calibration: how far the fitted map will be from the truth, and what would be enough."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from fedassay.errors import UsageError
from fedassay.estimation.metric import Metric, Undefined
from fedassay.planning.evaluation import unused_rows
from fedassay.planning.expectation import Study
from fedassay.planning.inverse import Inverse, fewest_rows, smallest_epsilon
from fedassay.planning.published import model_of
from fedassay.planning.verdict import Verdict, checked_targets, half_width, in_words, judged
from fedassay.protocol import NO_NOISE, Noise, Part, Sum
from fedassay.summaries.score_histogram import ScoreHistogram
from fedassay.tasks.calibration.accuracy import PREDICTED, MapError, best_buckets, predict_map
from fedassay.tasks.calibration.calibrate import Calibrate
from fedassay.tasks.evaluation.accuracy import balancing_buckets, predict, published_rate
from fedassay.tasks.shared_parameters import HOLDOUT

MAP_TARGETS: Mapping[str, float] = MappingProxyType(
    {"expected_calibration_error": 0.02, "brier_excess": 0.002}
)
"""What a fitted map may be wrong by, where nothing else is asked for."""

_JUDGED = ("roc_auc", "brier_score", "log_loss", "expected_calibration_error", "calibration_slope")


@dataclass(frozen=True, kw_only=True)
class PredictedMap:
    """One method: the error of its map, or the reason why there will be none."""

    error: MapError | None
    reason: str | None
    targets: Mapping[str, float]
    varied: tuple[MapError | None, ...]

    @property
    def verdicts(self) -> dict[str, Verdict]:
        """For each target, whether the map will be near enough to the truth."""
        return {
            name: judged(target, [_width(error, name) for error in (self.error, *self.varied)])
            for name, target in self.targets.items()
        }

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        verdicts = {name: str(verdict) for name, verdict in self.verdicts.items()}
        shown: dict[str, Any] = {"targets": dict(self.targets), "verdicts": verdicts}
        if self.error is None:
            return {"expected_calibration_error": None, "brier_excess": None, "reason": self.reason, **shown}
        return {
            "expected_calibration_error": self.error.calibration_error,
            "brier_excess": self.error.brier_excess,
            "error": {
                "sampling": self.error.sampling,
                "privacy": self.error.privacy,
                "discretisation": self.error.binning,
            },
            "buckets": self.error.buckets,
            **shown,
        }


@dataclass(frozen=True, kw_only=True)
class CalibrationPlan:
    """What to expect of a calibration.

    Parameters
    ----------
    maps : the methods that can be predicted.
    held_out : the metrics with which held-out rows will judge the map: half-widths to expect.
    buckets : of histogram binning, with the least error; None if there are not enough rows.
    """

    study: Study
    task: Calibrate
    holdout: float
    histogram: ScoreHistogram
    noise: Noise
    maps: Mapping[str, PredictedMap]
    held_out: Mapping[str, Metric]
    buckets: int | None
    inverse: tuple[Inverse, ...]
    published: Mapping[str, Any]
    warnings: tuple[str, ...]

    @property
    def verdict(self) -> str:
        """One line."""
        return in_words(
            {
                f"{name} of {method}": verdict
                for method, one in self.maps.items()
                for name, verdict in one.verdicts.items()
            }
        )

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain JSON."""
        used = {
            "height": self.histogram.height,
            "bins": 1 << self.histogram.height,
            "widths": list(self.histogram.widths),
            "multipliers": list(self.histogram.multipliers),
        }
        return {
            "plan": "calibrate",
            "assumptions": {**self.study.to_dict(), "holdout": self.holdout},
            "parameters": {"level": self.task.level},
            "noise": {"law": self.noise.law, "standard_deviation": math.sqrt(self.noise.variance)},
            "verdict": self.verdict,
            "methods": {name: one.to_dict() for name, one in self.maps.items()},
            "held_out": {name: _judging(metric) for name, metric in self.held_out.items()},
            "used": used,
            "recommended": {**used, "buckets": self.buckets},
            "inverse": [one.to_dict() for one in self.inverse],
            "published": {"calibration": dict(self.published)},
            "warnings": list(self.warnings),
        }


def plan_calibration(
    study: Study,
    *,
    task: Calibrate | None = None,
    holdout: float = HOLDOUT,
    targets: Mapping[str, float] | None = None,
) -> CalibrationPlan:
    """Predict a calibration from what is public and assumed; no data.

    Parameters
    ----------
    study : what is expected of the data, and the terms.
    task : the calibration, with its height and level; all methods that can be predicted are.
    holdout : the share of the rows that judge the map instead of fitting it.
    targets : what the map may be wrong by: `expected_calibration_error` (that of the map itself) and
        `brier_excess` (by which the Brier score of new rows exceeds the best possible).

    Examples
    --------
    >>> from fedassay.planning.expectation import Expectation
    >>> from fedassay.trust import Plain
    >>> expected = Expectation(rows=20_000, clients=10, prevalence=0.2, auc=0.8)
    >>> plan = plan_calibration(Study(expectation=expected, trust=Plain()))
    >>> f"{plan.maps['platt'].error.calibration_error:.4f}", plan.buckets
    ('0.0032', 34)
    """
    task = Calibrate() if task is None else task
    if not 0 < holdout < 1:
        raise UsageError(f"holdout: got {holdout:g}, expected a share between 0 and 1.")
    given = checked_targets(targets or {}, MAP_TARGETS)
    fit, judging = task.histograms(study.setting)
    plan = _Planned(task=task, holdout=holdout)
    maps = {method: plan.predicted_map(study, method, {**MAP_TARGETS, **given}) for method in PREDICTED}
    noise = study.setting.noise(Sum(of=fit, part=Part.FIT))
    wanted = given or {"expected_calibration_error": MAP_TARGETS["expected_calibration_error"]}
    return CalibrationPlan(
        study=study,
        task=task,
        holdout=holdout,
        histogram=fit,
        noise=noise,
        maps=maps,
        held_out=predict(
            judging,
            rows=study.rows * holdout,
            prevalence=study.expectation.prevalence,
            auc=study.expectation.auc,
            noise=study.setting.noise(Sum(of=judging, part=Part.HELD_OUT)),
            buckets=task.buckets,
            level=task.level,
            metrics=_JUDGED,
        ),
        buckets=plan.buckets(study),
        inverse=tuple(
            plan.inverse(study, method, name, target)
            for method in PREDICTED
            for name, target in wanted.items()
        ),
        published=_published(study, noise, maps["histogram"]),
        warnings=unused_rows(study),
    )


@dataclass(frozen=True, kw_only=True)
class _Planned:
    """The error of a study's map, for any study."""

    task: Calibrate
    holdout: float

    def _predicted(self, study: Study, method: str, *, noise: Noise | None = None) -> MapError:
        histogram, _ = self.task.histograms(study.setting)
        return predict_map(
            histogram,
            method=method,
            rows=study.rows * (1 - self.holdout),
            prevalence=study.expectation.prevalence,
            auc=study.expectation.auc,
            noise=self._noise(study, histogram) if noise is None else noise,
            buckets=self.task.bins if method == "histogram" else None,
        )

    def _noise(self, study: Study, histogram: ScoreHistogram) -> Noise:
        return study.setting.noise(Sum(of=histogram, part=Part.FIT))

    def tried(self, study: Study, method: str) -> tuple[MapError | None, str | None]:
        """The error, or the reason why there will be no map."""
        try:
            return self._predicted(study, method), None
        except Undefined as problem:
            return None, str(problem)

    def predicted_map(self, study: Study, method: str, targets: Mapping[str, float]) -> PredictedMap:
        error, reason = self.tried(study, method)
        others = (study.with_expectation(other) for other in study.expectation.varied())
        return PredictedMap(
            error=error,
            reason=reason,
            targets=targets,
            varied=tuple(self.tried(other, method)[0] for other in others),
        )

    def buckets(self, study: Study) -> int | None:
        histogram, _ = self.task.histograms(study.setting)
        try:
            return best_buckets(
                histogram,
                rows=study.rows * (1 - self.holdout),
                prevalence=study.expectation.prevalence,
                auc=study.expectation.auc,
                noise=self._noise(study, histogram),
            )
        except Undefined:
            return None

    def inverse(self, study: Study, method: str, name: str, target: float) -> Inverse:
        def width(other: Study) -> float:
            return _width(self.tried(other, method)[0], name)

        def beside_noise(other: Study) -> str:
            try:
                rest = _width(self._predicted(other, method, noise=NO_NOISE), name)
            except Undefined as problem:
                return str(problem)
            return f"without noise it is {rest:.2g}"

        return Inverse(
            metric=f"{name} of {method}",
            target=target,
            epsilon=smallest_epsilon(study, width, target, beside_noise),
            rows=fewest_rows(study, width, target),
        )


def _width(error: MapError | None, name: str) -> float:
    if error is None:
        return math.inf
    return error.calibration_error if name == "expected_calibration_error" else error.brier_excess


def _judging(metric: Metric) -> dict[str, Any]:
    width = half_width(metric)
    return {**metric.to_json(), "half_width": width if math.isfinite(width) else None}


def _published(study: Study, noise: Noise, binned: PredictedMap) -> dict[str, Any]:
    """The rate of Table 1 for calibration, which is a root mean squared error, beside that of binning."""
    model = model_of(noise, study.expectation.clients)
    epsilon = study.budget.epsilon if study.budget is not None else 1.0
    return {
        "model": model,
        "rate": published_rate("calibration", model, rows=study.rows, epsilon=epsilon),
        "balancing_buckets": balancing_buckets("calibration", model, rows=study.rows, epsilon=epsilon),
        "metric": "root of brier_excess of histogram",
        "predicted": None if binned.error is None else math.sqrt(binned.error.brier_excess),
    }
