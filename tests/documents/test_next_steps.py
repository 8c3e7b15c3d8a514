"""What to do after a study follows from its result, names files only, and files that are there."""

from __future__ import annotations

from typing import Any

import pytest
from test_drowned_report import drowned

from fedassay.documents.report import NEXT_STEPS, next_steps
from printing import said
from study_documents import study_document, study_page

APPLY = "fedassay apply"
PLAN = "fedassay plan study study.toml"


def commands(study: dict[str, Any]) -> list[str]:
    return [command for _, command in next_steps(study) if command]


def test_a_model_that_needs_calibration_gets_its_calibrator_and_its_sets() -> None:
    study = study_document()
    assert study["results"]["verdict"]["needs_calibration"]
    assert commands(study) == [
        f"{APPLY} calibrator.json NEW.csv --out calibrated.parquet",
        f"{APPLY} conformal.json NEW.csv --out conformal.parquet",
        f"{APPLY} conformal95.json NEW.csv --out conformal95.parquet",
        "fedassay verify FOLDER --key PUBLIC_KEY",
    ]
    assert "certificate.json" in [*next_steps(study)][-1][0]
    said = {text for text, _ in next_steps(study)}
    assert any("give it the model's own scores, the calibrator is in it" in text for text in said)


def test_a_calibrator_that_is_not_better_is_left_aside() -> None:
    study = study_document()
    study["results"]["verdict"]["needs_calibration"] = False
    study["results"]["tasks"]["calibrate"]["results"]["recommended"] = False
    texts = [text for text, _ in next_steps(study)]
    assert texts[0].startswith("Use the model's probabilities as they are")
    assert texts[1].startswith("Leave calibrator.json aside")
    assert not any("calibrator.json" in command for command in commands(study))
    assert PLAN not in commands(study)
    study["results"]["tasks"]["calibrate"]["results"]["calibrator"] = None
    assert not any("calibrator.json" in text for text, _ in next_steps(study))


def test_where_noise_hides_everything_one_plans_again() -> None:
    assert commands(drowned()) == [PLAN, "fedassay verify FOLDER --key PUBLIC_KEY"]
    hint = "under [expected]"
    assert any(hint in text for text, _ in next_steps(drowned()))
    expected = {**drowned(), "parameters": {**drowned()["parameters"], "expected": {"rows": 1000}}}
    assert commands(expected) == commands(drowned())
    assert not any(hint in text for text, _ in next_steps(expected))


@pytest.mark.parametrize("undecided", ["verdict", "sets", "numbers"])
def test_anything_that_could_not_be_told_is_a_reason_to_plan(undecided: str) -> None:
    study = study_document()
    assert PLAN not in commands(study)
    tasks = study["results"]["tasks"]
    if undecided == "verdict":
        study["results"]["verdict"]["needs_calibration"] = None
    elif undecided == "sets":
        tasks["conformal95"]["results"] |= {"infinite": True, "threshold": None}
        assert not any("conformal95.json" in text for step in next_steps(study) for text in step)
    else:
        tasks["evaluate"]["results"]["roc_auc"] |= {"value": None, "interval": None, "reason": "one class"}
    assert PLAN in commands(study)


def test_steps_stand_last_on_the_page_and_in_the_terminal() -> None:
    study = study_document()
    html, text = study_page(), said(study)
    last = html.partition(f">{NEXT_STEPS}</h2>")[2]
    assert "<h2" not in last
    for sentence, command in next_steps(study):
        assert sentence.replace("'", "&#x27;") in last
        assert f"<pre><code>{command}</code></pre>" in last or not command
        assert f"- {sentence} {command}".strip() in text
