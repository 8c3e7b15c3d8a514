"""The plan of an evaluation: every metric's error, the resolution to use, and whether the data are enough."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from fedassay.errors import FedassayError
from fedassay.planning.expectation import Study
from fedassay.planning.inverse import Answer, fewest_rows, smallest_epsilon
from fedassay.planning.published import beside_published
from fedassay.planning.verdict import TARGETS, Predicted, checked_targets, half_width, in_words
from fedassay.protocol import Noise
from fedassay.summaries.score_histogram import ScoreHistogram
from fedassay.tasks.calibration.binning import finest_number
from fedassay.tasks.evaluation.accuracy import METRICS, expected_evidence, predict
from fedassay.tasks.evaluation.evaluate import Evaluate
from fedassay.tasks.evaluation.intervals import z_value
from fedassay.tasks.evaluation.metric import Metric, Undefined

LOWEST_HEIGHT, HIGHEST_NOISY, HIGHEST_EXACT = 4, 13, 18
"""The heights that are compared, under noise (where choosing the levels of many bins takes long) and without."""

_WORTH_CHANGING = 1.05
"""A better height is recommended if it makes intervals shorter by this factor."""

_MOST_BUCKETS = 200


@dataclass(frozen=True, kw_only=True)
class Resolution:
    """A histogram and how short it makes the intervals that matter.

    Parameters
    ----------
    score : the half-width as a part of its target, the largest of the metrics that matter.
    beside_binning : the same without the bound on the binning error: what more bins could at most reach.
    """

    histogram: ScoreHistogram
    score: float
    beside_binning: float

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "height": self.histogram.height,
            "bins": 1 << self.histogram.height,
            "widths": list(self.histogram.widths),
            "multipliers": list(self.histogram.multipliers),
        }


@dataclass(frozen=True, kw_only=True)
class Inverse:
    """What would be enough for one metric."""

    metric: str
    target: float
    epsilon: Answer
    rows: Answer

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "metric": self.metric,
            "target": self.target,
            "epsilon": self.epsilon.to_dict(),
            "rows": self.rows.to_dict(),
        }


@dataclass(frozen=True, kw_only=True)
class EvaluationPlan:
    """What to expect of an evaluation.

    Parameters
    ----------
    used : the resolution that an evaluation with these options would have.
    recommended : the best one; equal to `used` unless it is clearly better.
    predicted : by metric.
    inverse : what would be enough, for the metrics with a target.
    published : Table 1 beside ours.
    buckets : how many buckets a calibration curve, or a calibrator, can have.
    warnings : what should be changed.
    """

    study: Study
    task: Evaluate
    noise: Noise
    used: Resolution
    recommended: Resolution
    buckets: int
    predicted: Mapping[str, Predicted]
    inverse: tuple[Inverse, ...]
    published: Mapping[str, Mapping[str, Any]]
    warnings: tuple[str, ...]

    @property
    def verdict(self) -> str:
        """One line."""
        return in_words(self.predicted)

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain JSON."""
        return {
            "plan": "evaluate",
            "assumptions": self.study.to_dict(),
            "parameters": {"threshold": self.task.thresholds[0], "level": self.task.level},
            "noise": {"law": self.noise.law, "standard_deviation": math.sqrt(self.noise.variance)},
            "verdict": self.verdict,
            "metrics": {name: one.to_dict() for name, one in self.predicted.items()},
            "used": self.used.to_dict(),
            "recommended": {**self.recommended.to_dict(), "buckets": self.buckets},
            "inverse": [one.to_dict() for one in self.inverse],
            "published": {name: dict(line) for name, line in self.published.items()},
            "warnings": list(self.warnings),
        }


def plan_evaluation(
    study: Study, *, task: Evaluate | None = None, targets: Mapping[str, float] | None = None
) -> EvaluationPlan:
    """Predict an evaluation from what is public and assumed; no data.

    Parameters
    ----------
    study : what is expected of the data, and the terms.
    task : the evaluation; thresholds, height, buckets and level as for a real one. Decisions are predicted at
        the first threshold.
    targets : half-widths that are short enough, by metric. Those without one are judged by `TARGETS`. The
        inverse question is answered for the metrics named here (without any, for the AUC), and the resolution
        is recommended for them.

    Examples
    --------
    >>> from fedassay.planning.expectation import Expectation
    >>> from fedassay.trust import ServerDP
    >>> from fedassay.protocol import Budget
    >>> expected = Expectation(rows=20_000, clients=10, prevalence=0.2, auc=0.8)
    >>> study = Study(expectation=expected, trust=ServerDP(), budget=Budget(epsilon=1))
    >>> plan = plan_evaluation(study)
    >>> f"{plan.predicted['roc_auc'].half_width:.4f}", str(plan.predicted["roc_auc"].verdict)
    ('0.0083', 'enough data')
    """
    task = Evaluate() if task is None else task
    given = checked_targets(targets or {})
    wanted = given or {"roc_auc": TARGETS["roc_auc"]}
    histogram = task.histogram(study.setting)
    metrics = _predictions(study, task, histogram)
    varied = [
        _predictions(study.with_expectation(other), task, histogram) for other in study.expectation.varied()
    ]
    predicted = {
        name: Predicted(
            metric=metric,
            target=given.get(name, TARGETS[name]),
            varied=tuple(half_width(other[name]) for other in varied),
        )
        for name, metric in metrics.items()
    }
    used = _resolution(study, task, histogram, wanted)
    recommended = _recommended(study, task, used, wanted)
    noise = study.noise(histogram)
    return EvaluationPlan(
        study=study,
        task=task,
        noise=noise,
        used=used,
        recommended=recommended,
        buckets=_buckets(study, recommended.histogram),
        predicted=predicted,
        inverse=tuple(
            Inverse(
                metric=name,
                target=target,
                epsilon=smallest_epsilon(study, task, name, target),
                rows=fewest_rows(study, task, name, target),
            )
            for name, target in wanted.items()
        ),
        published=beside_published(study, histogram, noise, metrics),
        warnings=_warnings(study, predicted, used, recommended, task),
    )


