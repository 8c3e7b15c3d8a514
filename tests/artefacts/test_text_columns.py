"""Columns of CSV files become numbers in Parquet files if all their rows are numbers, and no name loses a digit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from conformal_artefacts import predictor
from fedassay.artefacts.apply import write_applied
from fedassay.artefacts.conformal_apply import apply_conformal
from fedassay.artefacts.reading import number_types, with_types
from fedassay.data.schema import Columns
from fedassay.data.sources import open_source
from fedassay.errors import DataError

CASES = {
    "whole": (["1", "-20", "0", ""], pa.int64()),
    "largest": (["999999999999999999", "-999999999999999999"], pa.int64()),
    "fractions": (["0.5", "-12.25", "1e-05", "3", "", "2.5E+3"], pa.float64()),
    "infinite": (["1.5", "inf", "-inf"], pa.float64()),
    "zeros first": (["1", "007"], None),
    "zeros first in a fraction": (["1.5", "00.5"], None),
    "plus": (["+49", "1"], None),
    "too many digits": (["1", "1234567890123456789"], None),
    "too many digits for a double": (["0.5", "1234567890123456"], None),
    "text at the end": (["1"] * 50 + ["none of them"], None),
    "words": (["true", "false"], None),
    "dates": (["2020-01-01", "2020-01-02"], None),
    "hexadecimal": (["0x10", "1"], None),
    "blanks": (["1 000", "2"], None),
    "nothing": (["", ""], None),
}


def csv(path: Path, values: list[str]) -> Path:
    path.write_text("p,x\n" + "".join(f"0.5,{value}\n" for value in values))
    return path


@pytest.mark.parametrize("case", sorted(CASES))
def test_what_is_a_column_of_numbers(case: str, tmp_path: Path) -> None:
    values, expected = CASES[case]
    table = open_source(csv(tmp_path / "d.csv", values))
    assert number_types([table]).get("x") == expected
    out = tmp_path / "o.parquet"
    apply_conformal(predictor("absolute"), tmp_path / "d.csv", out)
    found = parquet.read_table(out)["x"]
    assert found.type == (pa.large_string() if expected is None else expected)
    if expected is None:
        assert found.to_pylist() == [value or None for value in values]
    else:
        number = int if expected == pa.int64() else float
        assert found.to_pylist() == [number(value) if value else None for value in values]


def test_the_last_row_of_a_long_file_decides(tmp_path: Path) -> None:
    data = pd.DataFrame({"p": 0.5, "n": np.arange(400_000), "x": np.arange(400_000) / 4, "t": "1"})
    data.to_csv(tmp_path / "numbers.csv", index=False)
    data.loc[399_999, "t"] = "one"
    data.to_csv(tmp_path / "text.csv", index=False)
    for name, last in (("numbers", pa.int64()), ("text", pa.large_string())):
        apply_conformal(
            predictor("absolute"), tmp_path / f"{name}.csv", tmp_path / "o.parquet", overwrite=True
        )
        found = parquet.read_table(tmp_path / "o.parquet")
        assert [found.schema.field(one).type for one in "pnxt"] == [
            pa.float64(),
            pa.int64(),
            pa.float64(),
            last,
        ]
        assert found["n"].to_numpy().tolist() == data.n.tolist()
        assert found["x"].to_numpy().tolist() == data.x.tolist()


def test_all_files_of_a_folder_decide_together(tmp_path: Path) -> None:
    folder = tmp_path / "sites"
    folder.mkdir()
    csv(folder / "a.csv", ["1", "2"])
    csv(folder / "b.csv", ["", ""])

    def type_of_x() -> Any:
        apply_conformal(predictor("absolute"), folder, tmp_path / "o.parquet", overwrite=True)
        return parquet.read_schema(tmp_path / "o.parquet").field("x").type

    assert type_of_x() == pa.int64()
    csv(folder / "c.csv", ["0.5"])
    assert type_of_x() == pa.float64()
    csv(folder / "d.csv", ["x"])
    assert type_of_x() == pa.large_string()
    (folder / "d.csv").unlink()
    pd.DataFrame({"p": [0.5], "x": ["007"]}).to_parquet(folder / "d.parquet")
    assert type_of_x() == pa.large_string()
    assert parquet.read_table(tmp_path / "o.parquet")["x"].to_pylist()[-1] == "007"


def test_a_file_that_changes_between_the_passes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"^d.csv: got text where there were numbers a moment ago"):
        with_types({"x": pa.array(["one"])}, {"x": pa.int64()}, label="d.csv")
    # What has a type of its own keeps it.
    same = with_types({"x": pa.array([0.5])}, {"x": pa.int64()}, label="d.csv")
    assert same["x"].to_pylist() == [0.5]


def test_columns_without_a_role_are_enough(tmp_path: Path) -> None:
    csv(tmp_path / "d.csv", ["3"])
    rows = write_applied(
        tmp_path / "d.csv",
        tmp_path / "o.parquet",
        Columns(names={"prediction": "p"}),
        lambda some: {"new": pa.array([True])},
        new=("new",),
        overwrite=False,
    )
    assert rows == 1
    assert parquet.read_table(tmp_path / "o.parquet").to_pylist() == [{"p": 0.5, "x": 3, "new": True}]
