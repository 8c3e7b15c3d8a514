"""The plan of an evaluation: every metric's error, the resolution to use, and whether the data are enough."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedassay.estimation.intervals import z_value
from fedassay.estimation.metric import Metric, Undefined
from fedassay.metrics import targets as usual_targets
from fedassay.planning.expectation import PlannedRelease, Study
from fedassay.planning.inverse import Inverse, fewest_clients, fewest_rows, smallest_epsilon
from fedassay.planning.published import beside_published
from fedassay.planning.resolution import Resolution, predictions, recommended
from fedassay.planning.verdict import Predicted, checked_targets, half_width, in_words
from fedassay.protocol import NO_NOISE, Noise
from fedassay.summaries.score_histogram import ScoreHistogram
from fedassay.tasks.calibration.binning import finest_number
from fedassay.tasks.evaluation.accuracy import expected_evidence
from fedassay.tasks.evaluation.evaluate import Evaluate

_MOST_BUCKETS = 200


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
        return in_words({name: one.verdict for name, one in self.predicted.items()})

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
    targets : half-widths that are short enough, by metric. Those without one are judged by their usual target. The
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
    ('0.0088', 'enough data')
    """
    task = Evaluate() if task is None else task
    usual = usual_targets()
    given = checked_targets(targets or {}, usual)
    wanted = given or {"roc_auc": usual["roc_auc"]}
    used = Resolution.of(study, task, wanted)
    metrics = predictions(study, task, used.histogram)
    varied = [
        predictions(study.with_expectation(other), task, used.histogram)
        for other in study.expectation.varied()
    ]
    predicted = {
        name: Predicted(
            metric=metric,
            target=given.get(name, usual[name]),
            varied=tuple(half_width(other[name]) for other in varied),
        )
        for name, metric in metrics.items()
    }
    better = recommended(study, task, used, wanted)
    noise = study.noise(used.histogram)
    return EvaluationPlan(
        study=study,
        task=task,
        noise=noise,
        used=used,
        recommended=better,
        buckets=_buckets(study, better.histogram),
        predicted=predicted,
        inverse=tuple(_inverse(study, task, name, target) for name, target in wanted.items()),
        published=beside_published(study, used.histogram, noise, metrics),
        warnings=(*unused_rows(study), *_warnings(predicted, used, better, task.level)),
    )


def _inverse(study: Study, task: Evaluate, name: str, target: float) -> Inverse:
    def width(other: Study) -> float:
        return half_width(predictions(other, task, task.histogram(other.setting), (name,))[name])

    def beside_noise(other: Study) -> str:
        histogram = task.histogram(other.setting)
        expected = predictions(other, task, histogram, (name,), noise=NO_NOISE)[name]
        if expected.value is None:
            return f"there is no value even without noise ({expected.reason})"
        half, binning = half_width(expected), expected.discretisation or 0.0
        if half - binning > target:
            return f"sampling error alone gives ±{half - binning:.2g}"
        return f"without noise, sampling error and 2^{histogram.height} bins together give ±{half:.2g}"

    return Inverse(
        metric=name,
        target=target,
        epsilon=smallest_epsilon(study, width, target, beside_noise),
        rows=fewest_rows(study, width, target),
        clients=fewest_clients(study, width, target),
    )


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


def unused_rows(study: PlannedRelease) -> tuple[str, ...]:
    """The warning that some rows will be left out."""
    if study.rows >= study.expectation.rows:
        return ()
    return (
        f"Only {study.rows:,.0f} of {study.expectation.rows:,.0f} rows will be used: at most "
        f"{study.protection.rows_per_client:,} of each of {study.expectation.clients:,} clients.",
    )


def _warnings(
    predicted: Mapping[str, Predicted], used: Resolution, better: Resolution, level: float
) -> tuple[str, ...]:
    found = []
    height, other = used.histogram.height, better.histogram.height
    crowded = [name for name, one in predicted.items() if _binning_dominates(one.metric, level)]
    if crowded:
        found.append(
            f"Binning dominates the error of {', '.join(crowded)}: 2^{height} bins are too few for so many rows."
        )
    if other != height:
        gain = "possible" if used.score == math.inf else f"{used.score / better.score:.2g} times shorter"
        found.append(f"--height {other} instead of {height} makes intervals {gain}.")
    return tuple(found)


def _binning_dominates(metric: Metric, level: float) -> bool:
    """Whether the bound on the binning error exceeds what sampling and noise add to the interval."""
    other = z_value(level) * math.hypot(metric.sampling or 0.0, metric.privacy or 0.0)
    return metric.value is not None and (metric.discretisation or 0.0) > other
