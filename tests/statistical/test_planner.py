"""The planner against simulation: predicted standard errors within a factor 1.5 of measured ones.

The standard deviation of n estimates with kurtosis k has a relative error of √((k-1)/4n). Noise that is a sum of
a few Laplace draws has a kurtosis of up to 6: 8 % at 200 runs, so that a right prediction misses the factor by
5 standard errors, with probability 5e-7 per comparison and 2e-4 for the 400 of all settings. Seeds are fixed.
"""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "planning"))

from simulated import FACTOR, Case, map_error, mismatches, predicted, ratios, simulated, simulated_maps

from fedassay.protocol.vocabulary import Budget, Protection, Unit
from fedassay.tasks.evaluation.evaluate import Evaluate
from fedassay.trust.distributed_dp import DistributedDP
from fedassay.trust.local_dp import LocalDP
from fedassay.trust.plain import Plain
from fedassay.trust.secure_sum import SecureSum
from fedassay.trust.server_dp import ServerDP
from stated import Verify

ONE_ROW = Protection(unit=Unit.CLIENT, rows_per_client=1)
TWENTY_ROWS = Protection(unit=Unit.CLIENT, rows_per_client=20)


def pure(epsilon: float) -> Budget:
    return Budget(epsilon=epsilon)


def approximate(epsilon: float) -> Budget:
    return Budget(epsilon=epsilon, delta=1e-6)


def local(epsilon: float, rows: int, prevalence: float, auc: float, height: int | None = None) -> Case:
    """Clients with one row each that report by randomised bits."""
    return Case(
        trust=LocalDP(),
        budget=pure(epsilon),
        rows=rows,
        clients=rows,
        prevalence=prevalence,
        auc=auc,
        protection=ONE_ROW,
        task=Evaluate(height=height),
    )


ORDINARY = [
    Case(trust=SecureSum(), rows=2_000, clients=10, prevalence=0.3, auc=0.8, task=Evaluate(height=10)),
    Case(trust=ServerDP(), budget=pure(1), rows=2_000, clients=10, prevalence=0.5, auc=0.8),
    Case(trust=DistributedDP(), budget=pure(1), rows=5_000, clients=40, prevalence=0.3, auc=0.8),
    local(4, 20_000, 0.3, 0.75),
    Case(trust=LocalDP(), budget=pure(1), rows=20_000, clients=40, prevalence=0.3, auc=0.85),
]
MORE = [
    Case(trust=Plain(), rows=20_000, clients=5, prevalence=0.05, auc=0.9),
    Case(trust=Plain(), rows=500, clients=5, prevalence=0.5, auc=0.7, task=Evaluate(height=6)),
    Case(trust=ServerDP(), budget=pure(1), rows=20_000, clients=10, prevalence=0.24, auc=0.75),
    Case(trust=ServerDP(), budget=pure(0.1), rows=50_000, clients=10, prevalence=0.3, auc=0.85),
    Case(trust=ServerDP(), budget=approximate(0.5), rows=10_000, clients=10, prevalence=0.1, auc=0.8),
    Case(trust=ServerDP(), budget=pure(1), rows=100_000, clients=10, prevalence=0.02, auc=0.9),
    Case(
        trust=ServerDP(),
        budget=pure(3),
        rows=5_000,
        clients=10,
        prevalence=0.4,
        auc=0.65,
        task=Evaluate(height=8),
    ),
    Case(
        trust=ServerDP(),
        budget=pure(2),
        rows=40_000,
        clients=2_000,
        prevalence=0.3,
        auc=0.8,
        protection=TWENTY_ROWS,
    ),
    Case(trust=DistributedDP(), budget=pure(1), rows=100_000, clients=100, prevalence=0.5, auc=0.8),
    Case(trust=DistributedDP(), budget=approximate(0.3), rows=30_000, clients=500, prevalence=0.2, auc=0.75),
    Case(
        trust=DistributedDP(),
        budget=pure(2),
        rows=10_000,
        clients=20,
        prevalence=0.1,
        auc=0.9,
        task=Evaluate(height=9),
    ),
    local(1, 100_000, 0.5, 0.8),
    local(2, 50_000, 0.3, 0.85),
    local(5, 100_000, 0.1, 0.8, height=8),
    Case(trust=LocalDP(), budget=approximate(2), rows=30_000, clients=100, prevalence=0.3, auc=0.7),
]


