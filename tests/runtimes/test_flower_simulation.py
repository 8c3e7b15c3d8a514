"""`--runtime flower` as a user meets it. What every runtime must do is in `test_contract_flower_simulation.py`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("flwr", reason="Flower is not installed; pip install 'fedassay[flower]'")
pytest.importorskip("ray", reason="Ray is not installed; pip install 'fedassay[flower]'")


from fedassay.cli import run_command

# Flower and Ray warn about each other's deprecated corners, in threads of their own.
pytestmark = pytest.mark.filterwarnings("ignore")


def test_the_command_simulates_on_flower(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    score = rng.random(600)
    data, out = tmp_path / "scores.csv", tmp_path / "result.json"
    pd.DataFrame(
        {"site": rng.integers(0, 4, 600), "p": score, "y": (rng.random(600) < score).astype(int)}
    ).to_csv(data, index=False)
    arguments = [str(data), "--client", "site", "--score", "p", "--label", "y", "--seed", "1", "-q"]
    code = run_command(
        ["evaluate", *arguments, "--runtime", "flower", "--rows-per-client", "100", "--json", str(out)]
    )
    assert code == 0
    document = json.loads(out.read_text())
    assert document["runtime"]["name"] == "flower"
    assert document["runtime"]["mode"] == "simulation"
    assert document["privacy"]["simulated"] is True
    assert document["cohort"] == {"clients": 4, "dropped": 0, "truncated": 200, "rows": 400}


def test_more_clients_than_flower_can_simulate_are_refused(tmp_path: Path, capsys: Any) -> None:
    data = tmp_path / "scores.csv"
    pd.DataFrame({"p": [0.5] * 1001, "y": [0, 1] * 500 + [0]}).to_csv(data, index=False)
    assert run_command(["evaluate", str(data), "--score", "p", "--label", "y", "--runtime", "flower"]) == 2
    assert "at most 1,000" in capsys.readouterr().err
