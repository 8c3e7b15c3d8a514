"""Predictions of the tasks of models with several classes: a typical model is measured, and its totals are scaled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, ClassVar

from fedassay.metrics import CLASS_METRICS
from fedassay.planning.class_judgement import half_width, judgement
from fedassay.planning.multiclass import CLASS_TARGETS
from fedassay.planning.rehearsed_classes import queries_of, temperature_error
from fedassay.planning.study_expectation import PlannedStudy
from fedassay.planning.study_forecast import Forecast, Foreseen
from fedassay.planning.typical_classes import held_out_total
from fedassay.protocol import Query, Released
from fedassay.tasks.calibration.multiclass.calibrate import CalibrateMulticlass
from fedassay.tasks.evaluation.multiclass import EvaluateMulticlass

_DRAWS = 100
"""Of the noise in a temperature: shares are searched for, which asks often."""


@dataclass(frozen=True, kw_only=True)
class ClassEvaluationForecast(Forecast[EvaluateMulticlass]):
    """Half the intervals of the metrics of a model with several classes."""

    targets: ClassVar[Mapping[str, float | None]] = MappingProxyType(
        {record.name: record.target for record in CLASS_METRICS.values()}
    )
    main: ClassVar[tuple[str, ...]] = ("accuracy", "expected_calibration_error", "brier_score")

    def at(self, study: PlannedStudy, names: Sequence[str]) -> dict[str, Foreseen]:
        """See `Forecast`."""
        of = study.of_logits(self.name, self.task.classes)
        task = replace(self.task, classes=of.expectation.classes)
        setting, model = of.setting, of.expectation.model
        queries: tuple[Query[Any], ...] = queries_of(next(task.steps(setting)))
        released = [
            Released(
                value=query.of.read(held_out_total(model, query.of, of.rows)),
                noise=setting.noise(query),
                clients=setting.clients,
            )
            for query in queries
        ]
        results = task.results(released[0], released[1] if len(released) > 1 else None)
        return {name: _foreseen(results[name]) for name in names}


def _foreseen(metric: Mapping[str, Any]) -> Foreseen:
    error = metric.get("error") or {}
    return Foreseen(
        width=half_width(metric),
        value=metric["value"],
        sampling=error.get("sampling"),
        privacy=error.get("privacy"),
        reason=metric.get("reason"),
    )


@dataclass(frozen=True, kw_only=True)
class ClassCalibrationForecast(Forecast[CalibrateMulticlass]):
    """The error of a temperature, and the smallest improvement of the log loss that held-out rows will show.

    Other methods than a temperature from one release are judged as if it were one.
    """

    targets: ClassVar[Mapping[str, float | None]] = CLASS_TARGETS
    main: ClassVar[tuple[str, ...]] = ("temperature", "improvement")

    def at(self, study: PlannedStudy, names: Sequence[str]) -> dict[str, Foreseen]:
        """See `Forecast`."""
        of = study.of_logits(self.name, self.task.classes)
        found: dict[str, Foreseen] = {}
        if "temperature" in names:
            error = temperature_error(of, draws=_DRAWS)
            found["temperature"] = Foreseen(width=error.total, sampling=error.sampling, privacy=error.privacy)
        if "improvement" in names:
            found["improvement"] = Foreseen(width=judgement(of, level=self.task.level).visible)
        return {name: found[name] for name in names}
