"""Intervals of metrics at a threshold cover where counts are small: few positives, and rates near 0 and 1.

The counts are drawn from their multinomial law, so that thousands of them take a second. Whole releases, with noise,
are in `test_coverage_evaluation`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from scipy.stats import binom

from binormal import Population
from fedassay.estimation.confusion import Confusion
from fedassay.estimation.evidence import Evidence
from fedassay.estimation.intervals import Estimate, positive
from fedassay.estimation.metric import Metric
from fedassay.protocol.metrics import METRICS
from stated import Verify

LEAST = 0.93
FALSE_ALARM = 1e-3
"""The probability that a test here fails although all coverages are at least `LEAST`."""

NAMES = (
    *("balanced_accuracy", "matthews_corrcoef", "negative_predictive_value", "positive_likelihood_ratio"),
    "negative_likelihood_ratio",
)


@dataclass(frozen=True)
class Case:
    """About `flagged` of the rows are predicted positive; MCC is too short where that is hardly a row."""

    prevalence: float
    threshold: float
    rows: int
    names: tuple[str, ...] = NAMES

    def __str__(self) -> str:
        return f"{self.rows} rows, {self.prevalence:.0%} positives, threshold {self.threshold:g}"


CASES = (
    Case(0.5, 0.5, 60),
    Case(0.1, 0.5, 1_000),
    Case(0.02, 0.02, 2_000),
    Case(0.02, 0.5, 5_000, names=tuple(name for name in NAMES if name != "matthews_corrcoef")),
)
COMPARISONS = sum(len(case.names) for case in CASES)


def coverage(case: Case, runs: int, name: str, change: Callable[[Metric], Metric]) -> tuple[int, int]:
    """In how many runs the interval covered, of those in which there was one."""
    population = Population(case.prevalence)
    truth = population.truth(case.threshold)
    P, recall, specificity = case.prevalence, truth["recall"], truth["specificity"]
    shares = [P * recall, P * (1 - recall), (1 - P) * (1 - specificity), (1 - P) * specificity]
    covered = defined = 0
    for TP, FN, FP, TN in np.random.default_rng(4).multinomial(case.rows, shares, size=runs):
        evidence = Evidence.exactly(
            edges=np.array([0.0, 0.5, 1.0]),
            positives=np.array([FN, TP], dtype=np.float64),
            negatives=np.array([TN, FP], dtype=np.float64),
        )
        metric = METRICS[name].estimator(Confusion.at(evidence, 0.5))
        if metric.value is not None:
            low, high = change(metric).interval or (math.nan, math.nan)
            defined += 1
            covered += low <= truth[name] <= high
    return covered, defined


def too_low(covered: int, defined: int) -> bool:
    return covered < binom.ppf(FALSE_ALARM / COMPARISONS, defined, LEAST)


def logarithmic(metric: Metric) -> Metric:
    """The usual interval of a likelihood ratio: normal on the logarithmic scale (Simel et al. 1991)."""
    assert metric.value is not None
    assert metric.sampling is not None
    return positive(
        Estimate(value=metric.value, sampling_variance=metric.sampling**2, privacy_variance=0.0), level=0.95
    )


def half_as_wide(metric: Metric) -> Metric:
    assert metric.value is not None
    assert metric.interval is not None
    low, high = ((metric.value + end) / 2 for end in metric.interval)
    return Metric(value=metric.value, interval=(low, high), level=metric.level)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_intervals_cover_where_counts_are_small(case: Case) -> None:
    for name in case.names:
        assert not too_low(*coverage(case, 600, name, lambda metric: metric)), name
        assert too_low(*coverage(case, 600, name, half_as_wide)), name


def test_the_usual_interval_of_a_likelihood_ratio_is_rejected() -> None:
    """Of 100 positive rows two are found: the share that is missed is skewed, and its logarithm too."""
    assert too_low(*coverage(CASES[-1], 600, "negative_likelihood_ratio", logarithmic))


@pytest.mark.full
@pytest.mark.parametrize("case", CASES, ids=str)
def test_stated_coverage_where_counts_are_small(case: Case, verify: Verify) -> None:
    found = {name: coverage(case, 10_000, name, lambda metric: metric) for name in case.names}
    shares = {name: covered / defined for name, (covered, defined) in found.items()}
    low = min(shares, key=shares.__getitem__)
    verify(f"95 % intervals at a threshold, {case}: >= 93 %", f"lowest {low} {shares[low]:.1%}")
    assert not any(too_low(*counts) for counts in found.values())
