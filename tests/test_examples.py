"""The programs of examples/ do what they say, in little time; the notebook shows what its cells give."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pages import DOCS

sys.path.insert(0, str(DOCS))

from notebook import code_cells, executed

EXAMPLES = DOCS.parent / "examples"
NOTEBOOK = EXAMPLES / "walkthrough.ipynb"


def run_example(name: str, *arguments: object, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / name), *map(str, arguments)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_model_is_validated(tmp_path: Path) -> None:
    said = run_example("validate_a_model.py", "here", folder=tmp_path)
    document = json.loads((tmp_path / "here" / "tumours" / "result.json").read_text())
    auc = document["results"]["tasks"]["evaluate"]["results"]["roc_auc"]["value"]
    assert document["results"]["verdict"]["text"] in said
    assert f"AUC {auc:.3f}" in said
    assert "prediction set: malignant" in said
    assert (tmp_path / "here" / "tumours" / "certificate.json").exists()


def test_a_platform_carries_the_messages(tmp_path: Path) -> None:
    said = run_example("embed_in_a_platform.py", "here", folder=tmp_path)
    assert said.count("leg ") == 2
    assert said.count("epsilon 1 of 1 is spent") == 4
    # The AUC of these rows is 0.806; its noise has a standard deviation below 0.01.
    assert 0.75 < float(re.search(r"AUC ([\d.]+)", said)[1]) < 0.86  # type: ignore[index]


def test_phones_are_planned_for_and_asked(tmp_path: Path) -> None:
    said = run_example("a_million_phones.py", 20_000, folder=tmp_path)
    width = float(re.search(r"shuffle +AUC within ([\d.]+)", said)[1])  # type: ignore[index]
    value, low, high = map(float, re.search(r"shuffle +AUC ([\d.]+) \(([\d.]+) to ([\d.]+)\)", said).groups())  # type: ignore[union-attr]
    exact = float(re.search(r"secure-sum AUC ([\d.]+)", said)[1])  # type: ignore[index]
    assert low <= value <= high
    assert abs(value - exact) < 2 * width
    assert 1 / 1.5 < (high - low) / 2 / width < 1.5  # what planners promise


def test_every_example_is_on_the_page() -> None:
    page = (DOCS / "examples.md").read_text(encoding="utf-8")
    files = {path.name for path in EXAMPLES.iterdir() if path.suffix in (".py", ".ipynb")}
    assert files == set(re.findall(r"\(\.\./examples/([\w.]+)\)", page))


# --- the notebook -----------------------------------------------------------------------------------------------------


def texts(outputs: list[dict[str, Any]]) -> list[str]:
    """What can be compared: plots and tables are shown in words, too."""
    found = [output.get("text") or output["data"]["text/plain"] for output in outputs]
    return ["".join(one) for one in found]


@pytest.fixture(scope="module")
def notebook() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    return found


def test_the_notebook_is_one(notebook: dict[str, Any]) -> None:
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert {"kernelspec", "language_info"} <= notebook["metadata"].keys()
    names = [cell["id"] for cell in notebook["cells"]]
    assert len(set(names)) == len(names)
    for cell in notebook["cells"]:
        code = {"execution_count", "outputs"} if cell["cell_type"] == "code" else set()
        assert cell.keys() == {"cell_type", "id", "metadata", "source"} | code
    for number, cell in enumerate(code_cells(notebook), start=1):
        assert cell["execution_count"] == number
        source = "".join(cell["source"])
        if not source.startswith("!fedassay "):
            ast.parse(source)


def test_the_notebook_is_small_shows_plots_and_names_no_machine(notebook: dict[str, Any]) -> None:
    text = NOTEBOOK.read_text(encoding="utf-8")
    assert len(text) < 150_000
    assert not re.search(r"/(tmp|home|root|work|Users)/", text)
    shown = [output.get("data", {}) for cell in code_cells(notebook) for output in cell["outputs"]]
    assert sum("image/svg+xml" in one for one in shown) >= 4
    assert not re.search(r'(href|src)="http', text)


def test_a_cell_shows_what_it_prints_and_its_last_value() -> None:
    cells = [{"cell_type": "code", "source": one} for one in (["x = 2\n", "print(x)\n", "x + 1"], ["x = 3"])]
    first, second = executed({"cells": [{"cell_type": "markdown", "source": []}, *cells]})
    assert texts(first) == ["2\n", "3"]
    assert second == []


def test_a_command_that_fails_ends_the_notebook(capsys: Any) -> None:
    with pytest.raises(RuntimeError, match="ended with 2"):
        list(executed({"cells": [{"cell_type": "code", "source": ["!fedassay run nothing.toml"]}]}))


@pytest.mark.full
def test_the_notebook_shows_what_its_cells_give(
    notebook: dict[str, Any], tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    for cell, outputs in zip(code_cells(notebook), executed(notebook), strict=True):
        assert texts(outputs) == texts(cell["outputs"]), (
            "run `python docs/notebook.py examples/walkthrough.ipynb`"
        )
