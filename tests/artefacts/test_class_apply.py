"""Applying a calibrator of logits: the same probabilities as in memory, from any format, nothing half-written."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from artefact_files import memory_growth, refusal, repeated
from class_calibrators import KINDS, calibrator
from conformal_artefacts import class_rows
from fedassay.artefacts.apply import apply_class_calibrator

CALIBRATOR = calibrator("vector")
ROWS = class_rows()
Z = ROWS["z"]
NUMBERED = pd.DataFrame({f"z_{k}": column for k, column in enumerate(Z.T)})


def written(made: Any, data: Any, out: Path, **options: Any) -> pa.Table:
    rows = apply_class_calibrator(made, data, out, **options)
    table = parquet.read_table(out)
    assert len(table) == rows
    return table


def refused(
    tmp_path: Path, data: Any, out: str = "out.parquet", made: Any = CALIBRATOR, **options: Any
) -> str:
    return refusal(apply_class_calibrator, made, data, tmp_path / out, **options)


def probabilities(table: pa.Table, name: str = "probabilities") -> np.ndarray:
    assert table.schema.field(name).type == pa.list_(pa.float64())
    return np.array(table[name].to_pylist())


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_says_what_the_calibrator_says(tmp_path: Path, kind: str) -> None:
    made = calibrator(kind)
    table = written(made, ROWS, tmp_path / "o.parquet")
    assert table.column_names == [*ROWS, "probabilities", "predicted_class"]
    assert probabilities(table).tobytes() == made.predict_proba(Z).tobytes()
    assert table.schema.field("predicted_class").type == pa.int32()
    assert table["predicted_class"].to_pylist() == made.predict(Z).tolist()


def test_every_form_of_logits(tmp_path: Path) -> None:
    NUMBERED.assign(code="007", n=np.arange(60)).to_csv(tmp_path / "n.csv", index=False)
    np.savez(tmp_path / "z.npz", z=Z, k=ROWS["k"])
    lists = pa.table({"z": pa.array(Z.tolist()), "site": ROWS["site"]})
    parquet.write_table(lists, tmp_path / "z.parquet")
    forms = {
        "lists": lists,
        "parquet": tmp_path / "z.parquet",
        "npz": tmp_path / "z.npz",
        "array": {"z": Z},
        "numbered": NUMBERED,
        "csv": tmp_path / "n.csv",
        "polars": pl.DataFrame({"z": Z.tolist()}),
        "stream": lists.to_reader(),
    }
    for name, form in forms.items():
        table = written(CALIBRATOR, form, tmp_path / f"out {name}.parquet")
        assert probabilities(table).tobytes() == CALIBRATOR.predict_proba(Z).tobytes(), name
    found = parquet.read_table(tmp_path / "out csv.parquet")
    assert found["z_2"].to_numpy().tolist() == Z[:, 2].tolist()
    assert found["code"].to_pylist() == ["007"] * 60
    assert found["n"].to_pylist() == list(range(60))
    assert parquet.read_table(tmp_path / "out npz.parquet")["k"].to_pylist() == ROWS["k"].tolist()
    assert parquet.read_table(tmp_path / "out lists.parquet")["site"].to_pylist() == ROWS["site"].tolist()


@pytest.mark.parametrize("kind", ["temperature", "matrix"])
def test_streamed_equals_in_memory_over_many_batches(tmp_path: Path, kind: str) -> None:
    z = np.random.default_rng(0).normal(size=(50_000, 50)).astype(np.float32)
    parquet.write_table(
        pa.table({"z": pa.FixedSizeListArray.from_arrays(pa.array(z.reshape(-1)), 50)}),
        tmp_path / "z.parquet",
    )
    made = calibrator(kind, 50)
    table = written(made, tmp_path / "z.parquet", tmp_path / "o.parquet")
    assert parquet.read_metadata(tmp_path / "o.parquet").num_row_groups > 1
    flat = np.concatenate([chunk.flatten().to_numpy() for chunk in table["probabilities"].chunks])
    # A product of matrices may round otherwise where other rows stand beside it.
    np.testing.assert_allclose(flat.reshape(-1, 50), made.predict_proba(z), rtol=1e-12, atol=0)
    assert table["predicted_class"].to_numpy().tolist() == made.predict(z).tolist()


def test_csv_has_a_column_for_each_class(tmp_path: Path) -> None:
    data = NUMBERED.assign(note=['a "b", c', "line\nbreak", None] * 20)
    assert apply_class_calibrator(CALIBRATOR, data, tmp_path / "o.csv") == 60
    found = pd.read_csv(tmp_path / "o.csv")
    new = [f"probability_{k}" for k in range(4)]
    assert list(found) == [*data, *new, "predicted_class"]
    assert found[new].to_numpy().tolist() == CALIBRATOR.predict_proba(Z).tolist()
    assert found.predicted_class.tolist() == CALIBRATOR.predict(Z).tolist()
    pd.testing.assert_frame_equal(found[list(data)], data, check_dtype=False)
    apply_class_calibrator(CALIBRATOR, {"z": Z[:2]}, tmp_path / "lists.csv")
    assert pd.read_csv(tmp_path / "lists.csv").z[0] == " ".join(map(repr, Z[0].tolist()))


def test_other_names_for_the_columns(tmp_path: Path) -> None:
    made = calibrator(columns={})
    table = written(made, {"w": Z}, tmp_path / "o.parquet", logits="w", column="q")
    assert table.column_names == ["w", "q", "q_class"]
    assert probabilities(table, "q").tobytes() == made.predict_proba(Z).tobytes()
    apply_class_calibrator(made, {"w": Z}, tmp_path / "o.csv", logits="w", column="q")
    assert list(pd.read_csv(tmp_path / "o.csv")) == ["w", "q_0", "q_1", "q_2", "q_3", "q_class"]


def test_what_is_refused(tmp_path: Path) -> None:
    assert "got 4 classes, expected the 5" in refused(tmp_path, ROWS, made=calibrator(classes=5))
    assert "row 1 (counting from 0): a missing value in place 2" in refused(
        tmp_path, {"z": [[0.0, 1.0, 2.0, 3.0], [0.0, 1.0, math.nan, 3.0]]}
    )
    assert "-inf in column 'z_3'" in refused(tmp_path, NUMBERED.assign(z_3=-math.inf))
    assert "another length" in refused(tmp_path, {"z": [[0.0] * 4, [0.0] * 3]})
    assert "single values" in refused(tmp_path, {"z": [0.0, 1.0]})
    assert "did you mean 'z'?" in refused(tmp_path, NUMBERED, logits="zs")
    assert "give --logits" in refused(tmp_path, ROWS, made=calibrator(columns={"label": "k"}))
    assert "column 'predicted_class'; give the new one another name with --column" in refused(
        tmp_path, {**ROWS, "predicted_class": ROWS["k"]}
    )
    assert "column 'probability_3'" in refused(tmp_path, {**ROWS, "probability_3": ROWS["k"]}, out="out.csv")


def test_probabilities_are_refused_when_all_rows_have_been_seen(tmp_path: Path) -> None:
    p = np.exp(Z) / np.exp(Z).sum(axis=1, keepdims=True)
    for out in ("out.parquet", "out.csv"):
        sentence = refused(tmp_path, {"z": p}, out=out)
        assert "probabilities by their looks, expected logits; give the logarithms" in sentence
    some = np.tile(p, (10_000, 1))  # several batches
    assert "probabilities by their looks" in refused(tmp_path, {"z": some})
    some[-1, 0] += 0.5
    assert apply_class_calibrator(CALIBRATOR, {"z": some}, tmp_path / "o.parquet") == len(some)
    assert apply_class_calibrator(CALIBRATOR, {"z": np.log(p)}, tmp_path / "logs.parquet") == 60


def test_a_bad_value_far_into_the_file_is_named_by_its_row_and_leaves_nothing(tmp_path: Path) -> None:
    z = np.tile(Z, (10_000, 1))
    z[543_210, 1] = math.nan
    for out in ("out.parquet", "out.csv"):
        assert "row 543210 (counting from 0): nan in place 1" in refused(tmp_path, {"z": z}, out=out)


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    z = np.random.default_rng(0).normal(size=(12_500, 40))
    table = pa.table({"z": pa.FixedSizeListArray.from_arrays(pa.array(z.reshape(-1)), 40)})
    paths = repeated(table, (4, 12), tmp_path)
    calibrator(classes=40).save(tmp_path / "c.json")
    names = {"load": "load_calibrator", "module": "apply", "function": "apply_class_calibrator"}
    growth = memory_growth(tmp_path / "c.json", paths, smaller=16, **names)
    assert parquet.read_metadata(f"{paths[1]}.out.parquet").num_rows == 150_000
    larger = paths[1].stat().st_size - paths[0].stat().st_size
    assert growth < larger / 4
