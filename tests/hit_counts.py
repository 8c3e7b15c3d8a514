"""Whether intervals cover as often as 95 % ones should: counts of hits against binomial bounds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import binom

from fedassay.estimation.confusion import Confusion, decision_metrics
from fedassay.estimation.evidence import Evidence
from fedassay.estimation.metric import Metric
from fedassay.tasks.evaluation import Evaluate

LEAST, MOST = 0.93, 0.97
"""What a 95 % interval may cover."""
FALSE_ALARM = 1e-3
"""The probability that a test fails although all its coverages are within the stated range."""


def too_low(hits: Sequence[bool], comparisons: int, least: float = LEAST) -> bool:
    """Whether so few hits would be rare for a coverage of `least`."""
    return bool(sum(hits) < binom.ppf(FALSE_ALARM / comparisons, len(hits), least))


def too_high(hits: Sequence[bool], comparisons: int, most: float = MOST) -> bool:
    """Whether so many hits would be rare for a coverage of `most`."""
    return bool(sum(hits) > binom.isf(FALSE_ALARM / comparisons, len(hits), most))


def covers(metric: Metric, truth: float, *, factor: float = 1.0) -> bool:
    """Whether the interval, made narrower by a factor, has the truth in it."""
    assert metric.interval is not None
    assert metric.value is not None
    low, high = (metric.value + factor * (end - metric.value) for end in metric.interval)
    return low <= truth <= high


@dataclass(frozen=True)
class Coverage:
    """For each metric, whether each run's interval covered, and one half as wide."""

    hits: Mapping[str, list[bool]]
    halved: Mapping[str, list[bool]]
    binning: Mapping[str, float]
    """The mean ratio of the binning bound to the sampling error, or to all of the error."""
    undefined: Mapping[str, int]

    @property
    def sharp(self) -> list[str]:
        """Metrics whose intervals must not be too wide: binning hardly adds to them."""
        return [name for name in self.hits if "calibration_error" not in name and self.binning[name] < 0.1]

    @property
    def shares(self) -> dict[str, float]:
        """How often intervals covered."""
        return {name: float(np.mean(hits)) for name, hits in self.hits.items()}

    def check(self, *, caught: int) -> None:
        """Refuse intervals that cover too rarely or too often; so many that are half as wide have to be rejected."""
        comparisons = 2 * len(self.hits)
        for name, hits in self.hits.items():
            assert not too_low(hits, comparisons), (name, np.mean(hits))
            if name in self.sharp:
                assert not too_high(hits, comparisons), (name, np.mean(hits))
        rejected = [name for name, hits in self.halved.items() if too_low(hits, comparisons)]
        assert len(rejected) >= caught, f"intervals half as wide must be rejected, but only {rejected} were"


def coverage_of(
    releases: Iterable[Evidence],
    task: Evaluate,
    truth: Mapping[str, float],
    *,
    threshold: float,
    least: int = 1,
    sampling_alone: bool = False,
) -> Coverage:
    """The coverage of all metrics of an evaluation that have a value in at least so many of these releases."""
    hits, halved, ratios = defaultdict(list), defaultdict(list), defaultdict(list)
    undefined: dict[str, int] = defaultdict(int)
    for evidence in releases:
        metrics = task.metrics(evidence) | decision_metrics(Confusion.at(evidence, threshold))
        del metrics["hosmer_lemeshow"]
        for name, metric in metrics.items():
            if metric.value is None:
                undefined[name] += 1
                continue
            hits[name].append(covers(metric, truth[name]))
            halved[name].append(covers(metric, truth[name], factor=0.5))
            error = metric.sampling if sampling_alone else np.hypot(metric.sampling, metric.privacy)
            ratios[name].append(metric.discretisation / error)
    enough = [name for name in hits if len(hits[name]) >= least]
    return Coverage(
        {name: hits[name] for name in enough},
        {name: halved[name] for name in enough},
        {name: float(np.mean(ratios[name])) for name in enough},
        undefined,
    )
