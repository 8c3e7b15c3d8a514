from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from binormal import NoisyServer, Population, release
from fedassay.errors import UsageError
from fedassay.protocol.vocabulary import Released, Sum
from fedassay.summaries.score_histogram import LabelledHistogram
from fedassay.tasks.evaluation import Evaluate, metrics_at

POPULATION = Population(0.3, shift=0.2, stretch=1.2)
CONTRACT = (
    *("roc_auc", "average_precision", "brier_score", "log_loss", "accuracy", "precision", "recall"),
    *("specificity", "f1", "expected_calibration_error", "expected_calibration_error_uniform"),
    *("calibration_intercept", "calibration_slope", "hosmer_lemeshow", "prevalence"),
    *("observed_expected_ratio", "net_benefit"),
)


def run(task: Evaluate, rows: int, epsilon: float | None) -> dict[str, Any]:
    """Drive the task as a runtime would: one query, one release."""
    setting = NoisyServer(epsilon=epsilon).setting()
    rng = np.random.default_rng(1)
    steps = task.steps(setting)
    query = next(steps)
    assert isinstance(query, Sum)
    assert query.share == 1.0
    released: Released[LabelledHistogram] = release(
        query.of, *POPULATION.sample(rows, rng), noise=setting.noise(query), rng=rng
    )
    with pytest.raises(StopIteration) as stopped:
        steps.send(released)
    return stopped.value.value


@pytest.fixture(scope="module", params=[None, 1.0], ids=["exact", "noisy"])
def document(request: pytest.FixtureRequest) -> dict[str, Any]:
    return run(Evaluate(thresholds=(0.5, 0.2)), 20_000, request.param)


def test_every_metric_of_the_contract_is_there(document: dict[str, Any]) -> None:
    truth = POPULATION.truth(0.5)
    for name in CONTRACT:
        metric = document[name]
        assert metric["value"] is not None, name
        assert metric["level"] == 0.95
        if name != "hosmer_lemeshow":
            low, high = metric["interval"]
            half = (high - low) / 2
            assert abs(metric["value"] - truth[name]) < 3 * half, name
            assert set(metric["error"]) == {"sampling", "privacy", "discretisation"}


def test_the_first_threshold_is_at_the_top(document: dict[str, Any]) -> None:
    first, second = document["thresholds"]
    assert (first["threshold"], first["applied"]) == (0.5, 0.5)
    assert (second["threshold"], second["applied"]) == (0.2, 0.2)
    for name in ("accuracy", "precision", "recall", "specificity", "f1", "net_benefit"):
        assert document[name] == first[name]
    assert first["recall"]["value"] < second["recall"]["value"]


def test_the_json_is_small_and_plain(document: dict[str, Any]) -> None:
    text = json.dumps(document, allow_nan=False)
    assert len(text) < 1_000_000
    assert json.loads(text) == document


def test_thresholds_can_be_chosen_after_the_release(document: dict[str, Any]) -> None:
    stored = json.loads(json.dumps(document))
    assert metrics_at(stored, 0.5) == document["thresholds"][0]
    later = metrics_at(stored, 0.3456)
    assert later["threshold"] == 0.3456
    assert later["applied"] == pytest.approx(0.3456, abs=1e-3)
    truth = POPULATION.truth(later["applied"])
    for name in ("accuracy", "precision", "recall", "specificity"):
        assert later[name]["value"] == pytest.approx(truth[name], abs=0.03)
    assert metrics_at(stored, 0.5, level=0.5)["recall"]["interval"][0] > later["recall"]["interval"][0] - 1


@pytest.mark.parametrize("broken", [{}, {"histogram": {}}, {"histogram": 3}])
def test_a_result_without_its_histogram_is_refused(broken: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="expected the `results` of an evaluation"):
        metrics_at(broken, 0.5)


