"""Forecasts of evaluations: every metric's error, the resolution to use, and the published rates."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, ClassVar

from fedassay.errors import FedassayError
from fedassay.estimation.intervals import z_value
from fedassay.estimation.metric import Metric, Undefined
from fedassay.protocol.metrics import CLASS_METRICS, METRICS, planned
from fedassay.protocol.vocabulary import Noise, Query, Setting, Sum
from fedassay.summaries.grouped_histogram import GroupedHistogram
from fedassay.summaries.score_histogram import ScoreHistogram
from fedassay.tasks.calibration.binning import finest_number
from fedassay.tasks.evaluation.accuracy import (
    PlannedQuantity,
    Privacy,
    balancing_buckets,
    expected_evidence,
    predict,
    published_rate,
)
from fedassay.tasks.evaluation.evaluate import Evaluate, added
from fedassay.tasks.evaluation.multiclass import EvaluateMulticlass
from fedassay.tasks.evaluation.typical_model import TypicalModel, held_out_release
from fedassay.tasks.expectation import PlannedStudy
from fedassay.tasks.forecast import Details, DetailTable, Forecast, Prediction, half_width

LOWEST_HEIGHT, HIGHEST_NOISY, HIGHEST_EXACT = 4, 13, 18
"""Heights that are compared, under noise (where choosing the levels of many bins takes long) and without."""

_WORTH_CHANGING = 1.05
"""Factor by which a better height makes intervals shorter, to be recommended."""

_MOST_BUCKETS = 200

_PUBLISHED: Mapping[PlannedQuantity, str] = {
    "roc_auc": "roc_auc",
    "decision": "accuracy",
    "calibration": "expected_calibration_error",
}


@dataclass(frozen=True, kw_only=True)
class Resolution:
    """Histogram, and the relative width of the intervals that matter.

    Parameters
    ----------
    score : the half-width as a part of its target, the largest of the metrics that matter.
    beside_binning : score without the bound on the binning error: the best that more bins could reach.
    """

    histogram: ScoreHistogram
    score: float
    beside_binning: float


def resolution_to_json(histogram: ScoreHistogram) -> dict[str, Any]:
    """Return the height, levels and multipliers of a histogram, as plain values."""
    return {
        "height": histogram.height,
        "bins": 1 << histogram.height,
        "widths": list(histogram.widths),
        "multipliers": list(histogram.multipliers),
    }


def advice(used: ScoreHistogram, better: ScoreHistogram, buckets: int | None) -> str:
    """Return the sentence that recommends a resolution."""
    said = "too few rows for buckets" if buckets is None else f"{buckets} buckets"
    instead = "" if better.height == used.height else f" instead of {used.height}"
    widths, multipliers = (", ".join(map(str, one)) for one in (better.widths, better.multipliers))
    return (
        f"Recommended: height {better.height}{instead} ({1 << better.height:,} bins), levels of width {widths} "
        f"(multiplied by {multipliers}), {said} for calibration."
    )


def released_histogram(task: Evaluate, setting: Setting) -> tuple[ScoreHistogram, Noise]:
    """Return the histogram of all rows that an evaluation gets, and its noise, whatever else it asks for."""
    step = next(task.steps(setting))
    query: Any = step[0] if isinstance(step, tuple) else step
    of, noise = query.of, setting.noise(query)
    if isinstance(of, GroupedHistogram):  # all rows are the sum of the groups and of those outside
        noise = added(noise, times=len(of.groups) + 1)
    return of if isinstance(of, ScoreHistogram) else of.histogram, noise


@dataclass(frozen=True, kw_only=True)
class EvaluationForecast(Forecast[Evaluate]):
    """Half-widths of the intervals, over all rows, of every metric that has an interval."""

    targets: ClassVar[Mapping[str, float | None]] = MappingProxyType(planned())
    main: ClassVar[tuple[str, ...]] = ("roc_auc", "expected_calibration_error", "brier_score")
    expects: ClassVar[tuple[str, ...]] = ("prevalence", "auc")
    varies: ClassVar[bool] = True
    assumption: ClassVar[str] = "Scores are taken to be calibrated."

    def at(self, study: PlannedStudy, names: Sequence[str]) -> dict[str, Prediction]:
        """See `Forecast`."""
        metrics = self._metrics(study, *released_histogram(self.task, study.setting), names)
        return {name: Prediction.of(metric) for name, metric in metrics.items()}

    def _metrics(
        self, study: PlannedStudy, histogram: ScoreHistogram, noise: Noise, names: Sequence[str]
    ) -> dict[str, Metric]:
        return predict(
            histogram,
            rows=study.rows,
            **study.expectation.known(self.name, "prevalence", "auc"),
            noise=noise,
            threshold=self.task.thresholds[0],
            buckets=self.task.buckets,
            level=self.task.level,
            metrics=tuple(names),
        )

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

    # --- the resolution -----------------------------------------------------------------------------------------

    def details(self, study: PlannedStudy, given: Mapping[str, float]) -> Details:
        """See `Forecast`: the resolution, and Table 1 of Cormode and Markov next to ours."""
        histogram, noise = released_histogram(self.task, study.setting)
        judged = [name for name, target in self.targets.items() if target is not None]
        metrics = self._metrics(study, histogram, noise, judged)
        wanted = given or {"roc_auc": METRICS["roc_auc"].target or 1.0}
        used = self._scored(study, self.task, wanted)
        better = self._better(study, used, wanted)
        buckets = self._buckets(study, better.histogram)
        lines = [
            published_line(
                quantity, study, noise, _error(metrics[name], quantity), METRICS[name].label, histogram
            )
            for quantity, name in _PUBLISHED.items()
        ]
        return Details(
            facts={
                "noise": {"law": noise.law, "standard_deviation": math.sqrt(noise.variance)},
                "used": resolution_to_json(histogram),
                "recommended": {**resolution_to_json(better.histogram), "buckets": buckets},
            },
            tables={"published": published_table(lines)},
            remarks=(advice(histogram, better.histogram, buckets),),
            warnings=self._warnings(metrics, used, better),
        )

    def _scored(self, study: PlannedStudy, task: Evaluate, targets: Mapping[str, float]) -> Resolution:
        """Return the resolution that the task would choose, judged by these targets."""
        histogram = task.histogram(study.setting)
        metrics = self._metrics(study, histogram, study.setting.noise(Sum(of=histogram)), tuple(targets))
        widths = {name: half_width(metric.interval) for name, metric in metrics.items()}
        rest = {name: widths[name] - (metric.discretisation or 0.0) for name, metric in metrics.items()}
        return Resolution(
            histogram=histogram,
            score=max(widths[name] / target for name, target in targets.items()),
            beside_binning=max(rest[name] / target for name, target in targets.items()),
        )

    def _better(self, study: PlannedStudy, used: Resolution, targets: Mapping[str, float]) -> Resolution:
        """Find the height with the shortest intervals, if it is clearly better than the height in use.

        More bins cost noise and take off binning error, so they are tried for as long as that could help. Fewer
        bins are tried if there is noise.
        """
        best, height, noisy = used, used.histogram.height, study.trust.private
        lower = range(LOWEST_HEIGHT, height) if noisy else ()
        for other in (*lower, *range(height + 1, 1 + (HIGHEST_NOISY if noisy else HIGHEST_EXACT))):
            if other > height and best.score < _WORTH_CHANGING * best.beside_binning:
                break
            try:
                found = self._scored(study, replace(self.task, height=other), targets)
            except FedassayError:  # too few bins for the thresholds, too many for the trust model
                found = None
            if found is not None and found.score < best.score:
                best = found
            elif other > height + 1:
                break
        return best if best.score * _WORTH_CHANGING < used.score else used

    def _buckets(self, study: PlannedStudy, histogram: ScoreHistogram) -> int:
        """Return M^{1/3} buckets (Theorem 7), or the number that the noise allows."""
        evidence = expected_evidence(
            histogram,
            rows=study.rows,
            **study.expectation.known(self.name, "prevalence", "auc"),
            noise=study.setting.noise(Sum(of=histogram)),
        )
        most = min(_MOST_BUCKETS, max(1, round(study.rows ** (1 / 3))))
        try:
            return finest_number(evidence, most)
        except Undefined:
            return 1

    def _warnings(
        self, metrics: Mapping[str, Metric], used: Resolution, better: Resolution
    ) -> tuple[str, ...]:
        found = []
        height, other = used.histogram.height, better.histogram.height
        crowded = [name for name, one in metrics.items() if _binning_dominates(one, self.task.level)]
        if crowded:
            found.append(
                f"Binning dominates the error of {', '.join(crowded)}: 2^{height} bins are too few for these rows."
            )
        if other != height:
            gain = "possible" if used.score == math.inf else f"{used.score / better.score:.2g} times shorter"
            found.append(f"--height {other} instead of {height} makes intervals {gain}.")
        return tuple(found)


def _binning_dominates(metric: Metric, level: float) -> bool:
    """Return whether the bound on the binning error exceeds the interval's part of sampling and noise."""
    other = z_value(level) * math.hypot(metric.sampling or 0.0, metric.privacy or 0.0)
    return metric.value is not None and (metric.discretisation or 0.0) > other


