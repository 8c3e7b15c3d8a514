"""Words, tables, plots and schema of a multiclass calibration, from real results of every method and by hand."""

from __future__ import annotations

import copy
import json
from functools import cache
from importlib.resources import files
from itertools import pairwise
from typing import Any

import jsonschema
import numpy as np
import pytest

import fedassay
from fedassay.documents.blocks import alike
from fedassay.documents.page import page
from fedassay.documents.report import heading
from fedassay.summaries.grid import Grid
from fedassay.summaries.multiclass.binned_map import Isotonic
from fedassay.tasks.calibration.multiclass import document as multiclass_calibration
from fedassay.tasks.calibration.multiclass import document_plots as class_error_plots
from fedassay.tasks.calibration.multiclass.calibrate import AUTO, COUNTED, METHODS, SOLVERS
from multiclass_rows import drawn
from printing import parts, printed, readable_page, said, simulated

SCHEMA = json.loads((files("fedassay") / "documents" / "result.schema.json").read_text())
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
CLASSES = 4


def private(epsilon: float, **more: Any) -> dict[str, Any]:
    return {"privacy": fedassay.ServerDP(), "budget": fedassay.Budget(epsilon=epsilon, delta=1e-5), **more}


BY_CLIENT = {"protection": fedassay.Protection(unit=fedassay.Unit.CLIENT, rows_per_client=40)}

RUNS: dict[str, dict[str, Any]] = {
    "temperature": {"method": "temperature"},
    "vector": {"method": "vector"},
    "matrix": {"method": "matrix"},
    "order-preserving": {"method": "order-preserving"},
    "fedcal": {"method": "fedcal", "rounds": 1},
    "averaged": {"method": "vector", "solver": "fedavg", "rounds": 3, "clip": 0.3, "averaging": "rows"},
    "histogram": {"method": "histogram", "weighting": "none"},
    "bbq": {"method": "bbq", "weighting": "changed", "rounds": 2, "participation": 0.7, "height": 4},
    "isotonic": {"method": "isotonic"},
    "one-shot": {"method": "temperature", "solver": "one-shot"},
    "nothing held out": {"method": "temperature", "holdout": 1e-9},
    "noisy": private(8.0),
    "noisy counts": private(2.0, method="bbq"),
    "noisy averages": private(8.0, method="temperature", solver="fedavg", rounds=1),
    "noisier than rows": private(0.01),
    "unit client": private(1.0, **BY_CLIENT),
    "counts, unit client": private(1.0, method="histogram", **BY_CLIENT),
}


@cache
def _made(name: str) -> str:
    columns = drawn(600, CLASSES)
    data = {"site": np.arange(600) % 12, "y": columns["class"], "z": columns["logits"]}
    given = {"privacy": fedassay.Plain(), **RUNS[name]}
    return json.dumps(simulated(fedassay.calibrate, data, logits="z", **given))


@cache
def _page(name: str) -> str:
    return page(json.loads(_made(name)))


def document(name: str) -> dict[str, Any]:
    return json.loads(_made(name))  # type: ignore[no-any-return]


def many(classes: int) -> dict[str, Any]:
    """The result of a temperature, with so many classes."""
    content = document("temperature")
    one = content["results"]["classes"][0]
    content["results"]["classes"] = [
        copy.deepcopy(
            {
                **one,
                "class": k,
                "before": {**one["before"], "value": 0.001 * (k + 1)},
                "after": {**one["after"], "value": 0.001 * (classes - k) / 2},
            }
        )
        for k in range(classes)
    ]
    return content


# --- every result ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(RUNS))
def test_a_result_is_valid_and_readable(name: str) -> None:
    content = document(name)
    VALIDATOR.validate(content)
    assert "undefined" not in readable_page(content)


