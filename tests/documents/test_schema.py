"""The JSON Schema of results is made from declarations, and refuses what they do not allow."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from typing_extensions import TypedDict

from fedassay.documents.schema import SCHEMA_FILE, schema, schema_text
from fedassay.protocol.cards import Named
from fedassay.protocol.result_parts import MetricPart, declared
from fedassay.tasks.card import KINDS
from study_documents import study_document

VALIDATOR = Draft202012Validator(json.loads(SCHEMA_FILE.read_text(encoding="utf-8")))


def test_the_packaged_schema_is_what_the_declarations_say() -> None:
    assert schema_text() == SCHEMA_FILE.read_text(encoding="utf-8")
    Draft202012Validator.check_schema(schema())


def test_every_kind_declares_its_results() -> None:
    assert [name for name, card in KINDS.items() if card.results is None] == []


@pytest.mark.parametrize("noise", [True, False])
def test_nothing_that_is_required_can_be_left_out(noise: bool) -> None:
    study = study_document(noise=noise)
    assert VALIDATOR.is_valid(study)
    for name, entry in study["results"]["tasks"].items():
        required = set(entry["results"]) & set(required_of(entry["task"]))
        assert len(required) >= 5
        for left_out in required:
            broken = copy.deepcopy(study)
            del broken["results"]["tasks"][name]["results"][left_out]
            assert not VALIDATOR.is_valid(broken), (name, left_out)


def required_of(kind: str) -> list[str]:
    declaration = KINDS[kind].results.load().__name__  # type: ignore[union-attr]
    return list(VALIDATOR.schema["$defs"][declaration]["required"])


def _without_a_reason(study: dict[str, Any]) -> None:
    study["results"]["tasks"]["evaluate"]["results"]["roc_auc"]["value"] = None


def _a_study_in_a_study(study: dict[str, Any]) -> None:
    study["results"]["tasks"]["evaluate"]["task"] = "study"


def _no_metric(study: dict[str, Any]) -> None:
    study["results"]["tasks"]["evaluate"]["results"]["sharpness"] = "good"


def _spent_without_noise(study: dict[str, Any]) -> None:
    study["results"]["budget"]["epsilon"] = None


def _something_else(study: dict[str, Any]) -> None:
    study["privacy"]["secret"] = 1


@pytest.mark.parametrize(
    "breaks", [_without_a_reason, _a_study_in_a_study, _no_metric, _spent_without_noise, _something_else]
)
def test_what_is_not_declared_is_refused(breaks: Callable[[dict[str, Any]], None]) -> None:
    study = study_document()
    breaks(study)
    assert not VALIDATOR.is_valid(study)


def test_a_declaration_that_changes_changes_the_schema() -> None:
    card = KINDS["infer"]
    before = card.results
    object.__setattr__(card, "results", Named(f"{__name__}:OtherResults"))
    try:
        assert schema_text() != SCHEMA_FILE.read_text(encoding="utf-8")
        assert "OtherResults" in schema()["$defs"]
    finally:
        object.__setattr__(card, "results", before)


@declared(extra_items=MetricPart)
class OtherResults(TypedDict):
    """Other results."""

    rows: float
