"""`fedassay init`: a first study that can be read, from files of every kind, with and without questions."""

from __future__ import annotations

import io
import sqlite3
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pandas as pd
import pytest

from command_line import call, output_of, refused
from fedassay.cli.demo import hospitals
from fedassay.study import StudyFile
from fedassay.study.schema import schema
from fedassay.trust import TRUST_MODELS


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "own.csv"
    pd.DataFrame(hospitals(clients=6, patients=600)).to_csv(path, index=False)
    return path


def answers(monkeypatch: Any, *lines: str) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("sys.stdin", Terminal("\n".join(lines) + "\n"))


def written(path: Path) -> StudyFile:
    jsonschema.validate(tomllib.loads(path.read_text()), schema())
    return StudyFile.read(path)


def test_defaults_for_scores(capsys: Any, own: Path, tmp_path: Path) -> None:
    out = tmp_path / "studies" / "study.toml"
    out.parent.mkdir()
    said = output_of(capsys, "init", own, "--out", out, "--yes")
    assert f"fedassay plan study {out}" in said
    assert f"fedassay run {out}" in said
    study = written(out)
    assert study.name == "own"
    assert study.source is not None
    assert Path(str(study.source)).resolve() == own
    assert study.data is not None
    assert study.data.path == "../own.csv"
    assert (study.data.owner, dict(study.data.columns)) == ("hospital", {"score": "risk", "label": "outcome"})
    assert (study.trust.name, study.budget) == ("secure-sum", None)
    assert study.names == ("evaluate", "calibrate", "conformal")
    assert study.expected is not None
    assert (study.expected["rows"], study.expected["clients"]) == (600, 6)


def test_questions_and_answers(capsys: Any, monkeypatch: Any, own: Path, tmp_path: Path) -> None:
    out = tmp_path / "study.toml"
    # the model, score, label and client as suggested; then others than the defaults, one of them nonsense
    answers(
        *(monkeypatch, "", "", "", "", "server-dp", "much", "0.5", "evaluate, sing", "evaluate, conformal"),
        "0.8",
    )
    said = output_of(capsys, "init", own, "--out", out)
    for name in TRUST_MODELS:
        assert name in said
    assert "Please give a number" in said
    assert "Please name some of evaluate" in said
    study = written(out)
    assert study.trust.name == "server-dp"
    assert study.budget is not None
    assert study.budget.epsilon == 0.5
    assert study.names == ("evaluate", "conformal")
    assert study.tasks[1].parameters["level"] == 0.8


def test_nothing_is_overwritten_unasked(capsys: Any, monkeypatch: Any, own: Path, tmp_path: Path) -> None:
    out = tmp_path / "study.toml"
    out.write_text("mine")
    code, _, error = call(capsys, "init", own, "--out", out, "--yes")
    assert (code, out.read_text()) == (2, "mine")
    assert "exists already; give --force" in error
    answers(monkeypatch, "no")
    code, _, _ = call(capsys, "init", own, "--out", out)
    assert (code, out.read_text()) == (2, "mine")
    answers(monkeypatch, "yes", "probability")  # and then the end of all input
    code, _, _ = call(capsys, "init", own, "--out", out)
    assert (code, out.read_text()) == (130, "mine")
    output_of(capsys, "init", own, "--out", out, "--yes", "--force", "--quiet")
    written(out)


def test_nobody_to_ask(capsys: Any, monkeypatch: Any, own: Path, tmp_path: Path) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    error = refused(capsys, "init", own, "--out", tmp_path / "study.toml")
    assert "this is not a terminal; use --yes" in error
    error = refused(capsys, "init", "--yes", "--out", tmp_path / "study.toml")
    assert "DATA: missing" in error
    assert not (tmp_path / "study.toml").exists()


@pytest.mark.parametrize(
    ("content", "options", "words"),
    [
        (None, (), "does not exist"),
        ("", (), "got an empty file"),
        ("p,y\n", (), "got no rows"),
        ("p,y\n1.5,1\n2,0\n", (), "none of its columns looks like the score"),
        ("p,y\n0.5,1\n0.2,0\n0.1,2\n", (), "none of its columns looks like the label"),
        (
            "p,y\n0.5,1\n0.2,2\n",
            ("--role", "score=p", "--role", "label=y"),
            "column 'y' (label): got 1 bad value",
        ),
        ("p,y\n0.5,1\n0.2,0\n", ("--role", "score=q"), "'q'"),
        ("p,y\n0.5,1\n0.2,0\n", ("--role", "rank=p"), "--role: got 'rank=p', expected ROLE=COLUMN"),
        ("p,y\n0.5,1\n0.2,0\n", ("--role", "scale=p"), "columns: scale alone is not enough"),
        ("p,y\n0.5,1\n0.2,0\n", ("--client", "site"), "'site'"),
        ("p,y\n0.5,1\n0.2,0\n", ("--privacy", "magic"), "'magic' is not a trust model"),
        ("p,y\n0.5,1\n0.2,0\n", ("--privacy", "plain", "--epsilon", "1"), "plain adds no noise"),
        ("p,y\n0.5,1\n0.2,0\n", ("--task", "ecdf"), "--task: got 'ecdf'"),
        ("p,y\n0.5,1\n0.2,0\n", ("--level", "2"), "level: got 2"),
        ("p,y\n0.5,1\n0.2,0\n", ("--name", "a b"), "name: got 'a b'"),
    ],
)
def test_what_is_wrong_is_one_sentence_and_nothing_is_written(
    capsys: Any, tmp_path: Path, content: str | None, options: tuple[str, ...], words: str
) -> None:
    path = tmp_path / "a.csv"
    if content is not None:
        path.write_text(content)
    out = tmp_path / "study.toml"
    error = refused(capsys, "init", path, "--yes", "--quiet", "--out", out, *options)
    assert words in error
    assert not out.exists()


