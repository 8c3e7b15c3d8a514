"""Before the first message it is known that everything can be written afterwards: a study ends with its certificate.

Each test lets something fail that is written at the end, and looks at what was asked and charged until then.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import faces
import pytest
import test_kinds
from faces import STUDY, Output, command
from kind_contract import KindContract

import fedassay
from fedassay import Result
from fedassay.errors import FedassayError
from fedassay.protocol.vocabulary import Message
from fedassay.study.folder import JOURNAL
from fedassay.tasks.card import TASKS
from file_drop_town import Town
from study_runs import LEDGER, charges, journal_of

CONTRACTS: Mapping[str, type[KindContract]] = {
    contract.kind: contract for name, contract in vars(test_kinds).items() if name.startswith("Test")
}
PLACES: Mapping[str, tuple[str, ...]] = {
    "report.html": ("fedassay.study.folder.page", "fedassay.study.pre_flight.page"),
    "model_card.md": ("fedassay.study.folder.model_card",),
    "certificate.json": ("fedassay.study.folder.certify",),
}
"""Files that a study leaves behind, and the function that makes each, in each place where it is looked up."""

RENDERERS = pytest.mark.parametrize("file", PLACES)


def study_of(kind: str, folder: Path) -> Path:
    """A study of one task with noise and a ledger, beside its rows."""
    contract = CONTRACTS[kind]()
    sections = contract.sections(contract.case("noisy"))
    tasks = sections.pop(f"tasks.{kind}")
    return placed(folder, {**sections, "ledger": {"place": LEDGER}, f"tasks.{kind}": tasks}, contract.rows())


def placed(folder: Path, sections: Mapping[str, Mapping[str, Any]], rows: faces.Rows) -> Path:
    """A study file beside its rows."""
    faces.write_rows(folder / faces.ROWS, rows)
    path = folder / "study.toml"
    path.write_text(faces.study_text(sections), encoding="utf-8")
    return path


def run(path: Path, *, python: bool = False) -> Output:
    """Run a study from the command line or from Python."""
    if not python:
        return command("run", path, "--anyway", "--quiet")
    try:
        fedassay.run_study(path, folder=path.parent / STUDY)
    except FedassayError as refused:
        return Output(code=refused.exit_code, out="", err=f"Error: {refused}")
    except Exception as error:
        return Output(code=1, out="", err=f"{faces.TRACEBACK}: {error!r}")
    return Output(code=0, out="", err="")


def messages(folder: Path) -> list[Message]:
    """What the journal of the study has about messages; the journal is written before they leave."""
    if not (folder / STUDY / JOURNAL).exists():
        return []
    with journal_of(folder / STUDY) as journal:
        return journal.exchanged()


def assert_refused(output: Output, folder: Path, name: str) -> None:
    """Nothing was asked and nothing charged, and one sentence says of what something cannot be written."""
    assert not messages(folder), "clients were asked"
    assert not charges(folder), "the ledger was charged"
    assert faces.command_objection(output, name, exactly=True) == ""
    assert not (folder / STUDY / "result.json").exists()


@contextmanager
def broken(file: str, when: Callable[[Mapping[str, Any]], bool]) -> Iterator[None]:
    """The function that writes a file raises for these results of a study."""
    with pytest.MonkeyPatch.context() as patch:
        for place in PLACES[file]:
            patch.setattr(place, _unless(when, resolve_name(place)))
        yield


def _unless(when: Callable[[Mapping[str, Any]], bool], write: Callable[..., Any]) -> Callable[..., Any]:
    def writes(*values: Any, **options: Any) -> Any:
        document = next(value for value in values if isinstance(value, Result | dict))
        if when(document.to_dict() if isinstance(document, Result) else document):
            raise KeyError("no such kind")
        return write(*values, **options)

    return writes


def holds(kind: str) -> Callable[[Mapping[str, Any]], bool]:
    """Whether a result of a study has a task of this kind."""
    return lambda document: kind in {task["task"] for task in document["results"]["tasks"].values()}


# --- what the tests rest on -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("python", [False, True])
def test_a_study_that_can_be_written_asks_and_charges(tmp_path: Path, python: bool) -> None:
    path = study_of("evaluate", tmp_path)
    assert run(path, python=python).works
    assert messages(tmp_path)
    assert charges(tmp_path)
    assert (tmp_path / STUDY / "certificate.json").exists()


# --- what cannot be written -----------------------------------------------------------------------------------------


EACH = [(kind, "report.html") for kind in CONTRACTS] + [("evaluate", file) for file in PLACES]


@pytest.mark.parametrize(("kind", "file"), dict.fromkeys(EACH))
def test_a_file_that_cannot_be_written_for_a_kind_is_found_before(
    tmp_path: Path, kind: str, file: str
) -> None:
    path = study_of(kind, tmp_path)
    with broken(file, holds(kind)):
        output = run(path)
    assert_refused(output, tmp_path, kind)


@RENDERERS
def test_python_finds_it_before(tmp_path: Path, file: str) -> None:
    path = study_of("evaluate", tmp_path)
    with broken(file, holds("evaluate")):
        output = run(path, python=True)
    assert_refused(output, tmp_path, "evaluate")


@RENDERERS
def test_results_without_values_are_tried(tmp_path: Path, file: str) -> None:
    """These results will have values; but that is not known before."""

    def undefined(document: Mapping[str, Any]) -> bool:
        return any(entry.get("value", 0) is None for entry in faces.objects(document["results"]))

    path = study_of("evaluate", tmp_path)
    with broken(file, undefined):
        output = run(path)
    assert_refused(output, tmp_path, "evaluate")


def test_a_folder_in_the_place_of_a_file_is_found_before(tmp_path: Path) -> None:
    path = study_of("evaluate", tmp_path)
    (tmp_path / STUDY / "report.html").mkdir(parents=True)
    output = run(path)
    assert_refused(output, tmp_path, "report.html")


@RENDERERS
def test_nothing_is_announced_to_sites(tmp_path: Path, file: str) -> None:
    town = Town(tmp_path, names=("a", "b", "c"))
    path = tmp_path / "study.toml"
    place = {"name": "file-drop", "drop": "drop", "key": "coordinator/coordinator.key"}
    sections = {
        "privacy": {"privacy": "secure-sum"},
        "runtime": {**place, "roster": "coordinator/roster.toml"},
        "tasks.evaluate": {"height": 4},
    }
    path.write_text(faces.study_text(sections), encoding="utf-8")
    with broken(file, holds("evaluate")):
        output = run(path)
    assert list(town.drop.iterdir()) == []
    assert faces.command_objection(output, "evaluate", exactly=True) == ""


@pytest.fixture(scope="module")
def strangers(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, int | str]]:
    """Studies with a kind of task, and under a trust model, of another package; exit codes, or what was raised."""
    root = tmp_path_factory.mktemp("strangers")
    paths = []
    for name, old, new in (("kind", "tasks.evaluate", "tasks.count"), ("trust", "server-dp", "other-server")):
        (root / name).mkdir()
        paths.append(study_of("evaluate", root / name))
        text = paths[-1].read_text(encoding="utf-8")
        paths[-1].write_text(text.replace(old, new), encoding="utf-8")
    package = str(Path(__file__).with_name("strangers"))
    done = subprocess.run(
        [sys.executable, "-c", RUN, *paths],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([package, *filter(None, sys.path)])},
        check=True,
    )
    codes: dict[str, int | str] = json.loads(done.stdout.splitlines()[-1])
    return root, codes


RUN = """
import json, pathlib, sys
from fedassay.cli import run_command

