"""The artefact: bit for bit, checked when it is loaded, and a probability for every score."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedassay
from artefact_files import ANYTHING, NOT_JSON, sentence_about
from calibration_rows import crooked
from fedassay.errors import DataError, UsageError
from fedassay.summaries.maps import InterpolatedMap, Sigmoid

ARTEFACT = fedassay.Calibrator(
    map=Sigmoid(a=0.7, b=0.9, c=-0.1),
    method="beta",
    parameters={"a": 0.7, "b": 0.9, "c": -0.1},
    columns={"score": "p", "label": "y", "client": None},
    recommended=True,
    reason="Recommended: it is better.",
    privacy={"trust_model": "plain"},
)


@given(values=st.lists(st.floats(0, 1), min_size=1, max_size=30), seed=st.integers(0, 2**32 - 1))
def test_saving_and_loading_keep_every_bit(tmp_path_factory: Any, values: list[float], seed: int) -> None:
    rng = np.random.default_rng(seed)
    scores = np.unique(rng.random(len(values)))
    calibrator = fedassay.Calibrator(
        map=InterpolatedMap(scores=tuple(scores.tolist()), values=tuple(values[: len(scores)])),
        method="isotonic",
    )
    path = tmp_path_factory.mktemp("artefact") / "c.json"
    calibrator.save(path)
    loaded = fedassay.load_calibrator(path)
    assert loaded == calibrator
    x = rng.random(50)
    assert loaded.predict(x).tobytes() == calibrator.predict(x).tobytes()


def result(**options: Any) -> fedassay.Result:
    scores, labels = crooked(6_000)
    data = {"site": np.arange(6_000) % 5, "p": scores, "y": labels}
    return fedassay.calibrate(
        data, client="site", score="p", label="y", simulation=fedassay.Simulation(seed=1), **options
    )


def test_the_artefact_of_a_result_says_where_it_comes_from(tmp_path: Path) -> None:
    outcome = result(method="platt")
    calibrator = fedassay.Calibrator.of(outcome)
    calibrator.save(tmp_path / "c.json")
    content = json.loads((tmp_path / "c.json").read_text())
    assert content["artefact"] == "calibrator"
    assert content["format"] == 1
    assert content["fedassay"] == fedassay.__version__
    assert content["map"] == outcome["calibrator"]
    assert content["columns"] == {"score": "p", "label": "y", "client": "site"}
    assert content["privacy"] == dict(outcome.privacy)
    assert content["recommended"] is outcome["recommended"]
    assert fedassay.Calibrator.load(tmp_path / "c.json") == calibrator


def test_a_result_without_a_calibrator_has_no_artefact() -> None:
    scores, labels = crooked(100)
    data = {"site": np.arange(100) % 5, "p": scores, "y": labels}
    none = fedassay.calibrate(
        data,
        client="site",
        score="p",
        label="y",
        privacy=fedassay.ServerDP(),
        budget=fedassay.Budget(epsilon=0.1),
        simulation=fedassay.Simulation(seed=1),
    )
    with pytest.raises(DataError, match="not enough evidence"):
        fedassay.Calibrator.of(none)
    evaluation = fedassay.evaluate(data, client="site", score="p", label="y")
    with pytest.raises(UsageError, match="expected one of calibrate"):
        fedassay.Calibrator.of(evaluation)


def test_probabilities_come_as_in_scikit_learn() -> None:
    scores = np.array([0.0, 0.2, 1.0])
    assert ARTEFACT.predict(scores).shape == (3,)
    both = ARTEFACT.predict_proba(scores)
    assert both.shape == (3, 2)
    assert both.sum(axis=1) == pytest.approx([1, 1, 1])
    assert both[:, 1].tolist() == ARTEFACT.predict(scores).tolist()
    two_columns = np.stack([1 - scores, scores], axis=1)
    for same in (scores.tolist(), scores[:, None], two_columns, scores.astype(np.float32)):
        assert ARTEFACT.predict(same) == pytest.approx(both[:, 1], abs=1e-7)
    assert ARTEFACT.predict([]).shape == (0,)


BAD_SCORES = {
    "NaN": ([0.1, float("nan")], "row 1"),
    "above one": ([0.1, 0.2, 1.5], "row 2"),
    "below zero": ([-0.1], "row 0"),
    "text": (["high"], "not numbers"),
    "three columns": (np.zeros((2, 3)), "shape"),
    "one number": (0.5, "shape"),
    "columns that are no probabilities": ([[0.2, 0.2]], "add up to 1"),
}


@pytest.mark.parametrize("name", sorted(BAD_SCORES))
def test_scores_that_are_none_are_refused(name: str) -> None:
    scores, words = BAD_SCORES[name]
    with pytest.raises(DataError, match=words):
        ARTEFACT.predict(scores)


def changed(**entries: Any) -> str:
    return json.dumps({**ARTEFACT.to_json(), **entries})


BAD_FILES = {
    **NOT_JSON,
    "a list": ("[]", "not a calibrator"),
    "another artefact": (changed(artefact="conformal"), "not a calibrator"),
    "a result": (json.dumps({"task": "calibrate", "results": {}}), "not a calibrator"),
    "newer": (changed(format=2), "format 2, expected 1"),
    "unknown entry": (changed(code="print(1)"), "'code'"),
    "missing entry": (json.dumps({k: v for k, v in ARTEFACT.to_json().items() if k != "map"}), "'map'"),
    "method": (changed(method="magic"), "'magic'"),
    "recommended": (changed(recommended="yes"), "'recommended'"),
    "columns": (changed(columns={"score": 5}), "'columns'"),
    "map": (changed(map={"kind": "steps", "edges": [], "values": [2.0]}), "map"),
    "map kind": (changed(map={"kind": "pickle"}), "map"),
}


@pytest.mark.parametrize("name", sorted(BAD_FILES))
def test_a_bad_file_gets_one_sentence(name: str, tmp_path: Path) -> None:
    content, words = BAD_FILES[name]
    assert words in sentence_about(tmp_path / "bad.json", content, fedassay.load_calibrator)


@given(st.dictionaries(st.sampled_from(sorted(ARTEFACT.to_json())), ANYTHING, max_size=3))
def test_whatever_stands_in_the_entries_loading_never_crashes(entries: dict[str, Any]) -> None:
    try:
        loaded = fedassay.Calibrator.from_json({**ARTEFACT.to_json(), **entries})
    except UsageError:
        return
    assert np.all((loaded.predict([0.0, 0.5, 1.0]) >= 0) & (loaded.predict([0.0, 0.5, 1.0]) <= 1))
