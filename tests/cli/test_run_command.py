"""`fedassay run`: what it leaves, and what goes wrong in one sentence with the right exit code."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from command_line import call, refused
from fedassay.artefacts.verified import ANY_KEY, check
from fedassay.crypto.identity import Identity, key_to_text
from fedassay.crypto.keys import Secret
from fedassay.study import folder as folder_module
from study_runs import place, rows, study_text

STUDY = study_text({"evaluate": {"height": 5}}, {"runtime": {"seed": 1}}, name="spring")
OWNER = Identity.of(Secret(b"\1" * 32))


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A study whose report is one line: reports have tests of their own."""
    monkeypatch.setattr(folder_module, "page", lambda document: "<!doctype html>\n")
    return place(tmp_path, STUDY, rows(3, 20))


def test_all_files_lie_beside_the_study_in_a_folder_of_its_name(capsys: Any, path: Path) -> None:
    code, out, error = call(capsys, "run", path)
    folder = path.parent / "spring"
    assert code == 0, error
    written = {"result.json", "report.html", "model_card.md", "certificate.json", "study.toml"}
    assert {one.name for one in folder.iterdir()} == written | {"journal", "journal.lock"}
    assert (folder / "study.toml").read_text() == STUDY
    said = " ".join(out.split())
    assert f"Report: {folder / 'report.html'}" in said
    verified = check(folder, key=ANY_KEY)
    assert verified.holds
    assert verified.public is not None
    assert f"fedassay verify {folder} --key {key_to_text(verified.public)}" in said


def test_json_goes_to_standard_output_alone(capsys: Any, path: Path) -> None:
    code, out, _ = call(capsys, "run", path, "--json", "-")
    document = json.loads(out)
    assert code == 0
    assert document["task"] == "study"
    assert document == json.loads((path.parent / "spring" / "result.json").read_text())


def test_a_key_of_ones_own_signs(capsys: Any, path: Path, tmp_path: Path) -> None:
    OWNER.save(tmp_path / "me.key")
    out = tmp_path / "out"
    assert call(capsys, "run", path, "--key", tmp_path / "me.key", "--out", out, "-q")[0] == 0
    verified = check(out, key=OWNER.public)
    assert verified.holds
    certificate = json.loads((out / "certificate.json").read_text())
    assert certificate["key"]["made_for_this_study"] is False


def test_the_seed_repeats_a_study(capsys: Any, path: Path, tmp_path: Path) -> None:
    noisy = study_text(
        {"evaluate": {"height": 5}},
        {"privacy": {"privacy": "distributed-dp", "epsilon": 3.0}, "runtime": {"seed": 1}},
    )
    path.write_text(noisy)
    for name in ("one", "two"):
        assert call(capsys, "run", path, "--out", tmp_path / name, "-q")[0] == 0
    one, two = (json.loads((tmp_path / name / "result.json").read_text()) for name in ("one", "two"))
    assert one["results"] == two["results"]


# --- what is wrong ------------------------------------------------------------------------------------------


def test_a_file_that_is_not_there(capsys: Any, tmp_path: Path) -> None:
    text = refused(capsys, "run", tmp_path / "none.toml")
    said = "cannot be read (No such file or directory); `fedassay init` writes a first study."
    assert text == f"Error: {tmp_path / 'none.toml'}: {said}"


def test_rows_that_are_not_there(capsys: Any, path: Path) -> None:
    (path.parent / "rows.csv").unlink()
    assert "rows.csv" in refused(capsys, "run", path)
    assert not (path.parent / "spring" / "result.json").exists()


@pytest.mark.parametrize("wanted", ["rows.csv", "rows.csv/below"])
def test_a_folder_that_cannot_be_made(capsys: Any, path: Path, wanted: str) -> None:
    text = refused(capsys, "run", path, "--out", path.parent / wanted)
    assert "cannot be created" in text
    assert "give another folder" in text


def test_a_folder_that_cannot_be_written(capsys: Any, path: Path, tmp_path: Path) -> None:
    (tmp_path / "out" / "journal.lock").mkdir(
        parents=True
    )  # as good as no permission, for whoever is root too
    text = refused(capsys, "run", path, "--out", tmp_path / "out")
    assert "journal.lock: cannot be written (Is a directory)" in text


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("[tasks.evaluate]", "[tasks.evaluate", "line 10, column 16: is not TOML"),
        ("[tasks.evaluate]", "[tasks.evaluat]", "line 10: [tasks.evaluat] is no task"),
        ("height = 5", "hight = 5", "line 11: [tasks.evaluate] has no 'hight'"),
        ("height = 5", "height = -5", "line 11: [tasks.evaluate] height: got -5"),
        ("seed = 1", "seed = -1", "line 9: [runtime] seed: got -1"),
        ('name = "spring"', 'name = "spring/../.."', "line 1: name: got 'spring/../..'"),
    ],
)
def test_a_mistake_in_the_file_is_named_by_its_line(
    capsys: Any, path: Path, old: str, new: str, words: str
) -> None:
    assert STUDY.count(old) == 1
    path.write_text(STUDY.replace(old, new))
    assert words in refused(capsys, "run", path)
    assert sorted(one.name for one in path.parent.iterdir()) == ["rows.csv", "study.toml"]


def test_a_key_that_is_none(capsys: Any, path: Path, tmp_path: Path) -> None:
    (tmp_path / "no.key").write_text("not a key\n")
    text = refused(capsys, "run", path, "--key", tmp_path / "no.key")
    assert (
        text
        == f"Error: {tmp_path / 'no.key'}: is not a private key of fedassay; make one with `fedassay keys`."
    )
    assert "cannot be read" in refused(capsys, "run", path, "--key", tmp_path / "none.key")
    assert not (path.parent / "spring").exists()


def test_mlflow_without_the_extra(capsys: Any, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The study is complete all the same."""
    monkeypatch.setitem(sys.modules, "mlflow", None)
    text = refused(capsys, "run", path, "--mlflow", "sqlite:///none.db", "-q")
    assert text == "Error: MLflow is not installed; install it with `pip install 'fedassay[mlflow]'`."
    assert check(path.parent / "spring", key=ANY_KEY).holds


def test_options_that_would_do_nothing_are_refused(capsys: Any, path: Path) -> None:
    text = refused(capsys, "run", path, "--close")
    assert (
        text == "Error: --close: it is for studies on file-drop, this one runs on in-process; leave it out."
    )
    path.write_text(
        'name = "spring"\n[runtime]\nname = "file-drop"\ndrop = "drop"\nkey = "k"\nroster = "r"\n[tasks.evaluate]\n'
    )
    text = refused(capsys, "run", path, "--fresh")
    assert "--fresh: what sites have answered cannot be forgotten" in text


def test_what_a_study_refuses_ends_with_its_code(capsys: Any, path: Path) -> None:
    ledger = {"place": "ledger.sqlite", "epsilon": 1.0}
    path.write_text(
        study_text({"evaluate": {}}, {"privacy": {"privacy": "server-dp", "epsilon": 2.0}, "ledger": ledger})
    )
    text = refused(capsys, "run", path, code=3)
    assert "line 10: the study cannot be afforded, and no site was asked" in text
    assert "Cheapest change: epsilon = 1 instead of 2 in [privacy]" in text
