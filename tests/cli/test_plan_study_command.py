"""`fedassay plan study` as a user meets it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fedassay.cli.commands import app
from fedassay.errors import UsageError

STUDY = """
name = "spring"
[data]
path = "scores.parquet"
client = "hospital"
[data.columns]
score = "p"
label = "y"
[privacy]
privacy = "server-dp"
epsilon = 1.0
[expected]
rows = 8000
clients = 10
prevalence = 0.3
auc = 0.8
[tasks.evaluate]
height = 6
[tasks.calibrate]
height = 6
method = "platt"
"""


def call(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, *arguments: str) -> tuple[str, str]:
    file = tmp_path / "study.toml"
    file.write_text(text, encoding="utf-8")
    app(["plan", "study", str(file), *arguments])
    captured = capsys.readouterr()
    return captured.out, captured.err


def test_a_study_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    out, _ = call(tmp_path, capsys, STUDY, "--target", "evaluate.accuracy=0.02")
    assert "8,000 rows at 10 clients, 0.3 of them positive, AUC 0.8, 30% held out; server-dp, ε = 1" in out
    for words in (
        *("evaluate: 8,000 rows, 0.", "calibrate: 5,600 rows, 0.", "accuracy*", "held-out Brier*"),
        *("Recommended shares: evaluate 0.", "For evaluate.accuracy within 0.02: ε ≥ ", "server-dp*"),
        *("two-server: with rows_per_client = 800 in [privacy].", "± of evaluate.accuracy"),
    ):
        assert words in out
    # Tables fit; sentences are left to the terminal.
    assert all(len(line) <= 80 for line in out.splitlines() if line.startswith("  "))
    assert out.strip().splitlines()[-1].startswith("Enough data for")


def test_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, err = call(tmp_path, capsys, STUDY, "--json", "-", "--quiet")
    plan = json.loads(out)
    assert (plan["plan"], plan["study"], err) == ("study", "spring", "")
    assert plan["assumptions"]["rows"] == 8000
    call(tmp_path, capsys, STUDY, "--json", str(tmp_path / "plan.json"), "--quiet")
    assert json.loads((tmp_path / "plan.json").read_text()) == plan


def test_options_come_before_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--rows", "900", "--clients", "3", "--prevalence", "0.5", "--auc", "0.7"]
    plan = json.loads(call(tmp_path, capsys, STUDY, *arguments, "--json", "-", "--quiet")[0])
    assumed = plan["assumptions"]
    assert [assumed[name] for name in ("rows", "clients", "prevalence", "auc")] == [900, 3, 0.5, 0.7]


def test_given_shares_are_planned_with(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = STUDY.replace("[tasks.evaluate]", "[tasks.evaluate]\nshare = 0.9").replace(
        "[tasks.calibrate]", "[tasks.calibrate]\nshare = 0.1"
    )
    plan = json.loads(call(tmp_path, capsys, given, "--json", "-", "--quiet")[0])
    assert plan["shares_given"]
    assert plan["tasks"]["evaluate"]["share"] == 0.9
    assert plan["tasks"]["evaluate"]["recommended_share"] < 0.9
    out, _ = call(tmp_path, capsys, given)
    assert "Recommended shares instead of those given: evaluate 0." in out


@pytest.mark.parametrize(
    ("left_out", "arguments", "said"),
    [
        ("auc = 0.8\n", (), "evaluate: auc is missing: what do you expect"),
        ("rows = 8000\n", (), "study: rows is missing: .* Give --rows, or put it into"),
        ("", ("--target", "evaluate.roc_auc"), "got 'evaluate.roc_auc', expected TASK.METRIC=WIDTH"),
        ("", ("--target", "conformal.excess=0.1"), "the tasks are evaluate, calibrate"),
    ],
)
def test_what_is_missing_is_one_sentence(
    left_out: str, arguments: tuple[Any, ...], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UsageError, match=said):
        call(tmp_path, capsys, STUDY.replace(left_out, ""), *arguments)


def test_too_few_clients_are_a_wrong_number(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    few = STUDY.replace("server-dp", "distributed-dp").replace("clients = 10", "clients = 2")
    with pytest.raises(UsageError, match="clients"):
        call(tmp_path, capsys, few)


# --- words that are explained -----------------------------------------------------------------------------------

WITHOUT_NOISE = STUDY.replace('privacy = "server-dp"\nepsilon = 1.0\n', "")


def test_words_of_the_tables_are_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = call(tmp_path, capsys, WITHOUT_NOISE + "[tasks.conformal]\n")
    for line in (
        "*: what the verdict depends on.",
        "target: what is usually near enough; --target TASK.METRIC=WIDTH asks for something else.",
        "brier_excess: by how much the Brier score of calibrated probabilities will exceed the best possible.",
        "spread: how much the coverage of the sets varies",
        "excess: by how much the sets cover more than the level",
        "shortfall: how far below the level",
        "rows of calibrate, conformal: 30% of all are held out to judge what is fitted; of the others, the calibration "
        "gets one half and what builds on it the other.",
    ):
        assert f"\n{line}" in out


def test_only_words_that_appear_are_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = call(tmp_path, capsys, WITHOUT_NOISE.partition("[tasks.calibrate]")[0])
    for word in ("spread: ", "excess: ", "rows of "):
        assert word not in out
    assert "Trust models that add noise are shown with ε = 1, δ = 1e-06: the study names no budget." in out


def test_rows_that_are_not_halved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = call(tmp_path, capsys, STUDY)
    assert "\nrows of calibrate: 30% of all are held out to judge what is fitted.\n" in out
    assert "\n*: what the verdict and the recommended shares depend on.\n" in out
    assert "are shown with ε" not in out


CLASSES = """
name = "species"
[data]
path = "z.npz"
[data.columns]
class = "y"
logits = "z"
[expected]
rows = 4000
clients = 10
classes = 3
accuracy = 0.8
[tasks.evaluate]
"""


def test_why_two_servers_cannot_is_said_in_plain_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, _ = call(tmp_path, capsys, CLASSES)
    assert (
        "two-server: not possible. evaluate: the two servers can only count rows that fall into places" in out
    )
    assert "class-statistics" not in out
