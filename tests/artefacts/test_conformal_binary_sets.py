"""Sets of 0 and 1 from a file: the same as in the calibration, with its calibrator inside, in memory and in files."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

import fedassay
from conformal_artefacts import predictor, regression_rows
from fedassay.artefacts.conformal_apply import apply_conformal
from fedassay.errors import DataError, UsageError
from fedassay.summaries.maps import InterpolatedMap, Map, Sigmoid, Steps, numbers_of

MAPS: dict[str, Map | None] = {
    "none": None,
    "steps": Steps(edges=(0.3, 0.6), values=(0.1, 0.4, 0.8)),
    "points": InterpolatedMap(scores=(0.1, 1 / 3, 0.9), values=(0.05, 0.5, 0.7)),
    "sigmoid": Sigmoid(a=1.3, b=math.pi / 4, c=-0.2),
}
COLUMNS = {"label": "y", "score": "q", "group": "sex"}


def binary(name: str, values: Any = 0.45, **fields: Any) -> fedassay.ConformalPredictor:
    one = MAPS[name]
    numbers = () if one is None else numbers_of(one)
    return predictor("binary", values, **{"parameters": numbers, "columns": COLUMNS, **fields})


def scores_and_labels(rows: int = 400) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    q = np.round(rng.random(rows), 2)
    return q, (rng.random(rows) < q) * 1


@pytest.mark.parametrize("name", MAPS)
def test_a_row_is_covered_exactly_if_its_label_is_in_the_set(name: str) -> None:
    q, y = scores_and_labels()
    one = MAPS[name]
    p = q if one is None else one(q)
    scores = binary(name).conformity(label=y, score=q)
    assert scores.tolist() == np.where(y == 1, 1 - p, p).tolist()
    for t in (*np.sort(scores)[[3, 200, 380]], 0.0, 1.0, math.inf):
        made = binary(name, float(t))
        members = made.predict_set(score=q)
        assert (members.shape, members.dtype) == ((400, 2), np.bool_)
        assert members[np.arange(400), y].tolist() == made.covers(scores).tolist()
        assert members.tolist() == [[bool(x <= t), bool(1 - x <= t)] for x in p]


def test_each_label_is_held_against_its_own_threshold() -> None:
    q, y = scores_and_labels()
    made = binary("points", {"0": 0.2, "1": 0.7}, by="class")
    members = made.predict_set(score=q)
    for k, limit in ((0, 0.2), (1, 0.7)):
        assert members[:, k].tolist() == binary("points", limit).predict_set(score=q)[:, k].tolist()
    scores = made.conformity(label=y, score=q)
    assert made.covers(scores, group=y).tolist() == members[np.arange(400), y].tolist()


def test_each_group_has_its_threshold() -> None:
    made = binary("none", {"F": 0.2, "M": 0.6, "other": math.inf}, by="group")
    assert made.inputs == ("score", "group")
    members = made.predict_set(score=[0.5, 0.5, 0.9], group=["F", "M", "X"])
    assert members.tolist() == [[False, False], [True, True], [True, True]]


def test_no_rows_and_the_other_forms_of_columns() -> None:
    made = binary("sigmoid")
    assert made.predict_set(score=np.empty(0)).shape == (0, 2)
    assert (
        made.predict_set(score=pd.Series([0.2, 0.9])).tolist() == made.predict_set(score=[0.2, 0.9]).tolist()
    )
    assert (made.inputs, made.classes, made.gives_sets) == (("score",), 2, True)


@pytest.mark.parametrize(
    ("work", "error", "message"),
    [
        (lambda made: made.predict_set([[0.1, 0.2]]), UsageError, "predict_set: got logits, expected score"),
        (lambda made: made.predict_set(), UsageError, "predict_set: got nothing, expected score"),
        (lambda made: made.predict_set(score=[0.5, 1.5]), DataError, r"expected a number in \[0, 1\]"),
        (lambda made: made.predict_interval([0.5]), UsageError, "does not fit, expected predict_set"),
        (lambda made: made.conformity(label=[0, 2], score=[0.5, 0.5]), DataError, "expected 0 or 1"),
        (lambda made: made.conformity(label=[0]), UsageError, "got label, expected label, score"),
    ],
)
def test_what_does_not_fit_is_refused(work: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        work(binary("points"))


def test_scores_of_other_predictors_are_no_scores_of_classes() -> None:
    with pytest.raises(UsageError, match="predict_set: got score, expected logits"):
        predictor("lac").predict_set(score=[0.5])
    for fields, message in (
        ({"classes": 3}, "classes: the score binary has 2 of them"),
        ({"values": {"0": 0.1, "1": 0.2, "2": 0.3}, "by": "class"}, "thresholds: got 3 for 2 classes"),
        ({"parameters": (9.0,)}, "map: got 9.0 as its kind"),
    ):
        with pytest.raises(UsageError, match=message):
            predictor("binary", **fields)


@pytest.mark.parametrize("name", MAPS)
def test_a_file_keeps_every_bit(name: str, tmp_path: Path) -> None:
    made = binary(name, 1 / 3)
    made.save(tmp_path / "c.json")
    again = fedassay.ConformalPredictor.load(tmp_path / "c.json")
    assert again == made
    assert np.array(again.parameters).tobytes() == np.array(made.parameters).tobytes()
    again.save(tmp_path / "d.json")
    assert (tmp_path / "c.json").read_bytes() == (tmp_path / "d.json").read_bytes()
    content = json.loads((tmp_path / "c.json").read_text())
    assert (content["score"]["name"], content["classes"]) == ("binary", 2)
    content["score"]["parameters"] = [*content["score"]["parameters"], 0.5]
    with pytest.raises(UsageError, match=r"map: |steps: |points: |sigmoid: "):
        fedassay.ConformalPredictor.from_json(content)


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_lists_of_0_and_1_are_written(suffix: str, tmp_path: Path) -> None:
    q, _ = scores_and_labels(200)
    q[:3] = (0.0, 0.5, 1.0)
    made = binary("none", 0.4)  # a score of one half is in no set
    frame = pd.DataFrame({"id": np.arange(200), "q": q})
    frame.to_parquet(tmp_path / "d.parquet")
    applied = apply_conformal(made, tmp_path / "d.parquet", tmp_path / f"o.{suffix}")
    assert (applied.rows, applied.columns, applied.warnings) == (200, ("prediction_set", "set_size"), ())
    expected = [np.flatnonzero(row).tolist() for row in made.predict_set(score=q)]
    assert expected[:3] == [[0], [], [1]]
    if suffix == "parquet":
        table = parquet.read_table(tmp_path / "o.parquet")
        assert table["prediction_set"].to_pylist() == expected
        assert table.schema.field("prediction_set").type.value_type == pa.int32()
    else:
        text = pd.read_csv(tmp_path / "o.csv", keep_default_na=False, dtype=str)
        assert text.prediction_set.tolist() == [" ".join(map(str, one)) for one in expected]
    other = apply_conformal(made, {"r": q}, tmp_path / f"p.{suffix}", columns={"score": "r"}, column="both")
    assert other.columns == ("both", "both_size")


def test_a_score_is_refused_by_predictors_that_need_none(tmp_path: Path) -> None:
    data = {"p": regression_rows(5)["p"]}
    with pytest.raises(UsageError, match="--score: this artefact does not need it"):
        apply_conformal(predictor("absolute"), data, tmp_path / "o.csv", columns={"score": "p"})
