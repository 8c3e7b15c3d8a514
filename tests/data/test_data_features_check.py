"""A check of a regression's columns: those that tell nothing, those that tell the same, clients without variation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from command_line import call
from fedassay.data.check import CheckReport, check

COLUMNS = {"target": "y", "features": "a,b,c,d"}


def warned(report: CheckReport) -> list[str]:
    assert report.ok
    return [finding.sentence() for finding in report.findings if finding.severity == "warning"]


def varied(rows: int = 60, clients: int = 3) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    return {"site": np.arange(rows) % clients, "y": rng.normal(size=rows)} | {
        n: rng.random(rows) for n in "abcd"
    }


def test_nothing_to_say() -> None:
    report = check(varied(), client="site", columns=COLUMNS)
    assert report.findings == ()
    assert report.profile["features"] == 4
    assert report.profile["clients_with_one_target"] == 0
    assert report.profile["distinct_targets"] == 60


def test_columns_that_are_constant_or_alike() -> None:
    data = varied()
    data |= {"b": np.full(60, 2.0), "d": data["a"].copy(), "c": np.full(60, 2.0)}
    found = warned(check(data, client="site", columns=COLUMNS))
    where = "the mapping of columns, column"
    assert found == [
        *(
            f"{where} {name!r} (feature): got one value in all rows, expected different numbers; leave it out of the "
            "features; it cannot be told from the intercept."
            for name in "bc"
        ),
        f"{where}s 'a', 'd' (features): got the same numbers in all rows, expected columns that differ; keep one of "
        "them; their coefficients cannot be told apart.",
    ]
    data["d"][59] += 1e-9
    assert len(warned(check(data, client="site", columns=COLUMNS))) == 2
    assert warned(check({name: [1.0] for name in "abcd"}, columns={"features": "a,b,c,d"})) == []


def test_over_all_rows_and_not_in_each_file(tmp_path: Path) -> None:
    for site, value in (("p", 1.0), ("q", 2.0), ("r", 3.0)):
        data = {"a": [value, value], "b": [0.0, 1.0], "c": [value, value], "d": [5, 5], "y": [1.0, value]}
        pd.DataFrame(data).to_csv(tmp_path / f"{site}.csv", index=False)
    found = "\n".join(warned(check(tmp_path, columns=COLUMNS)))
    assert "column 'd' (feature): got one value in all rows" in found
    assert "columns 'a', 'c' (features): got the same numbers in all rows" in found
    assert "column 'a' (feature)" not in found
    assert (
        "column 'y' (target): got one value in all rows of 1 of 3 clients, expected different targets at each client; "
        "check these clients"
    ) in found


def test_names_of_numbered_columns_and_of_lists() -> None:
    data = varied()
    x = np.column_stack([data["a"], np.ones(60), data["a"]])
    (constant, alike) = warned(check({"x": x}, columns={"features": "x"}))
    assert "column 'x[1]' (feature): got one value" in constant
    assert "columns 'x[0]', 'x[2]' (features): got the same numbers" in alike
    numbered = {f"x_{i + 1}": x[:, i] for i in range(3)}
    (constant, alike) = warned(check(numbered, columns={"features": "x"}))
    assert "column 'x_2' (feature): got one value" in constant
    assert "columns 'x_1', 'x_3' (features)" in alike


@pytest.mark.parametrize("pending", [0, 2**20])
def test_clients_whose_target_is_constant(pending: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedassay.data.names._PENDING", pending)
    monkeypatch.setattr(
        "fedassay.data.tables.batch_rows", lambda _: 7
    )  # a client's rows come in several batches
    data = varied(clients=6)
    data["y"] = np.where(np.isin(data["site"], [2, 4]), data["site"], data["y"])
    data["site"][data["site"] == 5] = 3
    data["site"][0] = 99  # a client with a single row is no surprise
    report = check(data, client="site", columns=COLUMNS)
    (found,) = warned(report)
    assert "got one value in all rows of 2 of 5 clients" in found
    assert report.profile["clients_with_one_target"] == 2
    assert warned(check(data, columns=COLUMNS)) == []  # every row is a client
    without = {"target": "y", "prediction": "a"}
    assert warned(check(data, client="site", columns=without)) == []


def test_a_target_that_is_the_same_everywhere_is_said_once() -> None:
    data = {**varied(), "y": np.ones(60)}
    (found,) = warned(check(data, client="site", columns=COLUMNS))
    assert "column 'y' (target): got one value in all rows, expected different targets" in found


def test_a_constant_offset() -> None:
    report = check({**varied(), "o": np.ones(60)}, client="site", columns={**COLUMNS, "offset": "o"})
    (found,) = warned(report)
    assert (
        "column 'o' (offset): got one value in all rows, expected different offsets; check the column"
        in found
    )
    assert report.profile["largest_offset"] == 1.0


def test_bad_rows_do_not_hide_the_rest() -> None:
    data = {**varied(), "b": np.ones(60)}
    data["a"][3], data["y"][5] = np.nan, np.inf
    report = check(data, client="site", columns=COLUMNS)
    severities = [finding.severity for finding in report.findings]
    assert severities == ["error", "error", "warning"]
    assert "column 'b' (feature): got one value" in report.findings[2].sentence()
    assert check({**varied(), "site": [None] * 60}, client="site", columns=COLUMNS).profile["features"] == 4


def test_the_command(capsys: Any, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    pd.DataFrame(varied() | {"o": np.arange(60), "d": 1}).to_csv(path, index=False)
    options = ("--target", "y", "--features", "a, b,c,d", "--offset", "o", "--client", "site")
    code, out, _ = call(capsys, "check", path, *options, "--json", "-", "--quiet")
    assert code == 0
    report = json.loads(out)
    assert report["profile"]["features"] == 4
    assert [one["what"] for one in report["findings"]] == [f"{path}, column 'd' (feature)"]
    code, out, _ = call(capsys, "check", path, "--target", "y", "--features", "a,sex")
    assert code == 2
    assert "column 'sex' (feature): got no such column, expected one of" in out
    code, _, err = call(capsys, "check", path, "--target", "y", "--features", "a,y")
    assert code == 2
    assert "got 'y' as target and as feature" in err
