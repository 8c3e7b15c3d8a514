"""Prediction sets in words: when there is nothing to say of them, what chance explains, what few people need."""

from __future__ import annotations

from typing import Any

import pytest
from test_conformal_report import (
    RESULTS,
    SOFTMAX,
    document,
    found,
    held_out,
    infinite,
    metric,
    parts,
    printed,
    results,
    size,
)

from fedassay.documents import report
from fedassay.documents.blocks import SentenceBlock, TableBlock
from fedassay.documents.measured import measured
from fedassay.documents.page import page
from fedassay.documents.report import key_numbers
from fedassay.tasks.conformal import document as conformal
from fedassay.tasks.conformal import document_sets as conformal_sets
from fedassay.tasks.conformal.document_plots import CoverageDisplay
from study_documents import blocks


@pytest.mark.parametrize(
    "name", [name for name in RESULTS if "infinite" in name or "hold everything" in name]
)
def test_of_sets_that_hold_everything_there_is_one_sentence(name: str) -> None:
    content = RESULTS[name]()
    first, *others = blocks(document(content))
    assert isinstance(first, SentenceBlock)
    assert first.text.startswith(
        "There are no sets of the level 0.9 to speak of: every set would hold everything,"
    )
    assert first.text.count("300 per client would do") == 1
    assert {type(one) for one in others} <= {TableBlock}
    text, html = printed(document(content)), page(document(content))
    for word in ("coverage exceeded", "0.901", "On held-out rows", "Set sizes", "set size of all"):
        assert word not in text
        assert word not in html
    assert "<svg" not in html
    assert key_numbers(document(content)) == ()


def test_numbers_of_sets_that_hold_everything_are_noise_and_reach_no_program() -> None:
    noisy = held_out(0, counts=(18.0, -7.0, 124.0))
    assert "held_out.coverage" in {
        one.block + "." + one.name for one in measured(document(results(held_out=noisy)))
    }
    content = document({**infinite(), "held_out": noisy})
    assert list(measured(content)) == []
    display = CoverageDisplay.from_result(content)
    assert (display.laws, display.set_sizes) == ({}, ())
    assert repr(display) == "CoverageDisplay(level=0.9, infinite=True)"


def test_a_group_that_holds_everything_has_no_coverage_to_show() -> None:
    content = RESULTS["groups"]()
    seen = content["held_out"]["groups"]
    seen["other"] = {"rows": 3, "coverage": metric(0.4321), "mean_size": size(2.0)}
    sheet = parts(content)[0]["On held-out rows"]
    assert [row[0].text for row in sheet.rows] == ["all", "F"]
    assert "Sets hold everything for: other." in sheet.notes


def test_an_estimate_below_the_level_is_judged_by_its_interval() -> None:
    def seen(value: float, half: float) -> tuple[tuple[str, ...], str]:
        content = results(held_out={**held_out(0), "coverage": metric(value, half=half)})
        (number, *_) = key_numbers(document(content))
        return parts(content)[0]["On held-out rows"].notes, number.detail

    notes, detail = seen(0.88, 0.05)
    assert notes == ("The coverage of all is consistent with 0.9: its interval holds the level.",)
    assert detail == "0.830 to 0.930 (95%); consistent with 0.9"
    for value, half in ((0.88, 0.01), (0.91, 0.05)):  # too low for chance, and not low at all
        notes, detail = seen(value, half)
        assert notes == ()
        assert "chance" not in detail


def test_empty_sets_are_explained_unless_noise_may_have_made_them() -> None:
    def noted(value: float, privacy: float, **more: Any) -> bool:
        mean = {**size(value), "error": {"sampling": 0.01, "privacy": privacy, "discretisation": 0.0}}
        content = results(
            held_out={**held_out(0, counts=(30, 70, 1)), "mean_size": mean, **more}, score=SOFTMAX
        )
        notes = parts(content)[0]["On held-out rows"].notes
        return any(note.startswith("Some sets are empty: the model is right more often") for note in notes)

    assert noted(0.95, 0.0)
    assert noted(0.85, 0.02)
    assert not noted(0.95, 0.02)  # the interval reaches 1.05
    assert not noted(1.2, 0.0)
    assert not noted(0.95, 0.0, size_counts=None)  # an interval of 0.95 miles is not empty


def test_intervals_have_a_width_and_say_what_is_not_measured() -> None:
    content = RESULTS["weighted"]()
    shown = {number.label: (number.text, number.detail) for number in key_numbers(document(content))}
    assert shown["width of the intervals"] == ("2.5", "")
    assert conformal_sets.NO_ERROR in conformal.promise(content).notes
    content["score"] = SOFTMAX
    content["held_out"]["mean_size"] = size(1.5)
    shown = {number.label: (number.text, number.detail) for number in key_numbers(document(content))}
    assert shown["mean size of the sets on held-out rows"] == ("1.50", "1.40 to 1.60 (95%)")
    assert conformal_sets.NO_ERROR not in conformal.promise(content).notes


def test_how_a_threshold_was_found_is_behind_a_click() -> None:
    content = document(results(found(details={"rank": 908, "margin": 7.5, "step": 0.001})))
    hidden = (
        page(content)
        .partition("<details><summary>How it was computed</summary>")[2]
        .partition("</details>")[0]
    )
    for words in ("rank among all rows", "raised for noise, in rows", "distance of the public points"):
        assert words in hidden
        assert page(content).count(words) == 1
        assert words not in printed(content)


def test_rows_that_were_held_out_are_counted_beside_those_to_fit_on() -> None:
    content = document(results(held_out=held_out(0)))
    assert report.rows(content) == "1,000 rows to fit on and 400 held out"
    content["privacy"]["epsilon"] = 1.0
    assert report.rows(content) == "about 1,000 rows to fit on and about 400 held out"
    assert report.rows(document(results())) == "1,000 rows"
