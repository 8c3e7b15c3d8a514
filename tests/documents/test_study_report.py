"""The report of a study: its tasks as single results, key numbers, budget, assumptions, and the terminal."""

from __future__ import annotations

import json
from importlib.resources import files

import jsonschema
import pytest

import fedassay
from fedassay.documents import budget, figures, report
from fedassay.documents.report import (
    TaskSection,
    assumptions,
    facts,
    heading,
    key_numbers,
    sections,
    sub_document,
    unknown,
    verdict,
)
from fedassay.errors import UsageError
from printing import assert_it_fits_a_narrow_terminal, printed
from study_documents import EPSILON, shares, study_document

SCHEMA = json.loads((files("fedassay.documents") / "result.schema.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("noise", [True, False])
def test_a_study_has_the_published_form(noise: bool) -> None:
    study = study_document(noise=noise)
    jsonschema.validate(study, SCHEMA)
    study["results"]["budget"]["by_task"] = None if noise else {}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(study, SCHEMA)


def test_a_task_of_a_study_is_a_document_of_its_own() -> None:
    study = study_document()
    found = sub_document(study, "conformal95")
    assert found["task"] == "conformal"
    assert found["results"] == study["results"]["tasks"]["conformal95"]["results"]
    assert found["parameters"]["level"] == 0.95
    assert found["parameters"]["score"] == "risk"
    assert found["privacy"] == study["privacy"]
    with pytest.raises(
        UsageError, match="'x': the study has no such task, expected one of evaluate, calibrate"
    ):
        sub_document(study, "x")


@pytest.mark.parametrize(("noise", "last"), [(True, "ecdf"), (False, "infer")])
def test_tasks_are_read_in_an_order_of_their_own(noise: bool, last: str) -> None:
    study = study_document(noise=noise)
    study["results"]["tasks"] = dict(reversed(study["results"]["tasks"].items()))
    assert [section.name for section in sections(study)] == [
        "evaluate",
        "calibrate",
        "conformal95",
        "conformal",
        last,
    ]
    assert [section.title for section in sections(study)] == [
        "Evaluation",
        "Calibration",
        "Prediction sets: conformal95",
        "Prediction sets",
        {"ecdf": "Distribution", "infer": "Coefficients"}[last],
    ]
    single = sub_document(study, "calibrate")
    (section,) = sections(single)
    assert (section.name, section.title, section.document) == ("", "Calibration", single)


def test_a_name_that_says_nothing_new_is_not_said() -> None:
    study = study_document()
    tasks = study["results"]["tasks"]
    classes = {"task": "evaluate-classes", "results": {**tasks["evaluate"]["results"], "classes": []}}
    for name, title in (("evaluate", "Evaluation"), ("second", "Evaluation: second")):
        section = TaskSection(name=name, document=classes)
        assert (section.title, section.is_named) == (title, name == "second")


def test_rows_of_two_halves_are_added_and_told_beside_those_held_out() -> None:
    study = study_document(noise=False)
    assert report.rows(study) == "6,000 rows"  # an evaluation has counted all
    tasks = study["results"]["tasks"]
    one = tasks["conformal"]["results"]
    fitted, held_out = one["rows"], one["held_out"]["rows"]
    study["results"]["tasks"] = {"conformal": tasks["conformal"]}
    assert report.rows(study) == "6,000 rows"  # half of the fit rows, and nobody knows the other half
    classes = {"calibrator": {}, "fit": {"rows": 2000}, "rows": held_out}
    study["results"]["tasks"] |= {"calibrate": {**tasks["calibrate"], "results": classes}}
    study["results"]["tasks"]["calibrate"]["task"] = "calibrate-classes"
    assert report.rows(study) == f"{fitted + 2000:,.0f} rows to fit on and {held_out:,.0f} held out"
    assert report.rows(study) in report.summary(study)


def test_a_study_is_called_by_its_title_or_its_name() -> None:
    study = study_document()
    assert heading(study) == "Readmission within 30 days"
    study["parameters"]["title"] = None
    assert heading(study) == "readmission-spring"
    assert verdict(study).text == study["results"]["verdict"]["text"]


def test_key_numbers_are_those_of_the_result() -> None:
    study = study_document()
    tasks = {name: entry["results"] for name, entry in study["results"]["tasks"].items()}
    found = {number.label: number for number in key_numbers(study)}
    assert found["ROC AUC on all rows"].text == figures.value(tasks["evaluate"]["roc_auc"])
    assert figures.interval(tasks["evaluate"]["roc_auc"]) in found["ROC AUC on all rows"].detail
    slopes = found["calibration slope on held-out rows before and after calibration"]
    before, after = (tasks["calibrate"][part]["calibration_slope"] for part in ("before", "after"))
    assert slopes.text == f"{figures.value(before)} → {figures.value(after)}"
    assert figures.interval(after) in slopes.detail
    covered = found["conformal95: coverage on held-out rows; asked: 95%"]
    assert covered.text == figures.value(tasks["conformal95"]["held_out"]["coverage"])
    (median,) = tasks["ecdf"]["quantiles"]
    assert float(found["quantile 0.5"].text) == pytest.approx(median["value"], abs=5e-4)
    assert found["privacy budget spent (ε)"].text == f"{study['results']['budget']['spent']:.3g} of 8"
    assert found["privacy budget spent (ε)"].detail == "at δ = 1e-06; nothing left"
    slope = found["calibration slope on all rows"]
    assert slope.text == figures.value(tasks["evaluate"]["calibration_slope"])
    assert unknown(study) == ""


def test_key_numbers_of_a_regression_are_how_many_features_matter() -> None:
    study = study_document(noise=False)
    entries = study["results"]["tasks"]["infer"]["results"]["coefficients"]
    away = {one["name"] for one in entries if one["interval"][0] > 0 or one["interval"][1] < 0}
    assert away == {"intercept", "severity"}  # the age was drawn without looking at the outcome
    found = {number.label: number for number in key_numbers(study)}
    assert found["coefficients away from 0"].text == "1 of 2"
    assert found["privacy budget"].text == "none"


def test_an_evaluation_alone_says_its_slope_and_what_is_undefined_why() -> None:
    study = study_document()
    single = sub_document(study, "evaluate")
    single["results"]["roc_auc"] = {
        "value": None,
        "interval": None,
        "level": 0.95,
        "reason": "one class only",
    }
    found = {number.label: number for number in key_numbers(single)}
    assert "ROC AUC on all rows" not in found
    assert unknown(single) == "Not known: ROC AUC on all rows: one class only."
    slope = found["calibration slope on all rows"]
    assert slope.text == figures.value(single["results"]["calibration_slope"])
    assert "privacy budget spent (ε)" not in found


@pytest.mark.parametrize("noise", [True, False])
def test_the_budget_is_told_by_task_and_by_release(noise: bool) -> None:
    study = study_document(noise=noise)
    sheet, releases = budget.by_task(study["results"]), budget.charges(study["results"])
    asked, spent = shares(noise=noise), study["results"]["budget"]
    assert [row[0].text for row in sheet.rows] == list(asked)
    assert [row[1].text for row in sheet.rows] == [f"{share:.3g}" for share in asked.values()]
    assert sum(int(row[-1].text) for row in sheet.rows) == len(releases.rows) == len(spent["charges"])
    assert [row[-2].text for row in sheet.rows][1:3] == [
        "first half of the fit rows, held-out rows",
        "second half of the fit rows, held-out rows",
    ]
    if noise:  # a share of 0.3 under a delta is not 0.3 of epsilon
        assert [row[2].text for row in sheet.rows] == [f"{spent['by_task'][name]:.3g}" for name in asked]
        assert spent["by_task"]["evaluate"] > 0.3 * EPSILON
    assert all(len(row) == len(sheet.head) for row in sheet.rows)
    assert all(len(row) == len(releases.head) for row in releases.rows)
    said = budget.spent(study)
    assert ("ε = 8 of 8 was spent, at δ = 1e-06; nothing is left." in said) == noise
    assert ("no differential privacy is promised" in said) == (not noise)
    assert len(list(budget.budget_blocks(study["results"]))) == (2 if noise else 1)


def test_assumptions_are_said_once_and_come_from_the_result_where_it_has_them() -> None:
    study = study_document(noise=False)
    found = dict(assumptions(study))
    assert list(found) == ["Evaluation", "Calibration", "Prediction sets", "Coefficients"]
    sentences = [text for texts in found.values() for text in texts]
    assert len(set(sentences)) == len(sentences)
    promised = study["results"]["tasks"]["conformal"]["results"]["guarantee"]["assumption"]
    assert found["Prediction sets"] == (f"{promised[0].upper()}{promised[1:]}.",)
    assert any("sites are exchangeable" in text for text in found["Evaluation"])
    assert not any("exchangeable" in text for text in dict(assumptions(study_document()))["Evaluation"])
    fit = study["results"]["tasks"]["infer"]["results"]["fit"]
    fit["variance"] = "site"
    assert (
        "Clients are independent of each other; rows of one client need not be."
        in dict(assumptions(study))["Coefficients"]
    )


def test_facts_of_the_run() -> None:
    study = study_document()
    study["cohort"] |= {"dropped": 3, "truncated": 120}
    found = dict(facts(study))
    assert found["study"] == "readmission-spring"
    assert found["data"] == "path scores.parquet, client hospital"
    assert found["columns"] == "score: risk, label: outcome, value: age"
    assert found["clients lost on the way"] == "3"
    assert found["rows left out by the bound on a client's rows"] == "120"
    assert found["fedassay"] == fedassay.__version__
    study["parameters"] |= {"data": None, "split": None, "seed": None}
    study["privacy"]["simulated"] = False
    study["runtime"]["seconds"] = None
    found = dict(facts(study))
    assert not {"data", "held out", "seed", "seconds"} & set(found)
    assert found["simulated"] == "no: a release"


@pytest.mark.parametrize("noise", [True, False])
def test_a_terminal_shows_key_numbers_and_where_to_look(noise: bool) -> None:
    study = study_document(noise=noise)
    study["warnings"] = ["[bold]look[/] here"]
    text = " ".join(printed(study).split())
    assert text.startswith("Readmission within 30 days: readmission-net 2.1 Calibrate the model")
    assert "Warning: [bold]look[/] here" in text
    for number in key_numbers(study):
        assert f"{number.label} {number.text} {number.detail}" in text
    assert budget.spent(study) in text
    assert text.endswith("Tables and plots: report.html. Every number: result.json.")
    assert_it_fits_a_narrow_terminal(study)


def test_a_study_without_a_verdict_has_none() -> None:
    study = study_document()
    study["results"]["verdict"] = {"needs_calibration": None, "text": ""}
    study["parameters"]["model"] = None
    assert printed(study).splitlines()[:2] == ["Readmission within 30 days", "Key numbers"]
