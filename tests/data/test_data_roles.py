"""Values, targets, predictions, their ends and scales, conformity scores and classes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from data_forms import FORMS, in_form, small
from data_sentences import kind_of, sentence

from fedassay.data.check import check
from fedassay.data.federation import load
from fedassay.data.schema import LARGEST_CLASS
from fedassay.errors import DataError, UsageError

VALUE = {"value": "income"}
HUGE = 1.7e308
NUMBERS = ["value", "conformity", "target", "prediction", "scale", "lower", "upper"]


def of_role(role: str, column: Any) -> Any:
    (batch,) = load({"x": column}, columns={role: "x"}).pooled().batches()
    return batch[role]


@pytest.mark.parametrize("role", NUMBERS)
@pytest.mark.parametrize(
    "column",
    [
        [3.9, 1, 1e300],
        ["3.9", " 1", "1e300"],
        np.array([3.9, 1.0, 1e300], dtype=">f8"),
        pd.Series([3.9, 1, 1e300], dtype="Float64"),
        pa.array([3.9, 1.0, 1e300]),
    ],
    ids=kind_of,
)
def test_numbers_are_those_of_any_spelling(role: str, column: Any) -> None:
    values = of_role(role, column)
    assert values.dtype == np.float64
    assert values.tolist() == [3.9, 1.0, 1e300]


@pytest.mark.parametrize("role", NUMBERS)
def test_floats_of_32_bits_are_the_decimals_that_they_stand_for(role: str) -> None:
    assert of_role(role, np.array([3.9, 0.1], dtype=np.float32)).tolist() == [3.9, 0.1]


@pytest.mark.parametrize("role", NUMBERS)
@pytest.mark.parametrize("bad", [None, np.nan, np.inf, -np.inf, "x", "1e999", [1.0]], ids=kind_of)
def test_what_is_no_number(role: str, bad: Any) -> None:
    text = sentence({"x": [1.0, 2.0, bad]}, columns={role: "x"})
    assert f"column 'x' ({role}): got " in text
    assert "expected a finite number" in text
    assert "got 2 bad values in 2 rows" in sentence({"x": [True, False]}, columns={role: "x"})


def incomes() -> dict[str, Any]:
    data = small()
    data["income"] = np.random.default_rng(3).normal(0.0, 1e6, len(data["p"])).round(2)
    data["income"][:4] = -0.0, HUGE, -HUGE, 5e-324
    return data


@pytest.mark.parametrize("form", FORMS)
def test_any_finite_number_is_a_value(form: str, tmp_path: Path) -> None:
    data = incomes()
    federation = load(in_form(form, data, tmp_path), client="site", columns=VALUE)
    (batch,) = federation.pooled().batches()
    assert batch["value"].dtype == np.float64
    assert np.array_equal(batch["value"], data["income"])
    assert not np.signbit(batch["value"][0])  # -0.0 is 0.0


@pytest.mark.parametrize("bad", [np.nan, None, "n/a", np.inf, -np.inf, "inf", "", "1e999"])
@pytest.mark.parametrize("limit", [0, 2**30])
def test_what_is_no_finite_number_names_its_row(bad: Any, limit: int) -> None:
    column = [str(i) if isinstance(bad, str) else float(i) for i in range(40)]
    column[17], column[30] = bad, bad
    with pytest.raises(DataError) as caught:
        load({"income": column}, columns=VALUE, memory_limit=limit)
    text = str(caught.value)
    assert (
        "column 'income' (value): got 2 bad values in 40 rows, the first in row 17 (counting from 0): "
        in text
    )
    assert "expected a finite number in every row; remove or repair these rows" in text
    report = check({"income": column}, columns=VALUE)
    assert text in [finding.sentence() for finding in report.findings]


def test_negative_numbers_and_zero() -> None:
    for role in NUMBERS:
        if role != "scale":
            values = of_role(role, [-1.5, -0.0])
            assert values.tolist() == [-1.5, 0.0]
            assert not np.signbit(values[1])
    text = sentence({"x": [1.0, 0.0, -2.0, 1e-300]}, columns={"scale": "x"})
    assert "column 'x' (scale): got 2 bad values in 4 rows, the first in row 1 (counting from 0): 0.0" in text
    assert "expected a finite number above 0 in every row" in text


@pytest.mark.parametrize(
    "column",
    [
        [0, 2, 10],
        [0.0, 2.0, 10.0],
        ["0", " 2", "10.0"],
        np.array([0, 2, 10], dtype=np.int16),
        np.array([0, 2, 10], dtype=np.float32),
        pa.array(["0", "2", "10"]).dictionary_encode(),
        pd.Series([0, 2, 10], dtype="category"),
    ],
    ids=kind_of,
)
def test_spellings_of_a_class(column: Any) -> None:
    values = of_role("class", column)
    assert values.dtype == np.int64
    assert values.tolist() == [0, 2, 10]


def test_two_classes_may_be_truth_values() -> None:
    assert of_role("class", [True, False]).tolist() == [1, 0]
    assert of_role("class", ["true", "False"]).tolist() == [1, 0]


@pytest.mark.parametrize(
    ("bad", "shown"),
    [
        (-1, "-1 (values found: 0, 1, -1)"),
        (1.5, "1.5 (values found: 0.0, 1.0, 1.5)"),
        ("cat", "'cat' (values found: '0', '1', 'cat')"),
        (None, "a missing value (values found: 0, 1, a missing value)"),
        (LARGEST_CLASS + 1, "2147483648 (values found: 0, 1, 2147483648)"),
        (np.inf, "inf (values found"),
    ],
    ids=kind_of,
)
def test_what_is_no_class(bad: Any, shown: str) -> None:
    text = sentence({"x": [0, 1, bad]}, columns={"class": "x"})
    assert "column 'x' (class): got 1 bad value in 3 rows, the first in row 2 (counting from 0): " in text
    assert shown in text
    assert "expected a whole number from 0 in every row; number the classes 0, 1, 2, .." in text
    assert of_role("class", [LARGEST_CLASS]).tolist() == [LARGEST_CLASS]


def test_all_roles_of_a_regression_at_once(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    data = {role: np.round(rng.random(50) + 0.1, 6) for role in NUMBERS}
    pd.DataFrame(data).to_csv(tmp_path / "a.csv", index=False)
    for source in (data, tmp_path / "a.csv"):
        for limit in (0, 2**30):
            (batch,) = load(source, columns={r: r for r in NUMBERS}, memory_limit=limit).pooled().batches()
            assert all(batch[role].tolist() == data[role].tolist() for role in NUMBERS)


def warned(report: Any) -> str:
    assert report.ok
    return "\n".join(finding.sentence() for finding in report.findings if finding.severity == "warning")


def test_a_check_says_how_far_numbers_reach() -> None:
    data = {"y": [1.0, 5.0, 2.0], "p": [0.0, 3.0, 3.0], "s": [0.5, 0.5, 0.5], "c": [1, 2, 3]}
    report = check(data, client="c", columns={"target": "y", "prediction": "p", "scale": "s"})
    assert warned(report) == ""
    assert {name: value for name, value in report.profile.items() if "client" not in name} == {
        "rows": 3,
        "distinct_targets": 3,
        "smallest_target": 1.0,
        "largest_target": 5.0,
        "distinct_predictions": 2,
        "smallest_prediction": 0.0,
        "largest_prediction": 3.0,
        "distinct_scales": 1,
        "smallest_scale": 0.5,
        "largest_scale": 0.5,
    }


@pytest.mark.parametrize(
    ("role", "words"),
    [
        ("conformity", "expected different conformity scores; check the column; every threshold lets in all"),
        ("target", "expected different targets; check the column; there is nothing to predict"),
        ("prediction", "expected different predictions"),
        ("value", "expected different values; check the column; its distribution is a single step"),
    ],
)
def test_constant_columns(role: str, words: str) -> None:
    assert f"column 'x' ({role}): got one value in all rows, {words}" in warned(
        check({"x": [2.0, 2.0]}, columns={role: "x"})
    )
    assert warned(check({"x": [2.0]}, columns={role: "x"})) == ""


def test_ends_that_are_exchanged() -> None:
    data = {"a": [0.0, 3.0, 1.0], "b": [1.0, 2.0, 1.0]}
    found = warned(check(data, columns={"lower": "a", "upper": "b"}))
    assert "columns 'a' and 'b' (lower, upper): got the lower end above the upper one in 1 of 3 rows" in found
    assert warned(check({"a": [0.0], "b": [1.0]}, columns={"lower": "a", "upper": "b"})) == ""
    broken = check({"a": [0.0, None, 2.0], "b": [1.0, 0.0, None]}, columns={"lower": "a", "upper": "b"})
    assert [finding.severity for finding in broken.findings] == ["error", "error"]


def test_a_check_of_logits() -> None:
    z = np.array([[3.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 2.0, 0.0], [1.0, 0.0, 0.5]])
    report = check({"y": [0, 1, 0, 0], "z": z}, columns={"class": "y", "logits": "z"})
    assert report.profile == {
        "rows": 4,
        "clients": 4,
        "classes": 3,
        "classes_without_rows": 1,
        "accuracy": 0.75,
    }
    assert warned(report) == (
        "the mapping of columns, column 'y' (class): got no row of 1 of 3 classes (2), expected rows of every "
        "class; nothing to do if they are rare; what is said about them rests on no rows."
    )
    assert check({"z": z}, columns={"logits": "z"}).findings == ()
    assert check({"y": [0, 4, 4]}, columns={"class": "y"}).profile["classes"] == 2
    assert "got one class in all rows" in warned(check({"y": [1, 1]}, columns={"class": "y"}))


def test_probabilities_in_the_place_of_logits_are_noticed() -> None:
    p = np.array([[0.25, 0.75], [0.5, 0.5], [0.125, 0.875]])
    report = check({"y": [0, 1, 1], "z": p}, columns={"class": "y", "logits": "z"})
    (found,) = [
        one.sentence() for one in report.findings if one.severity == "error"
    ]  # evaluations refuse them
    assert not report.ok
    assert "column 'z' (logits): got numbers from 0 that sum to 1 in every row, probabilities by" in found
    assert "give the logarithms of the probabilities" in found
    assert warned(check({"y": [0, 1, 1], "z": np.log(p)}, columns={"class": "y", "logits": "z"})) == ""
    mixed = np.concatenate([p, [[1.0, 1.0]]])
    assert warned(check({"y": [0, 1, 1, 0], "z": mixed}, columns={"class": "y", "logits": "z"})) == ""


def test_a_check_finds_everything_wrong_with_classes_and_logits_at_once(tmp_path: Path) -> None:
    data = {"y": [0, 7, "x", 1], "z": [[1.0, 2.0], [1.0], None, [1.0, np.inf]]}
    report = check(data, columns={"class": "y", "logits": "z"})
    errors = "\n".join(finding.sentence() for finding in report.findings if finding.severity == "error")
    assert "(logits): got 1 row of another length in 4 rows, the first in row 1" in errors
    assert (
        "(logits): got 2 rows with a bad value in 4 rows, the first in row 2 (counting from 0): a missing"
        in errors
    )
    assert "(class): got 2 bad values in 4 rows, the first in row 1 (counting from 0): '7'" in errors
    assert report.profile["rows"] == 4
    np.savez(tmp_path / "a.npz", y=[0], z=np.ones((1, 1)))
    np.savez(tmp_path / "b.npz", y=[0], z=np.ones((1, 4)))
    np.savez(tmp_path / "c.npz", y=[5], z=np.ones((1, 3)))
    errors = "\n".join(
        finding.sentence() for finding in check(tmp_path, columns={"class": "y", "logits": "z"}).findings
    )
    assert "a.npz, column 'z' (logits): got 1 number in row 0" in errors
    assert "c.npz, column 'z' (logits): got 3 logits in a row, expected 4 as in" in errors
    assert "b.npz, column 'z'" not in errors


def test_a_value_is_no_label() -> None:
    with pytest.raises(UsageError, match="two different columns"):
        load({"y": [0, 1]}, columns={"value": "y", "label": "y"})
