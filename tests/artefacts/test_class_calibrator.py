"""The artefact of a model with several classes: bit for bit, checked when loaded, a sentence for what is bad."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedassay
from artefact_files import ANYTHING, NOT_JSON, sentence_about
from class_calibrators import COLUMNS, KINDS, calibrator, some_map
from conformal_artefacts import class_rows, predictor
from fedassay.artefacts.stored import LARGEST
from fedassay.errors import DataError, UsageError
from fedassay.summaries.maps import Sigmoid
from fedassay.summaries.multiclass.binned_map import Binned
from fedassay.summaries.multiclass.scaling_maps import Temperature, VectorScaling
from fedassay.summaries.scored import MOST_CLASSES

Z = class_rows()["z"]
ARTEFACT = calibrator(
    "vector",
    parameters={"ridge": 0.01},
    recommended=True,
    reason="Recommended: it is better.",
    privacy={"trust_model": "plain", "epsilon": None, "simulated": True},
)
SCORES = fedassay.Calibrator(map=Sigmoid(a=1, b=1, c=0), method="platt")


# --- files ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_saving_and_loading_keep_every_bit(tmp_path: Path, kind: str) -> None:
    made = calibrator(kind, 5)
    made.save(tmp_path / "c.json")
    loaded = fedassay.load_calibrator(tmp_path / "c.json")
    assert isinstance(loaded, fedassay.ClassCalibrator)
    assert loaded.to_json() == made.to_json()
    assert type(loaded.map) is type(made.map)
    assert loaded.map.theta.tobytes() == made.map.theta.tobytes()
    z = class_rows(classes=5)["z"]
    assert loaded.predict_proba(z).tobytes() == made.predict_proba(z).tobytes()
    assert fedassay.ClassCalibrator.load(tmp_path / "c.json").to_json() == made.to_json()
    assert [path.name for path in tmp_path.iterdir()] == ["c.json"]


@given(
    st.lists(st.floats(-(2.0**20), 2.0**20), min_size=2, max_size=6),
    st.lists(st.floats(-(2.0**20), 2.0**20), min_size=6, max_size=6),
)
def test_whatever_the_numbers_are_they_come_back(slopes: list[float], intercepts: list[float]) -> None:
    made = VectorScaling(slopes=tuple(slopes), intercepts=tuple(intercepts[: len(slopes)]))
    text = json.dumps(calibrator(map=made).to_json())
    loaded = fedassay.ClassCalibrator.from_json(json.loads(text))
    assert loaded.map.theta.tobytes() == made.theta.tobytes()


def test_the_file_is_a_line_for_each_entry(tmp_path: Path) -> None:
    ARTEFACT.save(tmp_path / "c.json")
    lines = (tmp_path / "c.json").read_text().splitlines()
    assert len(lines) == 2 + len(ARTEFACT.to_json())
    content = json.loads((tmp_path / "c.json").read_text())
    assert content["artefact"] == "class-calibrator"
    assert content["format"] == 1
    assert content["fedassay"] == fedassay.__version__
    assert content["solver"] == "exact"
    assert content["columns"] == COLUMNS
    assert content["map"] == ARTEFACT.map.to_json()


def test_a_thousand_classes_fit(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    made = Binned.of(rng.random(1000 * 129), 1000)
    calibrator(map=made, method="bbq").save(tmp_path / "c.json")
    loaded = fedassay.load_calibrator(tmp_path / "c.json")
    assert loaded.map.theta.tobytes() == made.theta.tobytes()
    # No number is written with more than 24 characters, and two separate it from the next.
    assert MOST_CLASSES * (MOST_CLASSES + 1) * 26 < LARGEST / 2


def test_what_could_not_be_read_again_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="expected finite ones"):
        calibrator(parameters={"clip": float("inf")}).save(tmp_path / "c.json")
    monkeypatch.setattr("fedassay.artefacts.stored.LARGEST", 100)
    with pytest.raises(UsageError, match="expected at most 100"):
        calibrator().save(tmp_path / "c.json")
    assert list(tmp_path.iterdir()) == []


def test_each_kind_of_calibrator_refuses_the_file_of_the_other(tmp_path: Path) -> None:
    ARTEFACT.save(tmp_path / "classes.json")
    SCORES.save(tmp_path / "scores.json")
    assert fedassay.load_calibrator(tmp_path / "classes.json") == ARTEFACT
    assert fedassay.load_calibrator(tmp_path / "scores.json") == SCORES
    with pytest.raises(UsageError, match=r"classes.json: .* logits .*use fedassay.ClassCalibrator.load.$"):
        fedassay.Calibrator.load(tmp_path / "classes.json")
    with pytest.raises(UsageError, match=r"scores.json: .* scores .*use fedassay.Calibrator.load.$"):
        fedassay.ClassCalibrator.load(tmp_path / "scores.json")


def changed(**entries: Any) -> str:
    return json.dumps({**ARTEFACT.to_json(), **entries})


def other_map(**fields: Any) -> str:
    return changed(map={**ARTEFACT.map.to_json(), **fields})


BAD_FILES = {
    **NOT_JSON,
    "NaN among numbers": (changed(parameters={"ridge": float("nan")}), "not JSON"),
    "a list": ("[]", "not a calibrator"),
    "another artefact": (json.dumps(predictor("lac").to_json()), "not a calibrator"),
    "no artefact": (changed(artefact=["class-calibrator"]), "not a calibrator"),
    "newer": (changed(format=2), "format 2, expected 1"),
    "format as truth": (changed(format=True), "format True, expected 1"),
    "unknown entry": (changed(code="print(1)"), "'code'"),
    "missing entry": (json.dumps({k: v for k, v in ARTEFACT.to_json().items() if k != "solver"}), "'solver'"),
    "method": (changed(method=7), "'method'"),
    "solver": (changed(solver=["exact"]), "'solver'"),
    "parameters": (changed(parameters=[1]), "'parameters'"),
    "recommended": (changed(recommended="yes"), "'recommended'"),
    "reason": (changed(reason="\x1b[2J"), "'reason'"),
    "columns": (changed(columns={"logits": 5}), "'columns'"),
    "privacy": (changed(privacy="none"), "'privacy'"),
    "version": (changed(fedassay=None), "'fedassay'"),
    "map kind": (changed(map={"kind": "pickle"}), "kind is one of temperature"),
    "map of scores": (changed(map=SCORES.map.to_json()), "kind is one of temperature"),
    "map is no object": (changed(map=[1.0]), "map"),
    "map without numbers": (other_map(slopes=None), "map"),
    "map of text": (other_map(slopes=["1"] * 4), "not a number"),
    "map of truth": (other_map(slopes=[True] * 4), "not a number"),
    "map too large": (other_map(slopes=[1e300] * 4), "1e+300"),
    "map infinite": (other_map(slopes=[1.0] * 4).replace("1.0", "1e999"), "inf"),
    "map uneven": (other_map(slopes=[1.0] * 3), "3 classes"),
    "map with more": (other_map(code="print(1)"), "code"),
    "map of one class": (changed(map={"kind": "order-preserving", "slopes": [1.0]}), "classes"),
}


@pytest.mark.parametrize("name", sorted(BAD_FILES))
def test_a_bad_file_gets_one_sentence(name: str, tmp_path: Path) -> None:
    content, words = BAD_FILES[name]
    assert words in sentence_about(tmp_path / "bad.json", content, fedassay.load_calibrator)


@given(
    st.dictionaries(st.sampled_from(sorted(ARTEFACT.to_json())), ANYTHING, max_size=3),
    st.dictionaries(st.sampled_from(["kind", "slopes", "intercepts", "classes"]), ANYTHING, max_size=2),
    st.sampled_from(KINDS),
)
def test_whatever_stands_in_the_entries_loading_never_crashes(
    entries: dict[str, Any], fields: dict[str, Any], kind: str
) -> None:
    content = {**ARTEFACT.to_json(), "map": {**some_map(kind).to_json(), **fields}, **entries}
    try:
        loaded = fedassay.ClassCalibrator.from_json(content)
    except UsageError:
        return
    p = loaded.predict_proba(np.zeros((1, loaded.classes)))
    assert p.sum() == pytest.approx(1)


def test_a_map_is_needed() -> None:
    with pytest.raises(UsageError, match="got a Sigmoid, expected a map of logits"):
        fedassay.ClassCalibrator(map=SCORES.map, method="temperature")  # type: ignore[arg-type]


# --- results ----------------------------------------------------------------------------------------------


def result(**changes: Any) -> fedassay.Result:
    results = {
        "method": "temperature",
        "solver": "exact",
        "parameters": {"temperature": 2.0},
        "temperature": {"value": 2.0},
        "calibrator": Temperature(inverse_temperature=0.5, classes=4).to_json(),
        "recommended": False,
        "reason": "Not recommended: it loses accuracy.",
    }
    return fedassay.Result(
        task="calibrate",
        parameters={"client": "site", "class": "k", "logits": "z", "holdout": 0.3},
        results={**results, **changes},
        privacy={"trust_model": "secure-sum", "epsilon": None, "statement": "Only sums."},
        cohort={},
        runtime={},
    )


def test_the_artefact_of_a_result_says_where_it_comes_from(tmp_path: Path) -> None:
    made = fedassay.ClassCalibrator.of(result())
    assert made.map == Temperature(inverse_temperature=0.5, classes=4)
    assert made.columns == COLUMNS
    assert (made.method, made.solver, made.parameters) == ("temperature", "exact", {"temperature": 2.0})
    assert made.privacy == dict(result().privacy)
    assert made.fedassay == fedassay.__version__
    assert made.warnings == ("Not recommended: it loses accuracy.",)
    made.save(tmp_path / "c.json")
    assert fedassay.load_calibrator(tmp_path / "c.json") == made
    assert calibrator(recommended=None).warnings == calibrator(recommended=True).warnings == ()


def test_results_that_have_no_such_calibrator() -> None:
    scores = result(calibrator=SCORES.map.to_json(), method="platt")
    with pytest.raises(UsageError, match=r"expected one of the logits .*use fedassay.Calibrator.of.$"):
        fedassay.ClassCalibrator.of(scores)
    with pytest.raises(UsageError, match=r"expected one of the scores .*use fedassay.ClassCalibrator.of.$"):
        fedassay.Calibrator.of(result())
    for kind in (fedassay.ClassCalibrator, fedassay.Calibrator):
        with pytest.raises(DataError, match="not enough evidence"):
            kind.of(result(calibrator=None, reason="not enough evidence"))


# --- use --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_probabilities_are_those_of_the_map_whatever_logits_come_as(kind: str) -> None:
    made = calibrator(kind)
    expected = made.map.predict_proba(Z)
    assert expected.shape == (60, 4)
    assert expected.sum(axis=1) == pytest.approx(np.ones(60), abs=1e-12)
    forms = {
        "array": Z,
        "columns first": np.asfortranarray(Z),
        "lists": Z.tolist(),
        "pandas lists": pd.Series(list(Z)),
        "pandas columns": pd.DataFrame(Z),
        "polars lists": pl.Series(Z.tolist()),
        "polars columns": pl.DataFrame(Z),
        "every second": np.repeat(Z, 2, axis=0)[::2],
    }
    before = Z.copy()
    for name, form in forms.items():
        assert made.predict_proba(form).tobytes() == expected.tobytes(), name
    assert made.predict_proba(Z.astype(np.float32)) == pytest.approx(expected, abs=1e-6)
    assert Z.tobytes() == before.tobytes()
    top = made.predict(Z)
    assert top.dtype == np.int64
    assert expected[np.arange(60), top].tolist() == expected.max(axis=1).tolist()
    if made.map.keeps_order:
        assert top.tolist() == Z.argmax(axis=1).tolist()
    assert made.predict_proba(np.empty((0, 4))).shape == (0, 4)
    assert made.predict([]).shape == (0,)


def test_an_order_that_is_kept_is_kept_where_probabilities_are_equal() -> None:
    flat = calibrator(map=Temperature(inverse_temperature=1e-6, classes=3))
    z = [[0.0, 1e-12, -1.0], [-5.0, -5.0, -5.0 + 1e-12]]
    assert flat.predict_proba(z)[0, 0] == flat.predict_proba(z)[0, 1]
    assert flat.predict(z).tolist() == [1, 2]


BAD_LOGITS = {
    "wider": (np.zeros((2, 5)), "got 5 classes, expected the 4 that it was calibrated on"),
    "narrower": (np.zeros((2, 3)), "got 3 classes"),
    "NaN": (np.vstack([Z, [[0, np.nan, 0, 0]]]), "row 60 .*in place 1"),
    "infinite": ([[0.0, 0.0, 0.0, -np.inf]], "row 0 .*-inf in place 3"),
    "missing": ([[0.0, None, 0.0, 0.0]], "missing value in place 1"),
    "text": ([["a", "b", "c", "d"]], "'a' in place 0"),
    "uneven": ([[0.0] * 4, [0.0] * 3], "another length"),
    "one row without its brackets": (Z[0], "list of numbers in every row"),
    "one number": (0.5, "logits"),
    "three dimensions": (np.zeros((2, 2, 4)), "3 dimensions"),
}


@pytest.mark.parametrize("name", sorted(BAD_LOGITS))
def test_logits_that_are_none_are_refused(name: str) -> None:
    logits, expected = BAD_LOGITS[name]
    for use in (ARTEFACT.predict_proba, ARTEFACT.predict):
        with pytest.raises(DataError, match=expected) as refused:
            use(logits)
        assert "\n" not in str(refused.value)


def test_probabilities_in_the_place_of_logits_are_said() -> None:
    p = np.exp(Z) / np.exp(Z).sum(axis=1, keepdims=True)
    for use in (ARTEFACT.predict_proba, ARTEFACT.predict):
        with pytest.warns(UserWarning, match="probabilities by their looks") as said:
            use(p)
        assert said[0].filename == __file__
        use(np.log(p))  # a warning would be an error
    assert ARTEFACT.predict_proba(np.log(p)).sum(axis=1) == pytest.approx(np.ones(60))


@pytest.mark.parametrize("kind", KINDS)
def test_it_can_be_copied(kind: str) -> None:
    made = calibrator(kind)
    expected = made.predict_proba(Z).tobytes()
    for other in (copy.deepcopy(made), pickle.loads(pickle.dumps(made))):  # noqa: S301
        assert other.predict_proba(Z).tobytes() == expected
