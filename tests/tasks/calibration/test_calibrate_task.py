"""The task: what it asks, what it returns, and when it says no."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from binormal import NoisyServer, Population, release
from calibration_rows import crooked
from fedassay.errors import UsageError
from fedassay.estimation.metric import Metric, undefined
from fedassay.protocol.vocabulary import Part, Sum
from fedassay.summaries.maps import map_from_json
from fedassay.tasks.calibration import METHODS, Calibrate
from fedassay.tasks.calibration.calibrate import verdict

METRICS = {
    *("roc_auc", "brier_score", "log_loss", "expected_calibration_error"),
    *("expected_calibration_error_uniform", "calibration_intercept", "calibration_slope"),
}

Rows = tuple[np.ndarray, np.ndarray]


def run(
    task: Calibrate, fit_rows: Rows, held_out: Rows, *, epsilon: float | None = None, seed: int = 0
) -> dict[str, Any]:
    setting = NoisyServer(epsilon=epsilon).setting()
    steps = task.steps(setting)
    rng = np.random.default_rng(seed)
    asked = next(steps)
    answers = tuple(
        release(query.of, *rows, noise=setting.noise(query), rng=rng)
        for query, rows in zip(asked, (fit_rows, held_out), strict=True)
    )
    with pytest.raises(StopIteration) as finished:
        steps.send(answers)
    json.dumps(finished.value.value, allow_nan=False)
    return finished.value.value  # type: ignore[no-any-return]


@pytest.mark.parametrize("epsilon", [None, 1.0])
def test_it_asks_once_for_two_histograms_of_different_parts_at_the_whole_budget(
    epsilon: float | None,
) -> None:
    step = next(Calibrate().steps(NoisyServer(epsilon=epsilon).setting()))
    assert [type(query) for query in step] == [Sum, Sum]
    assert [query.part for query in step] == [Part.FIT, Part.HELD_OUT]
    assert [query.share for query in step] == [1.0, 1.0]
    assert step[1].of.grid.thresholds == tuple(j / 10 for j in range(1, 10))


@pytest.mark.parametrize("epsilon", [None, 1.0])
@pytest.mark.parametrize("method", METHODS)
def test_every_method_improves_a_crooked_model_and_says_so(method: str, epsilon: float | None) -> None:
    results = run(Calibrate(method=method), crooked(40_000), crooked(20_000, 1), epsilon=epsilon)
    assert results["recommended"] is True
    assert results["reason"].startswith("Recommended: on held-out rows the log loss changes by -")
    assert set(results["before"]) == set(results["after"]) == METRICS
    assert results["method"] == method or method == "auto"
    assert results["difference"]["log_loss"]["interval"][1] < 0
    assert results["difference"]["log_loss"]["value"] == pytest.approx(
        results["after"]["log_loss"]["value"] - results["before"]["log_loss"]["value"], abs=1e-12
    )
    assert results["after"]["expected_calibration_error"]["value"] < 0.03
    assert len(results["reliability_curve"]["after"]["observed"]) >= 5
    assert results["histogram"]["fit"]["rows"] == pytest.approx(40_000, rel=0.01)
    assert results["histogram"]["rows"] == pytest.approx(60_000, rel=0.01)
    map_from_json(results["calibrator"])
    assert ("candidates" in results) == (method == "auto")


@pytest.mark.parametrize("method", METHODS)
def test_a_calibrated_model_gets_no_recommendation(method: str) -> None:
    rng = np.random.default_rng(2)
    population = Population(0.4)
    results = run(Calibrate(method=method), population.sample(20_000, rng), population.sample(10_000, rng))
    assert results["recommended"] is False
    assert results["reason"].startswith("Not recommended")


def test_the_calibrator_does_not_see_held_out_rows_and_is_judged_on_nothing_else() -> None:
    task = Calibrate()
    one = run(task, crooked(5_000), crooked(3_000, 1))
    other = run(task, crooked(5_000), crooked(3_000, 2))
    assert one["calibrator"] == other["calibrator"]
    assert one["candidates"] == other["candidates"]
    assert one["after"] != other["after"]
    third = run(task, crooked(5_000, 7), crooked(3_000, 1))
    assert third["before"] == one["before"]


def test_not_enough_evidence_to_fit_is_a_sentence_and_not_a_crash() -> None:
    for method in METHODS:
        results = run(Calibrate(method=method), crooked(60), crooked(5_000), epsilon=0.2)
        assert results["calibrator"] is None
        assert results["recommended"] is False
        assert "there is no calibrator: not enough evidence" in results["reason"]
        assert results["after"]["log_loss"]["value"] is None
        assert results["before"]["log_loss"]["value"] is not None


def test_not_enough_evidence_to_judge_is_no_recommendation() -> None:
    results = run(Calibrate(method="platt"), crooked(20_000), crooked(30), epsilon=0.3)
    assert results["calibrator"] is not None
    assert results["recommended"] is False
    assert results["reason"].startswith("Not recommended: not enough evidence")


def test_no_rows_held_out() -> None:
    nothing = (np.zeros(0), np.zeros(0, dtype=np.int8))
    results = run(Calibrate(method="platt"), crooked(2_000), nothing)
    assert results["reason"] == "Not recommended: there are no rows."
    assert results["after"]["brier_score"]["reason"] == "there are no rows"


def test_a_single_class_among_the_fit_rows() -> None:
    scores, _ = crooked(500)
    results = run(Calibrate(), (scores, np.ones(500, dtype=np.int8)), crooked(500, 1))
    assert results["method"] is None
    assert "no negative rows" in results["reason"]


def test_separated_classes_leave_the_methods_that_can_be_fitted() -> None:
    scores = np.concatenate([np.linspace(0.05, 0.4, 200), np.linspace(0.6, 0.95, 200)])
    rows = (scores, np.repeat([0, 1], 200).astype(np.int8))
    assert "separate the classes" in run(Calibrate(method="platt"), rows, rows)["reason"]
    assert run(Calibrate(), rows, rows)["method"] == "bbq"


BAD = {
    "method": {"method": "magic"},
    "bins": {"bins": 0},
    "bins:": {"bins": 5, "method": "platt"},
    "height": {"height": 99},
    "buckets": {"buckets": 0},
    "transform": {"transform": "square"},
    "level": {"level": 1.0},
}


@pytest.mark.parametrize("name", sorted(BAD))
def test_bad_parameters_are_refused_when_the_task_is_made(name: str) -> None:
    with pytest.raises(UsageError, match=name.rstrip(":")):
        Calibrate(**BAD[name])  # type: ignore[arg-type]


def metric(value: float, half: float) -> Metric:
    return Metric(value=value, interval=(value - half, value + half), level=0.95)


@pytest.mark.parametrize(
    ("log", "brier", "recommended"),
    [
        (metric(-0.02, 0.01), metric(-0.01, 0.005), True),
        (metric(-0.02, 0.01), metric(0.001, 0.005), True),
        (metric(-0.02, 0.01), metric(0.01, 0.005), False),  # the other loss is surely worse
        (metric(-0.02, 0.03), metric(-0.01, 0.005), False),
        (metric(0.02, 0.01), metric(-0.01, 0.005), False),
        (undefined("drowned", level=0.95), metric(-0.01, 0.005), True),
        (undefined("drowned", level=0.95), metric(-0.01, 0.02), False),
        (undefined("drowned", level=0.95), undefined("drowned too", level=0.95), False),
    ],
)
def test_the_verdict(log: Metric, brier: Metric, recommended: bool) -> None:
    judged = verdict({"log_loss": log, "brier_score": brier}, positives=500.0, negatives=500.0)
    assert judged.recommended is recommended
    assert judged.reason.startswith("Recommended" if recommended else "Not recommended")
    assert judged.reason.endswith(".")


@pytest.mark.parametrize("rows", [(1.0, 400.0), (400.0, 19.0), (-3.0, 400.0)])
def test_a_handful_of_held_out_rows_judges_nothing(rows: tuple[float, float]) -> None:
    better = Metric(value=-0.2, interval=(-0.2, -0.2), level=0.95)
    judged = verdict({"log_loss": better, "brier_score": better}, positives=rows[0], negatives=rows[1])
    assert not judged.recommended
    assert "20 are needed" in judged.reason
