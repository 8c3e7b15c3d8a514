"""The inverse question: the smallest epsilon, or the fewest rows, for which an interval is short enough."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fedassay.errors import FedassayError
from fedassay.planning.expectation import Study
from fedassay.planning.verdict import half_width
from fedassay.protocol import NO_NOISE, Noise
from fedassay.summaries.score_histogram import ScoreHistogram
from fedassay.tasks.evaluation.accuracy import predict
from fedassay.tasks.evaluation.evaluate import Evaluate
from fedassay.tasks.evaluation.metric import Metric

SMALLEST_EPSILON, LARGEST_EPSILON = 1e-4, 64.0
FEWEST_ROWS, MOST_ROWS = 10.0, 1e12

_CLOSE, _STRIDE = 1.02, 4.0
"""Answers are right to the first factor; the search for a bracket goes by the second."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The smallest `value` that is enough, or the reason why there is none.

    Guarantee: with `value` the predicted half-width is at most the target; with two percent less it is above,
    unless `value` is the smallest that was tried. (The half-width is not assumed to fall all the way: both ends
    of the last interval were predicted.)
    """

    value: float | None
    reason: str | None = None
    clients: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        answer: dict[str, Any] = {"value": self.value}
        if self.clients is not None:
            answer["clients"] = self.clients
        return answer if self.reason is None else {**answer, "reason": self.reason}


def predicted_half_width(study: Study, task: Evaluate, metric: str) -> float:
    """Half the length of the interval of one metric; infinite where it would have no value."""
    histogram = task.histogram(study.setting)
    return half_width(_predicted(study, task, histogram, metric, study.noise(histogram)))


def _predicted(study: Study, task: Evaluate, histogram: ScoreHistogram, metric: str, noise: Noise) -> Metric:
    return predict(
        histogram,
        rows=study.rows,
        prevalence=study.expectation.prevalence,
        auc=study.expectation.auc,
        noise=noise,
        threshold=task.thresholds[0],
        buckets=task.buckets,
        level=task.level,
        metrics=(metric,),
    )[metric]


def smallest_epsilon(study: Study, task: Evaluate, metric: str, target: float) -> Answer:
    """The smallest epsilon for which the half-width of `metric` is at most `target`, all else as planned."""
    if study.budget is None:
        return Answer(value=None, reason=f"{study.trust.name} adds no noise, so epsilon plays no part")

    def short(epsilon: float) -> bool:
        return _tried(lambda: predicted_half_width(study.with_epsilon(epsilon), task, metric)) <= target

    if not short(LARGEST_EPSILON):
        rest = _beside_noise(study.with_epsilon(LARGEST_EPSILON), task, metric, target)
        return Answer(value=None, reason=f"no epsilon is enough: {rest}")
    value = _smallest(short, start=study.budget.epsilon, low=SMALLEST_EPSILON, high=LARGEST_EPSILON)
    assert value is not None
    return Answer(value=_rounded_up(value))


def fewest_rows(study: Study, task: Evaluate, metric: str, target: float) -> Answer:
    """The fewest rows (and clients of the planned size) for which the half-width is at most `target`."""

    def with_rows(rows: float) -> Study:
        return study.with_expectation(study.expectation.with_rows(rows))

    def short(rows: float) -> bool:
        return _tried(lambda: predicted_half_width(with_rows(rows), task, metric)) <= target

    rows = _smallest(short, start=study.expectation.rows, low=FEWEST_ROWS, high=MOST_ROWS)
    if rows is None:
        height = task.histogram(study.setting).height
        return Answer(
            value=None,
            reason=f"no number of rows up to {MOST_ROWS:.0e} is enough with 2^{height} bins; "
            "try another height",
        )
    rows = _rounded_up(rows, whole=True)
    return Answer(value=rows, clients=with_rows(rows).expectation.clients)


def _beside_noise(study: Study, task: Evaluate, metric: str, target: float) -> str:
    """Why no epsilon helps: what is left of the interval without any noise."""
    histogram = task.histogram(study.setting)
    expected = _predicted(study, task, histogram, metric, NO_NOISE)
    if expected.value is None:
        return f"the metric has no value even without noise ({expected.reason})"
    width, binning = half_width(expected), expected.discretisation or 0.0
    if width - binning > target:
        return f"sampling error alone gives ±{width - binning:.2g}"
    return f"without noise, sampling error and 2^{histogram.height} bins together give ±{width:.2g}"


def _tried(width: Callable[[], float]) -> float:
    """What a trust model refuses (too few clients, sums that could wrap) is not enough."""
    try:
        return width()
    except FedassayError:
        return math.inf


def _smallest(enough: Callable[[float], bool], *, start: float, low: float, high: float) -> float | None:
    """The smallest x in [low, high] that is enough, to a factor of `_CLOSE`, for an `enough` that stays true.

    Goes up or down from `start` until the answer changes, then bisects on the logarithmic scale.
    """
    start = min(max(start, low), high)
    if enough(start):
        below, above = start, start
        while below > low and enough(below):
            above, below = below, max(low, below / _STRIDE)
        if enough(below):
            return below
    else:
        below, above = start, start
        while above < high and not enough(above):
            below, above = above, min(high, above * _STRIDE)
        if not enough(above):
            return None
    while above > below * _CLOSE:
        middle = math.sqrt(above * below)
        below, above = (below, middle) if enough(middle) else (middle, above)
    return above


def _rounded_up(value: float, *, whole: bool = False) -> float:
    """To three significant digits, upwards: still enough."""
    step = 10.0 ** (math.floor(math.log10(value)) - 2)
    rounded = math.ceil(value / step - 1e-9) * step
    return float(math.ceil(rounded - 1e-9)) if whole else float(f"{rounded:.3g}")
