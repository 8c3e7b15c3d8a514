"""The role value: any finite number, and one clear sentence for everything else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from data_forms import FORMS, in_form, small

from fedassay.data.check import check
from fedassay.data.federation import load
from fedassay.errors import DataError, UsageError

COLUMNS = {"value": "income"}
HUGE = 1.7e308


def incomes() -> dict[str, Any]:
    data = small()
    data["income"] = np.random.default_rng(3).normal(0.0, 1e6, len(data["p"])).round(2)
    data["income"][:4] = -0.0, HUGE, -HUGE, 5e-324
    return data


@pytest.mark.parametrize("form", FORMS)
def test_any_finite_number_is_a_value(form: str, tmp_path: Path) -> None:
    data = incomes()
    federation = load(in_form(form, data, tmp_path), client="site", columns=COLUMNS)
    (batch,) = federation.pooled().batches()
    assert batch["value"].dtype == np.float64
    assert np.array_equal(batch["value"], data["income"])
    assert not np.signbit(batch["value"][0])  # -0.0 is 0.0


@pytest.mark.parametrize("kind", [int, bool, str])
def test_values_may_be_whole_numbers_or_text_that_spells_one(kind: type) -> None:
    column = [kind(1), kind(1)] if kind is not str else ["1", " 1e0 "]
    if kind is bool:  # a truth value is no number
        with pytest.raises(DataError, match="expected a finite number"):
            load({"income": column}, columns=COLUMNS)
        return
    (batch,) = load({"income": column}, columns=COLUMNS).pooled().batches()
    assert batch["value"].tolist() == [1.0, 1.0]


@pytest.mark.parametrize("bad", [np.nan, None, "n/a", np.inf, -np.inf, "inf", "", "1e999"])
@pytest.mark.parametrize("limit", [0, 2**30])
def test_what_is_no_finite_number_names_its_row(bad: Any, limit: int) -> None:
    column = [str(i) if isinstance(bad, str) else float(i) for i in range(40)]
    column[17], column[30] = bad, bad
    with pytest.raises(DataError) as caught:
        load({"income": column}, columns=COLUMNS, memory_limit=limit)
    text = str(caught.value)
    assert (
        "column 'income' (value): got 2 bad values in 40 rows, the first in row 17 (counting from 0): "
        in text
    )
    assert "expected a finite number in every row; remove or repair these rows" in text
    report = check({"income": column}, columns=COLUMNS)
    assert text in [finding.sentence() for finding in report.findings]


def test_a_check_says_how_far_values_reach() -> None:
    values = pd.Series([3.0, -7.5, 3.0, np.nan, 1e6])
    report = check({"income": values}, columns=COLUMNS)
    assert not report.ok
    profile = report.profile
    assert (profile["smallest_value"], profile["largest_value"], profile["distinct_values"]) == (-7.5, 1e6, 3)


def test_a_check_warns_of_one_value_in_all_rows() -> None:
    report = check({"income": [4.0] * 5}, columns=COLUMNS)
    assert report.ok
    assert any("one value in all rows" in finding.sentence() for finding in report.findings)


def test_a_column_plays_one_role() -> None:
    with pytest.raises(UsageError, match="two different columns"):
        load({"y": [0, 1]}, columns={"value": "y", "label": "y"})


def test_a_column_of_32_bits_holds_the_decimals_that_it_shows() -> None:
    values = np.round(np.random.default_rng(1).normal(4, 1, 1000), 1)
    batch = next(iter(load({"k": values.astype(np.float32)}, columns={"value": "k"}).pooled().batches()))
    assert (batch["value"] == values).all()