# --- published rates --------------------------------------------------------------------------------------------


def model_of(noise: Noise, clients: int) -> Privacy:
    """Name the model, of the paper's three, that has this kind of noise.

    Examples
    --------
    >>> model_of(Noise(law="discrete-laplace", scale=1.0, variance=184.0, copies=100.0), 100)
    'local'
    """
    if noise.variance == 0:
        return "federated"
    return "local" if noise.reporting or noise.copies >= clients > 1 else "distributed"


def published_line(
    quantity: PlannedQuantity,
    study: PlannedStudy,
    noise: Noise,
    predicted: float | None,
    name: str,
    histogram: ScoreHistogram | None = None,
) -> dict[str, Any]:
    """Return the rate of a quantity in Table 1, the paper's number of buckets, and the predicted error.

    Rates have no constants and assume balanced classes.
    """
    model = model_of(noise, study.expectation.clients)
    terms = {"rows": study.rows, "epsilon": 1.0 if study.budget is None else study.budget.epsilon}
    bins = {} if histogram is None else {"buckets": 1 << histogram.height, "height": histogram.height}
    return {
        "quantity": quantity,
        "model": model,
        "rate": published_rate(quantity, model, **terms, **bins),
        "predicted": predicted,
        "metric": name,
        "balancing_buckets": balancing_buckets(quantity, model, **terms),
    }