@pytest.mark.parametrize("name", sorted(RUNS))
def test_the_verdict_comes_first_and_reasons_once(name: str) -> None:
    content = document(name)
    results, text = content["results"], said(content)
    assert text.startswith(results["reason"])
    html = _page(name)
    assert html.index("ecommended:") < min(html.index("<h2"), html.find("<figure") % len(html))
    for part in ("before", "after", "difference"):
        for metric in results[part].values():
            if metric["value"] is None:
                assert alike(text).count(alike(metric["reason"])) == 1
    for warning in content["warnings"]:
        assert text.count(warning) == 1


def test_a_schema_of_calibrations_refuses_what_they_are_not() -> None:
    good = document("temperature")

    def broken(change: Any) -> dict[str, Any]:
        one = copy.deepcopy(good)
        change(one["results"])
        return one

    for change in (
        lambda r: r.pop("temperature"),
        lambda r: r.update(method="auto"),
        lambda r: r.update(histogram={}),
        lambda r: r["before"].pop("accuracy"),
        lambda r: r["fit"].pop("noise"),
        lambda r: r["classes"][0].update(rows=-1),
        lambda r: r["reliability_curve"]["after"].update(edges=[]),
        lambda r: r["difference"]["log_loss"].update(value=None),
        lambda r: r["calibrator"].update(kind="platt"),
    ):
        with pytest.raises(jsonschema.ValidationError):
            VALIDATOR.validate(broken(change))


def test_a_study_has_the_same_report() -> None:
    content = document("temperature")
    study = {**content, "task": "calibrate-classes"}
    VALIDATOR.validate(study)
    assert heading(study) == heading(content) == "Calibration of a classifier with several classes"
    assert printed(study) == printed(content)


# --- words ----------------------------------------------------------------------------------------------


def test_numbers_before_after_and_the_change() -> None:
    content = document("vector")
    results = content["results"]
    sheet = multiclass_calibration.before_and_after(content)
    assert sheet.head == ("on held-out rows", "before", "after", "change, 95% interval")
    assert [row[0].text for row in sheet.rows] == [
        "classwise calibration error",
        "expected calibration error (ECE, top label)",
        "log loss",
        "Brier score (0 to 2)",
        "accuracy",
    ]
    for row, name in zip(sheet.rows, multiclass_calibration.SHOWN, strict=True):
        for cell, part in zip(row[1:], ("before", "after", "difference"), strict=True):
            if name in results[part]:
                assert float(cell.text) == pytest.approx(results[part][name]["value"], abs=0.006)
                assert [float(end) for end in cell.detail.split(" to ")] == pytest.approx(
                    results[part][name]["interval"], abs=0.006
                )
            else:
                assert cell.text == ""


def test_a_rise_has_its_sign() -> None:
    content = document("vector")
    content["results"]["difference"]["log_loss"].update(value=0.25, interval=[0.2, 0.3])
    row = multiclass_calibration.before_and_after(content).rows[2]
    assert (row[3].text, row[3].detail) == ("+0.250", "0.200 to 0.300")


def test_the_title_names_method_solver_and_temperature() -> None:
    content = document("temperature")
    temperature = content["results"]["temperature"]["value"]
    title = f"Calibration of 4 classes by a temperature of {temperature:.3g}, fitted to sums over all clients"
    assert title in parts(content)[0]
    assert f"Temperature {temperature:.3g}, above 1:" in said(content)
    assert "over-confident" in said(content)
    binned = (
        "Calibration of 4 classes by Bayesian binning of each class (BBQ), fitted to counts of all clients"
    )
    assert binned in parts(document("bbq"))[0]
    assert set(multiclass_calibration.METHODS) == set(METHODS) - {AUTO}
    assert set(multiclass_calibration.SOLVERS) == {*SOLVERS, COUNTED} - {AUTO}
    assert "Temperature" not in said(document("bbq"))


def test_temperatures_that_hardly_happen() -> None:
    assert "infinite" in multiclass_calibration.meaning(None)
    assert "check the columns" in multiclass_calibration.meaning(-0.5)


