"""Sets of two classes are conditional on them by default, and sets that are not say what they do to each class."""

from __future__ import annotations

import json
from importlib.resources import files
from io import StringIO
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from rich.console import Console
from scipy.special import expit

import fedassay
from command_line import call
from fedassay.documents.measured import measured
from fedassay.documents.model_card import model_card
from fedassay.documents.page import page
from fedassay.documents.report import key_numbers, unknown
from fedassay.documents.terminal import render
from fedassay.errors import UnsupportedQuery, UsageError
from fedassay.study.file import StudyFile
from fedassay.tasks.conformal import Conformal

SCHEMA = json.loads((files("fedassay.documents") / "result.schema.json").read_text(encoding="utf-8"))
ROWS, SITES = 6000, 5
TERMS = {"client": "site", "label": "y", "score": "risk"}


def rows(seed: int = 1) -> dict[str, np.ndarray]:
    """Right probabilities of an outcome that one row in nine has."""
    rng = np.random.default_rng(seed)
    risk = expit(-2.6 + 1.2 * rng.normal(size=ROWS))
    return {"site": np.arange(ROWS) % SITES, "risk": risk, "y": (rng.random(ROWS) < risk).astype(int)}


def images(classes: int, seed: int = 2) -> dict[str, np.ndarray]:
    """Logits of classes, of which the last one is rare and hard."""
    rng = np.random.default_rng(seed)
    weights = np.array([*([1.0] * (classes - 1)), 0.15])
    label = rng.choice(classes, size=ROWS, p=weights / weights.sum())
    told = np.where(label == classes - 1, 0.3, 3.0)
    logits = rng.normal(size=(ROWS, classes)) + told[:, None] * (np.arange(classes) == label[:, None])
    return {"site": np.arange(ROWS) % SITES, "y": label, "z": logits}


def conformal(data: dict[str, np.ndarray], columns: dict[str, str], **options: Any) -> fedassay.Result:
    simulation = fedassay.Simulation(seed=3, mode="auto")
    return fedassay.conformal(data, **columns, **{"holdout": 0.4, "simulation": simulation, **options})


LOGITS = {"client": "site", "label": "y", "logits": "z"}


# --- the default ------------------------------------------------------------------------------------------


def test_sets_of_a_binary_classifier_hold_the_rare_outcome() -> None:
    result = conformal(rows(), TERMS)
    held_out = result["held_out"]
    assert result["conditional"] == "class"
    assert result.parameters["conditional"] == "class"
    assert held_out["groups"]["1"]["coverage"]["value"] > 0.8
    assert held_out["groups"]["0"]["coverage"]["value"] > 0.8
    assert "for each class; for held-out rows with the outcome: 0.9" in result["text"]
    jsonschema.validate(result.to_dict(), SCHEMA)


def test_sets_over_all_rows_say_in_the_first_sentence_what_they_miss() -> None:
    """At a prevalence of 0.11 they cover a tenth of the positives, and nine tenths of all rows."""
    result = conformal(rows(), TERMS, conditional="none")
    classes = result["held_out"]["classes"]
    assert (result["conditional"], result.parameters["conditional"]) == (None, "none")
    assert classes["1"]["coverage"]["value"] < 0.2
    assert classes["0"]["coverage"]["value"] > 0.97
    assert sum(one["rows"] for one in classes.values()) == result["held_out"]["rows"]
    first = result["text"].split(". ")[0]
    assert "over all rows together and not for each class" in first
    assert f"with the outcome: {classes['1']['coverage']['value']:.3f}" in first
    assert f"without the outcome: {classes['0']['coverage']['value']:.3f}" in first
    assert result["guarantee"]["text"].startswith("Over all classes together, and not for each: a new row is")
    document = result.to_dict()
    jsonschema.validate(document, SCHEMA)
    number, other, *_ = key_numbers(document)
    assert number.label == "held-out coverage with the outcome; asked: 90% over all"
    assert number.text == f"{classes['1']['coverage']['value']:.3f}"
    assert "without the outcome" in other.label
    found = {one.key: one.value for one in measured(document)}
    assert found["conformal.held_out.coverage_class_1"] == classes["1"]["coverage"]["value"]
    console = Console(file=StringIO(), width=400)
    render(document, console)
    printed = console.file.getvalue()  # type: ignore[attr-defined]
    assert printed.startswith(result["text"])
    assert "class 1" in printed
    html = page(document)
    assert result["text"] in html
    assert html.index(result["text"]) < html.index("<svg")


