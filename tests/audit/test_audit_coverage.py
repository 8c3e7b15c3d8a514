"""Coverage is counted, and promises that are not kept are found.

An interval that is half as wide covers a normal estimate in 67 % of runs in the place of 95 %; of 60 runs, fewer than
57 x 0.87 then hold but for a probability below 1e-3, and the upper end at 99 % is below the promise.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedassay.audit.findings import coverage_cases, covered
from fedassay.errors import UsageError
from fedassay.privacy.randomness import SimulatedRandomness
from fedassay.tasks.card import TASKS

SLOPE = coverage_cases()["coverage/infer"]


def half_as_wide(results: Any, rng: np.random.Generator) -> bool:
    slope = next(one for one in results["coefficients"] if one["name"] == "x")
    low, high = (slope["value"] + (end - slope["value"]) / 2 for end in slope["interval"])
    return bool(low <= 1.0 <= high)


def test_intervals_and_prediction_sets_of_the_main_tasks_are_there() -> None:
    tasks = {case.task for case in coverage_cases().values()}
    assert tasks == {"evaluate", "ecdf", "conformal", "infer"} <= set(TASKS)


@pytest.mark.parametrize("name", list(coverage_cases()))
def test_every_case_runs(name: str) -> None:
    told = []
    found = covered(
        coverage_cases()[name],
        runs=3,
        confidence=0.99,
        randomness=SimulatedRandomness(2, name),
        progress=lambda done, total: told.append((done, total)),
    )
    assert found.runs == 3
    assert 0 <= found.low <= found.share <= found.high <= 1
    assert told == [(1, 3), (2, 3), (3, 3)]


def test_narrow_intervals_are_found() -> None:
    common: dict[str, Any] = {"runs": 60, "confidence": 0.99, "randomness": SimulatedRandomness(4)}
    assert not covered(SLOPE, **common).violated
    found = covered(replace(SLOPE, promise=replace(SLOPE.promise, holds=half_as_wide)), **common)
    assert found.violated
    assert found.to_dict()["violated"] is True


def test_the_same_seed_counts_the_same() -> None:
    twice = [covered(SLOPE, runs=4, randomness=SimulatedRandomness(5)).hits for _ in range(2)]
    assert twice[0] == twice[1]


def test_errors() -> None:
    with pytest.raises(UsageError, match="runs: got 0, expected at least 1."):
        covered(SLOPE, runs=0)
