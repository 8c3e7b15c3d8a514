"""Displays: the numbers of a result as attributes, a chart of them, a file of the chart."""

from __future__ import annotations

import functools
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import fedassay
from fedassay.documents import plots
from fedassay.documents.display import Display
from fedassay.documents.report import sub_document
from fedassay.errors import UsageError
from fedassay.protocol.result import Result
from pictures import marks, png
from study_documents import study_document

DISPLAYS: dict[str, type[Display]] = {
    name: getattr(fedassay, name) for name in fedassay.__all__ if name.endswith("Display")
}
TASK = {"CoverageDisplay": "conformal"}
"""Where a study has several."""

MARKS = {
    "BudgetDisplay": {"rect": 6, "text": 6, "rule": 1},
    "CoefficientsDisplay": {"symbol": 2, "rule": 3},
    "CoverageDisplay": {"line": 2, "rect": 3, "rule": 1},
    "ForestDisplay": {"symbol": 33, "rule": 33},
    "NetBenefitDisplay": {"area": 1, "line": 3},
    "PrecisionRecallDisplay": {"area": 1, "line": 1, "rule": 1},
    "ReliabilityDisplay": {"symbol": 20, "line": 3, "rule": 20},
    "RocCurveDisplay": {"area": 1, "line": 2},
    "ScoreDistributionDisplay": {"area": 2, "line": 2},
}
"""What is drawn, for a study of five tasks on eight sites."""


@functools.cache
def study(*, noise: bool = False) -> dict[str, Any]:
    """The document of a study, to be read."""
    return study_document(noise=noise)


def shown(name: str) -> Display:
    return DISPLAYS[name].from_result(study(noise=name == "BudgetDisplay"), task=TASK.get(name))


def test_there_is_one_for_each_kind_of_plot() -> None:
    assert set(DISPLAYS) == set(MARKS)


@pytest.mark.parametrize("name", sorted(MARKS))
def test_a_display_is_drawn_told_and_saved(name: str, tmp_path: Path) -> None:
    display = shown(name)
    chart = display.chart
    text = plots.as_svg(chart)
    for kind, count in MARKS[name].items():
        assert marks(text, kind) == count, kind
    display.save(tmp_path / "plot.png")
    assert png(tmp_path / "plot.png")[2] > 20
    assert len(re.findall(r"\d", display.alternative)) >= 4
    assert chart.to_dict(validate=False)["description"] == display.alternative


def test_attributes_are_the_numbers_of_the_result() -> None:
    results = study()["results"]["tasks"]
    roc: Any = shown("RocCurveDisplay")
    curve = results["evaluate"]["results"]["roc_curve"]
    for name in ("fpr", "tpr", "thresholds", "lower", "upper"):
        assert list(getattr(roc, name)) == curve[name]
    assert (roc.level, roc.roc_auc) == (curve["level"], results["evaluate"]["results"]["roc_auc"]["value"])
    precision: Any = shown("PrecisionRecallDisplay")
    curve = results["evaluate"]["results"]["precision_recall_curve"]
    assert [list(precision.precision), list(precision.recall)] == [curve["precision"], curve["recall"]]
    for name in ("average_precision", "prevalence"):
        assert getattr(precision, name) == results["evaluate"]["results"][name]["value"]
    benefit: Any = shown("NetBenefitDisplay")
    curve = results["evaluate"]["results"]["net_benefit_curve"]
    assert [list(benefit.net_benefit), list(benefit.treat_all)] == [curve["net_benefit"], curve["treat_all"]]
    scores: Any = shown("ScoreDistributionDisplay")
    assert len(scores.edges) == 1 + len(scores.positives) == 1 + len(scores.density["negatives"])
    assert sum(scores.positives) + sum(scores.negatives) == pytest.approx(6000)


def test_attributes_of_the_other_tasks() -> None:
    results = study()["results"]["tasks"]
    reliability: Any = shown("ReliabilityDisplay")
    assert reliability.curves == results["calibrate"]["results"]["reliability_curve"]
    assert reliability.expected_calibration_error == {
        part: results["calibrate"]["results"][part]["expected_calibration_error"]["value"]
        for part in ("before", "after")
    }
    coverage: Any = shown("CoverageDisplay")
    assert coverage.level == 0.9
    assert sum(coverage.set_sizes) == pytest.approx(1)
    parts = results["conformal"]["results"]["groups"]
    assert coverage.laws == {name: part["coverage_law"] for name, part in parts.items()}
    fitted: Any = shown("CoefficientsDisplay")
    entries = results["infer"]["results"]["coefficients"]
    assert list(fitted.names) == [entry["name"] for entry in entries]
    assert list(fitted.values) == [entry["value"] for entry in entries]
    assert [list(ends) for ends in fitted.intervals] == [entry["interval"] for entry in entries]
    assert len(fitted.p_values) == len(fitted.standard_errors) == len(entries)
    forest: Any = shown("ForestDisplay")
    sites = results["evaluate"]["results"]["sites"]
    assert list(forest.names) == [site["site"] for site in sites]
    assert list(forest.metrics["roc_auc"]) == [site["roc_auc"] for site in sites]
    spent: Any = shown("BudgetDisplay")
    noisy = study(noise=True)["results"]
    budget = noisy["budget"]
    assert [spent.epsilon, spent.delta, spent.spent, spent.remaining] == [
        budget[name] for name in ("epsilon", "delta", "spent", "remaining")
    ]
    assert list(spent.by_task) == list(noisy["tasks"])
    assert spent.by_task == budget["by_task"]


