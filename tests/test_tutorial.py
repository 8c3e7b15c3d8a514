"""docs/tutorial.md and docs/how-to/run.md, followed to the letter: every command runs, and says what the pages show."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from fedassay.cli.demo import STUDY
from fedassay.study.file import StudyFile
from pages import DOCS, assert_shown, blocks, follow, typed, with_keys

TUTORIAL = (DOCS / "tutorial.md").read_text(encoding="utf-8")
DEMO, OWN_FILE = TUTORIAL.split("## Your own file in ten minutes")
RUN = (DOCS / "how-to" / "run.md").read_text(encoding="utf-8")
SITES = ("hospital-a", "hospital-b", "hospital-c")


@pytest.fixture(autouse=True)
def _terminal(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")


def test_your_own_file_as_written(tmp_path: Path, capsys: Any) -> None:
    follow(OWN_FILE, capsys)
    calibrated = pd.read_csv(tmp_path / "calibrated.csv")
    assert calibrated.calibrated.between(0, 1).all()
    assert "distributed-dp" in (tmp_path / "private.toml").read_text()
    assert (tmp_path / "scores" / "report.html").stat().st_size > 10_000


@pytest.mark.full
def test_forty_hospitals_as_written(tmp_path: Path, capsys: Any) -> None:
    commands = [text for language, text in blocks(DEMO) if language == "sh"]
    assert commands == ["fedassay demo\n"]
    typed(commands[0])
    said = capsys.readouterr().out
    # The page shows the end of what the demo says before its beginning.
    ending, verdict = [text for language, text in blocks(DEMO) if not language][1:]
    assert_shown(verdict, said)
    assert_shown(ending, said)
    left = {path.name for path in (tmp_path / "demo-output" / "hospitals").iterdir()}
    assert (
        set(re.findall(r"`([\w.]+\.(?:html|json|md|toml))`", DEMO.split("### What it has left")[1])) <= left
    )


def test_the_files_of_the_demo_are_called_as_the_page_says() -> None:
    study = StudyFile.parse(STUDY.format(seed=1), Path("hospitals.toml"))
    assert f"demo-output/{study.name}/report.html" in DEMO
    assert "demo-output/hospitals.toml" in DEMO


def test_what_a_page_shows_must_be_said() -> None:
    assert_shown("AUC 0.8\n…\nDone.", "AUC\n0.8 and\nmore. Done.")
    with pytest.raises(AssertionError, match="the page shows"):
        assert_shown("AUC 0.8\n…\nDone.", "Done. AUC 0.8")


# --- how-to/run.md ----------------------------------------------------------------------------------------------------


def settle(folder: Path, capsys: Any) -> None:
    """Steps 1 and 2 of the file drop, which the page refers to."""
    page = (DOCS / "how-to" / "file-drop.md").read_text(encoding="utf-8").split("## 3.")[0]
    for name in ("coordinator", *SITES, "drop"):
        (folder / name).mkdir()
    for language, text in blocks(page):
        if language == "sh" and "keys" in text:
            typed(text)
        elif language == "python":
            exec(compile(text, "file-drop.md", "exec"), {})
        elif language == "toml":
            text = with_keys(text, ("coordinator", *SITES), folder, capsys)
            (folder / text.split()[1]).write_text(text)


def test_a_study_by_files_as_written(tmp_path: Path, capsys: Any) -> None:
    settle(tmp_path, capsys)
    (study,) = [text for language, text in blocks(RUN) if text.startswith("# study.toml")]
    (tmp_path / "study.toml").write_text(study)
    announce, answer = [text for language, text in blocks(RUN) if language == "sh"]
    capsys.readouterr()
    typed(announce)
    assert_shown("Pass 1: 0 of 3 replies are there; waiting for hospital-a, hospital-b, hospital-c.", RUN)
    assert_shown("Pass 1: 0 of 3 replies are there; waiting for hospital-a", capsys.readouterr().out)
    for _ in range(2):
        assert not (tmp_path / "admissions").joinpath("result.json").exists()
        typed(answer)
        typed(announce)
    document = json.loads((tmp_path / "admissions" / "result.json").read_text())
    assert set(document["results"]["tasks"]) == {"evaluate", "calibrate"}
    assert not document["privacy"]["simulated"]


def test_other_studies_of_the_page_can_be_read(tmp_path: Path) -> None:
    (deployed,) = [text for _, text in blocks(RUN) if 'name = "flower-deployment"' in text]
    assert StudyFile.parse(deployed, tmp_path / "study.toml").runtime.name == "flower-deployment"