@pytest.mark.parametrize("case", ORDINARY, ids=str)
def test_predictions_are_within_a_factor_of_what_is_measured(case: Case) -> None:
    expected, measured = predicted(case), simulated(case, runs=200, seed=3)
    assert len(ratios(expected, measured)) >= 10
    assert mismatches(expected, measured) == {}
    for name, metric in expected.items():  # what is said to have no value mostly has none
        assert (
            measured[name]["defined"] >= 0.25
            if metric.value is not None
            else measured[name]["defined"] <= 0.75
        )


def test_half_the_noise_is_noticed() -> None:
    """The same check rejects a planner that forgets half of the noise, or the sampling error."""
    case = ORDINARY[1]
    expected, measured = predicted(case), simulated(case, runs=200, seed=3)
    assert mismatches(expected, measured) == {}
    halved = {
        name: metric if metric.value is None else replace(metric, privacy=(metric.privacy or 0.0) / 2)
        for name, metric in expected.items()
    }
    assert len(mismatches(halved, measured)) >= 8
    unsampled = {
        name: metric if metric.value is None else replace(metric, sampling=0.0)
        for name, metric in expected.items()
    }
    assert mismatches(unsampled, measured) != {}


MAPS = [
    Case(trust=Plain(), rows=5_000, clients=10, prevalence=0.3, auc=0.8),
    Case(trust=ServerDP(), budget=pure(1), rows=5_000, clients=10, prevalence=0.3, auc=0.8),
    local(3, 50_000, 0.3, 0.8),
]


@pytest.mark.parametrize("method", ["platt", "histogram"])
@pytest.mark.parametrize("case", MAPS, ids=str)
def test_the_error_of_a_calibrator_is_predicted(case: Case, method: str) -> None:
    """Means over 60 maps: of squares with at most a few degrees of freedom, so to about 15 %."""
    expected, measured = map_error(case, method), simulated_maps(case, method, runs=60, seed=5)
    assert 1 / FACTOR < math.sqrt(expected.brier_excess / measured["brier_excess"]) < FACTOR
    assert 1 / FACTOR < expected.calibration_error / measured["calibration_error"] < FACTOR
    if (
        case.trust.name == "local-dp" and method == "platt"
    ):  # nearly all of it is noise: half would be noticed
        halved = expected.sampling + expected.privacy / 4 + expected.binning
        assert math.sqrt(halved / measured["brier_excess"]) < 1 / FACTOR


@pytest.mark.full
def test_twenty_settings(verify: Verify) -> None:
    worst, compared, rejected = 1.0, 0, 0
    cases = ORDINARY + MORE
    for case in cases:
        expected, measured = predicted(case), simulated(case, runs=200, seed=4)
        assert mismatches(expected, measured) == {}, str(case)
        found = ratios(expected, measured)
        compared += len(found)
        worst = max(worst, *(max(ratio, 1 / ratio) for ratio in found.values()))
        halved = {
            name: metric if metric.value is None else replace(metric, privacy=(metric.privacy or 0.0) / 2)
            for name, metric in expected.items()
        }
        rejected += bool(mismatches(halved, measured))
    noisy = sum(case.budget is not None for case in cases)
    assert rejected == noisy
    verify(
        f"Planner against simulation, {len(cases)} settings, 200 runs each: predicted standard errors within a "
        "factor 1.5 of measured ones, half the noise rejected in every noisy setting",
        f"{compared} comparisons, largest factor {worst:.2f}; rejected in {rejected} of {noisy}",
    )
