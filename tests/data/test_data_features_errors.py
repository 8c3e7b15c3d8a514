"""Features that cannot be used get one clear sentence, which names the column."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from data_sentences import kind_of, sentence
from hypothesis import given
from hypothesis import strategies as st
from test_data_fuzz import ROBUST, column_lists, form_of

from fedassay.data.check import check
from fedassay.data.federation import load
from fedassay.data.findings import FOR_GAPS
from fedassay.data.wide import MOST_FEATURES
from fedassay.errors import DataError, UsageError

TWO = {"features": "age,bmi", "target": "y"}
MAPPING = "the mapping of columns, "


def data_with(**changed: Any) -> dict[str, Any]:
    return {"age": [30, 40, 50], "bmi": [20.5, 21.5, 22.5], "y": [0.0, 1.0, 2.0]} | changed


def refused(columns: dict[str, str], client: str | None = None) -> str:
    said = set()
    for use in (load, check):
        with pytest.raises(UsageError) as caught:
            use(data_with(site=["a", "b", "c"]), client=client, columns=columns)  # type: ignore[operator]
        said.add(str(caught.value))
    (text,) = said
    return text


@pytest.mark.parametrize(
    ("names", "client", "said"),
    [
        ("age,bmi,age", None, "features: got 'age' twice, expected each column once; name it once."),
        ("age, bmi, age ", None, "features: got 'age' twice, expected each column once; name it once."),
        (
            "age,y",
            None,
            "columns: got 'y' as target and as feature, expected two different columns; leave it out of the features.",
        ),
        ("y", None, "columns: got 'y' as target and as feature, expected two different columns; leave it"),
        (
            "age,bmi",
            "bmi",
            "columns: got 'bmi' as client and as feature, expected two different columns; leave",
        ),
        (
            "age,,bmi",
            None,
            "features: got an empty name in 'age,,bmi', expected names of columns separated by",
        ),
        ("age,", None, "features: got an empty name in 'age,'"),
        (" ", None, "features: got an empty name in ' '"),
        ("", None, "features column: got '', expected names of columns separated by commas."),
        (["age"], None, "features column: got ['age'], expected names of columns separated by commas."),
        (
            ",".join(f"x{i}" for i in range(MOST_FEATURES + 1)),
            None,
            "features: got 257 columns, expected at most 256; leave some out.",
        ),
    ],
    ids=kind_of,
)
def test_names_that_cannot_be_meant(names: Any, client: str | None, said: str) -> None:
    assert refused({"target": "y", "features": names}, client).startswith(said)
    assert refused({"features": names, "target": "y"}, client).startswith(said)


def test_a_feature_that_is_the_offset_and_logits_beside_features() -> None:
    text = refused({"target": "y", "features": "age,bmi", "offset": "bmi"})
    assert text.startswith("columns: got 'bmi' as offset and as feature, expected two different columns")
    assert refused({"features": "age", "logits": "bmi"}) == (
        "columns: got logits and features, expected one of them; leave the other out."
    )


def test_a_missing_column() -> None:
    assert sentence(data_with(), columns={**TWO, "features": "age,BMI"}) == (
        f"{MAPPING}column 'BMI' (feature): got no such column, expected one of 'age', 'bmi', 'y'; "
        "did you mean 'bmi'?"
    )
    text = sentence(data_with(x_1=[1, 2, 3], x_2=[1, 2, 3]), columns={**TWO, "features": "xs"})
    assert "column 'xs' (feature): got no such column, expected one of" in text
    assert text.endswith("did you mean 'x'?")


def test_a_column_that_is_there_twice(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("y,age,bmi,bmi\n1,2,3,4\n")
    text = sentence(tmp_path / "a.csv", columns=TWO)
    assert "a.csv, column 'bmi' (feature): got 2 columns of this name, expected one; rename or remove" in text


@pytest.mark.parametrize(
    ("bad", "shown", "fix"),
    [
        (
            ["20.5", "high", "low"],
            "2 bad values in 3 rows, the first in row 1 (counting from 0): 'high'",
            True,
        ),
        (["m", "f", "m"], "3 bad values in 3 rows, the first in row 0 (counting from 0): 'm'", True),
        (pa.array(["1", "f", "2"]).dictionary_encode(), "1 bad value in 3 rows, the first in row 1", True),
        (
            [20.5, np.nan, 22.5],
            "1 bad value in 3 rows, the first in row 1 (counting from 0): a missing value",
            False,
        ),
        (
            np.array([20.5, 21.5, np.nan]),
            "1 bad value in 3 rows, the first in row 2 (counting from 0): nan",
            False,
        ),
        (
            [20.5, None, 22.5],
            "1 bad value in 3 rows, the first in row 1 (counting from 0): a missing value",
            False,
        ),
        ([np.inf, 1.0, -np.inf], "2 bad values in 3 rows, the first in row 0 (counting from 0): inf", False),
        (
            ["1", None, "x"],
            "2 bad values in 3 rows, the first in row 1 (counting from 0): a missing value",
            False,
        ),
        (["1", "1e999", "2"], "1 bad value in 3 rows, the first in row 1 (counting from 0): '1e999'", False),
        (np.array(["2020-01-01"] * 3, dtype="datetime64[D]"), "3 bad values in 3 rows", False),
        ([None, None, None], "3 bad values in 3 rows", False),
    ],
    ids=kind_of,
)
def test_values_that_are_no_finite_numbers(bad: Any, shown: str, fix: bool) -> None:
    advice = "make 0/1 columns for categories." if fix else "remove or repair these rows."
    for names in ("age,bmi", "bmi"):
        text = sentence(data_with(bmi=bad), columns={**TWO, "features": names})
        assert text.startswith(f"{MAPPING}column 'bmi' (feature): got {shown}")
        more = (
            f", or {FOR_GAPS}"
            if "missing" in shown or "nan" in shown or str(bad) == "[None, None, None]"
            else ""
        )
        assert text.endswith(f", expected a finite number in every row; {advice[:-1]}{more}.")


def test_every_bad_column_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("y,age,bmi,sex,o\n1,2,x,f,1\n1,,3,m,\n1,2,3,1,0\n")
    columns = {"target": "y", "features": "age,bmi,sex,Weight", "offset": "o"}
    found = [finding.sentence() for finding in check(tmp_path / "a.csv", columns=columns).findings]
    for said in (
        "column 'Weight' (feature): got no such column",
        "column 'age' (feature): got 1 bad value in 3 rows, the first in row 1 (counting from 0): a missing value "
        "(line 3 of the file)",
        "column 'bmi' (feature): got 1 bad value in 3 rows, the first in row 0 (counting from 0): 'x'",
        "column 'sex' (feature): got 2 bad values in 3 rows, the first in row 0 (counting from 0): 'f'",
        "column 'o' (offset): got 1 bad value in 3 rows, the first in row 1 (counting from 0): a missing value "
        "(line 3 of the file), expected a finite number in every row, what is added to the linear predictor",
    ):
        assert sum(said in one for one in found) == 1, said


def test_lists_beside_other_columns() -> None:
    text = sentence(data_with(bmi=np.ones((3, 2))), columns=TWO)
    assert (
        "column 'bmi' (feature): got 3 bad values in 3 rows, the first in row 0 (counting from 0): [1.0, 1.0]"
        in text
    )
    assert text.endswith("name a column of lists alone, or give each feature a column of its own.")


ROWS = [[0.5, 1.0, 2.0], [1.0, 2.0, 3.0]]
ALONE = {"features": "x"}


@pytest.mark.parametrize("kind", [pa.list_(pa.float64()), pa.large_list(pa.float32()), None], ids=str)
def test_lists_of_different_width(kind: Any) -> None:
    rows = [*ROWS, [1.0], ROWS[0], []]
    assert sentence({"x": rows if kind is None else pa.array(rows, kind)}, columns=ALONE) == (
        f"{MAPPING}column 'x' (features): got 2 rows of another length in 5 rows, the first in row 2 (counting from 0)"
        ": 1 where row 0 has 3, expected as many numbers in every row as there are features; remove or repair these "
        "rows."
    )


@pytest.mark.parametrize(
    ("bad", "shown"),
    [
        ([1.0, None, 2.0], "a missing value in x[1]"),
        ([1.0, 2.0, np.inf], "inf in x[2]"),
        (["1", "m", "2"], "'m' in x[1]"),
        (None, "a missing value"),
    ],
    ids=kind_of,
)
def test_bad_entries_of_lists(bad: Any, shown: str) -> None:
    assert sentence({"x": [*ROWS, bad, bad]}, columns=ALONE) == (
        f"{MAPPING}column 'x' (features): got 2 rows with a bad value in 4 rows, the first in row 2 (counting from 0): "
        f"{shown}, expected finite numbers in every row, one for each feature; remove or repair these rows."
    )


def test_lists_that_are_empty_or_too_long() -> None:
    text = sentence({"x": np.ones((2, MOST_FEATURES + 1))}, columns=ALONE)
    assert (
        f"column 'x' (features): got 257 numbers in row 0, expected 1 to {MOST_FEATURES}, one for each"
        in text
    )
    text = sentence({"x": [[], []]}, columns=ALONE)
    assert (
        "column 'x' (features): got 0 numbers in row 0, expected 1 to 256, one for each feature; give a"
        in text
    )
    many = {f"x{i}": [1.0] for i in range(MOST_FEATURES + 1)}
    assert "columns 'x' (features): got 257 columns, expected at most 256; leave" in sentence(
        many, columns=ALONE
    )
    assert load({"x": np.ones((1, MOST_FEATURES))}, columns=ALONE).row_count == 1


def test_numbered_columns_with_a_gap_or_with_the_target() -> None:
    text = sentence({"x1": [1.0], "x3": [1.0]}, columns=ALONE)
    assert text == (
        f"{MAPPING}columns 'x' (features): got 'x3' but no 'x2', expected numbers without a gap from 0 or 1; add it, "
        "or rename what is no feature."
    )
    assert "got 'x1' and 'x01' with one number, expected one column for each feature" in sentence(
        {"x1": [1.0], "x01": [1.0]}, columns=ALONE
    )
    text = sentence({"x1": [1.0], "x2": [1.0]}, columns={**ALONE, "target": "x2"})
    assert "columns 'x' (features): got 'x2', which is the target, expected columns of their own" in text


def test_a_bad_value_of_a_numbered_column() -> None:
    text = sentence({"x1": [1.0, 2.0], "x2": ["1", "f"]}, columns=ALONE)
    assert (
        "column 'x2' (feature): got 1 bad value in 2 rows, the first in row 1 (counting from 0): 'f'" in text
    )


def test_sites_that_do_not_agree(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.ones((2, 3)))
    np.savez(tmp_path / "b.npz", x=np.ones((2, 2)))
    text = sentence(tmp_path, columns=ALONE)
    assert "b.npz, column 'x' (features): got 2 features in a row, expected 3 as in " in text
    assert text.endswith(
        "a.npz; export the same features, in the same order and with the same names, everywhere."
    )
    for name, columns in (("a", "x0,x1"), ("b", "x1,x2")):
        (tmp_path / f"{name}.npz").unlink()
        (tmp_path / f"{name}.csv").write_text(f"{columns}\n1,2\n")
    assert "b.csv, column 'x' (features): got 'x1' to 'x2', expected 'x0' to 'x1' as in" in sentence(
        tmp_path, columns=ALONE
    )
    (tmp_path / "b.csv").write_text("x0,y\n1,2\n")
    text = sentence(tmp_path, columns={"features": "x0,x1"})
    assert "b.csv, column 'x1' (feature): got no such column, expected one of 'x0', 'y'" in text


@pytest.mark.parametrize("bad", [None, np.nan, -np.inf, "x"], ids=kind_of)
def test_an_offset_is_a_finite_number(bad: Any) -> None:
    text = sentence(data_with(o=[0.0, 1.0, bad]), columns={**TWO, "offset": "o"})
    assert "column 'o' (offset): got 1 bad value in 3 rows, the first in row 2" in text
    more = f", or {FOR_GAPS}" if bad is None or bad is np.nan else ""
    assert text.endswith(
        "expected a finite number in every row, what is added to the linear predictor; remove rows without an offset, "
        f"or fill in 0{more}."
    )


@ROBUST
@given(columns=column_lists(), kind=st.sampled_from(["lists", "objects", "pandas", "polars"]))
def test_junk_gives_rows_or_a_sentence(columns: dict[str, list[Any]], kind: str) -> None:
    data = form_of(kind, columns)
    for names in ("p,y", "p"):
        outcomes = []
        for limit in (0, 2**30):
            try:
                federation = load(data, client="c", columns={"features": names}, memory_limit=limit)
            except (DataError, UsageError) as problem:
                outcomes.append(str(problem))
                continue
            for batch in federation.pooled().batches():
                assert np.isfinite(batch["features"]).all()
            outcomes.append(str(federation))
        assert outcomes[0] == outcomes[1]
        assert check(data, client="c", columns={"features": names}).ok == outcomes[0].startswith("Federation")