def test_how_it_was_fitted() -> None:
    fit, held_out = document("isotonic")["results"]["fit"], document("isotonic")["results"]["rows"]
    assert (
        f"Fitted to {fit['rows']} rows of the 12 clients that answered (asked once); judged on {held_out:.0f} held-out "
        "rows." in said(document("isotonic"))
    )
    assert "(asked 3 times, clip 0.3, averaging rows)" in said(document("averaged"))
    assert "(asked twice, participation 0.7, height 4, weighting changed)" in said(document("bbq"))
    assert "with noise of standard deviation" in said(document("noisy counts"))
    assert "in each parameter and round; judged on about" in said(document("noisy averages"))


def test_how_much_fitted_steps_count() -> None:
    content = document("isotonic")
    content["results"]["calibrator"].update(inverse_temperature=0.5, weights=[0.25, 0.5, 0.25, 0.3])
    assert "The steps of classes weigh 0.25 to 0.5, the rest is a temperature of 2." in said(content)
    content = document("bbq")
    assert "weigh " not in said(content)
    content["results"]["calibrator"]["weights"][2] = 0.4
    assert "The steps of classes weigh 0.4 to 1 where they change the most probable class" in said(content)
    content["results"]["calibrator"]["kind"] = "binned"
    assert "The steps of classes weigh 0.4 to 1, the rest is the model's own probability." in said(content)
    assert "weigh " not in said(document("matrix")) + said(document("fedcal"))


def test_a_change_that_cannot_be_is_explained_once() -> None:
    text = said(document("temperature"))
    assert text.count("the order of classes does not change") == 1
    row = multiclass_calibration.before_and_after(document("temperature")).rows[-1]
    assert (row[0].text, row[3].text, row[3].detail) == ("accuracy", "0", "")


def test_chance_is_named_where_it_could_be_most_of_an_error() -> None:
    content = document("vector")
    for part in ("before", "after"):
        for metric in content["results"][part].values():
            metric.pop("excess", None)
    assert "What sampling and noise alone would show makes up most of: " not in said(content)
    content["results"]["after"]["expected_calibration_error"].update(value=0.02, excess=0.015)
    assert (
        "What sampling and noise alone would show makes up most of: expected calibration error (ECE, top label), up to "
        "0.015 after." in said(content)
    )


def test_without_before_and_after_there_is_no_empty_table() -> None:
    content = document("unit client")
    assert content["results"]["before"]["log_loss"]["value"] is None
    sheets, drawn_ones = parts(content)
    (sheet,) = sheets.values()
    assert sheet.rows == ()
    assert drawn_ones == []
    content["results"]["difference"]["log_loss"] = document("vector")["results"]["difference"]["log_loss"]
    sheet = multiclass_calibration.before_and_after(content)
    assert sheet.head == ("on held-out rows", "change, 95% interval")
    assert [row[0].text for row in sheet.rows] == ["log loss", "accuracy"]


def test_errors_of_classes_that_noise_could_make_up_are_not_called_the_largest() -> None:
    content = document("noisier than rows")
    content["results"].update(
        {name: document("noisy")["results"][name] for name in ("before", "after", "classes")}
    )
    for entry in content["results"]["classes"]:
        for part in ("before", "after"):
            entry[part]["excess"] = entry[part]["value"]
    assert len(parts(content)[0]) == 1
    assert "Noise alone could make up most of the errors of single classes" in said(content)
    content["results"]["classes"][2]["before"]["excess"] = 0.0
    assert len(parts(content)[0]) == 2
    content["results"]["classes"][2]["before"]["excess"] = content["results"]["classes"][2]["before"]["value"]
    content["privacy"]["epsilon"] = None  # sampling alone: all there is to know about the classes
    assert len(parts(content)[0]) == 2


# --- classes --------------------------------------------------------------------------------------------


def test_the_worst_classes_are_shown_whether_they_were_bad_or_became_so() -> None:
    content = many(10)
    sheet = multiclass_calibration.classes(content["results"])
    assert sheet.title == "Calibration errors of single classes, the 5 largest of 10"
    assert [row[0].text for row in sheet.rows] == ["9", "8", "7", "6", "5"]
    content["results"]["classes"][1]["after"]["value"] = 0.5
    assert multiclass_calibration.classes(content["results"]).rows[0][0].text == "1"
    assert "smaller after than before for 7 of 10 classes" in said(content)


