"""Logits and classes as users have them: every form works, and what is wrong is one sentence with exit code 2."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from scipy.special import softmax

from command_line import call, output_of, refused
from multiclass_rows import drawn

Table = dict[str, Any]


def rows(count: int = 300, classes: int = 4) -> Table:
    found = drawn(count, classes, seed=1)
    return {"logits": found["logits"], "labels": found["class"], "client": np.arange(count) % 5}


def as_npz(data: Table, folder: Path) -> tuple[Path, str]:
    np.savez(folder / "a.npz", **data)
    return folder / "a.npz", "logits"


def as_lists(data: Table, folder: Path) -> tuple[Path, str]:
    table = pa.table({**data, "logits": pa.array([list(row) for row in data["logits"]])})
    parquet.write_table(table, folder / "lists.parquet")
    return folder / "lists.parquet", "logits"


def _numbered(data: Table) -> pd.DataFrame:
    frame = pd.DataFrame({name: column for name, column in data.items() if name != "logits"})
    return frame.assign(**{f"logit_{k}": column for k, column in enumerate(data["logits"].T)})


def as_numbered(data: Table, folder: Path) -> tuple[Path, str]:
    _numbered(data).to_parquet(folder / "numbered.parquet")
    return folder / "numbered.parquet", "logit"


def as_csv(data: Table, folder: Path) -> tuple[Path, str]:
    _numbered(data).to_csv(folder / "a.csv", index=False)
    return folder / "a.csv", "logit"


FORMS: dict[str, Callable[[Table, Path], tuple[Path, str]]] = {
    "npz": as_npz,
    "parquet list": as_lists,
    "parquet numbered": as_numbered,
    "csv": as_csv,
}


def evaluated(capsys: Any, path: Path, logits: str, *more: object) -> dict[str, Any]:
    options = ("--logits", logits, "--label", "labels", "--seed", 1, "--json", "-", "--quiet", *more)
    out = output_of(capsys, "evaluate", path, *options)
    found: dict[str, Any] = json.loads(out)
    return found


def changed(name: str, row: int, value: Any) -> Callable[[Table], Table]:
    def change(data: Table) -> Table:
        column = data[name].astype(np.float64)
        column[row] = value
        return {**data, name: column}

    return change


def test_every_form_gives_the_same_result(capsys: Any, tmp_path: Path) -> None:
    for clients in (("--client", "client"), ("--partition", "dirichlet:0.1", "--clients", 20)):
        found = [evaluated(capsys, *form(rows(), tmp_path), *clients) for form in FORMS.values()]
        assert all(one["results"] == found[0]["results"] for one in found)
        assert all(one["warnings"] == found[0]["warnings"] for one in found)


BAD: dict[str, tuple[Callable[[Table], Table], str]] = {
    "negative": (changed("labels", 7, -1), "column 'labels' (class): got 1 bad value in 300 rows, the first in row 7"),
    "too large": (changed("labels", 7, 4), "expected a whole number from 0 to 3 in every row, one of the 4 classes"),
    "not whole": (changed("labels", 7, 0.5), "column 'labels' (class): got 1 bad value in 300 rows, the first in row"),
    "not a number": (changed("logits", 7, [0, np.nan, 0, 0]), "(logits): got 1 row with a bad value in 300 rows, the"),
    "infinite": (changed("logits", 7, [0, 0, np.inf, 0]), "expected finite numbers in every row, one for each class"),
    "probabilities": (
        lambda data: {**data, "logits": softmax(data["logits"], axis=1)},
        "probabilities by their looks, expected logits; give the logarithms of the probabilities",
    ),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("problem", BAD)
def test_what_is_wrong_is_one_sentence(capsys: Any, tmp_path: Path, form: str, problem: str) -> None:
    change, words = BAD[problem]
    path, logits = FORMS[form](change(rows()), tmp_path)
    options = ("--logits", logits, "--label", "labels", "--client", "client")
    said = refused(capsys, "evaluate", path, *options, "--json", tmp_path / "result.json")
    assert words in said
    assert not (tmp_path / "result.json").exists()
    code, out, _ = call(capsys, "check", path, *options)
    assert code == 2
    assert said.removeprefix("Error: ").strip() in out


def test_rows_of_different_width(capsys: Any, tmp_path: Path) -> None:
    data = rows()
    uneven = pa.table({**data, "logits": pa.array([*(list(row) for row in data["logits"][:-1]), [1.0, 2.0]])})
    parquet.write_table(uneven, tmp_path / "a.parquet")
    sites = tmp_path / "sites"
    sites.mkdir()
    as_npz(data, sites)
    np.savez(sites / "b.npz", **{**data, "logits": data["logits"][:, :3], "labels": data["labels"] % 3})
    for path, words in (
        (tmp_path / "a.parquet", "got 1 row of another length in 300 rows, the first in row 299 (counting from 0)"),
        (sites, "b.npz, column 'logits' (logits): got 3 logits in a row, expected 4 as in"),
    ):  # fmt: skip
        options = ("--logits", "logits", "--label", "labels")
        for command in ("evaluate", "check"):
            code, out, error = call(capsys, command, path, *options)
            assert code == 2
            assert words in out + error


def test_a_check_says_everything_at_once(capsys: Any, tmp_path: Path) -> None:
    sites = tmp_path / "sites"
    sites.mkdir()
    data = rows()
    bad = changed("logits", 3, np.inf)(changed("labels", 4, 9)(changed("labels", 5, -1)(data)))
    np.savez(sites / "a.npz", **{**bad, "labels": np.where(bad["labels"] == 2, 0, bad["labels"])})
    np.savez(sites / "b.npz", **{**data, "logits": data["logits"][:, :3]})
    (sites / "c.csv").touch()
    code, out, _ = call(capsys, "check", sites, "--logits", "logits", "--label", "labels")
    assert code == 2
    for words in (
        "a.npz, column 'logits' (logits): got 1 row with a bad value",
        "a.npz, column 'labels' (class): got 2 bad values",
        "b.npz, column 'logits' (logits): got 3 logits in a row, expected 4",
        "1 of 3 clients without rows ('c')",
        "got no row of 1 of 4 classes (2)",
    ):
        assert words in out, words


@pytest.mark.parametrize("form", FORMS)
def test_a_class_that_nobody_has_is_a_warning(capsys: Any, tmp_path: Path, form: str) -> None:
    data = rows()
    path, logits = FORMS[form]({**data, "labels": np.where(data["labels"] == 2, 1, data["labels"])}, tmp_path)
    found = evaluated(capsys, path, logits, "--client", "client")
    assert "No row is of class 2: what is said about it rests on no rows." in found["warnings"]
    two = {**data, "labels": data["labels"] % 2}
    found = evaluated(capsys, *FORMS[form](two, tmp_path), "--client", "client")
    assert (
        "No row is of 2 of 4 classes (2, 3): what is said about them rests on no rows." in found["warnings"]
    )


def test_no_exact_count_of_classes_beside_a_private_result(capsys: Any, tmp_path: Path) -> None:
    data = rows()
    path, logits = as_npz({**data, "labels": data["labels"] % 2}, tmp_path)
    for trust in ("server-dp", "distributed-dp"):
        found = evaluated(capsys, path, logits, "--client", "client", "--privacy", trust, "--epsilon", 1)
        assert not any("No row is of" in one for one in found["warnings"])


def test_a_client_without_rows_is_a_warning(capsys: Any, tmp_path: Path) -> None:
    data = rows()
    for name in ("a", "b", "c"):
        np.savez(tmp_path / f"{name}.npz", **data)
    np.savez(tmp_path / "d.npz", **{name: column[:0] for name, column in data.items()})
    (tmp_path / "e.csv").touch()
    found = evaluated(capsys, tmp_path, "logits")
    assert found["cohort"]["clients"] == 5
    assert any(one.startswith("2 of 5 clients have no rows ('d', 'e')") for one in found["warnings"])
