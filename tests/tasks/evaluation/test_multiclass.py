"""Multiclass models from logits: equal to scikit-learn on pooled rows, sane under noise, clear about bad input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from scipy.special import softmax
from sklearn.metrics import roc_auc_score

import fedassay
from fedassay.documents.page import page
from fedassay.errors import DataError, FedassayError, UsageError
from fedassay.protocol.vocabulary import Budget, Protection, Setting, Unit
from fedassay.tasks.card import task_of
from fedassay.tasks.evaluation.class_evidence import SHARED_ROWS, Gaps, calibration_error
from fedassay.tasks.evaluation.multiclass import MOST_NUMBERS, EvaluateMulticlass
from printing import printed
from softmax_rows import SoftmaxPopulation, binned_error, pooled_metrics

SCHEMA = json.loads((Path(fedassay.__file__).parent / "documents" / "result.schema.json").read_text())
METRICS = (
    *("classwise_calibration_error", "expected_calibration_error", "brier_score", "log_loss", "accuracy"),
    "roc_auc",
)


def sample(rows: int = 3000, classes: int = 5, seed: int = 0, clients: int = 8) -> dict[str, np.ndarray]:
    """Clients that have mostly rows of one class each."""
    rng = np.random.default_rng(seed)
    z, y = SoftmaxPopulation(classes=classes, stretch=1.6, spread=2.0).sample(rows, rng)
    site = np.where(rng.random(rows) < 0.8, y % clients, rng.integers(0, clients, rows))
    return {"z": z, "y": y, "site": site}


def evaluate(data: Any, seed: int = 1, **options: Any) -> fedassay.Result:
    simulation = fedassay.Simulation(seed=seed, mode=options.pop("mode", "auto"))
    given = {"client": "site", "label": "y", "logits": "z", **options}
    return fedassay.evaluate(data, simulation=simulation, **given)


def pooled(data: dict[str, np.ndarray], bins: int = 15) -> dict[str, float]:
    """What scikit-learn and the definitions say about all rows together."""
    p, y = softmax(data["z"], axis=1), data["y"]
    return {**pooled_metrics(p, y, bins), "roc_auc": float(roc_auc_score(y, p, multi_class="ovr"))}


# --- without noise --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options", [{}, {"privacy": fedassay.Plain(), "mode": "aggregate"}], ids=["masks", "plain"]
)
def test_noise_off_equals_scikit_learn_on_pooled_rows(options: dict[str, Any]) -> None:
    data = sample()
    result, wanted = evaluate(data, **options), pooled(data)
    for name in METRICS:
        bound = result[name]["error"]["discretisation"]
        assert result[name]["value"] == pytest.approx(
            wanted[name], abs=bound + 1e-12 if name == "roc_auc" else 1e-6
        )
        assert bound < (2e-3 if name == "roc_auc" else 1e-6)
        low, high = result[name]["interval"]
        assert low <= result[name]["value"] <= high
    p, y = softmax(data["z"], axis=1), data["y"]
    for j, entry in enumerate(result["classes"]):
        auc = entry["roc_auc"]
        assert auc["value"] == pytest.approx(
            roc_auc_score(y == j, p[:, j]), abs=auc["error"]["discretisation"]
        )
        assert entry["rows"] == np.count_nonzero(y == j)
        assert entry["prevalence"]["value"] == pytest.approx(np.mean(y == j))
        assert entry["calibration_error"]["value"] == pytest.approx(binned_error(p[:, j], y == j), abs=1e-6)
    assert result.task == "evaluate"
    assert result.cohort["rows"] == len(y)
    assert result.parameters["classes"] == 5


def test_the_reliability_curve_is_that_of_the_most_probable_class() -> None:
    data = sample()
    curve, p = evaluate(data)["reliability_curve"], softmax(data["z"], axis=1)
    confidence, right = p.max(axis=1), p.argmax(axis=1) == data["y"]
    for place, (low, high) in enumerate(curve["edges"]):
        inside = (confidence >= low) & ((confidence < high) | (high == 1))
        assert curve["mean_score"][place] == pytest.approx(confidence[inside].mean(), abs=1e-6)
        assert curve["observed"][place] == pytest.approx(right[inside].mean(), abs=1e-9)
        assert curve["lower"][place] <= curve["observed"][place] <= curve["upper"][place]
    assert sum(curve["share"]) == pytest.approx(1)


def test_buckets_are_the_bins_of_the_calibration_errors() -> None:
    data = sample(rows=1000)
    result, wanted = evaluate(data, buckets=7, level=0.8), pooled(data, bins=7)
    assert result["bins"] == 7
    for name in ("classwise_calibration_error", "expected_calibration_error"):
        assert result[name]["value"] == pytest.approx(wanted[name], abs=1e-6)
        assert result[name]["level"] == 0.8


def test_real_logits(datasets: Path) -> None:
    stored = np.load(datasets / "logits_cifar100_wideresnet16x4.npz")
    rows = np.arange(4000)
    z, y = stored["logits"][rows].astype(np.float64), stored["labels"][rows].astype(np.int64)
    data = {"z": z, "y": y, "site": rows % 4}
    result, wanted = evaluate(data, privacy=fedassay.Plain()), pooled(data)
    for name in METRICS:
        bound = result[name]["error"]["discretisation"]
        assert result[name]["value"] == pytest.approx(wanted[name], abs=max(1e-6, bound))
        assert bound < 2e-3


def test_two_classes_say_the_same_as_scores_do() -> None:
    data = sample(classes=2)
    score = {**data, "p": softmax(data["z"], axis=1)[:, 1]}
    classes = evaluate(data)
    scores = fedassay.evaluate(score, client="site", score="p", label="y", buckets=15)
    assert classes["brier_score"]["value"] == pytest.approx(2 * scores["brier_score"]["value"], abs=1e-3)
    for ours, theirs in (("log_loss", "log_loss"), ("accuracy", "accuracy"), ("roc_auc", "roc_auc")):
        assert classes[ours]["value"] == pytest.approx(scores[theirs]["value"], abs=1e-3)
        if ours != "roc_auc":
            assert classes[ours]["interval"] == pytest.approx(scores[theirs]["interval"], abs=2e-3)
    uniform = scores["expected_calibration_error_uniform"]
    assert classes["classwise_calibration_error"]["value"] == pytest.approx(uniform["value"], abs=1e-3)


# --- rare and missing classes ---------------------------------------------------------------------------


def test_a_class_that_nobody_has_is_left_out_of_the_mean_and_said() -> None:
    data = sample()
    kept = data["y"] != 3
    result = evaluate({name: column[kept] for name, column in data.items()})
    entry = result["classes"][3]
    assert (entry["roc_auc"]["value"], entry["rows"], entry["prevalence"]["value"]) == (None, 0, 0)
    assert entry["roc_auc"]["reason"] == "no row is of this class"
    assert entry["calibration_error"]["value"] > 0
    others = [one["roc_auc"]["value"] for one in result["classes"] if one["class"] != 3]
    assert result["roc_auc"]["value"] == pytest.approx(np.mean(others))
    (note,) = result["notes"]
    assert note == "Class 3 has no AUC (no row is of this class) and is not in the mean."
    assert note in result.warnings


def test_one_class_only() -> None:
    data = sample(rows=50)
    result = evaluate({**data, "y": np.zeros(50, dtype=int)})
    assert result["roc_auc"]["value"] is None
    assert "no class has an AUC" in result["roc_auc"]["reason"]
    assert result["classes"][0]["roc_auc"]["reason"] == "every row is of this class"
    assert result["accuracy"]["value"] is not None
    jsonschema.validate(json.loads(result.to_json()), SCHEMA)


def test_a_perfect_model_has_intervals_of_some_width() -> None:
    y = np.arange(60) % 3
    result = evaluate({"z": 50.0 * np.eye(3)[y], "y": y, "site": y})
    for name in ("accuracy", "roc_auc"):
        assert result[name]["value"] == 1
        assert result[name]["interval"][0] < 0.97
    assert result["log_loss"]["value"] == pytest.approx(0, abs=1e-6)


def test_rankings_can_be_left_out() -> None:
    result = evaluate(sample(rows=500), height=0)
    assert result["roc_auc"]["reason"] == "rankings were not asked for"
    assert result["notes"] == []
    assert result["accuracy"]["value"] is not None


def test_many_classes_get_coarser_rankings() -> None:
    plain = Setting(trust=fedassay.Plain(), protection=Protection(), budget=None, clients=3)
    lengths = []
    for classes in (10, 100, 1024):
        _, ranking = next(EvaluateMulticlass(classes=classes).steps(plain))
        lengths.append((ranking.of.height, ranking.of.length))
    assert [height for height, _ in lengths] == [10, 9, 6]
    assert max(length for _, length in lengths) <= MOST_NUMBERS


# --- the interval of calibration errors -----------------------------------------------------------------


def test_the_excess_is_allowed_for_below_and_classes_share_rows() -> None:
    gaps = {"noise": 0.0, "rows": 100.0, "noise_of_rows": 0.0, "resolution": 0.0}
    zero = calibration_error(Gaps(gaps=np.zeros((1, 2)), squares=np.array([[16.0, 9.0]]), **gaps), level=0.95)
    assert zero.details["excess"] == pytest.approx(np.sqrt(2 / np.pi) * (4 + 3) / 100)
    assert zero.interval == (0.0, pytest.approx(1.96 * 5 / 100, abs=1e-4))
    large = Gaps(gaps=np.full((1, 1), 50.0), squares=np.full((1, 1), 30.0), **gaps)
    alone = calibration_error(large, level=0.95)
    assert alone.details["excess"] == 0  # its sign is certain: the ordinary delta interval
    assert alone.sampling == pytest.approx(np.sqrt((0.3 - 0.25) / 100))
    twice = Gaps(gaps=np.full((2, 1), 50.0), squares=np.full((2, 1), 30.0), **gaps)
    assert calibration_error(twice, level=0.95).sampling == pytest.approx(
        alone.sampling * np.sqrt(SHARED_ROWS / 2)
    )


# --- under noise ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "trust", [fedassay.ServerDP(), fedassay.DistributedDP()], ids=lambda trust: trust.name
)
@pytest.mark.parametrize("delta", [0.0, 1e-5])
def test_under_noise_intervals_hold_what_all_rows_say(trust: Any, delta: float) -> None:
    data = sample(rows=20_000, classes=3)
    result = evaluate(data, privacy=trust, budget=Budget(epsilon=2.0, delta=delta))
    wanted = pooled(data)
    for name in METRICS:
        low, high = result[name]["interval"]
        assert low <= wanted[name] <= high, name
        assert result[name]["error"]["privacy"] > 0
        assert result[name]["value"] != pytest.approx(wanted[name], abs=1e-9)
    assert result["accuracy"]["interval"][1] - result["accuracy"]["interval"][0] < 0.03
    assert result.privacy["epsilon"] == 2.0
    assert result["rows"] != 20_000
    jsonschema.validate(json.loads(result.to_json()), SCHEMA)


def test_whole_clients_can_be_protected() -> None:
    data = sample(rows=6000, classes=3, clients=6)
    protection = Protection(unit=Unit.CLIENT, rows_per_client=20)
    options = {"privacy": fedassay.ServerDP(), "budget": Budget(epsilon=50.0, delta=1e-5), "height": 0}
    result = evaluate({**data, "site": np.arange(6000) // 20}, protection=protection, **options)
    assert result["accuracy"]["value"] == pytest.approx(pooled(data)["accuracy"], abs=0.02)


def test_more_noise_than_rows_says_so_everywhere() -> None:
    result = evaluate(sample(rows=60), privacy=fedassay.ServerDP(), budget=Budget(epsilon=0.01))
    for name in METRICS:
        assert result[name]["value"] is None
        assert (
            "not enough evidence" in result[name]["reason"] or "no class has an AUC" in result[name]["reason"]
        )
    assert result["reliability_curve"]["reason"].startswith("not enough evidence")
    jsonschema.validate(json.loads(result.to_json()), SCHEMA)
    assert "not enough" in printed(result.to_dict())


def test_without_rankings_the_rest_has_less_noise() -> None:
    setting = Setting(
        trust=fedassay.ServerDP(), protection=Protection(), budget=Budget(epsilon=1.0), clients=10
    )
    sums, ranking = next(EvaluateMulticlass(classes=10).steps(setting))
    alone = next(EvaluateMulticlass(classes=10, height=0).steps(setting))
    assert sums.share + ranking.share == pytest.approx(1)
    assert setting.noise(alone).variance < setting.noise(sums).variance
    assert sums.of.digits == 1


# --- the command, the report, bad input -----------------------------------------------------------------


def test_a_report_of_many_classes_shows_the_worst_ones() -> None:
    result = evaluate(sample(rows=2000, classes=60))
    text, html = printed(result.to_dict()), page(result.to_dict())
    assert "The 40 largest calibration errors of 60 classes" in text
    assert "up to" in text  # so many bins: most of the classwise error is chance
    assert html.startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"score": "p"}, "score: got it together with `logits`"),
        ({"thresholds": (0.2,)}, "thresholds: got it together with `logits`"),
        ({"transform": "logit"}, "transform: got it together with `logits`"),
        ({"by": "sex"}, "by: got it together with `logits`"),
        ({"versus": "q"}, "versus: got it together with `logits`"),
        ({"per_site": True}, "per_site: got it together with `logits`"),
        ({"logits": None}, "give `score` .* or `logits`"),
    ],
)
def test_options_that_make_no_sense(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        evaluate(sample(rows=20), **options)


def test_probabilities_in_the_place_of_logits() -> None:
    data = sample(rows=200)
    with pytest.raises(
        DataError, match=r"probabilities by their looks, expected logits; give the logarithms of the"
    ):
        evaluate({**data, "z": softmax(data["z"], axis=1)})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda d: {**d, "y": d["y"] + 1},
            "expected a whole number from 0 to 4 in every row, one of the 5 classes",
        ),
        (lambda d: {**d, "z": np.where(d["z"] == d["z"][7, 2], np.nan, d["z"])}, "finite"),
        (lambda d: {name: column[:0] for name, column in d.items()}, "row"),
    ],
)
def test_bad_rows(change: Any, message: str) -> None:
    with pytest.raises(FedassayError, match=message):
        evaluate(change(sample(rows=100)))


def test_a_study_declares_its_classes() -> None:
    assert task_of("evaluate-classes", {"classes": 3}) == EvaluateMulticlass(classes=3)
    plain = Setting(trust=fedassay.Plain(), protection=Protection(), budget=None, clients=3)
    with pytest.raises(UsageError, match="expected the number of classes of the model"):
        next(task_of("evaluate-classes", {}).steps(plain))