def test_few_classes_are_all_shown() -> None:
    assert len(multiclass_calibration.classes(many(3)["results"]).rows) == 3
    assert "largest" not in multiclass_calibration.classes(many(3)["results"]).title


@pytest.mark.parametrize(("classes", "shown"), [(10, 10), (30, 30), (31, 31), (100, 100), (300, 100)])
def test_a_plot_has_each_class_before_and_after(classes: int, shown: int) -> None:
    entries = many(classes)["results"]["classes"]
    chart = class_error_plots.errors(entries).draw().to_dict()
    rules, dots = (layer["data"]["values"] for layer in chart["layer"])
    assert len(rules) == shown
    assert len(dots) == 2 * shown
    named = {entry["class"]: entry for entry in entries}
    for dot in dots:
        assert dot["error"] == named[int(dot["class"])][dot["part"]]["value"]
    for rule in rules:
        assert rule["grows"] == (rule["to"] > rule["from"])
    assert ("the 100 largest of 300" in chart["title"]["subtitle"]) == (classes > shown)
    assert chart["width"] < 900
    largest = f"to {0.001 * classes:.2g} (class {classes - 1})"
    assert largest in class_error_plots.errors(entries).alternative


def test_a_class_without_an_error_is_left_out_and_said() -> None:
    content = many(6)
    for part in ("before", "after"):
        content["results"]["classes"][2][part] = {
            "value": None,
            "interval": None,
            "level": 0.95,
            "reason": "nobody has it",
        }
    sheet = multiclass_calibration.classes(content["results"])
    assert "2" not in [row[0].text for row in sheet.rows]
    assert "class 2, before, class 2, after: nobody has it" in sheet.notes
    chart = class_error_plots.errors(content["results"]["classes"]).draw().to_dict()
    assert len(chart["layer"][0]["data"]["values"]) == 5


# --- fitted steps ---------------------------------------------------------------------------------------


def test_the_edges_of_steps_are_those_of_the_map() -> None:
    one = Isotonic(inverse_temperature=1.0, values=((0.1,) * 16, (0.2,) * 16), weights=(1.0, 1.0), reach=9.0)
    assert class_error_plots.edges(one.to_json()) == pytest.approx(
        Grid(transform="logit", height=4, reach=9.0).edges.tolist(), abs=1e-15
    )


def test_steps_are_drawn_as_they_were_fitted() -> None:
    results = document("isotonic")["results"]
    results["calibrator"]["weights"] = [1.0] * CLASSES
    chart = class_error_plots.steps(results).draw().to_dict()
    points = chart["layer"][1]["data"]["values"]
    worst = class_error_plots.stepped(results)[0]
    mine = [(p["probability"], p["value"]) for p in points if p["class"].startswith(f"class {worst} ")]
    edges, values = class_error_plots.edges(results["calibrator"]), results["calibrator"]["values"][worst]
    middles = [(a + b) / 2 for a, b in pairwise(edges)]
    x, y = zip(*mine, strict=True)
    assert len(mine) < 2 * len(values)
    assert np.interp(middles, x, y) == pytest.approx(values)


def test_only_believed_classes_have_their_steps_drawn() -> None:
    results = document("isotonic")["results"]
    results["calibrator"]["weights"] = [0.0, 1.0, 0.05, 0.4]
    assert sorted(class_error_plots.stepped(results)) == [1, 3]
    results["calibrator"]["weights"] = [0.0] * CLASSES
    assert class_error_plots.stepped(results) == []
    assert class_error_plots.stepped(document("matrix")["results"]) == []
    assert class_error_plots.stepped(document("fedcal")["results"]) == []
    assert len(class_error_plots.stepped(document("histogram")["results"])) == 2
