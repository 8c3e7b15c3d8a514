"""Logits and classes that cannot be used get one clear sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from data_sentences import kind_of, sentence
from logits_forms import COLUMNS, LIMITS, joined

from fedassay.data.federation import load
from fedassay.errors import DataError, UsageError

ROWS = [[0.5, 1.0, 2.0], [1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
UNLIKE = [pa.list_(pa.float64()), pa.large_list(pa.float32()), pa.list_view(pa.float64()), None]


@pytest.mark.parametrize("kind", UNLIKE, ids=str)
def test_rows_of_different_length(kind: Any) -> None:
    rows = [*ROWS, [1.0, 2.0], ROWS[0], [], None]
    column = rows if kind is None else pa.array(rows, kind)
    text = sentence({"y": [0] * 7, "z": column}, columns=COLUMNS)
    assert (
        "column 'z' (logits): got 2 rows of another length in 7 rows, the first in row 3 (counting from 0): "
        "2 where row 0 has 3, expected as many numbers in every row as there are classes; repair or remove"
    ) in text


def test_one_long_row_does_not_make_the_others_as_long() -> None:
    rows = pa.array([np.ones(10**6), *([[1.0, 2.0]] * 100_000)], pa.list_(pa.float32()))
    text = sentence({"y": np.zeros(len(rows)), "z": rows}, columns=COLUMNS)  # 745 GB otherwise
    assert (
        "got 100000 rows of another length in 100001 rows, the first in row 1 (counting from 0): 2 where row"
        in text
    )


@pytest.mark.parametrize(
    ("bad", "shown"),
    [
        ([1.0, np.nan, 2.0], "a missing value in place 1"),
        ([1.0, 2.0, np.inf], "inf in place 2"),
        ([-np.inf, 2.0, 2.0], "-inf in place 0"),
        ([1.0, None, 2.0], "a missing value in place 1"),
        (None, "a missing value"),
        (["1", "x", "2"], "'x' in place 1"),
        ([1.0, "x", 2.0], "'x' in place 1"),
        ([1.0, 10**400, 2.0], "in place 1"),
        (np.array([1.0, np.inf, 2.0]), "inf in place 1"),
    ],
    ids=kind_of,
)
def test_entries_that_are_no_numbers(bad: Any, shown: str) -> None:
    for column in ([*ROWS, bad, bad], pd.Series([*ROWS, bad, bad])):
        text = sentence({"y": [0] * 5, "z": column}, columns=COLUMNS)
        assert (
            "(logits): got 2 rows with a bad value in 5 rows, the first in row 3 (counting from 0): " in text
        )
        assert shown in text
        assert "expected finite numbers in every row, one for each class; remove or repair these rows" in text


def test_missing_rows_and_entries_of_arrays(tmp_path: Path) -> None:
    z = np.array(ROWS)
    z[1, 2] = np.nan
    assert "row 1 (counting from 0): nan in place 2" in sentence({"y": [0] * 3, "z": z}, columns=COLUMNS)
    np.savez(tmp_path / "a.npz", y=[0] * 3, z=z)
    assert "row 1 (counting from 0): nan in place 2" in sentence(tmp_path / "a.npz", columns=COLUMNS)
    masked = np.ma.array(ROWS, mask=[[0, 0, 0], [0, 1, 0], [0, 0, 0]])
    text = sentence({"y": [0] * 3, "z": masked}, columns=COLUMNS)
    assert (
        "got 1 row with a bad value in 3 rows, the first in row 1 (counting from 0): a missing value in place 1"
        in text
    )
    fixed = pa.array([ROWS[0], None, ROWS[1]], pa.list_(pa.float64(), 3))
    assert "the first in row 1 (counting from 0): a missing value, expected" in sentence(
        {"y": [0] * 3, "z": fixed}, columns=COLUMNS
    )
    first = pa.array([None, ROWS[1]], pa.list_(pa.float64()))
    assert "the first in row 0 (counting from 0): a missing value, expected" in sentence(
        {"y": [0] * 2, "z": first}, columns=COLUMNS
    )
    assert "got 2 rows with a bad value in 2 rows" in sentence(
        {"y": [0] * 2, "z": [None, None]}, columns=COLUMNS
    )


def test_a_bad_entry_of_a_numbered_column(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("y,z1,z2,z3\n0,1,2,3\n0,1,x,3\n0,,2,3\n")
    text = sentence(tmp_path / "a.csv", columns=COLUMNS)
    assert (
        "columns 'z1' to 'z3' (logits): got 2 rows with a bad value in 3 rows, the first in row 1 "
        "(counting from 0): 'x' in column 'z2' (line 3 of the file), expected"
    ) in text


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        ([0.5, 0.25], "double, such as 0.5"),
        ([1, 2], "int64, such as 1"),
        (["[0.1, 0.9]", "[0.2, 0.8]"], "string, such as '[0.1, 0.9]'"),
        ([[0.5, 1.0], 7.0], "string, such as '[0.5, 1.0]'"),
        ([True, False], "bool, such as True"),
        ([{"a": 1}, {"a": 2}], "struct<a: int64>, such as {'a': 1}"),
    ],
    ids=kind_of,
)
def test_columns_that_hold_no_lists(column: Any, kind: str) -> None:
    text = sentence({"y": [0, 1], "z": column}, columns=COLUMNS)
    assert "column 'z' (logits): got single values (" in text
    assert kind in text
    assert (
        "expected a list of numbers in every row, one for each class; give a column of lists, or what" in text
    )


@pytest.mark.parametrize("column", [[[1.0], [2.0]], np.ones((2, 1)), [[], []], np.ones((2, 0))], ids=kind_of)
def test_fewer_than_two_classes(column: Any) -> None:
    text = sentence({"y": [0, 0], "z": column}, columns=COLUMNS)
    count = len(column[0])
    assert (
        f"(logits): got {count} number{'s' * (count != 1)} in row 0, expected at least 2, one for each class"
        in text
    )


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["z_0", "z_1", "z_3"], "columns 'z' (logits): got 'z_3' but no 'z_2', expected numbers without a gap"),
        (["z2", "z3"], "got 'z2' but no 'z1'"),
        (["z_00", "z_01", "z_09", "z_10"], "got 'z_09' but no 'z_02'"),
        (["z_9", "z_10", "z_8"], "got 'z_8' but no 'z_1'"),
        (["z0", "z_0", "z1"], "got 'z0' and 'z_0' with one number, expected one column for each class"),
        (["z_1", "z_01"], "got 'z_1' and 'z_01' with one number"),
        (["z_0", "x"], "got 'z_0' alone, expected at least 2 columns, one for each class"),
        (["z_0", "z_1", "z_99999999999"], None),
        (["Z_0", "Z_1"], "column 'z' (logits): got no such column, expected one of"),
        (["zz_0", "z_a", "z__1", "z-1"], "column 'z' (logits): got no such column, expected one of"),
        (["z_\u0663", "z_\u0664"], "column 'z' (logits): got no such column, expected one of"),
    ],
    ids=kind_of,
)  # fmt: skip
def test_how_columns_are_numbered(names: list[str], words: str | None) -> None:
    data = {"y": [0, 1]} | {name: [0.5, 1.0] for name in names}
    if words is None:
        assert joined(load(data, columns=COLUMNS).pooled()).shape == (2, 2)
    else:
        assert words in sentence(data, columns=COLUMNS)


def test_names_of_numbered_columns(tmp_path: Path) -> None:
    data = {"y": [0, 1], "logit_0": [1, 2], "logit_1": [3, 4]}
    for beginning in ("logit", "logit_"):
        found = joined(load(data, columns={"class": "y", "logits": beginning}).pooled())
        assert found.tolist() == [[1, 3], [2, 4]]
    exact = {**data, "logit": [[5, 6], [7, 8]]}  # a column of this very name comes first
    assert joined(load(exact, columns={"class": "y", "logits": "logit"}).pooled()).tolist() == [
        [5, 6],
        [7, 8],
    ]
    taken = {"class": "logit_1", "logits": "logit"}
    assert "got 'logit_1', which is the class, expected columns of their own" in sentence(data, columns=taken)
    client = {"logits": "logit"}
    assert "got 'logit_0', which is the client" in sentence(data, columns=client, client="logit_0")
    (tmp_path / "a.csv").write_text("y,z_0,z_1,z_0\n0,1,2,3\n")
    assert "got 'z_0' and 'z_0' with one number" in sentence(tmp_path / "a.csv", columns=COLUMNS)
    (tmp_path / "a.csv").write_text("y,z,z\n0,1,2\n")
    assert "got 2 columns of this name, expected one" in sentence(tmp_path / "a.csv", columns=COLUMNS)


@pytest.mark.parametrize("limit", LIMITS)
def test_all_sites_have_the_same_classes(limit: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", y=[0], z=np.ones((1, 3)))
    np.savez(tmp_path / "b.npz", y=[0], z=np.ones((1, 4)))
    text = sentence(tmp_path, columns=COLUMNS)
    assert "b.npz, column 'z' (logits): got 4 logits in a row, expected 3 as in " in text
    assert "a.npz; export the logits of the same classes, in the same order, everywhere." in text
    np.savez(tmp_path / "b.npz", y=[0], z=np.ones((1, 3)))
    federation = load(tmp_path, columns=COLUMNS, memory_limit=LIMITS[limit])
    np.savez(tmp_path / "b.npz", y=[0], z=np.ones((1, 5)))
    if limit == "streamed":
        with pytest.raises(DataError, match="got 5 logits in a row, expected 3 as in"):
            list(federation.rows_of("b").batches())


@pytest.mark.parametrize("order", [("class", "logits"), ("logits", "class")])
def test_classes_beyond_the_logits(order: tuple[str, ...]) -> None:
    columns = {role: COLUMNS[role] for role in order}
    text = sentence({"y": [0, 3, 1], "z": ROWS}, columns=columns)
    assert (
        "column 'y' (class): got 1 bad value in 3 rows, the first in row 1 (counting from 0): 3 (values found: "
        "0, 3, 1), expected a whole number from 0 to 2 in every row, one of the 3 classes of the logits; number "
        "the classes 0, 1, 2, .. in the order of the logits"
    ) in text
    assert load({"y": [0, 3, 1]}, columns={"class": "y"}).row_count == 3


def test_classes_are_checked_in_every_batch(tmp_path: Path) -> None:
    y = np.zeros(300_000, dtype=int)
    y[[200_000, 299_999]] = 2
    np.savez(tmp_path / "a.npz", y=y, z=np.ones((300_000, 2), dtype=np.float32))
    text = sentence(tmp_path / "a.npz", columns=COLUMNS)
    assert "got 2 bad values in 300000 rows, the first in row 200000" in text


def test_a_single_logit_column_is_no_role_for_numbers() -> None:
    with pytest.raises(UsageError, match="got 'z' as class and as logits, expected two different columns"):
        load({"z": [0]}, columns={"class": "z", "logits": "z"})
    assert "column 'z' (score)" in sentence({"z_0": [0.5], "z_1": [0.5]}, columns={"score": "z"})


@pytest.mark.parametrize(
    ("names", "asked", "words"),
    [
        (["logit_0", "logit_1", "logit_2"], "logits", "did you mean 'logit'?"),
        (["logit0", "logit1"], "logits", "did you mean 'logit'?"),
        (["Logit_0", "Logit_1"], "logit", "did you mean 'Logit'?"),
        (["logit_0", "logit_1", "Logits"], "logits", "did you mean 'Logits'?"),
        (["logit_0", "other"], "logits", "did you mean 'logit_0'?"),  # one number begins nothing
        (["0", "1"], "logits", "check the name."),
    ],
)
def test_what_numbered_columns_begin_with_is_suggested(names: list[str], asked: str, words: str) -> None:
    data = {"y": [0], **{name: [0.5] for name in names}}
    text = sentence(data, columns={"class": "y", "logits": asked})
    assert f"column {asked!r} (logits): got no such column, expected one of" in text
    assert text.endswith(words)


def test_numbered_columns_are_suggested_for_other_roles_as_they_are() -> None:
    text = sentence({"score_0": [0.5], "score_1": [0.5]}, columns={"score": "score"})
    assert text.endswith("did you mean 'score_1'?") or text.endswith("did you mean 'score_0'?")
