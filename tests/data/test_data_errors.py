"""Every bad input gets one clear sentence: what, got, expected, fix."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from data_forms import COLUMNS, FORMS, in_form, small, write
from data_sentences import kind_of, sentence

from fedassay.data.federation import load
from fedassay.errors import DataError, UsageError


@pytest.mark.parametrize("form", [form for form in FORMS if form != "arrow stream"])
def test_bad_scores_are_counted_and_the_first_is_named(form: str, tmp_path: Path) -> None:
    data = small()
    data["p"][[17, 30]] = 1.5, -2.0
    text = sentence(in_form(form, data, tmp_path))
    assert "column 'p' (score): got 2 bad values in 500 rows, the first in row 17 (counting from 0): " in text
    assert "1.5" in text
    assert "expected a number in [0, 1] in every row; remove or repair these rows" in text


@pytest.mark.parametrize("form", [form for form in FORMS if form != "arrow stream"])
def test_missing_scores_are_named(form: str, tmp_path: Path) -> None:
    data = small()
    data["p"][17] = np.nan
    text = sentence(in_form(form, data, tmp_path))
    assert "got 1 bad value in 500 rows, the first in row 17 (counting from 0): " in text
    assert "nan" in text or "a missing value" in text


@pytest.mark.parametrize(
    ("scores", "value"),
    [
        ([0.5, "n/a"], "'n/a'"),
        ([0.5, None], "a missing value"),
        ([0.5, float("inf")], "inf"),
        (["0.5", ""], "''"),
        (["0.5", "0,5"], "'0,5'"),
        (["0.5", "1e999"], "'1e999'"),
        ([0.5, 10**400], "'1000"),
        ([0.5, 1j], "'1j'"),
        (np.array([0.5, 2], dtype=np.float16), "2.0"),
        (pa.array([0, 50]), "50"),
        (pd.Series([0.5, pd.NA], dtype="Float64"), "a missing value"),
        (pd.Series([0.5, "x"], dtype=object), "'x'"),
        (pl.Series([0.5, None]), "a missing value"),
        (pl.Series([0.5, object()], dtype=pl.Object), "object"),
        (np.ma.array([0.5, 0.5], mask=[False, True]), "a missing value"),
    ],
    ids=kind_of,
)
def test_the_first_bad_score(scores: Any, value: str) -> None:
    text = sentence({"p": scores, "y": [0, 1]})
    assert "got 1 bad value in 2 rows, the first in row 1 (counting from 0): " in text
    assert value in text


@pytest.mark.parametrize(
    "scores",
    [
        [True, False],
        [[0.1, 0.9], [0.2, 0.8]],
        np.zeros((2, 3)),
        np.array(["2020-01-01", "2020-01-02"], dtype="datetime64[s]"),
        [b"0.5", b"0.5"],
        [None, None],
        [{"a": 1}, {"a": 2}],
        pd.Series(pd.period_range("2020", periods=2)),
        pd.Series(pd.interval_range(0, 2)),
    ],
    ids=kind_of,
)
def test_columns_of_other_kinds_hold_no_scores(scores: Any) -> None:
    assert "got 2 bad values in 2 rows, the first in row 0" in sentence({"p": scores, "y": [0, 1]})


@pytest.mark.parametrize(
    ("labels", "found"),
    [
        ([0, 1, 2], "row 2 (counting from 0): 2 (values found: 0, 1, 2)"),
        ([-1, 1, 1], "row 0 (counting from 0): -1 (values found: -1, 1)"),
        (["yes", "no", "no"], "row 0 (counting from 0): 'yes' (values found: 'yes', 'no')"),
        ([0, 0.5, 1], "row 1 (counting from 0): 0.5 (values found: 0.0, 0.5, 1.0)"),
        ([0, None, 1], "row 1 (counting from 0): a missing value"),
        ([[0], [1], [1]], "row 0 (counting from 0): [0] (values found: [0], [1])"),
        (["a" * 100, "0", "1"], "row 0 (counting from 0): 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa..."),
    ],
    ids=kind_of,
)
def test_labels_that_are_not_binary(labels: Any, found: str) -> None:
    text = sentence({"p": [0.1, 0.2, 0.3], "y": labels})
    assert found in text
    assert "column 'y' (label)" in text
    assert "expected 0 or 1 (or true and false) in every row; recode the positive class as 1" in text


def test_at_most_five_labels_are_listed() -> None:
    text = sentence({"p": [0.5] * 9, "y": list(range(9))})
    assert "(values found: 0, 1, 2, 3, 4 and others)" in text
    assert "got 7 bad values in 9 rows" in text


def test_bad_values_are_counted_over_all_batches(tmp_path: Path) -> None:
    scores = np.full(300_000, 0.5)
    scores[[140_000, 299_999]] = 7
    np.savez(tmp_path / "a.npz", p=scores, y=np.zeros(300_000))
    text = sentence(tmp_path / "a.npz")
    assert "got 2 bad values in 300000 rows, the first in row 140000" in text


def test_a_missing_column_lists_the_columns_and_suggests_one() -> None:
    text = sentence({"Score": [0.5], "y": [1]}, columns={"score": "score", "label": "y"})
    assert "column 'score' (score): got no such column, expected one of 'Score', 'y'" in text
    assert text.endswith("did you mean 'Score'?")
    text = sentence({"zzz": [0.5], "y": [1]}, columns={"score": "score", "label": "y"})
    assert text.endswith("check the name.")
    many = {f"c{i}": [0] for i in range(50)}
    assert "'c19' and 30 more" in sentence(many)


def test_a_missing_client_column() -> None:
    assert "column 'sit' (client): got no such column" in sentence(
        {"site": ["a"], "p": [0.5], "y": [1]}, client="sit"
    )


def test_a_column_that_stands_twice() -> None:
    frame = pd.DataFrame([[0.5, 1, 0]], columns=["p", "y", "y"])
    assert "column 'y' (label): got 2 columns of this name, expected one" in sentence(frame)


def test_a_file_of_a_folder_is_named(site_folder: Path) -> None:
    write(site_folder / "B.parquet", {"q": [0.5], "y": [1]})
    assert "B.parquet, column 'p' (score): got no such column, expected one of 'q', 'y'" in sentence(
        site_folder
    )
    write(site_folder / "B.parquet", {"p": [0.5, 3.0], "y": [1, 1]})
    assert "B.parquet, column 'p' (score): got 1 bad value in 2 rows, the first in row 1 " in sentence(
        site_folder
    )


@pytest.mark.parametrize(
    "clients",
    [["a", None, ""], [1, None, float("nan")], [1.0, 1.5, 2.5], ["a", None, None], [[1], [2], [3]]],
    ids=kind_of,
)
def test_rows_without_a_client(clients: Any) -> None:
    text = sentence({"c": clients, "p": [0.1, 0.2, 0.3], "y": [0, 1, 1]}, client="c")
    assert "column 'c' (client): got " in text
    first, bad = (0, 3) if clients[0] == [1] else (1, 2)
    assert f"got {bad} bad values in 3 rows, the first in row {first} (counting from 0)" in text
    assert (
        "expected the name or number of a client in every row, without NUL bytes; fill in the client" in text
    )


def test_a_client_that_is_no_text() -> None:
    text = sentence({"c": [b"a", b"\xff", b"a"], "p": [0.1, 0.2, 0.3], "y": [0, 1, 1]}, client="c")
    assert "(client): got 1 bad value in 3 rows, the first in row 1 (counting from 0): b'\\xff'" in text


def test_columns_of_different_lengths(tmp_path: Path) -> None:
    text = sentence({"p": [0.5], "y": [1, 0]})
    assert "got columns of different lengths ('p' 1, 'y' 2)" in text
    np.savez(tmp_path / "a.npz", p=[0.5], y=[1, 0])
    assert "got arrays of different lengths ('p' 1, 'y' 2)" in sentence(tmp_path / "a.npz")


@pytest.mark.parametrize(
    "column", ["abc", 3, {1: 2}, {0.5}, object(), np.zeros((1, 2, 3)), np.float64(1)], ids=kind_of
)
def test_what_is_no_column(column: Any) -> None:
    assert "column 'p': got something unreadable (a" in sentence({"p": column, "y": [1]})


@pytest.mark.parametrize("data", [7, [0.1], None, pl.LazyFrame({"p": [0.5]}), np.zeros(3)], ids=kind_of)
def test_what_is_no_data(data: Any) -> None:
    assert "data: got a " in sentence(data)
    assert type(data).__name__ in sentence(data)


def test_no_columns_at_all() -> None:
    assert "got a table without columns" in sentence({})


def test_a_path_that_does_not_exist(tmp_path: Path) -> None:
    assert "which does not exist, expected a file or a folder; check the path" in sentence(
        tmp_path / "no.csv"
    )
    assert "expected" in sentence("x" * 5000 + ".csv")
    assert "does not exist" in sentence("\0.csv")


@pytest.mark.parametrize("name", ["a.xlsx", "a", "a.csv.gz"])
def test_unknown_suffixes(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("p,y\n")
    fix = "unpack it first" if name.endswith(".gz") else "convert or rename it"
    assert f"expected one of .parquet, .csv, .npz; {fix}" in sentence(tmp_path / name)


@pytest.mark.parametrize("suffix", ["csv", "parquet", "npz"])
def test_files_without_content(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.{suffix}"
    path.touch()
    assert "a." + suffix + ": got an empty file, expected rows" in sentence(path)
    write(path, {"p": np.array([], dtype=float), "y": np.array([], dtype=int)})
    assert "a." + suffix + ": got no rows, expected at least one" in sentence(path)


def test_rows_of_nobody() -> None:
    assert "got no rows" in sentence({"p": [], "y": []})


@pytest.mark.parametrize("suffix", ["csv", "parquet", "npz"])
@pytest.mark.parametrize(
    "content", [bytes(range(256)) * 9, b"\n\n\n", b"\xff\xfe\x00\x00", b"PK\x03\x04" + bytes(50)]
)
def test_files_with_the_wrong_content(tmp_path: Path, suffix: str, content: bytes) -> None:
    path = tmp_path / f"a.{suffix}"
    path.write_bytes(content)
    assert f"a.{suffix}" in sentence(path)


@pytest.mark.parametrize("suffix", ["parquet", "npz"])
def test_damaged_files(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.{suffix}"
    data = small(5000)
    write(path, {"p": data["p"], "y": data["y"]})
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    assert re.search("got (something unreadable|a file that is not Parquet)", sentence(path))
    spoiled = bytearray(whole)
    spoiled[1000:1100] = bytes(100)
    path.write_bytes(spoiled)
    assert "got something unreadable" in sentence(path)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("p;y\n0.5;1\n", "the header is not separated by commas"),
        ("p,y\n0.5,1\n0.5,1,2\n", "got a row with 3 columns under a header with 2"),
        ('p,y\n"0.5,1\n', "got a row with 1 column under a header with 2"),
        ("\n\n", "got no header line, expected the names of the columns"),
        (
            "p,y\n0.5,\n",
            "(label): got 1 bad value in 1 rows, the first in row 0 (counting from 0): a missing value",
        ),
        (
            "p,y\nNA,1\n",
            "(score): got 1 bad value in 1 rows, the first in row 0 (counting from 0): a missing value",
        ),
    ],
    ids=kind_of,
)
def test_broken_csv(tmp_path: Path, text: str, found: str) -> None:
    (tmp_path / "a.csv").write_text(text)
    said = sentence(tmp_path / "a.csv")
    assert found in said
    assert "a.csv" in said


def test_csv_in_another_encoding(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes("p,y,site\n0.5,1,Köln\n".encode("latin-1"))
    assert "UTF" in sentence(tmp_path / "a.csv", client="site")


def test_pickled_arrays_are_never_opened(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", p=np.array([0.5, None], dtype=object), y=[0, 1])
    assert "array 'p': got Python objects, expected numbers or text" in sentence(tmp_path / "a.npz")


def test_arrays_of_another_shape(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez(tmp_path / "a.npz", p=np.zeros((2, 2, 2)), y=[0, 1])
    assert "array 'p': got 3 dimensions, expected one entry per row" in sentence(tmp_path / "a.npz")
    np.savez(tmp_path / "a.npz", p=np.asfortranarray(np.zeros((2, 2))), y=[0, 1])
    assert "got 2 bad values in 2 rows" in sentence(tmp_path / "a.npz")
    monkeypatch.setattr("fedassay.data.files._LARGEST_TRANSPOSED", 31)
    assert "32 bytes in Fortran order" in sentence(tmp_path / "a.npz")
    np.savez(tmp_path / "a.npz", p=np.float64(1), y=[0, 1])
    assert "array 'p': got 0 dimensions" in sentence(tmp_path / "a.npz")


def test_folders(tmp_path: Path) -> None:
    folder = tmp_path / "sites"
    folder.mkdir()
    (folder / ".hidden").touch()
    assert "got an empty folder, expected one file per site (.parquet, .csv, .npz)" in sentence(folder)
    (folder / "readme.txt").touch()
    assert "got only 'readme.txt', expected one file per site (.parquet, .csv, .npz)" in sentence(folder)
    (folder / "a.csv").touch()
    assert "got no rows, expected at least one" in sentence(folder)
    write(folder / "b.csv", {"p": [0.5], "y": [1]})
    write(folder / "b.parquet", {"p": [0.5], "y": [1]})
    assert "got 'b.csv' and 'b.parquet' for one site, expected one file per site; remove one" in sentence(
        folder
    )


def test_mistakes_in_the_call() -> None:
    with pytest.raises(UsageError, match="column role: got 'skore', expected one of score, label"):
        load({"p": [0.5]}, columns={"skore": "p"})
    with pytest.raises(UsageError, match="columns: got none, expected some of score, label"):
        load({"p": [0.5]}, columns={})
    with pytest.raises(UsageError, match="got 'p' as score and as label, expected two different columns"):
        load({"p": [0.5]}, columns={"score": "p", "label": "p"})
    with pytest.raises(UsageError, match="score column: got '', expected the name of a column"):
        load({"p": [0.5]}, columns={"score": ""})
    federation = load({"p": [0.5, 0.1], "c": ["north", "south"]}, client="c", columns={"score": "p"})
    with pytest.raises(UsageError, match="got 'nort', expected one of 2 names; did you mean 'north'"):
        federation.rows_of("nort")
    with pytest.raises(UsageError, match="got '2', expected one of 2 names; the first are '0', '1'"):
        load({"p": [0.5, 0.1]}, columns={"score": "p"}).rows_of("2")


def test_a_file_that_goes_bad_after_it_was_checked(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    parquet.write_table(pa.table({"p": [0.5, 0.5], "y": [0, 1], "c": ["a", "b"]}), path)
    federation = load(path, client="c", columns=COLUMNS, memory_limit=0)
    parquet.write_table(pa.table({"p": [0.5, 9.5], "y": [0, 1], "c": ["a", "b"]}), path)
    with pytest.raises(DataError, match="the first in row 1"):
        list(federation.pooled().batches())
    path.unlink()
    with pytest.raises(DataError, match="unreadable"):
        list(federation.rows_of("a").batches())
