"""How many bins, on which levels: what an evaluation would use, and whether something else is better."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from fedassay.errors import FedassayError
from fedassay.estimation.metric import Metric
from fedassay.planning.expectation import Study
from fedassay.planning.verdict import half_width
from fedassay.protocol import Noise
from fedassay.summaries.score_histogram import ScoreHistogram
from fedassay.tasks.evaluation.accuracy import predict
from fedassay.tasks.evaluation.evaluate import Evaluate

LOWEST_HEIGHT, HIGHEST_NOISY, HIGHEST_EXACT = 4, 13, 18
"""The heights that are compared, under noise (where choosing the levels of many bins takes long) and without."""

_WORTH_CHANGING = 1.05
"""A better height is recommended if it makes intervals shorter by this factor."""


def predictions(
    study: Study,
    task: Evaluate,
    histogram: ScoreHistogram,
    names: tuple[str, ...] | None = None,
    *,
    noise: Noise | None = None,
) -> dict[str, Metric]:
    """The metrics to expect of a release of this histogram, by default with the noise of the study."""
    return predict(
        histogram,
        rows=study.rows,
        prevalence=study.expectation.prevalence,
        auc=study.expectation.auc,
        noise=study.noise(histogram) if noise is None else noise,
        threshold=task.thresholds[0],
        buckets=task.buckets,
        level=task.level,
        metrics=names,
    )


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

    @classmethod
    def of(cls, study: Study, task: Evaluate, targets: Mapping[str, float]) -> Resolution:
        """What the task would choose, judged by these targets."""
        histogram = task.histogram(study.setting)
        metrics = predictions(study, task, histogram, tuple(targets))
        widths = {name: half_width(metric) for name, metric in metrics.items()}
        rest = {name: widths[name] - (metric.discretisation or 0.0) for name, metric in metrics.items()}
        return cls(
            histogram=histogram,
            score=max(widths[name] / target for name, target in targets.items()),
            beside_binning=max(rest[name] / target for name, target in targets.items()),
        )

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "height": self.histogram.height,
            "bins": 1 << self.histogram.height,
            "widths": list(self.histogram.widths),
            "multipliers": list(self.histogram.multipliers),
        }


def recommended(study: Study, task: Evaluate, used: Resolution, targets: Mapping[str, float]) -> Resolution:
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
        found = _at_height(study, task, other, targets)
        if found is not None and found.score < best.score:
            best = found
        elif other > height + 1:
            break
    return best if best.score * _WORTH_CHANGING < used.score else used


def _at_height(study: Study, task: Evaluate, height: int, targets: Mapping[str, float]) -> Resolution | None:
    try:
        return Resolution.of(study, replace(task, height=height), targets)
    except FedassayError:  # too few bins for the thresholds, too many for the trust model
        return None
