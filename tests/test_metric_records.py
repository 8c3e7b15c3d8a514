"""The contract of a metric: what every record promises, and that every face reads it. None of this names a metric."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

import fedassay
from binormal import NoisyServer, Population, release
from fedassay.cli.plan_terminal import label
from fedassay.documents.measured import measured
from fedassay.errors import UsageError
from fedassay.estimation.confusion import Confusion
from fedassay.estimation.evidence import Evidence
from fedassay.estimation.metric import Metric
from fedassay.kernel.agenda import Agenda
from fedassay.planning import Expectation, PlannedStudy, predict_tasks
from fedassay.protocol.metrics import (
    CLASS_METRICS,
    METRICS,
    MetricPlace,
    MetricRecord,
    compared,
    of_part,
    targets,
)
from fedassay.protocol.vocabulary import Sum
from fedassay.summaries.score_histogram import ScoreHistogram
from fedassay.tasks.evaluation import Evaluate
from fedassay.tasks.evaluation import document as pages
from fedassay.tasks.evaluation.accuracy import predict
from fedassay.trust import Plain

RECORDS = [*METRICS.values(), *CLASS_METRICS.values()]
SCHEMA = json.loads((files("fedassay") / "documents" / "result.schema.json").read_text())
PARTS: tuple[MetricPlace, ...] = ("rows", "threshold", "operating-point")


def of(record: MetricRecord, evidence: Evidence, threshold: float = 0.5) -> Metric:
    counts = evidence if "rows" in record.parts else Confusion.at(evidence, threshold)
    metric = record.of(counts, level=0.9, buckets=5)
    assert isinstance(metric, Metric)
    return metric


# --- records --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: f"{record.name}-{record.order}")
def test_a_record_is_complete(record: MetricRecord) -> None:
    assert record.title.strip()
    assert record.sentence[0].islower()
    assert not record.sentence.endswith(".")
    assert set(record.parts) <= set(PARTS)
    assert record.range[0] < record.range[1]
    assert record.target is None or record.target > 0
    assert len(record.short) <= 24
    assert callable(record.estimator)
    assert label(record.name) in (record.name, record.short)


def test_no_two_metrics_stand_in_one_place() -> None:
    for catalogue in (METRICS, CLASS_METRICS):
        assert len({record.order for record in catalogue.values()}) == len(catalogue)
        assert [record.name for record in catalogue.values()] == list(catalogue)


def test_records_are_read_without_arrays_and_estimators() -> None:
    """Pages are made from JSON and records alone; what they import, every reader pays for."""
    program = """