def test_a_result_its_document_and_its_file_show_the_same(tmp_path: Path) -> None:
    rows = {"p": [0.1, 0.2, 0.6, 0.8, 0.3, 0.7], "y": [0, 0, 1, 1, 1, 0]}
    result = fedassay.evaluate(rows, score="p", label="y", simulation=fedassay.Simulation(seed=1))
    assert isinstance(result, Result)
    result.save(tmp_path / "result.json")
    document = json.loads(result.to_json())
    made = [
        fedassay.RocCurveDisplay.from_result(source)
        for source in (result, document, tmp_path / "result.json", str(tmp_path / "result.json"))
    ]
    assert {one.alternative for one in made} == {made[0].alternative}
    assert made[0].tpr == made[1].tpr == made[2].tpr == made[3].tpr
    single = fedassay.ReliabilityDisplay.from_result(document)
    assert set(single.curves) == set(single.expected_calibration_error) == {"all"}


def test_a_task_of_a_study_can_be_chosen() -> None:
    document = study()
    chosen = fedassay.ReliabilityDisplay.from_result(document, task="evaluate")
    assert set(chosen.curves) == {"all"}
    assert fedassay.CoverageDisplay.from_result(document, task="conformal95").level == 0.95


def test_notebooks_get_a_picture_and_words() -> None:
    display = shown("RocCurveDisplay")
    bundle = display._repr_mimebundle_()
    assert set(bundle) == {"text/html", "text/plain"}
    assert bundle["text/html"] == display._repr_html_()
    assert 'role="img" aria-label="ROC curve' in bundle["text/html"]
    assert "http" not in bundle["text/html"].replace("http://www.w3.org/2000/svg", "")
    assert set(display._repr_mimebundle_(exclude=["text/html"])) == {"text/plain"}
    assert set(display._repr_mimebundle_(include=["text/html"])) == {"text/html"}
    assert repr(display).startswith("RocCurveDisplay(task='evaluate', roc_auc=0.")


@pytest.mark.parametrize("name", sorted(MARKS))
def test_a_display_is_short_and_has_its_main_numbers(name: str) -> None:
    said = repr(shown(name))
    assert len(said) < 140
    assert said.startswith(f"{name}(")
    assert re.search(r"=\W*\w*\W*\d", said)
    assert "{}" not in said


def test_a_reliability_diagram_says_of_which_task_it_is() -> None:
    def title(task: str | None) -> str:
        chart = fedassay.ReliabilityDisplay.from_result(study(), task=task).chart.to_dict()
        return str(chart["title"]["text"])

    assert title(None) == "Reliability (calibrate), before and after"
    assert title("evaluate").startswith("Reliability (evaluate), ECE 0.")
    alone = fedassay.ReliabilityDisplay.from_result(sub_document(study(), "calibrate"))
    assert alone.chart.to_dict()["title"]["text"] == "Reliability, before and after"
    assert (alone.task, repr(alone).startswith("ReliabilityDisplay(expected_")) == ("", True)


ERRORS: list[tuple[str, Any, dict[str, Any], str]] = [
    ("RocCurveDisplay", {"task": "infer", "results": {}}, {}, "got a result of infer, which has none"),
    ("RocCurveDisplay", {"a": 1}, {}, "without 'task' and 'results'"),
    ("RocCurveDisplay", {"task": "evaluate", "results": 1}, {"task": "x"}, "that of one task, evaluate"),
    ("RocCurveDisplay", "nowhere.json", {}, "nowhere.json: cannot be read"),
    ("CoverageDisplay", None, {}, "several tasks of the study have one; give task, one of conformal, conformal95"),
    ("CoverageDisplay", None, {"task": "evaluate"}, "coverage: got a result of evaluate, which has none"),
    ("CoverageDisplay", None, {"task": "nothing"}, "the study has no such task"),
    ("BudgetDisplay", {"task": "evaluate", "results": {}}, {}, "expected that of a study"),
    ("BudgetDisplay", None, {}, "no noise was added"),
    ("BudgetDisplay", None, {"task": "evaluate"}, "that of a whole study; leave `task` out"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "source", "options", "message"), ERRORS)
def test_what_a_result_does_not_have_is_said(
    name: str, source: Any, options: dict[str, Any], message: str
) -> None:
    given = study() if source is None else source
    with pytest.raises(UsageError, match=re.escape(message)):
        DISPLAYS[name].from_result(given, **options)


def test_a_file_that_is_not_json_is_named(tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text("<html>")
    with pytest.raises(UsageError, match="is not JSON"):
        fedassay.RocCurveDisplay.from_result(tmp_path / "result.json")


def test_why_there_is_no_forest() -> None:
    noisy = study_document(noise=True)
    with pytest.raises(UsageError, match="neither sites nor groups were asked for"):
        fedassay.ForestDisplay.from_result(noisy)
    noisy["results"]["tasks"]["evaluate"]["results"]["sites_reason"] = "single sites are hidden"
    with pytest.raises(UsageError, match="because single sites are hidden"):
        fedassay.ForestDisplay.from_result(noisy)


def test_sets_that_hold_everything_have_no_law() -> None:
    document = study_document(noise=False)
    results = document["results"]["tasks"]["conformal95"]["results"]
    for name in ("coverage_law", "held_out", "comparison"):
        results[name] = None
    results["infinite"] = True
    display = fedassay.CoverageDisplay.from_result(document, task="conformal95")
    assert display.alternative == "No law of the coverage: the sets hold everything."
    assert display.set_sizes == ()
    assert "the sets hold everything" in json.dumps(display.chart.to_dict())


def test_importing_fedassay_does_not_import_altair() -> None:
    code = "import sys, fedassay; dir(fedassay); print('altair' in sys.modules, 'RocCurveDisplay' in dir(fedassay))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]
