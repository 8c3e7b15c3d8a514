"""What a study will write is known to be writable before anybody is asked, or anything is charged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from command_line import call
from fedassay.documents import markup
from fedassay.documents.blocks import CurveBlock
from fedassay.study import pre_flight
from fedassay.study.file import StudyFile
from fedassay.tasks.evaluation.document import EvaluationDocument
from study_runs import LEDGER, charges, place, rows, study_text

STUDY = study_text(
    {"evaluate": {}, "conformal": {"level": 0.8}},
    {
        "privacy": {"privacy": "server-dp", "epsilon": 4.0},
        "ledger": {"place": LEDGER, "dataset": "d", "epsilon": 5.0, "delta": 0.0},
    },
)


@pytest.fixture(scope="module", autouse=True)
def rehearsals() -> None:
    """They are what is looked at."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return place(tmp_path, STUDY, rows(5, 40))


def broken(*given: Any) -> Any:
    raise KeyError("psi")


@pytest.mark.parametrize("part", ["sentences", "blocks", "key_numbers", "assumptions", "next_steps"])
def test_a_kind_whose_report_cannot_be_written_is_refused_before_anything_is_charged(
    path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    monkeypatch.setattr(EvaluationDocument, part, broken)
    code, out, error = call(capsys, "run", path)
    assert code == 2
    said = " ".join(error.split())
    assert "evaluate, conformal would leave behind cannot be written (KeyError: 'psi')" in said
    assert "nothing was asked or charged" in said
    assert "Traceback" not in out + error
    assert not charges(path.parent)
    assert not list(path.parent.rglob("certificate.json"))
    assert not list(path.parent.rglob(".pre-flight-*"))


def test_a_sound_study_is_found_writable_and_leaves_nothing(path: Path) -> None:
    file = StudyFile.read(path)
    folder = path.parent / "out"
    pre_flight.require_writable(file, file.agenda(), folder)
    assert list(folder.iterdir()) == []


def test_all_three_sets_of_rows_are_written(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[Any] = []
    monkeypatch.setattr(pre_flight, "_write", lambda file, result, folder: written.append(result))
    file = StudyFile.read(path)
    pre_flight.require_writable(file, file.agenda(), path.parent / "out")
    full, noisy, undefined = written[:3]
    assert [one.privacy["trust_model"] for one in (full, noisy, undefined)] == ["plain", *["server-dp"] * 2]
    assert full["tasks"]["evaluate"]["results"]["roc_auc"]["value"] is not None
    assert undefined["tasks"]["evaluate"]["results"]["roc_auc"]["value"] is None


def test_a_plot_that_cannot_be_drawn_becomes_its_alternative() -> None:
    def draw() -> Any:
        raise KeyError("x")

    text = markup.figure(CurveBlock(draw=draw, alternative="ROC curve, AUC 0.8"), "roc")
    assert "ROC curve, AUC 0.8. It could not be drawn (KeyError)." in text
