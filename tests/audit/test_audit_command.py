"""`fedassay audit`: a table, JSON, exit codes, and what is refused."""

from __future__ import annotations

import importlib
import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from command_line import call, output_of, refused
from fedassay.audit.catalogue import cases
from fedassay.audit.findings import coverage_cases
from fedassay.protocol.vocabulary import Budget

command = importlib.import_module("fedassay.cli.audit")
"""The module: the package has the function under the same name."""

QUICK = ("audit", "--case", "server-dp/laplace", "--case", "coverage/infer", "--samples", 100, "--runs", 3)


def test_a_table_and_json(capsys: Any, tmp_path: Path) -> None:
    path = tmp_path / "audit.json"
    out = output_of(capsys, *QUICK, "--seed", 1, "--json", path)
    assert "Privacy, 2 x 100 runs for each claim" in out
    assert "Coverage, 3 runs for each promise" in out
    assert "No violation found in 2 attacks; all bounds hold together with confidence 0.95." in out
    content = json.loads(path.read_text())
    (claim,), (promise,) = content["privacy"], content["coverage"]
    assert claim["case"] == "server-dp/laplace"
    assert claim["claimed"] == {"epsilon": 3.0, "delta": 0.0}
    assert 0 < claim["audited"]["epsilon"] <= 3
    assert claim["audited"]["confidence"] == promise["confidence"] == pytest.approx(0.975)
    assert promise["runs"] == 3
    assert content["violated"] == []


def test_a_seed_repeats_an_audit(capsys: Any) -> None:
    found = []
    for _ in range(2):
        _, out, _ = call(
            capsys, "audit", "--case", "local-dp/laplace", "--samples", 100, "--seed", 4, "--json", "-", "-q"
        )
        content = json.loads(out)
        del content["privacy"][0]["seconds"]
        found.append(content)
    assert found[0] == found[1]


def test_a_violation_has_an_exit_code_of_its_own(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The shipped mechanism, and a claim of a tenth of the epsilon that it keeps."""
    honest = cases()["server-dp/laplace"]

    class Boasting(type(honest)):  # type: ignore[misc]
        @property
        def setting(self) -> Any:
            return honest.setting

    named = {field.name: getattr(honest, field.name) for field in fields(honest)}
    boast = Boasting(**{**named, "budget": Budget(epsilon=0.3)})
    monkeypatch.setattr(command, "cases", lambda: {"server-dp/laplace": boast})
    code, out, _ = call(capsys, "audit", "--case", "server-dp/laplace", "--samples", 300, "--seed", 1)
    assert code == command.FOUND == 5
    assert "Violated: server-dp/laplace" in out


def test_the_list_says_what_there_is(capsys: Any) -> None:
    out = output_of(capsys, "audit", "--list")
    words = "".join(out.split())
    assert all(name[:12] in words for name in (*cases(), *coverage_cases()))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--case", "magic"), "case: got 'magic', expected the name of a case; see fedassay audit --list."),
        (("--samples", 99), "samples: got 99, expected at least 100 of each world."),
        (("--runs", 0), "runs: got 0, expected at least 1."),
        (("--confidence", 1), "confidence: got 1, expected a number from 0.5 to below 1."),
        (("--json", "nowhere/a.json"), "nowhere"),
        (("--seed", -1), "seed: got -1"),
    ],
)
def test_what_is_refused(capsys: Any, options: tuple[object, ...], sentence: str) -> None:
    err = refused(capsys, "audit", *options)
    assert sentence in err
