"""`conformal.json`: bit for bit, checked entry by entry when it is loaded, and never a traceback."""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedassay
from artefact_files import ANYTHING, NOT_JSON, sentence_about, with_entry
from conformal_artefacts import predictor, threshold
from fedassay.artefacts.thresholds import StoredGuarantee, Threshold
from fedassay.errors import DataError, UsageError

ARTEFACT = predictor(
    "raps",
    by="group",
    parameters=(0.02, 3.0),
    classes=4,
    thresholds={"F": threshold(0.7, reason="why not"), "M": threshold(math.inf), "other": threshold(-0.5)},
    notes=("It was late.",),
    privacy={"trust_model": "plain", "epsilon": None, "delta": 0.0, "simulated": True},
)
PLAIN = ARTEFACT.to_json()


@given(
    value=st.floats(allow_nan=False, allow_infinity=False) | st.just(math.inf),
    level=st.floats(0, 1, exclude_min=True, exclude_max=True),
    coverage=st.floats(0, 1) | st.none(),
    penalty=st.floats(0, 1000),
)
def test_saving_and_loading_keep_every_bit(
    tmp_path_factory: Any, value: float, level: float, coverage: float | None, penalty: float
) -> None:
    promise = StoredGuarantee(
        kind="training-conditional", level=level, coverage=coverage, text="Ja.", confidence=0.9
    )
    made = predictor(
        "raps",
        level=level,
        parameters=(penalty, 2.0),
        thresholds={"all": Threshold(value=value, guarantee=promise)},
    )
    path = tmp_path_factory.mktemp("artefact") / "c.json"
    made.save(path)
    loaded = fedassay.ConformalPredictor.load(path)
    assert loaded == made
    assert np.float64(loaded.threshold).tobytes() == np.float64(value).tobytes()
    logits = np.random.default_rng(0).normal(size=(20, 4))
    assert loaded.predict_set(logits).tolist() == made.predict_set(logits).tolist()


@pytest.mark.parametrize("by", ["", "class", "group", "client"])
def test_every_kind_of_thresholds_comes_back(by: str, tmp_path: Path) -> None:
    names = {
        "": ["all"],
        "class": ["0", "1"],
        "group": ["F", "ü [bold]", "other"],
        "client": ["site 1", "x"],
    }[by]
    made = predictor("lac", {name: 0.1 * place for place, name in enumerate(names)}, by=by)
    made.save(tmp_path / "c.json")
    assert fedassay.ConformalPredictor.load(tmp_path / "c.json") == made


def test_the_file_is_what_it_says_it_is(tmp_path: Path) -> None:
    ARTEFACT.save(tmp_path / "conformal.json")
    content = json.loads((tmp_path / "conformal.json").read_text())
    assert content["artefact"] == "conformal"
    assert content["format"] == 1
    assert content["fedassay"] == fedassay.__version__
    assert content["score"] == {"name": "raps", "parameters": [0.02, 3.0]}
    assert content["classes"] == 4
    assert content["thresholds"]["M"]["threshold"] is None
    assert content["thresholds"]["M"]["infinite"] is True
    assert content["thresholds"]["F"]["threshold"] == 0.7
    assert content["thresholds"]["F"]["guarantee"]["kind"] == "marginal"
    assert set(tmp_path.iterdir()) == {tmp_path / "conformal.json"}


def test_it_is_not_taken_for_a_calibrator(tmp_path: Path) -> None:
    ARTEFACT.save(tmp_path / "c.json")
    with pytest.raises(UsageError, match="not a calibrator"):
        fedassay.load_calibrator(tmp_path / "c.json")


def changed(*path: str, value: Any) -> str:
    return json.dumps(with_entry(PLAIN, path, value))


def without(name: str) -> str:
    return json.dumps({key: value for key, value in PLAIN.items() if key != name})


