"""A command imports what it needs and not more; `benchmarks/start_up.py` has the times."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import requires
from pathlib import Path

import pytest

MOST = 60

COUNTED = """
import contextlib, io, json, sys
from fedassay.cli import run_command
with contextlib.redirect_stdout(io.StringIO()):
    code = run_command(sys.argv[1:])
print(json.dumps([code, sorted(sys.modules)]))
"""


def modules_of(*words: object) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", COUNTED, *map(str, words)], capture_output=True, text=True, check=True
    )
    code, modules = json.loads(done.stdout)
    assert code == 0, done.stderr
    return list(modules)


@pytest.mark.parametrize("words", [("--version",), ("evaluate", "--help")])
def test_help_and_version_import_few_of_our_modules(words: tuple[str, ...]) -> None:
    modules = modules_of(*words)
    assert sum(name.partition(".")[0] == "fedassay" for name in modules) <= MOST
    assert not {"scipy", "altair", "pyarrow", "sqlalchemy"} & set(modules)


def test_no_toolkit_for_databases_is_needed() -> None:
    """Platforms pin old versions of SQLAlchemy: fedassay lives in one environment with them."""
    assert not any(name.lower().startswith("sqlalchemy") for name in requires("fedassay") or ())


def test_an_evaluation_imports_no_catalogue_of_distributions(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("p,y\n" + "".join(f"0.{i},{i % 2}\n" for i in range(1, 10)) * 5)
    modules = modules_of("evaluate", path, "--score", "p", "--label", "y", "--privacy", "plain")
    assert "scipy.stats" not in modules
