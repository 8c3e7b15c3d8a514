"""`fedassay check` of columns for prediction sets and for several classes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from command_line import call, json_of


def test_logits_and_classes(capsys: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    np.savez(tmp_path / "a.npz", labels=np.arange(30) % 3, z=rng.normal(size=(30, 3)), site=np.arange(30) % 5)
    options = ("check", tmp_path / "a.npz", "--logits", "z", "--label", "labels", "--client", "site")
    report = json_of(capsys, *options)
    assert report["findings"] == []
    assert report["profile"]["classes"] == 3
    np.savez(tmp_path / "a.npz", labels=np.arange(30) % 3 + 1, z=rng.normal(size=(30, 3)), site=np.arange(30))
    code, out, _ = call(capsys, *options)
    assert code == 2
    assert "column 'labels' (class): got 10 bad values in 30 rows" in out
    assert "from 0 to 2" in out


def test_numbered_columns_of_a_csv_file(capsys: Any, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("y,logit_0,logit_2\n0,1,2\n")
    code, out, _ = call(capsys, "check", path, "--logits", "logit", "--label", "y")
    assert code == 2
    assert "got 'logit_2' but no 'logit_1'" in out


def test_without_logits_a_label_is_binary(capsys: Any, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("y\n0\n2\n")
    code, out, _ = call(capsys, "check", path, "--label", "y")
    assert code == 2
    assert "column 'y' (label): got 1 bad value" in out


def test_columns_of_prediction_intervals(capsys: Any, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    columns = {"own": "--conformity", "y": "--target", "p": "--prediction", "s": "--scale"}
    columns |= {"a": "--lower", "b": "--upper"}
    data = pd.DataFrame({name: [1.0, 2.0, 3.0] for name in columns})
    data["b"] += 1
    data.to_csv(path, index=False)
    options = [text for name, option in columns.items() for text in (option, name)]
    code, _, _ = call(capsys, "check", path, *options)
    assert code == 0
    for name, option in columns.items():
        data.assign(**{name: [1.0, np.nan, 2.0]}).to_csv(path, index=False)
        code, out, _ = call(capsys, "check", path, *options)
        role = option.removeprefix("--")
        assert code == 2
        assert f"column {name!r} ({role}): got 1 bad value in 3 rows, the first in row 1" in out
    data.assign(s=[1.0, 0.0, 1.0]).to_csv(path, index=False)
    code, out, _ = call(capsys, "check", path, *options)
    assert code == 2
    assert "expected a finite number above 0" in out


def test_without_a_column_for_the_site_one_line_says_what_counts_as_one(capsys: Any, tmp_path: Path) -> None:
    rows = pd.DataFrame({"site": ["a", "a", "b"], "p": [0.1, 0.6, 0.7], "y": [0, 1, 1]})
    rows.to_csv(tmp_path / "a.csv", index=False)
    options = ("check", tmp_path / "a.csv", "--score", "p", "--label", "y")
    assert call(capsys, *options)[1].count("every row counts as a site of its own") == 1
    assert "every row" not in call(capsys, *options, "--client", "site")[1]
    assert call(capsys, *options, "--quiet") == (0, "", "")
