"""`fedassay plan infer` as a user meets it."""

from __future__ import annotations

from typing import Any

import pytest

from command_line import call, json_of, output_of, refused

DATA = ["--features", 4, "--rows", 2000, "--clients", 5]
NOISE = ["--privacy", "server-dp", "--epsilon", 8, "--delta", 1e-5, "--unit", "client"]
MANY = ["--features", 3, "--rows", 12_000, "--clients", 500, "--rows-per-client", 24, *NOISE]


def test_in_words(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    options = ["--model", "logistic", "--prevalence", 0.2, "--precision", 0.1]
    code, out, err = call(capsys, "plan", "infer", *DATA, *options)
    assert (code, err) == (0, "")
    assert "2,000 rows at 5 clients, 0.2 of them positive, 4 features; secure-sum." in out
    for words in ("newton", "round-plug-in", "1,680", "0.173", "sampling", "privacy", "answers"):
        assert words in out
    assert "…" not in out
    assert "Recommended: newton, unless rows stream in: then round-plug-in." in out
    assert "For intervals of ±0.1: secure-sum adds no noise" in out
    assert out.strip().splitlines()[-1] == "Not enough data for effect and precision."


def test_in_words_under_noise(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    out = output_of(capsys, "plan", "infer", *MANY, "--effect", 0.05)
    assert "Recommended: round-plug-in, which counts its noise." in out
    assert "For seeing an effect of 0.05 with 80 % power: ε ≥ " in out
    assert "exact sums and gradients of single rows carry no noise" in out
    few = ["--features", 3, "--rows", 480, "--clients", 20, "--rows-per-client", 24, *NOISE]
    out = output_of(capsys, "plan", "infer", *few)
    assert "Not enough data: epsilon: with 20 clients the noise of 12 rounds hides the coefficients" in out


def test_as_json(capsys: Any) -> None:
    plan = json_of(capsys, "plan", "infer", *DATA, "--rounds", 40)
    assert (plan["plan"], plan["recommended"]) == ("infer", "newton")
    assert plan["assumptions"]["features"] == 4
    rounds = plan["tables"]["methods"]["rows"][1]
    assert (rounds["rounds"], rounds["rows"], rounds["answers"]) == (40, 2000, 41)
    assert rounds["half_width"] > 1.96 * rounds["standard_error"]  # few rounds: the t law
    assert {name: one["target"] for name, one in plan["metrics"].items()} == {
        "effect": 0.1,
        "precision": None,
    }


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--rows", 0], "rows: got 0"),
        (["--features", 0], "features: got 0"),
        (["--effect", -1], "target effect: got -1"),
        (["--participation", 0.2], "participation: got 0.2 of 5 clients, which is 1 in a round"),
        (["--rows-per-client", 20], "leave out --rows-per-client"),
        (["--privacy", "server-dp"], "needs a budget"),
    ],
)
def test_bad_input_has_one_sentence(capsys: Any, arguments: list[object], words: str) -> None:
    err = refused(capsys, "plan", "infer", *DATA, *arguments)
    assert words in err
