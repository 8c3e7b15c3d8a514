"""Applying a calibrator: any format in, Parquet out, nothing half-written, nothing overwritten by accident."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as parquet
import pytest

import fedassay
from artefact_files import refusal
from fedassay.artefacts.apply import apply_calibrator
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


def refused(tmp_path: Path, data: Any, made: Any = CALIBRATOR, **options: Any) -> str:
    return refusal(apply_calibrator, made, data, tmp_path / "out.parquet", **options)


def test_the_probability_is_the_last_column(tmp_path: Path) -> None:
    data = frame()
    found = written(data, tmp_path / "out.parquet")
    assert found.columns.tolist() == [*data, "calibrated"]
    assert found["calibrated"].tolist() == CALIBRATOR.predict(data.p).tolist()
    pd.testing.assert_frame_equal(found[list(data)], data)


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
    (tmp_path / "out.parquet").unlink()
    assert "west.csv: its columns are not those of" in refused(tmp_path, folder)
    (folder / "west.csv").unlink()


def test_other_names_for_the_columns(tmp_path: Path) -> None:
    data = frame().rename(columns={"p": "risk"})
    found = written(data, tmp_path / "out.parquet", score="risk", column="risk_calibrated")
    assert found["risk_calibrated"].to_numpy() == pytest.approx(CALIBRATOR.predict(data.risk))


def test_what_is_refused(tmp_path: Path) -> None:
    data = frame()
    assert "--column" in refused(tmp_path, data, column="k")
    assert "--score" in refused(
        tmp_path, data, made=fedassay.Calibrator(map=Sigmoid(a=1, b=1, c=0), method="platt")
    )
    assert "two columns" in refused(tmp_path, pd.concat([data, data[["k"]]], axis=1))
    assert "1.5, expected a number in [0, 1]" in refused(tmp_path, data.assign(p=1.5))


def test_columns_whose_type_changes_between_files_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "sites"
    folder.mkdir()
    frame().to_parquet(folder / "a.parquet")
    frame().assign(k="many").to_parquet(folder / "b.parquet")
    assert "types of the columns" in refused(tmp_path, folder)