@pytest.mark.parametrize(("classes", "by"), [(2, "class"), (3, None)])
def test_sets_of_two_classes_are_conditional_on_them_also_by_logits(classes: int, by: str | None) -> None:
    for sets in ("lac", "aps"):
        result = conformal(images(classes), LOGITS, sets=sets, holdout=0.0)
        assert result["conditional"] == by


def test_the_default_follows_from_what_is_known() -> None:
    assert Conformal(sets="binary").condition == "class"
    assert Conformal(sets="binary", conditional="none").condition == ""
    assert Conformal(sets="binary", method="local").condition == ""
    assert Conformal(sets="lac").conditional is None
    assert Conformal(sets="lac", classes=2).groups == ("0", "1")
    assert Conformal(sets="lac", classes=3).conditional == "none"
    assert Conformal().conditional == "none"
    with pytest.raises(UsageError, match="conditional: got '', expected class, group or none"):
        Conformal(conditional="")  # type: ignore[arg-type]


def test_where_a_method_cannot_be_conditional_it_is_said_what_to_do() -> None:
    with pytest.raises(UnsupportedQuery, match='use `method="pooled"`, or `conditional="none"`'):
        fedassay.conformal(
            rows(),
            **TERMS,
            method="qq",
            privacy=fedassay.LocalDP(),
            budget=fedassay.Budget(epsilon=8),
            protection=fedassay.Protection(rows_per_client=1200),
        )


# --- what is counted --------------------------------------------------------------------------------------


@pytest.mark.parametrize("trust", [fedassay.Plain(), fedassay.SecureSum()], ids=lambda trust: trust.name)
@pytest.mark.parametrize("classes", [3, 7])
def test_each_class_is_counted_and_the_worst_is_named(classes: int, trust: Any) -> None:
    """Few classes are counted together with sizes, many by a question of their own; both are the rows themselves."""
    result = conformal(images(classes), LOGITS, conditional="none", privacy=trust)
    held_out, last = result["held_out"], str(classes - 1)
    found, worst = held_out["classes"], held_out["worst_class"]
    covered = sum(one["coverage"]["value"] * one["rows"] for one in found.values())
    assert list(found) == [str(place) for place in range(classes)]
    assert sum(one["rows"] for one in found.values()) == held_out["rows"] == sum(held_out["size_counts"])
    assert covered / held_out["rows"] == pytest.approx(held_out["coverage"]["value"])
    assert worst["class"] == last
    assert worst["coverage"]["value"] == found[last]["coverage"]["value"] < 0.75
    assert worst["coverage"]["level"] == pytest.approx(1 - 0.05 / classes)
    assert worst["coverage"]["interval"][0] < found[last]["coverage"]["interval"][0]
    named = f"for held-out rows of class {last}, the worst of {classes}: {worst['coverage']['value']:.3f}"
    assert named in result["text"].split(". ")[0]
    number = key_numbers(result.to_dict())[0]
    assert number.label.startswith(f"held-out coverage of class {last}, the worst of {classes};")
    jsonschema.validate(result.to_dict(), SCHEMA)


@pytest.mark.parametrize("classes", [2, 7])
def test_under_noise_they_are_estimated(classes: int) -> None:
    data = images(classes)
    exact = conformal(data, LOGITS, conditional="none", bins=256)
    noisy = conformal(
        data,
        LOGITS,
        conditional="none",
        bins=256,
        privacy=fedassay.ServerDP(),
        budget=fedassay.Budget(epsilon=20),
    )
    for name, one in noisy["held_out"]["classes"].items():
        coverage, truth = one["coverage"], exact["held_out"]["classes"][name]["coverage"]["value"]
        assert coverage["error"]["privacy"] > 0
        assert coverage["value"] == pytest.approx(truth, abs=0.1)
    assert noisy["held_out"]["coverage"]["error"]["privacy"] > 0
    jsonschema.validate(noisy.to_dict(), SCHEMA)
    drowned = conformal(
        data,
        LOGITS,
        conditional="none",
        bins=256,
        privacy=fedassay.ServerDP(),
        budget=fedassay.Budget(epsilon=0.05),
    )
    worst = drowned["held_out"]["worst_class"]
    assert worst is None or worst["coverage"]["value"] is not None
    jsonschema.validate(drowned.to_dict(), SCHEMA)