FIRST = ("thresholds", "F")
BAD_FILES = {
    **NOT_JSON,
    "a list": ("[]", "no conformal predictor"),
    "a calibrator": (changed("artefact", value="calibrator"), "no conformal predictor"),
    "unhashable kind": (changed("artefact", value=["conformal"]), "no conformal predictor"),
    "newer": (changed("format", value=2), "another format, expected 1"),
    "format true": (changed("format", value=True), "another format"),
    "format 1.0": (changed("format", value=1.0), "another format"),
    "unknown entry": (changed("code", value="print(1)"), "'code'"),
    "missing entry": (without("thresholds"), "'thresholds'"),
    "method": (changed("method", value=5), "'method'"),
    "method that writes to the terminal": (changed("method", value="\x1b[2J"), "'method'"),
    "level": (changed("level", value=1), "level: got 1"),
    "level is text": (changed("level", value="0.9"), "'level'"),
    "level is huge": (changed("level", value=10**400), "'level'"),
    "score": (changed("score", value="lac"), "'score'"),
    "score name": (changed("score", "name", value="magic"), "'magic'"),
    "score value": (changed("score", "name", value="value"), "conformity score"),
    "score list": (changed("score", "name", value=[]), "'score'"),
    "parameters": (changed("score", "parameters", value=[1]), "score_parameters: got 1 numbers for raps"),
    "parameters text": (changed("score", "parameters", value=["1", "2"]), "'parameters'"),
    "parameters number": (changed("score", "parameters", value=3), "'parameters'"),
    "parameters infinite": (changed("score", "parameters", value=[0.1, 2]).replace("0.1", "1e999"), "inf"),
    "by": (changed("by", value="magic"), "'magic'"),
    "classes text": (changed("classes", value="4"), "classes: expected a whole number"),
    "classes true": (changed("classes", value=True), "classes: expected a whole number"),
    "one class": (changed("classes", value=1), "at least 2"),
    "classes huge": (changed("classes", value=10**4000), "classes: expected a whole number"),
    "classes of numbers": (
        json.dumps({**PLAIN, "score": {"name": "absolute", "parameters": []}}),
        "the score absolute has no classes",
    ),
    "by list": (changed("by", value=[]), "'by'"),
    "by class": (changed("by", value="class"), "'F'"),
    "by nothing": (changed("by", value=""), "expected one called 'all'"),
    "no thresholds": (changed("thresholds", value={}), "got 0"),
    "thresholds list": (changed("thresholds", value=[]), "'thresholds'"),
    "many groups": (changed("thresholds", value={str(i): PLAIN["thresholds"]["F"] for i in range(99)}), "99"),
    "no client": (
        json.dumps({**PLAIN, "by": "client", "thresholds": {}}),
        "client without a name or no client",
    ),
    "a nameless client": (
        json.dumps({**PLAIN, "by": "client", "thresholds": {"": PLAIN["thresholds"]["F"]}}),
        "'thresholds'",
    ),
    "half a character": (
        json.dumps({**PLAIN, "by": "client", "thresholds": {"\ud800": PLAIN["thresholds"]["F"]}}),
        "'thresholds'",
    ),
    "threshold is a number": (changed("thresholds", "F", value=1.0), "'thresholds'"),
    "threshold text": (changed(*FIRST, "threshold", value="1"), "'threshold'"),
    "threshold true": (changed(*FIRST, "threshold", value=True), "'threshold'"),
    "threshold null": (changed(*FIRST, "threshold", value=None), "'threshold'"),
    "threshold overflows": (changed(*FIRST, "threshold", value=7).replace(" 7,", " 1e999,"), "'threshold'"),
    "threshold and infinite": (changed(*FIRST, "infinite", value=True), "said to be infinite"),
    "infinite": (changed(*FIRST, "infinite", value=0), "'infinite'"),
    "reason": (changed(*FIRST, "reason", value=7), "'reason'"),
    "unknown in threshold": (changed(*FIRST, "run", value="rm"), "'run'"),
    "guarantee": (changed(*FIRST, "guarantee", value=None), "'guarantee'"),
    "guarantee kind": (changed(*FIRST, "guarantee", "kind", value=[]), "guarantee: got []"),
    "guarantee text": (changed(*FIRST, "guarantee", "text", value="a\nb"), "'text'"),
    "guarantee level": (changed(*FIRST, "guarantee", "level", value="all"), "'level'"),
    "guarantee coverage": (changed(*FIRST, "guarantee", "coverage", value={}), "'coverage'"),
    "guarantee assumption": (changed(*FIRST, "guarantee", "assumption", value=1), "'assumption'"),
    "columns": (changed("columns", value={"prediction": 5}), "'columns'"),
    "columns list": (changed("columns", value=[]), "'columns'"),
    "columns half a character": (changed("columns", value={"prediction": "\ud800"}), "'columns'"),
    "notes": (changed("notes", value="late"), "'notes'"),
    "a note": (changed("notes", value=[None]), "'notes'"),
    "privacy": (changed("privacy", value="yes"), "'privacy'"),
    "privacy nested": (changed("privacy", value={"epsilon": {}}), "'privacy'"),
    "fedassay": (changed("fedassay", value=None), "'fedassay'"),
}


@pytest.mark.parametrize("name", sorted(BAD_FILES))
def test_a_bad_file_gets_one_sentence(name: str, tmp_path: Path) -> None:
    content, words = BAD_FILES[name]
    assert words in sentence_about(tmp_path / "bad.json", content, fedassay.ConformalPredictor.load)


@pytest.mark.parametrize("load", [fedassay.ConformalPredictor.load, fedassay.load_calibrator])
def test_a_missing_file_a_folder_and_one_that_is_too_large(load: Any, tmp_path: Path) -> None:
    for path in (tmp_path / "none.json", tmp_path):
        with pytest.raises(UsageError, match="cannot be read"):
            load(path)
    large = tmp_path / "large.json"
    with large.open("wb") as file:
        file.truncate(2**26 + 1)
    with pytest.raises(UsageError, match="no artefact is that large"):
        load(large)


def places(content: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Every place in a document, at every depth."""
    if not isinstance(content, dict):
        return [path]
    return [path, *(place for key, inner in content.items() for place in places(inner, (*path, key)))]


@given(
    entries=st.dictionaries(st.sampled_from(places(PLAIN)), ANYTHING, min_size=1, max_size=3),
    suffix=st.sampled_from(["", "", "x"]),
)
def test_whatever_stands_in_the_entries_loading_never_crashes_nor_does_what_was_loaded(
    tmp_path_factory: Any, entries: dict[tuple[str, ...], Any], suffix: str
) -> None:
    whole: Any = {"": copy.deepcopy(PLAIN)}
    for path, value in entries.items():
        inner, keys = whole, ("", *path)
        for key in keys[:-1]:
            inner = inner.get(key) if isinstance(inner, dict) else None
        if isinstance(inner, dict):
            inner[keys[-1] + suffix] = value
    try:
        loaded = fedassay.ConformalPredictor.from_json(whole[""])
    except UsageError:
        return
    try:
        assert loaded.predict_set([[0.0, 2.0, 1.0, 0.5]] * 2, group=["F", "M"]).shape == (2, 4)
    except (UsageError, DataError):
        pass
    path = tmp_path_factory.getbasetemp() / "fuzzed.json"
    loaded.save(path)
    assert fedassay.ConformalPredictor.load(path) == loaded
    assert all(warning.isprintable() for warning in loaded.warnings)