def _predictions(
    study: Study, task: Evaluate, histogram: ScoreHistogram, names: tuple[str, ...] = METRICS
) -> dict[str, Metric]:
    return predict(
        histogram,
        rows=study.rows,
        prevalence=study.expectation.prevalence,
        auc=study.expectation.auc,
        noise=study.noise(histogram),
        threshold=task.thresholds[0],
        buckets=task.buckets,
        level=task.level,
        metrics=names,
    )


def _resolution(
    study: Study, task: Evaluate, histogram: ScoreHistogram, wanted: Mapping[str, float]
) -> Resolution:
    metrics = _predictions(study, task, histogram, tuple(wanted))
    widths = {name: half_width(metrics[name]) for name in wanted}
    binning = {name: metrics[name].discretisation or 0.0 for name in wanted}
    return Resolution(
        histogram=histogram,
        score=max(widths[name] / target for name, target in wanted.items()),
        beside_binning=max((widths[name] - binning[name]) / target for name, target in wanted.items()),
    )


def _recommended(study: Study, task: Evaluate, used: Resolution, wanted: Mapping[str, float]) -> Resolution:
    """The height with the shortest intervals, if it is clearly better than the one in use.

    More bins cost noise and take off binning error, so they are tried for as long as that could help. Fewer
    bins are tried if there is noise.
    """
    best, height = used, used.histogram.height
    noisy = study.noise(used.histogram).variance > 0
    lower = range(LOWEST_HEIGHT, height) if noisy else ()
    for other in (*lower, *range(height + 1, 1 + (HIGHEST_NOISY if noisy else HIGHEST_EXACT))):
        if other > height and best.score < _WORTH_CHANGING * best.beside_binning:
            break
        found = _at_height(study, task, other, wanted)
        if found is not None and found.score < best.score:
            best = found
        elif other > height + 1:
            break
    return best if best.score * _WORTH_CHANGING < used.score else used


def _at_height(study: Study, task: Evaluate, height: int, wanted: Mapping[str, float]) -> Resolution | None:
    try:
        other = replace(task, height=height)
        return _resolution(study, other, other.histogram(study.setting), wanted)
    except FedassayError:  # too few bins for the thresholds, too many for the trust model
        return None


def _buckets(study: Study, histogram: ScoreHistogram) -> int:
    """M^{1/3} buckets (Theorem 7), or as many as the noise leaves room for."""
    evidence = expected_evidence(
        histogram,
        rows=study.rows,
        prevalence=study.expectation.prevalence,
        auc=study.expectation.auc,
        noise=study.noise(histogram),
    )
    most = min(_MOST_BUCKETS, max(1, round(study.rows ** (1 / 3))))
    try:
        return finest_number(evidence, most)
    except Undefined:
        return 1


def _warnings(
    study: Study,
    predicted: Mapping[str, Predicted],
    used: Resolution,
    recommended: Resolution,
    task: Evaluate,
) -> tuple[str, ...]:
    """What should be changed, in sentences."""
    found = []
    if study.rows < study.expectation.rows:
        found.append(
            f"Only {study.rows:,.0f} of {study.expectation.rows:,.0f} rows will be used: "
            f"{study.protection.rows_per_client:,} of each of {study.expectation.clients:,} clients."
        )
    crowded = [name for name, one in predicted.items() if _binning_dominates(one.metric, task.level)]
    if crowded:
        found.append(
            f"Binning dominates the error of {', '.join(crowded)}: 2^{used.histogram.height} bins are too few for "
            "so many rows."
        )
    better, height = recommended.histogram.height, used.histogram.height
    if better != height:
        gain = f"{used.score / recommended.score:.2g} times shorter" if used.score < math.inf else "possible"
        found.append(f"--height {better} instead of {height} makes intervals {gain}.")
    return tuple(found)


def _binning_dominates(metric: Metric, level: float) -> bool:
    """Whether the bound on the binning error exceeds what sampling and noise add to the interval."""
    other = z_value(level) * math.hypot(metric.sampling or 0.0, metric.privacy or 0.0)
    return metric.value is not None and (metric.discretisation or 0.0) > other
