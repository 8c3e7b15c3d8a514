"""Strange evidence: one class, no rows, one score, more noise than rows. Never a crash, a NaN or a silent number."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedassay
from binormal import NoisyServer, Population, release
from fedassay.estimation.ratios import brier_score
from fedassay.protocol.vocabulary import NO_NOISE, Released, Sum
from fedassay.summaries.score_histogram import ScoreHistogram
from fedassay.tasks.evaluation import Evaluate

TASK = Evaluate(height=8, thresholds=(0.5,))
RANKING = ("roc_auc", "average_precision", "calibration_intercept", "calibration_slope")


def results(scores: Any, labels: Any, epsilon: float | None = None, seed: int = 0) -> dict[str, Any]:
    setting = NoisyServer(epsilon=epsilon).setting()
    histogram = TASK.histogram(setting)
    released = release(
        histogram,
        np.asarray(scores, dtype=np.float64),
        np.asarray(labels, dtype=np.int8),
        noise=setting.noise(Sum(of=histogram)),
        rng=np.random.default_rng(seed),
    )
    document = TASK.results(released)
    json.dumps(document, allow_nan=False)
    return document


def check(metric: dict[str, Any]) -> None:
    if metric["value"] is None:
        assert metric["interval"] is None
        assert metric["reason"]
    elif metric["interval"] is not None:
        low, high = metric["interval"]
        assert low <= metric["value"] <= high
        assert all(error >= 0 for error in metric["error"].values())


def all_metrics(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [m for m in document.values() if isinstance(m, dict) and "level" in m and "value" in m]


@pytest.mark.parametrize(("label", "missing"), [(1, "negative"), (0, "positive")])
def test_one_class_only(label: int, missing: str) -> None:
    found = results(np.linspace(0.1, 0.9, 50), np.full(50, label))
    for name in RANKING:
        assert found[name]["value"] is None
        assert found[name]["reason"] == f"there are no {missing} rows"
    assert found["roc_curve"]["reason"] == f"there are no {missing} rows"
    assert found["precision_recall_curve"]["fpr" if label > 1 else "recall"] == []
    assert found["prevalence"]["value"] == label
    assert found["prevalence"]["interval"][label] == label
    assert found["prevalence"]["interval"][0] < found["prevalence"]["interval"][1]
    assert found["accuracy"]["value"] == 0.5
    for name in ("brier_score", "log_loss", "expected_calibration_error", "hosmer_lemeshow"):
        assert found[name]["value"] is not None
    ratio = found["observed_expected_ratio"]
    assert ratio["value"] == pytest.approx(2 * label, rel=0.01)
    assert ratio["interval"][1] > ratio["value"]


def test_no_rows_at_all() -> None:
    found = results([], [])
    assert all(metric["value"] is None for metric in all_metrics(found))
    assert found["brier_score"]["reason"] == "there are no rows"
    assert found["net_benefit_curve"]["reason"] == found["reliability_curve"]["reason"] == "there are no rows"


def test_all_scores_equal() -> None:
    found = results(np.full(100, 0.3), np.arange(100) % 2)
    assert found["roc_auc"]["value"] == 0.5
    assert found["roc_auc"]["interval"] == [0.0, 1.0]  # inside the one bin, any order is possible
    assert found["calibration_slope"]["reason"] == "all scores fall into one bin, so no slope can be fitted"
    assert found["calibration_intercept"]["value"] == pytest.approx(np.log(0.7 / 0.3), abs=0.02)
    assert found["hosmer_lemeshow"]["groups"] == 1


def test_a_perfect_model_has_intervals_of_positive_width() -> None:
    labels = np.arange(60) % 2
    found = results(0.1 + 0.8 * labels, labels)
    for name in ("roc_auc", "average_precision", "accuracy", "precision", "recall", "specificity", "f1"):
        assert found[name]["value"] == 1.0
        assert found[name]["interval"][0] < 0.99
        assert found[name]["interval"][1] == 1.0
    assert found["calibration_slope"]["reason"].startswith("the scores separate the classes")


def test_no_predicted_positives() -> None:
    found = results(np.linspace(0, 0.4, 50), np.arange(50) % 2)
    assert found["precision"]["reason"] == "there are no rows predicted positive"
    assert found["recall"]["value"] == 0.0
    assert found["recall"]["interval"][1] > 0
    assert found["f1"]["value"] == 0.0


def test_net_benefit_has_no_value_at_threshold_one() -> None:
    released = release(ScoreHistogram(transform="uniform", height=8, thresholds=(1.0,)), *sample(100))
    task = Evaluate(thresholds=(1.0,), transform="uniform", height=8)
    entry = task.results(released)["thresholds"][0]
    assert entry["applied"] == 1.0
    assert "infinite" in entry["net_benefit"]["reason"]


def sample(rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    return Population(0.4).sample(rows, np.random.default_rng(seed))


@pytest.mark.parametrize("seed", range(5))
def test_more_noise_than_rows_is_not_enough_evidence(seed: int) -> None:
    found = results(*sample(30), epsilon=0.5, seed=seed)
    for name in (
        *RANKING,
        *("prevalence", "brier_score", "log_loss", "accuracy", "precision", "hosmer_lemeshow"),
    ):
        assert found[name]["value"] is None, name
        assert found[name]["reason"].startswith("not enough evidence: about"), name
        assert "standard deviation" in found[name]["reason"]
    assert "not enough evidence" in found["roc_curve"]["reason"]


def test_a_rare_class_under_noise_is_not_enough_but_the_rest_comes() -> None:
    scores, labels = Population(0.01).sample(1_500, np.random.default_rng(1))
    found = results(scores, labels, epsilon=1.0)
    assert found["roc_auc"]["reason"].startswith("not enough evidence: about")
    assert found["accuracy"]["value"] == pytest.approx(0.99, abs=0.05)
    assert found["specificity"]["value"] is not None


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0, 1), st.integers(0, 1)), max_size=30),
    st.sampled_from([None, 0.05, 1.0, 20.0]),
    st.integers(0, 2**32 - 1),
)
def test_anything_gives_valid_json(rows: list[tuple[float, int]], epsilon: float | None, seed: int) -> None:
    found = results([s for s, _ in rows], [y for _, y in rows], epsilon, seed)
    for metric in all_metrics(found):
        check(metric)
    for entry in found["thresholds"]:
        for name, metric in entry.items():
            if name not in ("threshold", "applied"):
                check(metric)
    for name in ("roc_curve", "precision_recall_curve", "net_benefit_curve", "reliability_curve"):
        curve = found[name]
        assert len({len(values) for values in curve.values() if isinstance(values, list)}) == 1


def test_noise_is_never_clipped_away() -> None:
    """Clipping counts at zero would add rows: the mean Brier score over many draws stays unbiased."""
    setting = NoisyServer(epsilon=1.0).setting()
    histogram = Evaluate().histogram(setting)
    noise, rng = setting.noise(Sum(of=histogram)), np.random.default_rng(2)
    scores, labels = sample(1_000)
    exact = brier_score(release(histogram, scores, labels).value.evidence(NO_NOISE)).value
    draws, rows = [], []
    for _ in range(200):
        released: Released[Any] = release(histogram, scores, labels, noise=noise, rng=rng)
        evidence = released.value.evidence(released.noise)
        draws.append(brier_score(evidence).value)
        rows.append(evidence.rows)
    assert np.mean(draws) == pytest.approx(exact, abs=4 * np.std(draws) / np.sqrt(200))
    assert np.mean(rows) == pytest.approx(1_000, abs=4 * np.std(rows) / np.sqrt(200))
    clipped = np.maximum(evidence.counts, 0).sum()
    assert clipped > 1_500  # what clipping would have made of 1,000 rows


@pytest.mark.parametrize(("seed", "rows", "height"), [(39, 1000, 5), (73, 1000, 8), (5, 100, 10)])
def test_constant_scores_of_one_class_under_noise_never_crash(seed: int, rows: int, height: int) -> None:
    """Variances that vanish must not be taken for negative ones."""
    for score in (0.0, 0.3, 1.0):
        for epsilon in (0.05, 1.0):
            data = {"p": np.full(rows, score), "y": np.zeros(rows, dtype=np.int8), "s": np.arange(rows) % 3}
            result = fedassay.evaluate(
                data,
                client="s",
                score="p",
                label="y",
                privacy=fedassay.ServerDP(),
                budget=fedassay.Budget(epsilon=epsilon),
                height=height,
                simulation=fedassay.Simulation(seed=seed),
            )
            assert result.to_json()
