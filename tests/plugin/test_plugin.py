"""The example of a kind of task from another package works everywhere, without an edit of fedassay."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedassay

HERE = Path(__file__).parent
PLUGIN = HERE.parents[1] / "examples" / "plugin"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which the plug-in is installed; nothing else is."""
    target, source = tmp_path_factory.mktemp("installed"), tmp_path_factory.mktemp("source") / "plugin"
    copy = ["cp", "-r", str(PLUGIN), str(source)]  # builds leave files beside the source
    subprocess.run(copy, check=True)
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation"]
    quiet = ["--disable-pip-version-check", "--target", str(target), str(source)]
    subprocess.run([*pip, *quiet], check=True, capture_output=True, timeout=100)
    return target


@pytest.fixture(scope="module")
def session(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    package = Path(fedassay.__file__).parents[1]
    path = os.pathsep.join(map(str, (installed, package, HERE.parent)))
    done = subprocess.run(
        [sys.executable, str(HERE / "session.py"), str(tmp_path_factory.mktemp("session"))],
        env={**os.environ, "PYTHONPATH": path, "COLUMNS": "100"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def truth() -> float:
    """The index of the whole population over eight bins of equal width, by its law."""
    from scipy.special import ndtr

    edges = np.linspace(0, 1, 9)
    with np.errstate(divide="ignore"):
        logits = np.log(edges / (1 - edges))
    current, base = np.diff(ndtr(logits - 0.6)), np.diff(ndtr(logits))
    return float(np.sum((current - base) * np.log(current / base)))


def test_all_trust_models_answer_it(session: dict[str, Any]) -> None:
    for name, index in session["models"].items():
        assert index["value"] is None or index["interval"][0] <= index["value"] <= index["interval"][1], name
    exact = session["models"]["plain"]
    assert session["models"]["secure-sum"] == exact
    low, high = exact["interval"]
    assert low < truth() < high
    known = [name for name, index in session["models"].items() if index["value"] is not None]
    assert set(known) >= {"plain", "secure-sum", "distributed-dp", "server-dp"}


def test_noise_is_no_drift(session: dict[str, Any]) -> None:
    """Over 60 releases of periods that are alike; the plain formula, of the same bins, is not near zero."""
    known = [entry for entry in session["alike"] if entry[0] is not None]
    assert len(known) >= 50
    values = np.array([value for value, _, _ in known])
    plain = [
        sum((one["current"] - one["base"]) * np.log(one["current"] / one["base"]) for one in bins)
        for _, _, bins in known
    ]

    def is_unbiased(values: np.ndarray) -> bool:
        return bool(abs(values.mean()) < 3.3 * values.std() / np.sqrt(len(values)))

    assert is_unbiased(values)
    assert not is_unbiased(np.array(plain))
    covered = sum(low <= 0 <= high for _, (low, high), _ in known)
    assert covered >= len(known) - 9  # of 95 % intervals: fewer with probability 1e-3


def test_it_has_a_command_and_a_plan_of_its_own(session: dict[str, Any]) -> None:
    code, out, err = session["command"]
    assert (code, err) == (0, "")
    assert json.loads(out)["results"]["stability_index"]["value"] is not None
    code, _, err = session["wrong"]
    assert (code, err) == (2, "Error: --height: got 60, expected a whole number from 1 to 8.\n")
    code, out, err = session["planned"]
    assert (code, err) == (0, "")
    predicted = json.loads(out)["metrics"]["stability_index"]["width"]
    assert 0 < predicted < 0.05
    code, out, _ = session["help"]
    assert code == 0
    assert "stability" in out


def test_every_command_is_made_with_it_installed(session: dict[str, Any]) -> None:
    assert {"fedassay stability", "fedassay plan stability", "fedassay aggregate"} <= set(session["helps"])
    for name, (code, out, err) in session["helps"].items():
        assert (code, err) == (0, ""), name
        assert "Usage:" in out


@pytest.mark.parametrize("which", ["study", "noisy"])
def test_a_study_is_planned_run_reported_certified_and_verified(session: dict[str, Any], which: str) -> None:
    found = session[which]
    (code, _, err), tasks = found["plan"]
    assert (code, err) == (0, "")
    assert tasks["stability"]["metrics"]["stability_index"]["width"] > 0
    for step in ("run", "verify"):
        code, _, err = found[step]
        assert code == 0, err
    results = found["result"]["tasks"]["stability"]["results"]
    index = results["stability_index"]
    assert found["certificate"]["stability"]["task"] == "stability"
    for text in (found["report.html"], found["model_card.md"], found["run"][1]):
        assert "population stability index" in text.lower()
    assert "Population stability" in found["report.html"]
    assert "<svg" in found["report.html"]
    assert f"the population stability index is {index['value']:.3f}" in found["result"]["verdict"]["text"]


def test_sites_answer_it_by_files(session: dict[str, Any]) -> None:
    found = session["files"]
    assert found["task"] == "stability"
    assert found["privacy"]["trust_model"] == "secure-sum"
    assert not found["privacy"]["simulated"]
    assert found["results"]["rows"] == 50 + 60 + 70 + 80
