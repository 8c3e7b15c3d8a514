"""A result of a study from Python: where its numbers are, and each task as a result of its own."""

from __future__ import annotations

import json
import re

import pytest

import fedassay
from fedassay.documents.report import sub_document
from fedassay.errors import UsageError
from fedassay.protocol.result import Result
from study_documents import study_document


def study(*, noise: bool = True) -> Result:
    return Result.from_json(json.dumps(study_document(noise=noise)))


def test_a_metric_that_is_deeper_in_a_study_is_told_where() -> None:
    with pytest.raises(
        KeyError, match=re.escape('result["tasks"]["evaluate"]["results"]["roc_auc"]')
    ) as found:
        study()["roc_auc"]
    assert 'result.task_result("evaluate")' in str(found.value)
    with pytest.raises(KeyError) as found:
        study()["held_out"]
    for name in ("conformal", "conformal95"):
        assert f'result["tasks"]["{name}"]["results"]["held_out"]' in str(found.value)
    with pytest.raises(KeyError, match=re.escape('result.task_result("evaluate")')):
        study()["evaluate"]
    with pytest.raises(KeyError, match="expected one of verdict, tasks, budget"):
        study()["auc"]
    with pytest.raises(KeyError, match="the result of evaluate has no such entry, expected one of roc_auc, "):
        study().task_result("evaluate")["auc"]
    assert study()["tasks"]["evaluate"]["results"]["roc_auc"] == study().task_result("evaluate")["roc_auc"]


@pytest.mark.parametrize("name", ["evaluate", "calibrate", "conformal95", "infer"])
def test_a_task_is_a_result_of_its_own(name: str) -> None:
    whole = study(noise=False)
    one = whole.task_result(name)
    assert one.to_dict() == sub_document(whole.to_dict(), name)
    assert (one.privacy, one.cohort, one.warnings) == (whole.privacy, whole.cohort, whole.warnings)


def test_what_is_no_task_is_refused() -> None:
    with pytest.raises(
        UsageError, match="'x': the study has no such task, expected one of evaluate, calibrate"
    ):
        study().task_result("x")
    with pytest.raises(UsageError, match="the result is that of one task, evaluate; use it as it is"):
        study().task_result("evaluate").task_result("evaluate")


def test_a_result_is_one_short_line() -> None:
    assert (
        repr(study())
        == "Result(task='study', study='readmission-spring', trust_model='server-dp', clients=8)"
    )
    rows = {"p": [0.1, 0.2, 0.6, 0.8], "y": [0, 0, 1, 1]}
    single = fedassay.evaluate(rows, score="p", label="y", simulation=fedassay.Simulation(seed=1))
    assert repr(single).startswith("Result(task='evaluate', trust_model='")
    assert len(repr(single)) < 80


def test_a_result_is_a_mapping_of_what_the_task_found() -> None:
    found = study().task_result("evaluate")
    assert "roc_auc" in found
    assert "auc" not in found
    assert 0 not in found
    assert list(found) == list(found.results)
    assert dict(found) == {**found} == dict(found.results)
    assert len(found) == len(found.results)
    assert found.get("auc") is None
    assert found == study().task_result("evaluate")
