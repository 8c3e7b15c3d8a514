"""`fedassay plan` as a user meets it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from command_line import call, json_of, output_of, refused
from fedassay.protocol.metrics import METRICS, targets

DATA = ["--rows", "4000", "--prevalence", "0.3", "--auc", "0.8", "--clients", "8"]
NOISE = ["--privacy", "server-dp", "--epsilon", "1"]
QUICK = ["--height", "6"]


def test_an_evaluation_in_words(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    code, out, err = call(capsys, "plan", "evaluate", *DATA, *NOISE, *QUICK, "--target", "accuracy=0.02")
    assert (code, err) == (0, "")
    for words in (
        *(METRICS[name].label for name in targets()),
        *("sampling", "privacy", "binning", "Recommended: height", "levels of width 1, "),
    ):
        assert words in out
    assert "4,000 rows at 8 clients, 0.3 of them positive, AUC 0.8; server-dp, ε = 1, δ = 0." in out
    assert "For accuracy within 0.02: ε ≥ " in out
    assert " rows at 8 clients; or " in out
    assert "without constants" in out
    assert "…" not in out
    assert out.strip().splitlines()[-1].startswith("Enough data for accuracy")


def test_an_evaluation_as_json(capsys: Any, tmp_path: Path) -> None:
    arguments = ["evaluate", *DATA, *NOISE, *QUICK]
    plan = json_of(capsys, "plan", *arguments)
    assert plan.keys() >= {"plan", "assumptions", "verdict", "metrics", "used", "recommended", "inverse"}
    auc = plan["metrics"]["roc_auc"]
    assert auc["error"]["privacy"] > 0
    assert auc["width_range"][0] <= auc["width"] <= auc["width_range"][1]
    assert auc["verdict"] in ("enough data", "not enough", "not decidable")
    assert plan["used"]["height"] == 6
    assert [one["metric"] for one in plan["inverse"]] == ["roc_auc"]
    code, out, _ = call(capsys, "plan", *arguments, "--json", str(tmp_path / "plan.json"), "--quiet")
    assert (code, out) == (0, "")
    assert json.loads((tmp_path / "plan.json").read_text()) == plan


def test_a_calibration(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    out = output_of(capsys, "plan", "calibrate", *DATA, *NOISE, *QUICK, "--holdout", "0.5", "--bins", "7")
    assert "histogram (7)" in out
    assert "…" not in out
    assert "held-out Brier" in out
    assert "2,000 rows" in out
    plan = json_of(capsys, "plan", "calibrate", *DATA, *QUICK, "--target", "brier_excess=0.001")
    platt, histogram = plan["tables"]["methods"]["rows"]
    assert plan["assumptions"]["holdout"] == 0.3
    assert plan["metrics"]["brier_excess"]["target"] == 0.001
    assert (platt["method"], histogram["privacy"]) == ("platt", 0)


def test_without_clients_each_row_is_one(capsys: Any) -> None:
    arguments = [
        *("--rows", "1e4", "--prevalence", "0.3", "--auc", "0.8", "--privacy", "local-dp", "--epsilon", "3"),
    ]
    assert (
        json_of(capsys, "plan", "evaluate", *arguments, "--rows-per-client", "1", *QUICK)["assumptions"][
            "clients"
        ]
        == 10_000
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--prevalence", "30"], "prevalence: got 30"),
        (["--auc", "0.4"], "auc: got 0.4"),
        (["--rows", "0"], "rows: got 0"),
        (["--clients", "5000"], "clients: got 5,000 for 4,000 rows"),
        (["--target", "roc_auc"], "--target: got 'roc_auc', expected NAME=WIDTH"),
        (["--target", "auc=0.1"], "target: got 'auc'"),
        (["--target", "roc_auc=-1"], "target roc_auc: got -1"),
        (["--privacy", "server-dp"], "needs a budget"),
        (["--height", "40"], "height: got 40"),
        (["--json", "nowhere/plan.json"], "its folder does not exist"),
        (["--unit", "client", "--privacy", "server-dp", "--epsilon", "1"], "give --rows-per-client"),
    ],
)
def test_bad_input_has_one_sentence(capsys: Any, arguments: list[str], words: str) -> None:
    err = refused(capsys, "plan", "evaluate", *DATA, *arguments)
    assert words in err


def test_the_rows_are_required(capsys: Any) -> None:
    err = refused(capsys, "plan", "evaluate", "--prevalence", "0.1", "--auc", "0.8")
    assert "--rows" in err
