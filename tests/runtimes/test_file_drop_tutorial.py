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
from fedassay.crypto.identity import Identity, key_to_text

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "file-drop.md"
SITES = ("hospital-a", "hospital-b", "hospital-c")


def test_the_tutorial_works_as_written(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```(sh|toml|python)\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) > 10
    for kind, text in blocks:
        if kind == "python":
            exec(compile(text, str(PAGE), "exec"), {})
        elif kind == "toml":
            (tmp_path / text.split()[1]).write_text(with_keys(text, tmp_path))
        else:
            for line in text.splitlines():
                follow(line, tmp_path)
    document = json.loads((tmp_path / "result.json").read_text())
    rows = pd.concat([pd.read_csv(tmp_path / site / "scores.csv") for site in SITES])
    assert document["cohort"] == {"clients": 3, "dropped": 0, "truncated": None, "rows": len(rows)}
    expected = roc_auc_score(rows.died, rows.risk)
    assert document["results"]["roc_auc"]["value"] == pytest.approx(expected, abs=1e-3)
    assert (tmp_path / "result.html").exists()
    assert "waiting for hospital-a, hospital-b, hospital-c" in capsys.readouterr().out


def follow(line: str, folder: Path) -> None:
    command, *arguments = shlex.split(line)
    if command == "mkdir":
        for name in arguments:
            (folder / name).mkdir()
    else:
        assert command == "fedassay"
        assert run_command(arguments) == 0, line


def with_keys(text: str, folder: Path) -> str:
    for name in ("coordinator", *SITES):
        key = key_to_text(Identity.load(folder / name / f"{name}.key").public)
        text = text.replace(f"KEY-OF-{name.upper()}", key)
    assert "KEY-OF" not in text
    return text
