"""`fedassay plan calibrate --classes` as a user meets it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from command_line import call, json_of, output_of, refused

DATA = ["--classes", "4", "--rows", "600", "--clients", "60"]
NOISE = ["--privacy", "server-dp", "--epsilon", "2"]


def test_a_plan_under_noise_in_words(capsys: Any, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    code, out, err = call(
        capsys,
        *("plan", "calibrate"),
        *(*DATA, *NOISE, "--delta", "1e-5", "--unit", "client", "--rows-per-client", "20"),
        *("--method", "temperature", "--solver", "fedavg"),
        *("--rounds", "2", "--participation", "0.5", "--target", "temperature=0.3", "--json", str(file)),
    )
    assert (code, err) == (0, "")
    assert max(len(line) for line in out.splitlines() if line.startswith("  ")) <= 80
    for words in (
        "600 rows at 60 clients, 4 classes, accuracy 0.8, best temperature 1.5 (assumed), 30% held out; server-dp, "
        "ε = 2, δ = 1e-05.",
        *("temperature (one-shot)", "vector (fedavg)", "bbq", "in log s", "clips", "usable"),
        *("vector (one-shot)", "auto is vector (one-shot): a temperature from one release or two"),
        "noise would drown shifts of the classes, so that they are not asked for",
        *(
            "To expect: Not recommended",
            "with and without sampling",
            "For a temperature that is right to 30%: ε ≥ ",
        ),
        "with --rows-per-client 10 it would be 2 times smaller",
    ):
        assert words in out.replace("\n", " "), words
    assert "The temperature from " in out
    plan = json.loads(file.read_text())
    tables = {name: table["rows"] for name, table in plan["tables"].items()}
    assert [line["participation"] for line in tables["sampling"]] == [1.0, 0.5]
    averaged = [one for one in tables["methods"] if "(fedavg)" in one["method"]]
    assert {(one["rounds"], one["participation"]) for one in averaged} == {(2, 0.5)}


def test_a_plan_without_noise(capsys: Any) -> None:
    plan = json_of(capsys, "plan", "calibrate", *DATA, "--accuracy", "0.7", "--temperature", "2")
    assert plan.keys() >= {
        "plan",
        "assumptions",
        "verdict",
        "metrics",
        "auto",
        "temperature_error",
        "inverse",
    }
    assumed = plan["assumptions"]
    assert (assumed["classes"], assumed["accuracy"], assumed["temperature"], assumed["holdout"]) == (
        *(4, 0.7, 2.0, 0.3),
    )
    methods = [one["method"].partition(" ")[2] for one in plan["tables"]["methods"]["rows"]]
    assert methods == ["", *["(exact)"] * 4, "(fedavg)", ""]
    out = output_of(capsys, "plan", "calibrate", *DATA, "--target", "improvement=0.5", "--holdout", "0.5")
    assert "auto is isotonic: sums are exact; but with fewer than 1,000 rows" in out.replace("\n", " ")
    assert "Changes that 300 held-out rows can show" in out
    assert "an improvement of the log loss of 0.5: secure-sum adds no noise" in out.replace("\n", " ")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--classes", "1"], "classes: got 1"),
        (["--accuracy", "0.2"], "accuracy: got 0.2"),
        (["--temperature", "50"], "temperature: got 50"),
        (["--holdout", "1"], "holdout: got 1"),
        (["--rounds", "0"], "rounds: got 0"),
        (["--participation", "2"], "participation: got 2"),
        (["--target", "roc_auc=0.1"], "target: got 'roc_auc', expected one of temperature, improvement"),
        (["--auc", "0.8"], "--auc: the plan of calibrate-classes has no use for it"),
        (["--bins", "6"], "--bins: unknown parameter of calibrate-classes"),
        (["--privacy", "server-dp"], "needs a budget"),
        (["--privacy", "two-server", "--epsilon", "1"], "two-server encodes each row by the cell"),
        (["--level", "1.5"], "level: got 1.5"),
    ],
)
def test_bad_input_has_one_sentence(capsys: Any, arguments: list[str], words: str) -> None:
    err = refused(capsys, "plan", "calibrate", *DATA, *arguments)
    assert words in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--auc", "0.8"], "calibrate: prevalence is missing"),
        (["--prevalence", "0.2"], "calibrate: auc is missing"),
        (
            ["--prevalence", "0.2", "--auc", "0.8", "--accuracy", "0.9"],
            "--accuracy: the plan of calibrate has no",
        ),
    ],
)
def test_scores_need_what_they_always_did(capsys: Any, arguments: list[str], words: str) -> None:
    err = refused(capsys, "plan", "calibrate", "--rows", "600", "--clients", "60", *arguments)
    assert words in err
