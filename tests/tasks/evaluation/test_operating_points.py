"""The numbers at 99 thresholds are those that are asked for one by one."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from binormal import NoisyServer, Population, release
from fedassay.estimation.evidence import Evidence
from fedassay.protocol.metrics import of_part
from fedassay.protocol.vocabulary import NO_NOISE, Sum
from fedassay.tasks.evaluation import Evaluate
from fedassay.tasks.evaluation.stored import THRESHOLDS, evidence_from_json, operating_points, threshold_entry

POPULATION = Population(0.3, shift=0.2, stretch=1.2)


def evidence_of(task: Evaluate, rows: int, epsilon: float | None) -> tuple[Evidence, dict[str, Any]]:
    setting, rng = NoisyServer(epsilon=epsilon).setting(), np.random.default_rng(1)
    histogram = task.histogram(setting)
    released = release(
        histogram, *POPULATION.sample(rows, rng), noise=setting.noise(Sum(of=histogram)), rng=rng
    )
    return released.value.evidence(released.noise), task.results(released)


@pytest.mark.parametrize("epsilon", [None, 1.0], ids=["exact", "noisy"])
def test_each_is_the_entry_of_its_threshold(epsilon: float | None) -> None:
    level = 0.8
    evidence, results = evidence_of(Evaluate(level=level), 3_000, epsilon)
    points = results["operating_points"]
    assert points["thresholds"] == list(THRESHOLDS) == [round(k / 100, 2) for k in range(1, 100)]
    assert (points["level"], points["rows"]) == (level, evidence.rows)
    for place, threshold in enumerate(points["thresholds"]):
        entry = threshold_entry(evidence, points["applied"][place], level=level)
        assert points["applied"][place] == entry["applied"]
        assert entry["applied"] == evidence.edges[evidence.nearest_edge(threshold)]
        for name in ("precision", "recall", "specificity", "net_benefit"):
            metric = entry[name]
            found = [points[name][key][place] for key in ("value", "lower", "upper")]
            assert found == [metric["value"], *(metric["interval"] or (None, None))]


def test_predicted_positives_are_a_share_of_the_rows() -> None:
    scores, labels = POPULATION.sample(2_000, np.random.default_rng(2))
    task, setting = Evaluate(), NoisyServer(epsilon=None).setting()
    released = release(task.histogram(setting), scores, labels, noise=NO_NOISE, rng=np.random.default_rng(0))
    points = task.results(released)["operating_points"]
    z = 1.959963984540054
    for place, applied in enumerate(points["applied"]):
        n, x = 2_000, int((scores >= applied).sum())
        value, low, high = (points["predicted_positives"][key][place] for key in ("value", "lower", "upper"))
        # Wilson's interval is what a share of rows has.
        middle, half = (x + z**2 / 2) / (n + z**2), z / (n + z**2) * np.sqrt(x * (n - x) / n + z**2 / 4)
        assert (value, low, high) == pytest.approx((x / n, middle - half, middle + half), abs=1e-12)


def test_noise_makes_intervals_wider_and_moves_values_within_them() -> None:
    exact, noisy = (
        evidence_of(Evaluate(), 20_000, epsilon)[1]["operating_points"] for epsilon in (None, 1.0)
    )
    for name in (record.name for record in of_part("operating-point")):
        for place in range(0, 99, 9):
            values, ends = ([one[name][key][place] for one in (exact, noisy)] for key in ("value", "lower"))
            assert values[0] - ends[0] <= (values[1] - ends[1]) * 1.2 + 1e-3
            assert abs(values[0] - values[1]) < 4 * (values[1] - ends[1]) + 0.01


def test_what_is_undefined_is_null_and_there_are_no_points_without_rows() -> None:
    task = Evaluate(height=8)
    evidence, results = evidence_of(task, 0, None)
    points = results["operating_points"]
    assert json.loads(json.dumps(points, allow_nan=False)) == points
    assert points["rows"] == 0
    for name in (record.name for record in of_part("operating-point")):
        assert set(points[name]) == {"value", "lower", "upper"}
        assert all(one == [None] * 99 for one in points[name].values()), name
    few, _ = evidence_of(task, 20, None)
    some = operating_points(few)
    assert None in some["precision"]["value"]  # nobody scores above
    assert None not in some["predicted_positives"]["value"]
    assert evidence.rows == 0


def test_they_are_of_the_whole_only() -> None:
    evidence, results = evidence_of(Evaluate(), 500, None)
    assert "operating_points" not in Evaluate().entry(evidence)
    again = operating_points(evidence_from_json(json.loads(json.dumps(results))))
    assert again == results["operating_points"]
