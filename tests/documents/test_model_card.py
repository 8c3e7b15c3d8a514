"""The model card: its block is YAML that says what the result says, and no text of a study becomes markup."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from fedassay.documents.markdown import front_matter
from fedassay.documents.measured import measured
from fedassay.documents.model_card import model_card
from fedassay.errors import UsageError
from study_documents import study_document


@pytest.fixture(scope="module", params=[True, False], ids=["noise", "exact"])
def document(request: pytest.FixtureRequest) -> dict[str, Any]:
    return study_document(noise=request.param)


def split(card: str) -> tuple[dict[str, Any], str]:
    opening, block, text = card.split("---\n", 2)
    assert opening == ""
    return yaml.safe_load(block), text


def test_the_block_has_the_numbers_of_the_result(document: dict[str, Any]) -> None:
    block, _ = split(model_card(document))
    (model,) = block["model-index"]
    assert model["name"] == "readmission-net 2.1"
    assert len(model["results"]) == 4  # a regression is not about the model
    tasks = document["results"]["tasks"]
    evaluation, calibration, *sets = model["results"]
    for one in model["results"]:
        assert set(one) == {"task", "dataset", "metrics"}
        assert one["dataset"]["type"] == "readmission-spring"
        assert {metric["verified"] for metric in one["metrics"]} == {False}
    auc = tasks["evaluate"]["results"]["roc_auc"]
    assert evaluation["metrics"][0] == {
        "type": "roc_auc",
        "name": "ROC AUC",
        "value": auc["value"],
        "args": {"lower": auc["interval"][0], "upper": auc["interval"][1], "level": 0.95},
        "verified": False,
    }
    recall = [one for one in evaluation["metrics"] if one["type"] == "recall"]
    assert [one["args"]["threshold"] for one in recall] == [0.1, 0.5]
    after = {one["type"]: one["value"] for one in calibration["metrics"]}
    assert after == {name: one["value"] for name, one in tasks["calibrate"]["results"]["after"].items()}
    held_out = tasks["conformal"]["results"]["held_out"]
    metrics = {one["type"]: one["value"] for one in sets[0]["metrics"]}
    assert metrics["coverage"] == held_out["coverage"]["value"]
    assert metrics["coverage_class_1"] == held_out["groups"]["1"]["coverage"]["value"]
    assert sets[0]["dataset"]["split"] == "held-out"


def test_without_a_recommended_calibrator_the_model_is_the_one_before(document: dict[str, Any]) -> None:
    changed = copy.deepcopy(document)
    changed["results"]["tasks"]["calibrate"]["results"]["recommended"] = False
    block, _ = split(model_card(changed))
    metric = block["model-index"][0]["results"][1]["metrics"][0]
    assert metric["name"] == "ROC AUC, before calibration"


def test_the_text_has_all_sections_and_the_privacy_statement(document: dict[str, Any]) -> None:
    _, text = split(model_card(document))
    assert [line for line in text.splitlines() if line.startswith("## ")] == [
        "## What was assayed",
        "## Intended use",
        "## Training",
        "## Data and cohort",
        "## Results",
        "## Limitations and assumptions",
        "## Privacy",
        "## How to verify",
    ]
    assert text.count("**To be filled in by the owner of the model.**") == 3
    assert document["privacy"]["statement"].split(".")[0] in text
    assert document["results"]["verdict"]["text"] in text
    assert "| on held-out rows | before | after |" in text
    # A table's head is no markup either.
    assert (r"P\>\|z\|" in text) == ("infer" in document["results"]["tasks"])


def test_what_training_cost_is_repeated(document: dict[str, Any]) -> None:
    changed = copy.deepcopy(document)
    assert "training cost" not in model_card(changed)
    changed["parameters"]["training"] = {"epsilon": 3.0, "delta": 1e-6}
    assert "training cost ε = 3 at δ = 1e-06" in model_card(changed)


def test_only_studies_have_a_card(document: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="expected one of a study"):
        model_card({**document, "task": "evaluate"})


def test_texts_of_a_study_are_no_markup(document: dict[str, Any]) -> None:
    changed = copy.deepcopy(document)
    nasty = 'x"\n---\n# <script>alert(1)</script> [a](b) | `c`'
    changed["parameters"] |= {"model": nasty, "title": nasty}
    changed["warnings"] = [nasty]
    block, text = split(model_card(changed))
    assert block["model-index"][0]["name"] == nasty
    assert "<script>" not in text
    assert r'# x" --- \# \<script\>alert(1)\</script\> \[a\](b) \| \`c\`' in text


def test_every_number_has_a_name_of_its_own(document: dict[str, Any]) -> None:
    keys = [one.key for one in measured(document)]
    assert len(keys) == len(set(keys)) > 40
    found = {one.key: one for one in measured(document)}
    tasks = {name: entry["results"] for name, entry in document["results"]["tasks"].items()}
    last, entry = (
        (found["infer.coefficient_severity"], tasks["infer"]["coefficients"][1])
        if "infer" in tasks
        else (found["ecdf.quantile_at_0.5"], tasks["ecdf"]["quantiles"][0])
    )
    assert [last.value, last.lower, last.upper] == [entry["value"], *entry["interval"]]
    assert found["conformal95.threshold"].value == tasks["conformal95"]["threshold"]
    assert found["conformal.threshold_class_1"].value == tasks["conformal"]["groups"]["1"]["threshold"]
    before = tasks["calibrate"]["before"]["brier_score"]
    assert found["calibrate.before.brier_score"].value == before["value"]


def test_numbers_without_a_value_are_left_out() -> None:
    undefined = {"value": None, "interval": None, "level": 0.95, "reason": "one class only"}
    single = {
        "task": "evaluate",
        "results": {"roc_auc": undefined, "brier_score": {**undefined, "value": 0.1}},
    }
    assert [(one.key, one.lower) for one in measured(single)] == [("evaluate.brier_score", None)]


SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
)
NAMES = st.from_regex(r"[A-Za-z][A-Za-z0-9_-]{0,8}", fullmatch=True)
CONTENTS = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(SCALARS | st.dictionaries(NAMES, inner, max_size=3), max_size=3)
        | st.dictionaries(NAMES, inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=40)
@given(content=st.dictionaries(NAMES, CONTENTS, max_size=4))
def test_the_block_is_read_back_as_it_was(content: dict[str, Any]) -> None:
    text = front_matter(content)
    assert text.splitlines().count("---") == 2
    assert (yaml.safe_load(text.removeprefix("---\n").removesuffix("---\n")) or {}) == content


def test_half_a_surrogate_pair_has_no_bytes_and_is_replaced() -> None:
    assert front_matter({"a": "x\ud800y"}).encode("utf-8").decode("utf-8") == '---\na: "x\ufffdy"\n---\n'


@pytest.mark.parametrize("bad", [{"a b": 1}, {"a": float("nan")}, {"a": [[1]]}, {"": 1}])
def test_what_has_no_place_in_the_block_is_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        front_matter(bad)