def published_table(lines: Sequence[Mapping[str, Any]]) -> DetailTable:
    """Build the table of published rates and predicted errors."""
    headings = ("quantity", "model", "rate", "ours", "of", "buckets to balance")
    return DetailTable(
        title="Against the published rates (orders of magnitude, without constants)",
        columns=dict(zip(lines[0], headings, strict=True)),
        rows=lines,
        digits={"balancing_buckets": ",.0f"},
    )


def _error(metric: Metric, quantity: PlannedQuantity) -> float | None:
    """Return the error against exact counts of the same rows.

    That of the calibration error includes sampling, as in the paper.
    """
    if metric.value is None:
        return None
    sampling = metric.sampling or 0.0 if quantity == "calibration" else 0.0
    return math.hypot(metric.privacy or 0.0, sampling) + (metric.discretisation or 0.0)


# --- several classes --------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ClassEvaluationForecast(Forecast[EvaluateMulticlass]):
    """Half-widths of the intervals of the metrics of a model with several classes."""

    targets: ClassVar[Mapping[str, float | None]] = MappingProxyType(
        {record.name: record.target for record in CLASS_METRICS.values()}
    )
    main: ClassVar[tuple[str, ...]] = ("accuracy", "expected_calibration_error", "brier_score")
    expects: ClassVar[tuple[str, ...]] = ("classes", "accuracy", "temperature")

    def at(self, study: PlannedStudy, names: Sequence[str]) -> dict[str, Prediction]:
        """See `Forecast`."""
        setting, model = study.setting, TypicalModel.of(study.expectation, self.name, self.task.classes)
        task = replace(self.task, classes=model.classes)
        step = next(task.steps(setting))
        queries: tuple[Query[Any], ...] = step if isinstance(step, tuple) else (step,)
        released = [held_out_release(model, query, study.rows, setting) for query in queries]
        results = task.results(released[0], released[1] if len(released) > 1 else None)
        return {name: Prediction.of_result(results[name]) for name in names}
