"""Which columns `fedassay init` takes for what: settled by names and values, asked where they do not tell."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from command_line import call, output_of
from fedassay.study import StudyFile
from fedassay.study.column_roles import candidates, guess_clients, guess_model, look_at

ROWS = 200


def answers(monkeypatch: Any, *lines: str) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("sys.stdin", Terminal("\n".join(lines) + "\n"))


def digits(site: str = "hospital", truth: str = "digit", **more: Any) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(ROWS, 10))
    return {
        site: np.arange(ROWS) % 5,
        **more,
        truth: logits.argmax(1),
        **{f"logit_{k}": logits[:, k] for k in range(10)},
    }


def scores(**more: Any) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    risk = rng.random(ROWS)
    return {"risk": risk, "outcome": (rng.random(ROWS) < risk).astype(int), **more}


def started(capsys: Any, folder: Path, rows: dict[str, Any], *options: str) -> tuple[int, str, str]:
    pd.DataFrame(rows).to_csv(folder / "rows.csv", index=False)
    code, said, error = call(
        capsys, "init", folder / "rows.csv", "--yes", "--force", "--out", folder / "s.toml", *options
    )
    return code, said, error.replace("\n", " ")


def settled(folder: Path) -> tuple[dict[str, str], str | None]:
    data = StudyFile.read(folder / "s.toml").data
    assert data is not None
    return dict(data.columns), data.client


@pytest.mark.parametrize("site", ["hospital", "Site_ID", "clinics", "WARD", "bankNo"])
def test_the_site_is_not_the_class(capsys: Any, tmp_path: Path, site: str) -> None:
    code, said, _ = started(capsys, tmp_path, digits(site=site, age=np.arange(ROWS)))
    assert code == 0
    assert settled(tmp_path) == ({"logits": "logit", "class": "digit"}, site)
    assert f"Roles: logits = logit, class = digit; client: {site}." in said
    assert "Not used: age." in said


def test_the_class_has_as_many_values_as_there_are_logits(capsys: Any, tmp_path: Path) -> None:
    few, many = np.arange(ROWS) % 4, np.arange(ROWS) % 30
    code, _, _ = started(capsys, tmp_path, digits(few=few, many=many))
    assert code == 0
    assert settled(tmp_path)[0]["class"] == "digit"
    # A name that tells outweighs values that were not all seen.
    code, _, _ = started(capsys, tmp_path, digits(label=few))
    assert settled(tmp_path)[0]["class"] == "label"


def test_two_columns_that_fit_equally_are_asked_about(capsys: Any, tmp_path: Path, monkeypatch: Any) -> None:
    rows = digits(other=np.arange(ROWS) % 10)
    code, _, error = started(capsys, tmp_path, rows)
    assert code == 2
    assert "other and digit could both be the class; say --role class=digit, if that is the one." in error
    assert not (tmp_path / "s.toml").exists()
    code, _, _ = started(capsys, tmp_path, rows, "--role", "class=other")
    assert (code, settled(tmp_path)[0]["class"]) == (0, "other")
    # The model and the logits as suggested; for the class there is no default, so that Enter is no answer.
    answers(monkeypatch, "", "", "", "digit", "", "", "", "")
    said = output_of(capsys, "init", tmp_path / "rows.csv", "--force", "--out", tmp_path / "s.toml")
    assert "other and digit could both be it" in said.replace("\n", " ")
    assert settled(tmp_path) == ({"logits": "logit", "class": "digit"}, "hospital")


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (scores(p=np.linspace(0, 1, ROWS)), "risk and p could both be the score"),
        (scores(event=np.arange(ROWS) % 2), "outcome and event could both be the label"),
        (
            {"a": np.linspace(0, 1, ROWS), **{name: np.arange(ROWS) % 2 for name in "bcd"}},
            "b, c and d could all be the label",
        ),
        (
            {
                "y": np.linspace(0, 9, ROWS),
                "y_pred": np.linspace(0, 9, ROWS),
                "pred": np.linspace(0, 8, ROWS),
            },
            "y_pred and pred could both be the prediction",
        ),
        (
            scores(blood=["A", "B", "AB", "0"] * (ROWS // 4), eyes=["1x", "2x", "3x", "4x"] * (ROWS // 4)),
            "blood and eyes could both name the client; say --client blood, if that is the one, or --client -",
        ),
    ],
)
def test_no_role_is_taken_by_chance(capsys: Any, tmp_path: Path, rows: dict[str, Any], words: str) -> None:
    code, _, error = started(capsys, tmp_path, rows)
    assert code == 2
    assert words in error


def test_a_regression_beside_covariates(capsys: Any, tmp_path: Path) -> None:
    truth = np.random.default_rng(2).normal(size=ROWS)
    rows = {"age01": np.linspace(0, 1, ROWS), "sex": np.arange(ROWS) % 2, "y": truth, "y_pred": truth + 0.1}
    code, said, _ = started(capsys, tmp_path, rows)
    assert (code, settled(tmp_path)[0]) == (0, {"target": "y", "prediction": "y_pred"})
    assert "client: no column, rows are dealt at random." in said
    assert "Not used: age01, sex." in said


def test_logits_without_a_class_are_still_logits() -> None:
    rows = digits()
    look = look_at(rows | {"digit": np.asarray(rows["digit"]) + 1})  # from 1 to 10
    assert guess_model(look, {}) == "logits"
    assert candidates(look, "class", {"logits": "logit"}) == ()
    assert candidates(look, "class", {"logits": "logit"}, client="digit") == ()


def test_an_outcome_in_hospital_is_no_hospital() -> None:
    look = look_at(scores(hospital_mortality=np.arange(ROWS) % 2, treating_hospital=np.arange(ROWS) % 7))
    assert guess_clients(look, {}) == ("treating_hospital",)
    assert candidates(look, "label", {}) == ("outcome",)


# --- the dialogue -----------------------------------------------------------------------------------------------


def test_wrong_answers_are_asked_again(capsys: Any, tmp_path: Path, monkeypatch: Any) -> None:
    pd.DataFrame(scores(site=np.arange(ROWS) % 5, name=["x"] * ROWS)).to_csv(tmp_path / "a.csv", index=False)
    answers(
        monkeypatch,
        *(str(tmp_path / "b.csv"), str(tmp_path / "a.csv"), ""),
        *("rsik", "name", "risk", "risk", "outcome", "sit", ""),
        *("", "", "90", "0.8"),
    )
    code, said, _ = call(capsys, "init", "--out", tmp_path / "s.toml")
    said = said.replace("\n", " ")
    assert code == 0
    for words in (
        *("b.csv", "There is no column 'rsik'. Did you mean risk?", "name does not look like the score, "),
        *("risk is the score already", "There is no column 'sit'. Did you mean site?"),
        "Please give a number between 0 and 1, such as 0.9.",
    ):
        assert words in said
    assert settled(tmp_path) == ({"score": "risk", "label": "outcome"}, "site")
    assert "level = 0.8" in (tmp_path / "s.toml").read_text()


def test_what_is_said_of_the_first_rows(capsys: Any, tmp_path: Path) -> None:
    _, said, _ = started(capsys, tmp_path, scores())
    assert f"rows.csv: what its first {ROWS} rows look like" in said.replace("\n", " ")
    assert "different values" in said


def test_advice_is_for_the_study(capsys: Any, tmp_path: Path) -> None:
    code, said, _ = started(capsys, tmp_path, scores(risk=np.linspace(1e-6, 1e-4, ROWS)))
    assert code == 0
    assert 'use transform = "logit" in the tasks of the study' in said
    assert "--transform" not in said


def test_commands_can_be_pasted(capsys: Any, tmp_path: Path) -> None:
    folder = tmp_path / "my studies"
    folder.mkdir()
    _, said, _ = started(capsys, folder, scores())
    assert f"fedassay plan study '{folder / 's.toml'}'" in said
    assert f"fedassay run '{folder / 's.toml'}'" in said


def test_a_folder_that_may_not_be_written_to(capsys: Any, tmp_path: Path, monkeypatch: Any) -> None:
    # Root may write everywhere, so the answer of the system is made up.
    monkeypatch.setattr("fedassay.cli.init_questions.os.access", lambda path, mode: False)
    code, _, error = started(capsys, tmp_path, scores())
    assert code == 2
    assert f"you may not write to the folder {tmp_path}; give another file with --out" in error


@pytest.mark.parametrize(
    ("risk", "words"),
    [
        ([50.0] * ROWS, "got 200 bad values in 200 rows, the first in row 0"),
        ([0.5] * (ROWS - 1) + ["unknown"], "'unknown' (line 201 of the file)"),
    ],
)
def test_a_column_that_is_named_again_is_taken_and_its_rows_are_told(
    capsys: Any, tmp_path: Path, monkeypatch: Any, risk: list[Any], words: str
) -> None:
    pd.DataFrame(scores(risk=risk)).to_csv(tmp_path / "rows.csv", index=False)
    answers(monkeypatch, "probability", "risk", "risk", "outcome", "-", *["risk"] * 20)
    code, said, error = call(capsys, "init", tmp_path / "rows.csv", "--out", tmp_path / "s.toml")
    assert code == 2
    assert said.replace("\n", " ").count("risk does not look like the score") == 1
    assert "or the same again to see which rows do not fit" in said.replace("\n", " ")
    assert "column 'risk' (score)" in error
    assert words in error.replace("\n", " ")
    assert not (tmp_path / "s.toml").exists()


def test_a_column_without_any_value_is_called_that(capsys: Any, tmp_path: Path) -> None:
    _, said, _ = started(capsys, tmp_path, scores(empty=[None] * ROWS))
    assert "no value" in said