codes = {}
for study in map(pathlib.Path, sys.argv[1:]):
    try:
        codes[study.parent.name] = run_command(["run", str(study), "--anyway", "--quiet"])
    except Exception as error:
        codes[study.parent.name] = repr(error)
print(json.dumps(codes))
"""
"""Run each study, in a process that finds the other package."""


@pytest.mark.parametrize("what", ["kind", "trust"])
def test_what_comes_from_another_package_is_complete_or_refused_before(
    strangers: tuple[Path, dict[str, int | str]], what: str
) -> None:
    root, codes = strangers
    complete = codes[what] == 0 and (root / what / STUDY / "certificate.json").exists()
    assert complete == (what == "trust"), codes[what]
    assert complete or (codes[what] == 2 and not charges(root / what)), codes[what]


def test_a_task_without_values_leaves_the_others_their_certificate(tmp_path: Path) -> None:
    """A task that finds nothing says why, in its place."""
    contract = test_kinds.TestInfer()
    case = contract.undefined
    sections = contract.sections(case)
    sections["data.columns"] |= {"score": "risk", "label": "y"}
    assert case.rows is not None
    path = placed(tmp_path, {**sections, "tasks.evaluate": {"height": 4}}, case.rows)
    output = run(path)
    assert messages(tmp_path)
    assert (tmp_path / STUDY / "certificate.json").exists(), output.err
    tasks = json.loads((tmp_path / STUDY / "result.json").read_text(encoding="utf-8"))["results"]["tasks"]
    assert set(tasks) == {"infer", "evaluate"}


def test_all_kinds_are_tried() -> None:
    assert set(CONTRACTS) <= set(TASKS)
    assert len(CONTRACTS) > 1