def test_what_nobody_has_measured_is_said() -> None:
    result = conformal(rows(), TERMS, conditional="none", holdout=0.0)
    assert "for each class it was not measured, as no rows were held out" in result["text"].split(". ")[0]
    assert unknown(result.to_dict()) == "Not known: coverage of each class: no rows were held out (holdout)."
    assert unknown(conformal(rows(), TERMS, conditional="none", holdout=0.3).to_dict()) == ""
    assert unknown(conformal(rows(), TERMS, holdout=0.0).to_dict()) == ""
    assert "not measured" not in conformal(rows(), TERMS, holdout=0.0)["text"]
    intervals = {"site": np.arange(500) % 5, "t": np.arange(500) % 7, "p": np.arange(500) % 5}
    said = conformal(intervals, {"client": "site", "target": "t", "prediction": "p"}, holdout=0.0)["text"]
    assert said == "Prediction intervals hold the truth of a new row with probability at least 0.9."


# --- commands and studies ---------------------------------------------------------------------------------


@pytest.fixture
def csv(tmp_path: Path) -> Path:
    path = tmp_path / "all.csv"
    columns = rows()
    lines = zip(*(column.tolist() for column in columns.values()), strict=True)
    path.write_text("\n".join([",".join(columns), *(",".join(map(str, line)) for line in lines)]))
    return path


@pytest.mark.parametrize("holdout", [0.0, 0.4])
def test_sets_for_each_group_say_that_they_are_not_for_each_class(holdout: float) -> None:
    data = {**rows(), "sex": np.array(["f", "m"])[np.arange(ROWS) % 2]}
    found = conformal(data, TERMS, conditional="group", by="sex", groups=["f", "m"], holdout=holdout)
    assert "for each group and not for each class, whose coverage is not measured" in found["text"]
    by_class = conformal(data, TERMS, holdout=holdout)
    assert "not for each class" not in by_class["text"]


def test_the_command_has_the_same_default(capsys: Any, csv: Path) -> None:
    terms = ("--client", "site", "--label", "y", "--score", "risk", "--holdout", "0.4", "--json", "-")
    for option, by in (((), "class"), (("--conditional", "none"), "")):
        code, out, error = call(capsys, "conformal", csv, *terms, *option)
        assert code == 0, error
        assert json.loads(out)["results"]["conditional"] == (by or None)


def test_a_first_study_writes_it_down_and_its_verdict_tells_of_each_outcome(capsys: Any, csv: Path) -> None:
    study = csv.parent / "study.toml"
    assert call(capsys, "init", csv, "--yes", "--out", study, "--task", "conformal")[0] == 0
    text = study.read_text()
    assert 'conditional = "class"' in text
    for by in ("class", "none", None):
        line = f'conditional = "{by}"' if by else ""
        study.write_text(text.replace('conditional = "class"', line))
        document = fedassay.run_study(StudyFile.read(study)).to_dict()
        results = document["results"]["tasks"]["conformal"]["results"]
        assert results["conditional"] == (None if by == "none" else "class")
        verdict = document["results"]["verdict"]["text"]
        assert verdict.startswith(results["text"])
        if by == "none":
            missed = results["held_out"]["classes"]["1"]["coverage"]["value"]
            assert missed < 0.2
            assert f"for held-out rows with the outcome: {missed:.3f}" in verdict
        assert results["text"] in model_card(document)
        assert results["text"] in page(document)
        assert "with the outcome" in key_numbers(document)[0].label
        jsonschema.validate(document, SCHEMA)


def test_plans_reckon_with_the_rarer_outcome(capsys: Any, csv: Path) -> None:
    study = csv.parent / "study.toml"
    assert call(capsys, "init", csv, "--yes", "--out", study, "--task", "conformal")[0] == 0
    code, out, error = call(capsys, "plan", "study", study)
    assert code == 0, error
    assert "predicted for the rarer outcome" in " ".join(out.split())
