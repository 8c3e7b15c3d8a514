"""One missing score, or a file with semicolons: what `init`, `check` and the commands say, and the way on."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from command_line import call, output_of, refused
from fedassay.artefacts.verified import ANY_KEY, check
from fedassay.study import folder as folder_module
from study_runs import rows

TERMS = ("--client", "site", "--score", "p", "--label", "y")


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Rows of which two have no score."""
    monkeypatch.setattr(folder_module, "page", lambda document: "<!doctype html>\n")
    monkeypatch.chdir(tmp_path)
    found = rows(4, 60)[["site", "p", "y"]]
    found.loc[[3, 17], "p"] = None
    found.to_csv("gaps.csv", index=False)
    return tmp_path / "gaps.csv"


def type_in(monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("sys.stdin", Terminal("\n".join(lines) + "\n"))


def plain(text: str) -> str:
    return " ".join(text.split())


def test_init_says_what_the_column_is_and_what_to_do(capsys: Any, path: Path) -> None:
    code, said, error = call(capsys, "init", path, "--yes")
    assert code == 2
    assert "numbers in [0, 1], missing in 0.83 %" in plain(said)
    assert "a missing value (line 5 of the file)" in plain(error)
    assert "--missing report" in plain(error)
    assert not (path.parent / "study.toml").exists()


@pytest.mark.parametrize("asked", [True, False])
def test_init_with_the_rows_left_out_writes_a_study_that_runs(
    capsys: Any, path: Path, monkeypatch: pytest.MonkeyPatch, asked: bool
) -> None:
    if asked:  # model, score, label, client, the gaps, trust model, tasks
        type_in(monkeypatch, "", "p", "", "", "yes", "", "evaluate")
        code, said, error = call(capsys, "init", path)
        assert "2 of 240 rows without a value ('p': 2). Leave these rows out" in plain(said)
    else:
        code, said, error = call(capsys, "init", path, "--yes", "--missing", "report", "--task", "evaluate")
    assert (code, error) == (0, "")
    assert 'missing = "report"' in (path.parent / "study.toml").read_text()
    assert call(capsys, "run", "study.toml", "--quiet")[0] == 0
    found = json.loads((path.parent / "gaps" / "result.json").read_text())
    assert (found["cohort"]["missing"], found["cohort"]["rows"]) == (2, 238)
    assert found["parameters"]["data"]["missing"] == "report"
    assert "Left out: 2 of 240 rows" in (path.parent / "gaps" / "model_card.md").read_text()
    assert check(path.parent / "gaps", key=ANY_KEY).holds


def test_who_does_not_leave_them_out_is_told_where_they_are(
    capsys: Any, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    type_in(monkeypatch, "", "", "", "", "no")
    code, _, error = call(capsys, "init", path)
    assert code == 2
    assert "a missing value (line 5 of the file)" in plain(error)


def test_check_offers_a_way_on(capsys: Any, path: Path) -> None:
    code, said, _ = call(capsys, "check", path, *TERMS)
    assert code == 2
    assert "(--missing report, in simulations)" in plain(said)
    said = output_of(capsys, "check", path, *TERMS, "--missing", "report")
    assert "rows left out" in plain(said)
    assert "got 2 of 240 rows without a value ('p': 2)" in plain(said)


def test_a_command_leaves_them_out_and_counts_them(capsys: Any, path: Path) -> None:
    error = refused(capsys, "evaluate", path, *TERMS)
    assert "(--missing report, in simulations)" in plain(error)
    said = output_of(capsys, "evaluate", path, *TERMS, "--missing", "report", "--json", "found.json")
    assert "2 left out as a value is missing" in plain(said)
    assert json.loads(Path("found.json").read_text())["cohort"]["missing"] == 2
    code, _, error = call(capsys, "evaluate", path, *TERMS, "--missing", "drop")
    assert (code, error) == (2, "Error: --missing: got 'drop'; expected refuse, report.\n")


@pytest.mark.parametrize("separator", [";", "\t", "|"])
@pytest.mark.parametrize("decimal", [".", ","])
def test_another_separator_is_named(capsys: Any, path: Path, separator: str, decimal: str) -> None:
    rows(3, 30).to_csv("other.csv", sep=separator, decimal=decimal, index=False)
    for words in (("init", "other.csv", "--yes"), ("check", "other.csv"), ("evaluate", "other.csv", *TERMS)):
        code, said, error = call(capsys, *words)
        assert code == 2
        assert "the header is not separated by commas: save the file with commas" in plain(said + error)
        assert "no rows" not in said + error