import sys
from fedassay.protocol.metrics import CLASS_METRICS, METRICS
assert len(METRICS) > 20
assert METRICS["roc_auc"].title
assert not {"numpy", "scipy", "fedassay.estimation.evidence"} & set(sys.modules), "heavy"
"""
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"name": "Youden's J"}, 'got the name "Youden\'s J", expected one like a lower-case Python name'),
        ({"parts": ()}, "metric j: got no parts, expected where an evaluation has it"),
        ({"scale": "log"}, "metric j: got a scale of pooling, expected it only for a metric over all rows"),
        ({"forest": True}, "metric j: got a forest plot, expected a scale on which sites are pooled"),
    ],
)
def test_a_wrong_record_is_refused(wrong: dict[str, Any], sentence: str) -> None:
    given = {"name": "j", "title": "J", "sentence": "how good it is", "order": 1, "parts": ("threshold",)}
    with pytest.raises(UsageError, match=sentence):
        MetricRecord(**{**given, "estimate": of, **wrong})


# --- estimators -----------------------------------------------------------------------------------------------------

COUNTS = st.lists(st.integers(0, 40), min_size=8, max_size=8)


@given(COUNTS, st.sampled_from([None, 0.5, 2.0]), st.integers(0, 3))
@settings(max_examples=60, deadline=None)
def test_a_value_is_within_its_interval_and_its_range_or_there_is_a_reason(
    counts: list[int], epsilon: float | None, seed: int
) -> None:
    """Any counts, with and without noise; empty classes and empty decisions among them."""
    setting = NoisyServer(epsilon=epsilon).setting()
    histogram = ScoreHistogram(transform="uniform", height=2, thresholds=(0.5,))
    scores = np.repeat(np.tile(np.array([0.1, 0.4, 0.6, 0.9]), 2), counts)
    labels = np.repeat(np.repeat(np.array([0, 1], dtype=np.int8), 4), counts)
    noise = setting.noise(Sum(of=histogram))
    released = release(histogram, scores, labels, noise=noise, rng=np.random.default_rng(seed))
    evidence = released.value.evidence(released.noise)
    for record in METRICS.values():
        metric = of(record, evidence)
        if metric.value is None:
            assert metric.reason
            continue
        low, high = record.range
        assert low <= metric.value <= high, record.name
        assert (metric.interval is None) == record.test
        if metric.interval is not None:
            assert low <= metric.interval[0] <= metric.value <= metric.interval[1] <= high, record.name


def test_every_metric_has_a_value_on_ordinary_rows_and_none_on_no_rows() -> None:
    histogram = Evaluate(height=8).histogram(NoisyServer().setting())
    scores, labels = Population(0.3).sample(2_000, np.random.default_rng(0))
    ordinary = release(histogram, scores, labels)
    nothing = release(histogram, scores[:0], labels[:0])
    for record in METRICS.values():
        assert of(record, ordinary.value.evidence(ordinary.noise)).value is not None, record.name
        assert of(record, nothing.value.evidence(nothing.noise)).reason, record.name


# --- faces ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    rng = np.random.default_rng(1)
    scores, labels = Population(0.3, shift=0.2).sample(4_000, rng)
    rows = {"p": scores, "y": labels, "site": rng.integers(0, 5, 4_000)}
    result = fedassay.evaluate(
        rows, client="site", score="p", label="y", privacy=Plain(), thresholds=(0.2, 0.5), per_site=True
    )
    found: dict[str, Any] = json.loads(result.to_json())
    return found


def test_results_have_every_metric(document: dict[str, Any]) -> None:
    results = document["results"]
    for record in METRICS.values():
        assert ("rows" in record.parts or "threshold" in record.parts) == (record.name in results)
        assert all(("threshold" in record.parts) == (record.name in row) for row in results["thresholds"])
        assert ("operating-point" in record.parts) == (record.name in results["operating_points"])
        for site in results["sites"]:
            assert (record.name in site) == (record.name in results)
    assert tuple(results["heterogeneity"]) == compared()
    for name, entry in results["heterogeneity"].items():
        assert entry["scale"] == METRICS[name].scale


def test_the_schema_is_made_from_the_records(document: dict[str, Any]) -> None:
    validator = Draft202012Validator(SCHEMA)
    assert list(validator.iter_errors(document)) == []
    for record in METRICS.values():
        for part, place in (
            ("rows", document["results"]),
            ("threshold", document["results"]["thresholds"][1]),
            ("operating-point", document["results"]["operating_points"]),
        ):
            if part in record.parts:
                kept = place.pop(record.name)
                assert not validator.is_valid(document), (record.name, part)
                place[record.name] = {"value": "high"}
                assert not validator.is_valid(document), (record.name, part)
                place[record.name] = kept
    document["results"]["another_packages_metric"] = document["results"]["roc_auc"]
    assert list(validator.iter_errors(document)) == []
    del document["results"]["another_packages_metric"]


def test_no_table_of_a_page_is_too_wide(document: dict[str, Any]) -> None:
    tables = list(pages.at_thresholds(document["results"]["thresholds"]))
    assert all(len(table.head) <= 7 for table in tables)
    heads = [title for table in tables for title in table.head]
    assert {record.short for record in of_part("threshold")} <= set(heads)


def test_a_result_of_an_older_version_is_still_shown(document: dict[str, Any]) -> None:
    for record in of_part("threshold")[-2:]:
        older = json.loads(json.dumps(document))
        del older["results"][record.name]
        for row in older["results"]["thresholds"]:
            del row[record.name]
        tables = pages.at_thresholds(older["results"]["thresholds"])
        assert not any(record.short in table.head for table in tables)
        assert list(pages.EvaluationDocument().blocks(older))


def test_a_plan_predicts_the_metrics_that_have_a_target() -> None:
    expected = Expectation(rows=4_000, clients=4, prevalence=0.3, auc=0.8)
    study = PlannedStudy(expectation=expected, trust=Plain())
    plan = predict_tasks(Agenda.of("evaluate", {"height": 6}), study, shares={"evaluate": 1.0})["evaluate"]
    judged = {name: one for name, one in plan.metrics.items() if one.target is not None}
    assert {name: one.target for name, one in judged.items()} == targets()
    assert all(one.value is not None for one in judged.values())


def test_what_is_predicted_without_noise_is_what_exact_counts_say() -> None:
    histogram = Evaluate(height=10).histogram(NoisyServer().setting())
    terms = {"rows": 50_000, "prevalence": 0.3, "auc": 0.8}
    for name, metric in predict(histogram, **terms).items():
        assert metric.privacy == 0, name
        noise = NoisyServer(epsilon=5.0).setting().noise(Sum(of=histogram))
        noisy = predict(histogram, **terms, noise=noise, metrics=(name,))[name]
        if METRICS[name].expected is None and noisy.value is not None:
            assert noisy.sampling == metric.sampling, name


# --- metrics of other packages --------------------------------------------------------------------------------------

YOUDEN = '''
from fedassay.estimation.metric import LEVEL, estimator
from fedassay.estimation.shares import TRUE_NEGATIVE_RATE, TRUE_POSITIVE_RATE
from fedassay.protocol.metrics import MetricRecord


@estimator
def youden(confusion, *, level=LEVEL):
    """TP/P + TN/N - 1 (Youden 1950)."""
    one, two = confusion.share(TRUE_POSITIVE_RATE), confusion.share(TRUE_NEGATIVE_RATE)
    value = one.estimate.value + two.estimate.value - 1
    gradient = one.gradient + two.gradient
    return confusion.within(value, tuple(gradient), ends=(-1, 1), size=min(one.size, two.size), level=level)


YOUDEN = MetricRecord(
    name="youden",
    title="Youden's J",
    sentence="recall plus specificity, less one",
    order=1_000,
    parts=("threshold", "operating-point"),
    range=(-1.0, 1.0),
    target=0.05,
    estimate=youden,
)
'''


@pytest.fixture
def installed(tmp_path: Path) -> dict[str, str]:
    """A package with one metric, installed beside ours: one file, and the entry point that names its record."""
    place = tmp_path / "site"
    information = place / "my_metrics-1.0.dist-info"
    information.mkdir(parents=True)
    (place / "my_metrics.py").write_text(YOUDEN)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: my-metrics\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text("[fedassay.metrics]\nyouden = my_metrics:YOUDEN\n")
    path = os.pathsep.join([str(place), *sys.path])
    return {**os.environ, "PYTHONPATH": path, "COLUMNS": "80", "NO_COLOR": "1"}


def command(folder: Path, installed: dict[str, str], *arguments: str) -> str:
    program = "import sys; from fedassay.cli import run_command; sys.exit(run_command(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=folder,
        env=installed,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_metric_of_another_package_stands_everywhere(tmp_path: Path, installed: dict[str, str]) -> None:
    rng = np.random.default_rng(3)
    scores, labels = Population(0.4).sample(3_000, rng)
    rows = "\n".join(f"{score:.6f},{label}" for score, label in zip(scores, labels, strict=True))
    (tmp_path / "rows.csv").write_text(f"p,y\n{rows}\n")
    arguments = ("--score", "p", "--label", "y", "--threshold", "0.4", "--privacy", "plain")
    shown = command(
        tmp_path,
        installed,
        *("evaluate", "rows.csv", *arguments, "--json", "result.json", "--report", "page.html"),
    )
    document = json.loads((tmp_path / "result.json").read_text())
    found = document["results"]["youden"]
    flagged = np.round(scores, 6) >= 0.4
    recall, specificity = flagged[labels == 1].mean(), (~flagged)[labels == 0].mean()
    assert found["value"] == pytest.approx(recall + specificity - 1)
    assert found == document["results"]["thresholds"][0]["youden"]
    assert len(document["results"]["operating_points"]["youden"]["value"]) == 99
    assert list(Draft202012Validator(SCHEMA).iter_errors(document)) == []
    assert "Youden's J" in shown
    page = (tmp_path / "page.html").read_text()
    assert page.count("Youden") >= 3  # a column, a tile and a column of the explorer
    expected = ("--rows", "3000", "--prevalence", "0.4", "--auc", "0.8", "--clients", "3", "--height", "6")
    plan = json.loads(
        command(
            tmp_path,
            installed,
            *("plan", "evaluate", *expected, "--target", "youden=0.1", "--json", "-", "--quiet"),
        )
    )
    assert plan["metrics"]["youden"]["target"] == 0.1
    assert plan["metrics"]["youden"]["verdict"] == "enough data"
    # This process has no such package: a reader without it sees the rest.
    tables = list(pages.at_thresholds(document["results"]["thresholds"]))
    assert not any("Youden's J" in table.head for table in tables)
    assert "youden at 0.4" in {one.title for one in measured(document)}
