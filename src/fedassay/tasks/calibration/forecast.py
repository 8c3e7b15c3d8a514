"""Forecast of a calibration of scores: how far the map will be from the truth, and what held-out rows will show."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

from fedassay.estimation.metric import Undefined
from fedassay.protocol.metrics import METRICS
from fedassay.protocol.vocabulary import Noise, Part, Sum
from fedassay.summaries.score_histogram import ScoreHistogram
from fedassay.tasks.calibration.accuracy import PREDICTED, MapError, best_buckets, predict_map
from fedassay.tasks.calibration.calibrate import Calibrate
from fedassay.tasks.calibration.methods import AUTO
from fedassay.tasks.evaluation.accuracy import predict
from fedassay.tasks.evaluation.forecast import advice, published_line, published_table, resolution_to_json
from fedassay.tasks.expectation import PlannedStudy
from fedassay.tasks.forecast import Details, DetailTable, Forecast, Prediction

MAP_TARGETS: Mapping[str, float] = MappingProxyType(
    {"expected_calibration_error": 0.02, "brier_excess": 0.002}
)
"""Errors of a fitted map that most uses could live with."""

HELD_OUT_TARGETS: Mapping[str, float | None] = MappingProxyType(
    {
        "roc_auc": None,
        "brier_score": METRICS["brier_score"].target,
        "log_loss": METRICS["log_loss"].target,
        "expected_calibration_error": None,
        "calibration_slope": None,
    }
)
"""Half-widths on held-out rows: a map is recommended if they see that it helps, so that the losses have targets."""

_HELD_OUT = "held_out_"


@dataclass(frozen=True, kw_only=True)
class CalibrationForecast(Forecast[Calibrate]):
    """Errors of the map, and half-widths on held-out rows.

    Sigmoids are predicted as Platt scaling, all that bins as histogram binning, and ``auto`` as the better of the two.
    """

    targets: ClassVar[Mapping[str, float | None]] = MappingProxyType(
        {**MAP_TARGETS, **{f"{_HELD_OUT}{name}": target for name, target in HELD_OUT_TARGETS.items()}}
    )
    main: ClassVar[tuple[str, ...]] = ("expected_calibration_error", "held_out_brier_score")
    expects: ClassVar[tuple[str, ...]] = ("prevalence", "auc")
    varies: ClassVar[bool] = True
    meanings: ClassVar[Mapping[str, str]] = {
        "brier_excess": "by how much the Brier score of calibrated probabilities will exceed the best possible"
    }
    assumption: ClassVar[str] = "Scores are taken to be calibrated."

    def at(self, study: PlannedStudy, names: Sequence[str]) -> dict[str, Prediction]:
        """See `Forecast`."""
        fit, judging = self.task.histograms(study.setting)
        found: dict[str, Prediction] = {}
        if any(name in MAP_TARGETS for name in names):
            found |= self._map(study, fit)
        judged = tuple(name.removeprefix(_HELD_OUT) for name in names if name.startswith(_HELD_OUT))
        if judged:
            metrics = predict(
                judging,
                rows=study.rows * study.holdout,
                **study.expectation.known(self.name, "prevalence", "auc"),
                noise=study.setting.noise(Sum(of=judging, part=Part.HELD_OUT)),
                buckets=self.task.buckets,
                level=self.task.level,
                metrics=judged,
            )
            found |= {f"{_HELD_OUT}{name}": Prediction.of(metric) for name, metric in metrics.items()}
        return {name: found[name] for name in names}

    def _map(self, study: PlannedStudy, histogram: ScoreHistogram) -> dict[str, Prediction]:
        tried = [self._error(study, histogram, method) for method in self._methods]
        errors = [one for one in tried if isinstance(one, MapError)]
        if not errors:
            return dict.fromkeys(MAP_TARGETS, Prediction(width=math.inf, reason=str(tried[0])))
        best = min(errors, key=lambda one: one.brier_excess)
        return {name: Prediction(width=width) for name, width in _widths(best).items()}

    @property
    def _methods(self) -> tuple[str, ...]:
        if self.task.method == AUTO:
            return tuple(PREDICTED)
        return ("platt",) if self.task.method in ("platt", "beta") else ("histogram",)

    def _fit(self, study: PlannedStudy, histogram: ScoreHistogram) -> dict[str, Any]:
        """Rows, scores and noise that a map is fitted to."""
        known = study.expectation.known(self.name, "prevalence", "auc")
        return {**known, "rows": study.rows * study.fit_part, "noise": self._noise(study, histogram)}

    def _noise(self, study: PlannedStudy, histogram: ScoreHistogram) -> Noise:
        return study.setting.noise(Sum(of=histogram, part=Part.FIT))

    def _error(self, study: PlannedStudy, histogram: ScoreHistogram, method: str) -> MapError | str:
        """The error of the map of a method, or the reason why there will be none."""
        bins = self.task.bins if method == "histogram" else None
        try:
            return predict_map(histogram, method=method, buckets=bins, **self._fit(study, histogram))
        except Undefined as problem:
            return str(problem)

    def details(self, study: PlannedStudy, given: Mapping[str, float]) -> Details:
        """See `Forecast`: both methods beside each other, the number of buckets, and the published rate."""
        histogram, _ = self.task.histograms(study.setting)
        errors = {method: self._error(study, histogram, method) for method in PREDICTED}
        try:
            buckets = best_buckets(histogram, **self._fit(study, histogram))
        except Undefined:
            buckets = None
        binned = errors["histogram"]
        predicted = math.sqrt(binned.brier_excess) if isinstance(binned, MapError) else None
        name = "root of brier_excess of histogram"
        line = published_line("calibration", study, self._noise(study, histogram), predicted, name)
        used = resolution_to_json(histogram)
        return Details(
            facts={"used": used, "recommended": {**used, "buckets": buckets}},
            tables={"methods": _table(errors), "published": published_table([line])},
            remarks=(advice(histogram, histogram, buckets),),
        )


def _table(errors: Mapping[str, MapError | str]) -> DetailTable:
    """The error of the map of each method, and what it is made of."""
    rows: list[dict[str, Any]] = []
    for method, error in errors.items():
        if isinstance(error, str):
            rows.append({"method": method, "reason": error})
            continue
        parts = {name: getattr(error, name) for name in ("sampling", "privacy", "binning")}
        name = method if error.buckets is None else f"{method} ({error.buckets})"
        rows.append({"method": name, **_widths(error), **parts})
    headings = {"expected_calibration_error": "ECE", "brier_excess": "excess"}
    own = {name: name for name in ("sampling", "privacy", "binning")}
    return DetailTable(
        title="Errors of the map: calibration error, and what the Brier excess is made of",
        columns={"method": "method", **headings, **own},
        rows=rows,
    )


def _widths(error: MapError) -> dict[str, float]:
    return {"expected_calibration_error": error.calibration_error, "brier_excess": error.brier_excess}
