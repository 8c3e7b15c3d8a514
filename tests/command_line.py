"""The command line as tests call it."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

import jsonschema
import pytest

from fedassay.cli import run_command

SCHEMA = json.loads((files("fedassay") / "documents" / "result.schema.json").read_text())


def call(capsys: Any, *arguments: object) -> tuple[int, str, str]:
    code = run_command([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def output_of(capsys: Any, *arguments: object) -> str:
    """What a command prints that succeeds."""
    code, out, err = call(capsys, *arguments)
    assert code == 0, err
    return out


def json_of(capsys: Any, *arguments: object) -> dict[str, Any]:
    """The JSON that a command writes, without numbers that JSON has not."""
    out = output_of(capsys, *arguments, "--json", "-", "--quiet")
    document: dict[str, Any] = json.loads(
        out, parse_constant=lambda word: pytest.fail(f"{word} in the document")
    )
    return document


def result_of(capsys: Any, *arguments: object) -> dict[str, Any]:
    """The JSON of a result, valid by its schema."""
    document = json_of(capsys, *arguments)
    jsonschema.validate(document, SCHEMA)
    return document


def refused(capsys: Any, *arguments: object, code: int = 2) -> str:
    """The one sentence of a refused command, which prints nothing else."""
    found, out, err = call(capsys, *arguments)
    assert (found, out) == (code, ""), err
    (said,) = err.strip().splitlines()
    assert said.startswith("Error: ")
    return " ".join(said.split())
