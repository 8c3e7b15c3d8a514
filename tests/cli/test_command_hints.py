"""What somebody meant who gave the wrong file to the right command, or the right file to the wrong one."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from certified_folders import certified
from command_line import call, output_of, refused
from fedassay.cli import demo
from fedassay.cli.demo import hospitals
from fedassay.study import folder as folder_module
from study_runs import place, rows, study_text


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (("plan", "base.toml"), "fedassay plan study base.toml"),
        (("plan", "my base.toml"), "fedassay plan study 'my base.toml'"),
        (("base.toml",), "fedassay run base.toml"),
        (("cancer.csv",), "fedassay init cancer.csv"),
    ],
)
def test_a_file_in_the_place_of_a_command(capsys: Any, arguments: tuple[str, ...], meant: str) -> None:
    error = refused(capsys, *arguments)
    assert error.endswith(f"did you mean: {meant}")


def test_other_wrong_commands_get_no_hint(capsys: Any) -> None:
    error = refused(capsys, "plan", "everything")
    assert "everything: no such command" in error
    assert "did you mean: fedassay" not in error


@pytest.mark.parametrize("name", ["cancer.csv", "my rows.PARQUET", "sites"])
@pytest.mark.parametrize("command", [("run",), ("plan", "study")])
def test_rows_in_the_place_of_a_study(
    capsys: Any, tmp_path: Path, name: str, command: tuple[str, ...]
) -> None:
    path = tmp_path / name
    if path.suffix:
        path.write_text("p,y\n0.5,1\n")
    else:
        path.mkdir()
    error = refused(capsys, *command, path)
    assert (
        f"{path}: is not a study; write one for these rows with: fedassay init {shlex.quote(str(path))}"
        in error
    )


def test_the_certificate_stands_for_its_folder(
    capsys: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = certified(tmp_path / "study")
    out = output_of(capsys, "verify", folder / "certificate.json", "--any-key")
    assert f"Everything holds in {folder}." in out
    monkeypatch.chdir(folder)
    assert call(capsys, "verify", "certificate.json", "--any-key", "--quiet")[0] == 0
    assert call(capsys, "verify", "result.json", "--quiet")[0] == 2


def test_a_result_of_a_study_names_what_can_be_applied(capsys: Any, tmp_path: Path) -> None:
    tasks = {"evaluate": "evaluate", "calibrate": "calibrate", "strict": "conformal", "loose": "conformal"}
    document = {"task": "study", "results": {"tasks": {name: {"task": kind} for name, kind in tasks.items()}}}
    (tmp_path / "result.json").write_text(json.dumps(document))
    arguments = ("apply", tmp_path / "result.json", tmp_path / "new.csv", "--out", tmp_path / "out.csv")
    error = refused(capsys, *arguments)
    assert "apply needs a calibrator or prediction sets, and there are none in its folder." in error
    for name in ("calibrator.json", "strict.json"):
        (tmp_path / name).touch()
    error = refused(capsys, *arguments)
    made = f"{tmp_path / 'calibrator.json'} or {tmp_path / 'strict.json'}"
    assert f"this is a result of a study; apply what was made of it: {made}." in error


def test_commands_to_paste_are_quoted(capsys: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_module, "page", lambda document: "<!doctype html>\n")
    text = study_text({"evaluate": {"height": 5}}, {"runtime": {"seed": 1}})
    path = place(tmp_path / "my study", text, rows(3, 20))
    out = output_of(capsys, "run", path)
    key = json.loads((path.parent / "small" / "certificate.json").read_text())["key"]["public"]
    assert f"Check them: fedassay verify '{path.parent / 'small'}' --key {key}\n" in out


def test_the_demo_quotes_too(capsys: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "hospitals", lambda seed: hospitals(clients=3, patients=30, seed=seed))
    monkeypatch.setattr(demo, "_study", lambda out, console, quiet: out / "hospitals")
    monkeypatch.setattr(demo, "_side_by_side", lambda *given, **more: {})
    monkeypatch.setattr(demo, "print_side_by_side", lambda *given: None)
    out = output_of(capsys, "demo", "--out", tmp_path / "my demo")
    assert f"(fedassay verify '{tmp_path / 'my demo' / 'hospitals'}' --any-key checks it)" in out