@pytest.mark.parametrize("trust", sorted(TRUST_MODELS))
def test_every_trust_model_gets_a_study_that_it_answers(
    capsys: Any, own: Path, tmp_path: Path, trust: str
) -> None:
    out = tmp_path / "study.toml"
    code, _, error = call(capsys, "init", own, "--yes", "--out", out, "--privacy", trust, "--quiet")
    assert (code, error) == (0, "")
    study = written(out)
    assert study.trust.name == trust
    assert (study.budget is not None) == study.trust.private
    assert study.agenda().rehearse(study.setting(6))


def test_tasks_that_a_trust_model_does_not_answer_are_left_out(capsys: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(60, 3))
    rows = {"site": np.arange(60) % 6, "class": logits.argmax(1)} | {
        f"logit_{k}": logits[:, k] for k in range(3)
    }
    pd.DataFrame(rows).to_csv(tmp_path / "a.csv", index=False)
    out = tmp_path / "study.toml"
    options = (
        *("init", tmp_path / "a.csv", "--yes", "--out", out, "--client", "site", "--privacy", "two-server"),
    )
    said = output_of(capsys, *options)
    study = written(out)
    left = {"evaluate", "calibrate", "conformal"} - set(study.names)
    assert left
    assert study.names
    for task in left:
        assert f"Left out: {task}. " in said
    error = refused(capsys, *options, "--quiet", "--force", "--task", sorted(left)[0])
    assert "two-server" in error


def test_logits_regression_and_values(capsys: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(120, 3))
    truth = rng.normal(50, 10, 120)
    np.savez(tmp_path / "z.npz", z=logits, y=logits.argmax(1), site=np.arange(120) % 4)
    pd.DataFrame(
        {"station": np.arange(120) % 4, "observed": truth, "forecast": truth + rng.normal(size=120)}
    ).to_parquet(tmp_path / "r.parquet")
    out = tmp_path / "study.toml"

    def study(name: str, *options: str) -> StudyFile:
        code, _, error = call(
            capsys, "init", tmp_path / name, "--yes", "--force", "--out", out, *options, "--quiet"
        )
        assert (code, error) == (0, "")
        return written(out)

    several = study("z.npz")
    assert [task.kind for task in several.tasks] == ["evaluate-classes", "calibrate-classes", "conformal"]
    assert several.data is not None
    assert dict(several.data.columns) == {"logits": "z", "class": "y"}
    number = study("r.parquet")
    assert number.names == ("conformal",)
    low, high = number.tasks[0].parameters["score_range"]
    assert low == 0
    assert high > np.abs(np.asarray(truth)).std() / 20
    assert number.data is not None
    assert number.data.owner == "station"
    values = study("r.parquet", "--role", "value=observed", "--client", "-")
    assert values.names == ("ecdf",)
    assert (
        values.tasks[0].parameters["lower"] < truth.min() < truth.max() < values.tasks[0].parameters["upper"]
    )
    assert values.data is not None
    assert values.data.partition == "iid"


def test_a_folder_and_a_database(capsys: Any, own: Path, tmp_path: Path) -> None:
    folder = tmp_path / "sites"
    folder.mkdir()
    rows = pd.read_csv(own)
    for name, part in rows.groupby("hospital"):
        part.drop(columns="hospital").to_csv(folder / f"{name}.csv", index=False)
    out = tmp_path / "study.toml"
    output_of(capsys, "init", folder, "--yes", "--out", out)
    study = written(out)
    assert study.data is not None
    assert (study.data.client, study.data.partition) == (None, None)
    with sqlite3.connect(tmp_path / "rows.db") as database:
        rows.to_sql("rows", database, index=False)
    database.close()
    url, query = f"sqlite:///{tmp_path / 'rows.db'}", 'select * from "rows"'
    output_of(capsys, "init", url, "--query", query, "--yes", "--force", "--out", out)
    study = written(out)
    assert study.data is not None
    assert (study.data.path, study.data.query, study.data.client) == (url, query, "hospital")


def test_the_schema_beside_it(capsys: Any, own: Path, tmp_path: Path) -> None:
    out = tmp_path / "study.toml"
    output_of(capsys, "init", own, "--yes", "--out", out, "--schema")
    assert out.read_text().startswith("#:schema ./study.schema.json\n")
    assert (tmp_path / "study.schema.json").exists()


def test_names_with_quotes_survive(capsys: Any, tmp_path: Path) -> None:
    path = tmp_path / 'odd "name" é.csv'
    pd.DataFrame({'p "1"': [0.25, 0.5, 0.75], "y\\": [0, 1, 1]}).to_csv(path, index=False)
    out = tmp_path / "study.toml"
    output_of(capsys, "init", path, "--yes", "--out", out)
    study = written(out)
    assert study.source == path
    assert study.data is not None
    assert dict(study.data.columns) == {"score": 'p "1"', "label": "y\\"}