def test_buckets_hold_equal_shares(document: dict[str, Any]) -> None:
    buckets = document["buckets"]
    sizes = np.array(buckets["positives"]) + np.array(buckets["negatives"])
    assert len(buckets["edges"]) == len(sizes) + 1 == 11
    assert np.abs(sizes - 2_000).max() < 300
    assert document["histogram"]["rows"] == pytest.approx(20_000, abs=100)


def test_curves_are_curves(document: dict[str, Any]) -> None:
    roc = {name: np.array(values, dtype=float) for name, values in document["roc_curve"].items()}
    assert (roc["fpr"][0], roc["tpr"][0]) == (0, 0)
    assert (roc["fpr"][-1], roc["tpr"][-1]) == (1, 1)
    assert document["roc_curve"]["thresholds"][0] is None
    assert np.all(np.diff(roc["fpr"]) >= 0)
    assert np.all(np.diff(roc["tpr"]) >= 0)
    assert np.all(np.diff(roc["thresholds"][1:]) < 0)
    assert np.all((roc["lower"] <= roc["tpr"]) & (roc["tpr"] <= roc["upper"]))
    assert 50 < len(roc["fpr"]) <= 201
    area = np.trapezoid(roc["tpr"], roc["fpr"])
    assert area == pytest.approx(document["roc_auc"]["value"], abs=2e-3)
    recall = np.array(document["precision_recall_curve"]["recall"])
    assert np.all(np.diff(recall) >= 0)
    reliability = document["reliability_curve"]
    assert sum(reliability["share"]) == pytest.approx(1, abs=0.02)
    for low, high, mean in zip(
        *zip(*reliability["edges"], strict=True), reliability["mean_score"], strict=True
    ):
        assert low <= mean <= high
    benefit = document["net_benefit_curve"]
    assert len(benefit["thresholds"]) == 99
    nearest = int(np.argmin(np.abs(np.array(benefit["thresholds"]) - 0.5)))
    assert benefit["net_benefit"][nearest] == pytest.approx(document["net_benefit"]["value"], abs=1e-9)


def test_parameters_follow_the_noise() -> None:
    task = Evaluate()
    exact = task.histogram(NoisyServer().setting())
    assert (exact.height, exact.widths, exact.transform) == (15, (1,), "mixed")
    noisy = task.histogram(NoisyServer(epsilon=1.0).setting())
    assert (noisy.height, noisy.transform) == (10, "mixed")
    assert (noisy.widths, noisy.multipliers) == ((1, 16, 128), (1, 1, 2))
    assert Evaluate(height=7).histogram(NoisyServer(epsilon=1.0).setting()).height == 7
    assert Evaluate(transform="logit").histogram(NoisyServer().setting()).transform == "logit"
    assert {0.5, *(j / 10 for j in range(1, 10))} == set(exact.thresholds)


def test_the_mixed_grid_has_the_smallest_binning_bound() -> None:
    """Why the transform need not be chosen by looking at the data."""
    for population in (POPULATION, Population(0.001), Population(0.5, shift=-14.0)):
        bounds = {}
        for transform, height in (("mixed", 13), ("uniform", 12), ("logit", 12)):
            task = Evaluate(transform=transform, height=height)
            rows = population.sample(20_000, np.random.default_rng(3))
            document = task.results(release(task.histogram(NoisyServer().setting()), *rows))
            bounds[transform] = document["roc_auc"]["error"]["discretisation"]
        assert bounds["mixed"] <= 1.05 * min(bounds["uniform"], bounds["logit"])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"thresholds": ()}, "thresholds: got none"),
        ({"thresholds": (1.2,)}, "thresholds: got"),
        ({"transform": "sqrt"}, "transform: got 'sqrt', expected auto, uniform, logit or mixed"),
        ({"level": 1.0}, "level: got 1.0"),
        ({"buckets": 0}, "buckets: got 0"),
        ({"height": 1}, "height: got 1"),
        ({"height": 0}, "height: got 0"),
        ({"height": 3, "thresholds": (0.5,), "buckets": 50}, "give a larger height"),
    ],
)
def test_bad_parameters_are_refused_before_any_row(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Evaluate(**wrong)
