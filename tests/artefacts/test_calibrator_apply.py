"""Applying a calibrator: any format in, Parquet out, nothing half-written, nothing overwritten by accident."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

import fedassay
from artefact_files import memory_growth, repeated
from fedassay.artefacts.apply import apply_calibrator
from fedassay.errors import DataError, UsageError
from fedassay.summaries.maps import Sigmoid

CALIBRATOR = fedassay.Calibrator(
    map=Sigmoid(a=0.6, b=0.8, c=-0.3), method="beta", columns={"score": "p", "label": "y", "client": None}
)


def frame(rows: int = 50, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {"id": [f"00{i}" for i in range(rows)], "p": rng.random(rows), "k": rng.integers(0, 9, rows)}
    )


def written(data: Any, out: Path, **options: Any) -> pd.DataFrame:
    assert apply_calibrator(CALIBRATOR, data, out, **options) == len(parquet.read_table(out))
    return parquet.read_table(out).to_pandas()


def test_every_form_of_data(tmp_path: Path) -> None:
    data = frame()
    data.to_parquet(tmp_path / "d.parquet")
    data.to_csv(tmp_path / "d.csv", index=False)
    np.savez(tmp_path / "d.npz", p=data.p.to_numpy(), k=data.k.to_numpy())
    forms = {
        "parquet": tmp_path / "d.parquet",
        "csv": str(tmp_path / "d.csv"),
        "npz": tmp_path / "d.npz",
        "pandas": data,
        "polars": pl.from_pandas(data),
        "mapping": {"p": data.p.tolist(), "k": data.k.to_numpy()},
        "arrow": pa.table(data),
    }
    for name, form in forms.items():
        found = written(form, tmp_path / f"{name}.parquet")
        assert found["calibrated"].to_numpy() == pytest.approx(CALIBRATOR.predict(data.p), abs=1e-15), name
        assert found["p"].to_numpy() == pytest.approx(data.p.to_numpy(), abs=1e-15), name
        assert found["k"].astype(int).tolist() == data.k.tolist()
        assert found.columns[-1] == "calibrated"
    assert written(tmp_path / "d.csv", tmp_path / "again.parquet")["id"].tolist() == data.id.tolist()


def test_a_folder_of_sites_keeps_their_names(tmp_path: Path) -> None:
    folder = tmp_path / "sites"
    folder.mkdir()
    for name, seed in (("north", 1), ("south", 2)):
        frame(seed=seed).to_csv(folder / f"{name}.csv", index=False)
    (folder / "empty.csv").touch()
    found = written(folder, tmp_path / "out.parquet")
    assert found["client"].value_counts().to_dict() == {"north": 50, "south": 50}
    assert found.columns[0] == "client"
    frame(seed=3).rename(columns={"k": "other"}).to_csv(folder / "west.csv", index=False)
    with pytest.raises(DataError, match=r"west.csv: its columns are not those of .*north.csv"):
        apply_calibrator(CALIBRATOR, folder, tmp_path / "out2.parquet")


def test_csv_out(tmp_path: Path) -> None:
    data = frame()
    assert apply_calibrator(CALIBRATOR, data, tmp_path / "out.csv") == 50
    found = pd.read_csv(tmp_path / "out.csv", dtype={"id": str})
    assert found.calibrated.tolist() == CALIBRATOR.predict(data.p).tolist()
    pd.testing.assert_frame_equal(found[list(data)], data)


def test_other_names_for_the_columns(tmp_path: Path) -> None:
    data = frame().rename(columns={"p": "risk"})
    found = written(data, tmp_path / "out.parquet", score="risk", column="risk_calibrated")
    assert found["risk_calibrated"].to_numpy() == pytest.approx(CALIBRATOR.predict(data.risk))


def refused(tmp_path: Path, data: Any, out: str = "out.parquet", **options: Any) -> str:
    before = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    with pytest.raises((UsageError, DataError)) as error:
        apply_calibrator(options.pop("calibrator", CALIBRATOR), data, tmp_path / out, **options)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before, (
        "something was left behind"
    )
    return str(error.value)


def test_what_is_refused(tmp_path: Path) -> None:
    data = frame()
    assert "did you mean" in refused(tmp_path, data.rename(columns={"p": "P"}))
    assert "--column" in refused(tmp_path, data, column="k")
    assert "expected .parquet or .csv" in refused(tmp_path, data, out="out.txt")
    assert "folder does not exist" in refused(tmp_path, data, out="no/out.parquet")
    assert "no rows" in refused(tmp_path, data.head(0))
    assert "--score" in refused(
        tmp_path, data, calibrator=fedassay.Calibrator(map=Sigmoid(a=1, b=1, c=0), method="platt")
    )
    assert "two columns" in refused(tmp_path, pd.concat([data, data[["k"]]], axis=1))


def test_an_existing_file_is_replaced_only_if_told(tmp_path: Path) -> None:
    written(frame(), tmp_path / "out.parquet")
    assert "--force" in refused(tmp_path, frame())
    assert len(written(frame(rows=7), tmp_path / "out.parquet", overwrite=True)) == 7


def test_a_bad_score_far_into_the_file_is_named_by_its_row_and_leaves_nothing(tmp_path: Path) -> None:
    data = frame(rows=300_000)
    data.loc[271_828, "p"] = 1.5
    data.to_parquet(tmp_path / "d.parquet")
    sentence = refused(tmp_path, tmp_path / "d.parquet")
    assert "row 271828" in sentence
    assert "1.5" in sentence


def test_columns_whose_type_changes_between_files_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "sites"
    folder.mkdir()
    frame().to_parquet(folder / "a.parquet")
    frame().assign(k="many").to_parquet(folder / "b.parquet")
    assert "types of the columns" in refused(tmp_path, folder)


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    paths = repeated(pa.table({name: rng.random(500_000) for name in ("p", "x", "z")}), (1, 7), tmp_path)
    CALIBRATOR.save(tmp_path / "c.json")
    names = {"load": "load_calibrator", "module": "apply", "function": "apply_calibrator"}
    growth = memory_growth(tmp_path / "c.json", paths, **names)
    assert parquet.read_metadata(f"{paths[1]}.out.parquet").num_rows == 3_500_000
    larger = paths[1].stat().st_size - paths[0].stat().st_size
    assert growth < larger / 4
