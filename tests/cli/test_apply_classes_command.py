"""`fedassay apply` with a calibrator of logits, as a user meets it, and how results leave one behind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as parquet
import pytest

import fedassay
from class_calibrators import calibrator
from command_line import call, output_of, refused
from conformal_artefacts import class_rows
from fedassay.cli import output
from fedassay.errors import UsageError
from fedassay.summaries.maps import Sigmoid

CALIBRATOR = calibrator("vector")
Z = class_rows()["z"]


def files(tmp_path: Path, made: Any = CALIBRATOR, z: Any = Z) -> tuple[Path, Path, Path]:
    artefact, rows, out = tmp_path / "calibrator.json", tmp_path / "new.npz", tmp_path / "out.parquet"
    made.save(artefact)
    np.savez(rows, z=z)
    return artefact, rows, out


def test_the_command_writes_probabilities_and_classes(capsys: Any, tmp_path: Path) -> None:
    artefact, rows, out = files(tmp_path)
    words = output_of(capsys, "apply", artefact, rows, "--out", out)
    assert "(60 rows, columns probabilities and predicted_class)" in " ".join(words.split())
    assert "Warning" not in words
    table = parquet.read_table(out)
    assert table["probabilities"].to_pylist() == CALIBRATOR.predict_proba(Z).tolist()
    assert table["predicted_class"].to_pylist() == CALIBRATOR.predict(Z).tolist()
    words = output_of(capsys, "apply", artefact, rows, "--out", tmp_path / "out.csv")
    assert "columns probability_0 to probability_3 and predicted_class" in " ".join(words.split())
    found = pd.read_csv(tmp_path / "out.csv")
    assert found[[f"probability_{k}" for k in range(4)]].to_numpy().tolist() == [
        *CALIBRATOR.predict_proba(Z).tolist()
    ]
    assert call(capsys, "apply", artefact, rows, "--out", out, "--force", "--quiet") == (0, "", "")


def test_columns_can_be_named(capsys: Any, tmp_path: Path) -> None:
    artefact, _, out = files(tmp_path)
    rows = tmp_path / "numbered.csv"
    pd.DataFrame(Z, columns=[f"logit_{k}" for k in range(4)]).to_csv(rows, index=False)
    err = refused(capsys, "apply", artefact, rows, "--out", out)
    assert "'z'" in err
    words = output_of(capsys, "apply", artefact, rows, "--out", out, "--logits", "logit", "--column", "q")
    assert "columns q and q_class" in " ".join(words.split())


def test_it_warns_of_a_calibrator_that_is_not_recommended(capsys: Any, tmp_path: Path) -> None:
    for fields, sentence in (
        ({"reason": "Not recommended: it [red]loses 2 % accuracy."}, "it [red]loses 2 % accuracy."),
        ({}, "Not recommended."),
    ):
        artefact, rows, out = files(tmp_path, calibrator(recommended=False, **fields))
        words = output_of(capsys, "apply", artefact, rows, "--out", out, "--force")
        assert "Warning: Not recommended" in " ".join(words.split())
        assert sentence in " ".join(words.split())


def test_bad_input_gets_one_sentence_and_exit_code_2(capsys: Any, tmp_path: Path) -> None:
    artefact, rows, out = files(tmp_path)
    content = json.loads(artefact.read_text())
    bad = {
        "newer": {**content, "format": 9},
        "kind": {**content, "map": {"kind": "magic"}},
        "result": {"task": "calibrate", "results": {}},
    }
    for name, changed in bad.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(changed))
    p = np.exp(Z) / np.exp(Z).sum(axis=1, keepdims=True)
    holey = np.where(np.arange(60)[:, None] == 59, np.nan, Z)
    for name, z in {"wide": np.zeros((3, 7)), "nan": holey, "inf": Z - np.inf, "probabilities": p}.items():
        np.savez(tmp_path / f"{name}.npz", z=z)
    for arguments, words in (
        ((tmp_path / "newer.json", rows), "got format 9, expected 1"),
        ((tmp_path / "kind.json", rows), "kind is one of temperature"),
        ((tmp_path / "result.json", rows), "this is a result (--json)"),
        ((tmp_path / "none.json", rows), "cannot be read"),
        ((artefact, tmp_path / "wide.npz"), "got 7 classes, expected the 4 that it was calibrated on"),
        ((artefact, tmp_path / "nan.npz"), "row 59 (counting from 0): nan"),
        ((artefact, tmp_path / "inf.npz"), "inf in place 0"),
        ((artefact, tmp_path / "probabilities.npz"), "probabilities by their looks"),
        ((artefact, rows, "--logits", "y"), "'y'"),
        (
            (artefact, rows, "--score", "z"),
            "--score: the artefact is a calibrator of logits, which has no use",
        ),
        ((artefact, rows, "--by", "z"), "--by: the artefact is a calibrator of logits"),
    ):
        err = refused(capsys, "apply", *arguments, "--out", out)
        assert words in err
        assert not out.exists()


def test_logits_are_of_no_use_to_a_calibrator_of_scores(capsys: Any, tmp_path: Path) -> None:
    scores = fedassay.Calibrator(map=Sigmoid(a=1, b=1, c=0), method="platt", columns={"score": "p"})
    artefact, rows, out = files(tmp_path, scores)
    err = refused(capsys, "apply", artefact, rows, "--out", out, "--logits", "z")
    assert "--logits: the artefact is a calibrator" in err


class _Delivered(output.Delivery):
    """Keeps what it is given to deliver."""

    def __init__(self) -> None:
        object.__setattr__(self, "calls", [])

    def show(self, result: fedassay.Result, also: Any = ()) -> None:
        self.calls.append((result, list(also)))  # type: ignore[attr-defined]


def result() -> fedassay.Result:
    return fedassay.Result(
        task="calibrate",
        parameters={"client": None, "class": "k", "logits": "z"},
        results={
            "method": "vector",
            "solver": "exact",
            "parameters": {},
            "classes": [],
            "calibrator": CALIBRATOR.map.to_json(),
            "recommended": True,
            "reason": "Recommended.",
        },
        privacy={},
        cohort={},
        runtime={},
    )


def test_a_result_with_logits_leaves_a_calibrator_of_logits(capsys: Any, tmp_path: Path) -> None:
    delivered, out = _Delivered(), tmp_path / "c.json"
    delivered.deliver(result(), out=out)
    assert delivered.calls == [(result(), [out])]  # type: ignore[attr-defined]
    made = fedassay.load_calibrator(out)
    assert made == fedassay.ClassCalibrator.of(result())
    _, rows, applied = files(tmp_path)
    assert call(capsys, "apply", out, rows, "--out", applied)[0] == 0


def test_a_result_is_delivered_even_if_its_calibrator_cannot_be_written(tmp_path: Path) -> None:
    delivered = _Delivered()
    with pytest.raises(UsageError, match="cannot be written"):
        delivered.deliver(result(), out=tmp_path / "no" / "c.json")
    assert delivered.calls == [(result(), [])]  # type: ignore[attr-defined]
