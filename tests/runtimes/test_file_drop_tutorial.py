"""The tutorial, from the text alone: every command and file of docs/how-to/file-drop.md, in order."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

from fedassay.cli import run_command
from pages import with_keys

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "file-drop.md"
SITES = ("hospital-a", "hospital-b", "hospital-c")


def test_the_tutorial_works_as_written(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    said = []
    blocks = re.findall(r"```(sh|toml|python)\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) > 10
    for kind, text in blocks:
        if kind == "python":
            exec(compile(text, str(PAGE), "exec"), {})
        elif kind == "toml":
            text = with_keys(text, ("coordinator", *SITES), tmp_path, capsys)
            (tmp_path / text.split()[1]).write_text(text)
        else:
            for line in text.splitlines():
                follow(line, tmp_path)
        said.append(capsys.readouterr().out)
    document = json.loads((tmp_path / "result.json").read_text())
    rows = pd.concat([pd.read_csv(tmp_path / site / "scores.csv") for site in SITES])
    counted = {name: count for name, count in document["cohort"].items() if name != "openings"}
    assert counted == {"clients": 3, "dropped": 0, "truncated": None, "rows": len(rows)}
    assert all(
        set(opening["clients"]) == {"hospital-a", "hospital-b", "hospital-c"}
        for opening in document["cohort"]["openings"]
    )
    expected = roc_auc_score(rows.died, rows.risk)
    assert document["results"]["roc_auc"]["value"] == pytest.approx(expected, abs=1e-3)
    assert (tmp_path / "result.html").exists()
    assert "waiting for hospital-a, hospital-b, hospital-c" in "".join(said)
    assert document["runtime"]["rounds"] == 2


def follow(line: str, folder: Path) -> None:
    command, *arguments = shlex.split(line)
    if command == "mkdir":
        for name in arguments:
            (folder / name).mkdir()
    else:
        assert command == "fedassay"
        assert run_command(arguments) == 0, line
