"""`fedassay plan study` as a user meets it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from command_line import json_of, output_of, refused

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


class Plan:
    """`fedassay plan study` of a file with this text."""

    def __init__(self, folder: Path, capsys: Any) -> None:
        self.file, self.capsys = folder / "study.toml", capsys

    def words(self, text: str, *arguments: object) -> tuple[object, ...]:
        self.file.write_text(text, encoding="utf-8")
        return self.capsys, "plan", "study", self.file, *arguments

    def said(self, text: str, *arguments: object) -> str:
        return output_of(*self.words(text, *arguments))

    def json(self, text: str, *arguments: object) -> dict[str, Any]:
        return json_of(*self.words(text, *arguments))

    def refused(self, text: str, *arguments: object) -> str:
        return refused(*self.words(text, *arguments))


@pytest.fixture
def plan(tmp_path: Path, capsys: Any) -> Plan:
    return Plan(tmp_path, capsys)


def test_a_study_in_words(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    out = plan.said(STUDY, "--target", "evaluate.accuracy=0.02")
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


def test_as_json(plan: Plan, tmp_path: Path) -> None:
    found = plan.json(STUDY)
    assert (found["plan"], found["study"]) == ("study", "spring")
    assert found["assumptions"]["rows"] == 8000
    plan.said(STUDY, "--json", tmp_path / "plan.json", "--quiet")
    assert json.loads((tmp_path / "plan.json").read_text()) == found


def test_options_come_before_the_file(plan: Plan) -> None:
    arguments = ["--rows", "900", "--clients", "3", "--prevalence", "0.5", "--auc", "0.7"]
    assumed = plan.json(STUDY, *arguments)["assumptions"]
    assert [assumed[name] for name in ("rows", "clients", "prevalence", "auc")] == [900, 3, 0.5, 0.7]


def test_given_shares_are_planned_with(plan: Plan) -> None:
    given = STUDY.replace("[tasks.evaluate]", "[tasks.evaluate]\nshare = 0.9").replace(
        "[tasks.calibrate]", "[tasks.calibrate]\nshare = 0.1"
    )
    found = plan.json(given)
    assert found["shares_given"]
    assert found["tasks"]["evaluate"]["share"] == 0.9
    assert found["tasks"]["evaluate"]["recommended_share"] < 0.9
    out = plan.said(given)
    assert "Recommended shares instead of those given: evaluate 0." in out


@pytest.mark.parametrize(
    ("left_out", "arguments", "said"),
    [
        ("auc = 0.8\n", (), "evaluate: auc is missing: what do you expect"),
        ("rows = 8000\n", (), "Give --rows, or put it into"),
        ("", ("--target", "evaluate.roc_auc"), "got 'evaluate.roc_auc', expected TASK.METRIC=WIDTH"),
        ("", ("--target", "conformal.excess=0.1"), "the tasks are evaluate, calibrate"),
    ],
)
def test_what_is_missing_is_one_sentence(
    plan: Plan, left_out: str, arguments: tuple[Any, ...], said: str
) -> None:
    assert said in plan.refused(STUDY.replace(left_out, ""), *arguments)


def test_too_few_clients_end_as_the_run_would(plan: Plan) -> None:
    few = STUDY.replace("server-dp", "distributed-dp").replace("clients = 10", "clients = 2")
    assert "clients" in refused(*plan.words(few), code=4)


# --- words that are explained -----------------------------------------------------------------------------------

WITHOUT_NOISE = STUDY.replace('privacy = "server-dp"\nepsilon = 1.0\n', "")


def test_words_of_the_tables_are_explained(plan: Plan) -> None:
    out = plan.said(WITHOUT_NOISE + "[tasks.conformal]\n")
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


def test_only_words_that_appear_are_explained(plan: Plan) -> None:
    out = plan.said(WITHOUT_NOISE.partition("[tasks.calibrate]")[0])
    for word in ("spread: ", "excess: ", "rows of "):
        assert word not in out
    assert "Trust models that add noise are shown with ε = 1, δ = 1e-06: the study names no budget." in out


def test_rows_that_are_not_halved(plan: Plan) -> None:
    out = plan.said(STUDY)
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


def test_why_two_servers_cannot_is_said_in_plain_words(plan: Plan) -> None:
    out = plan.said(CLASSES)
    assert (
        "two-server: not possible. evaluate: the two servers can only count rows that fall into places" in out
    )
    assert "class-statistics" not in out
