"""The command line as tests call it."""

from __future__ import annotations

from typing import Any

from fedassay.cli import run_command


def call(capsys: Any, *arguments: object) -> tuple[int, str, str]:
    code = run_command([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err
