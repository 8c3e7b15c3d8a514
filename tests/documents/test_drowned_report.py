"""Reports of studies of which noise leaves little or nothing: one reason, and nothing that only looks like a number."""

from __future__ import annotations

import copy
import functools
import json
import re
import tempfile
from pathlib import Path
from typing import Any

import pytest

from fedassay.documents.blocks import CurveBlock, ExplorerBlock, SentenceBlock
from fedassay.documents.model_card import model_card
from fedassay.documents.page import page
from fedassay.documents.report import key_numbers, sections, sub_document, unknown
from fedassay.tasks.evaluation import document as evaluation
from printing import said
from study_documents import blocks, study_document
from study_runs import conducted, place, rows, study_text

TASKS = ("evaluate", "calibrate", "conformal")
REASON = (
    "not enough evidence: too few rows under so much privacy noise; at least 4 standard deviations are needed"
)


@functools.cache
def document(epsilon: float, *shares: float) -> dict[str, Any]:
    """A study of 400 rows, to be read."""
    sections: dict[str, dict[str, Any]] = {
        "privacy": {"privacy": "server-dp", "epsilon": epsilon, "delta": 1e-6},
        "runtime": {"seed": 1},
    }
    tasks = {name: {"share": share} for name, share in zip(TASKS, shares, strict=True)}
    with tempfile.TemporaryDirectory() as folder:
        file = place(Path(folder), study_text(tasks, sections), rows(8, 50, seed=2))
        return json.loads(conducted(file).to_json())  # type: ignore[no-any-return]


def drowned() -> dict[str, Any]:
    return document(0.1, 0.4, 0.3, 0.3)


def without_sets() -> dict[str, Any]:
    """Enough for an evaluation, and not for a threshold."""
    return document(8.0, 0.6, 0.38, 0.02)


def test_a_study_that_drowns_is_a_box_for_each_task() -> None:
    study = drowned()
    for part in sections(study):
        (box,) = blocks(part.document)
        assert isinstance(box, SentenceBlock), part.name
    html = page(study)
    assert html.count("<figure") == html.count("<svg") == 1  # what was spent
    assert "class='explorer'" not in html
    assert ">Sites</h3>" not in html
    assert html.count("<p class='missing'>") == 4
    assert not re.search(r"<b>(-|undefined)</b>", html)


def test_what_is_not_known_is_told_once_however_counts_differ() -> None:
    study = drowned()
    results = study["results"]["tasks"]["evaluate"]["results"]
    assert len({results[name]["reason"] for name in ("roc_auc", "prevalence", "precision", "f1")}) == 4
    assert unknown(study).count("not enough evidence") == 1
    assert unknown(study) == (
        "Not known: ROC AUC on all rows, average precision on all rows, calibration slope on all rows, calibration "
        f"slope on held-out rows before calibration: {REASON}."
    )
    assert [number.label for number in key_numbers(study)] == ["privacy budget spent (ε)"]
    assert said(study).count(unknown(study)) == 1
    assert f"Nothing is known of the model: {REASON}." in model_card(study)


def test_sets_that_hold_everything_leave_no_number_anywhere() -> None:
    study = without_sets()
    results = study["results"]["tasks"]["conformal"]["results"]
    assert all(part["infinite"] for part in results["groups"].values())
    assert "are of no use: each holds everything" in results["text"]
    assert results["held_out"]["coverage"]["value"] is not None  # noise, which looks like a coverage
    sentence = "There are no sets of the level 0.9 to speak of: every set would hold everything, because"
    html, card = page(study), model_card(study)
    assert html.count(sentence) == card.count(sentence) == 1
    for text in (html, card, said(study)):
        for words in (
            "coverage on held-out rows",
            "mean size of the sets",
            "Set sizes",
            "classes in the set",
        ):
            assert words not in text
    assert "held_out" not in card
    assert "mean_size" not in card
    assert not any("sets" in number.label for number in key_numbers(study))


def test_curves_without_points_are_not_drawn_and_named_together() -> None:
    results = copy.deepcopy(study_document()["results"]["tasks"]["evaluate"]["results"])
    for entry in ("roc_curve", "precision_recall_curve"):
        for name, value in results[entry].items():
            results[entry][name] = [] if isinstance(value, list) else value
        results[entry]["reason"] = "one class only"
    results["operating_points"] |= {
        name: {end: [None] * 99 for end in ("value", "lower", "upper")}
        for name in ("precision", "recall", "specificity", "net_benefit", "predicted_positives")
    }
    results["roc_auc"] |= {"value": None, "interval": None, "reason": "one class only"}
    for metric in results["thresholds"][0].values():
        if isinstance(metric, dict):
            metric |= {"value": None, "interval": None, "reason": "no rows"}
    made = list(
        evaluation.EvaluationDocument().blocks(
            {**sub_document(study_document(), "evaluate"), "results": results}
        )
    )
    assert sum(isinstance(piece, CurveBlock) for piece in made) == 3
    assert SentenceBlock(text="Not drawn: ROC curve, precision-recall curve: one class only.") in made
    assert not any(isinstance(piece, ExplorerBlock) for piece in made)
    sheet = evaluation.overall(results)
    assert "ROC AUC" not in {row[0].text for row in sheet.rows}
    assert "ROC AUC: one class only" in sheet.notes
    first = next(evaluation.at_thresholds(results["thresholds"]))
    assert [row[0].text for row in first.rows] == ["0.5"]


@pytest.mark.parametrize("noise", [True, False])
def test_what_the_columns_of_errors_mean_is_below_them(noise: bool) -> None:
    results = study_document(noise=noise)["results"]["tasks"]["evaluate"]["results"]
    sheet = evaluation.overall(results)
    assert sheet.title == "Evaluation, all rows"
    assert sheet.head[-3:] == ("sampling", "privacy", "binning")
    assert sheet.notes[0] == evaluation.ERRORS
    assert {"Sampling", "privacy", "Binning"} <= set(evaluation.ERRORS.split())
