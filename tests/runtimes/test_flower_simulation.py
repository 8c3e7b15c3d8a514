"""The tracer tests on Flower's simulation: every shape of task, through real Flower messages on Ray."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("flwr", reason="Flower is not installed; pip install 'fedassay[flower]'")
pytest.importorskip("ray", reason="Ray is not installed; pip install 'fedassay[flower]'")

from flower_toys import BROKEN_STUDY, ROWS, endpoint, pooled

import fedassay
from fedassay.cli import run_command
from fedassay.errors import TooFewClients
from fedassay.privacy.ledger import MemoryLedger
from fedassay.privacy.randomness import SimulatedRandomness
from fedassay.protocol import Collect, Protection, Setting, Sum, TrustModel
from fedassay.run import Job, run
from fedassay.runtimes.flower.runtime import FlowerRuntime
from fedassay.runtimes.flower.simulation import Cast, simulate
from fedassay.tasks.evaluation import Evaluate
from fedassay.trust.plain import Plain
from fedassay.trust.secure_sum import SecureSum
from toys import CountsUpTo, LargestValue, Once, ThreeRounds, TwoShares

# Flower and Ray warn about each other's deprecated corners, in threads of their own.
pytestmark = pytest.mark.filterwarnings("ignore")

HERE = Path(__file__).parent
COUNTS = [sum(values.count(k) for values in ROWS.values()) for k in range(5)]
COUNTS[4] += sum(values.count(5) for values in ROWS.values())


@pytest.fixture
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray's processes import the toys by name."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(HERE), str(HERE.parent)]))


def job(task: Any, trust: TrustModel, name: str = "task") -> Job:
    setting = Setting(trust=trust, protection=Protection(), budget=None, clients=len(ROWS))
    return Job(name=name, task=task, setting=setting)


def go(runtime: FlowerRuntime, *jobs: Job, study: str) -> dict[str, Any]:
    source = SimulatedRandomness(1).child(f"{study} {jobs}")  # an exchange id never stands for two questions
    return run(jobs, runtime=runtime, ledger=MemoryLedger(None), randomness=source, study=study)


def check_a_sum(runtime: FlowerRuntime, trust: TrustModel) -> None:
    released = go(runtime, job(Once(query=Sum(of=CountsUpTo(top=4))), trust), study=f"sum {trust.name}")
    assert released["task"].value.tolist() == COUNTS
    assert released["task"].clients == len(ROWS)


def check_three_rounds_with_memory(runtime: FlowerRuntime, trust: TrustModel) -> None:
    story = go(runtime, job(ThreeRounds(), trust), study=f"three {trust.name}")["task"]
    above = [sum(v > guess for values in ROWS.values() for v in values) for guess, _, _ in story]
    assert [new for _, new, _ in story] == [above[0], above[1] - above[0], above[2] - above[1]]
    assert [rounds for _, _, rounds in story] == [5, 10, 15]  # every client remembered its rounds


def check_lockstep(runtime: FlowerRuntime) -> None:
    before = runtime.traffic.rounds
    results = go(
        runtime,
        job(ThreeRounds(), Plain(), "three"),
        job(Once(query=Sum(of=CountsUpTo(top=4))), Plain(), "counts"),
        job(Once(query=Collect(of=LargestValue())), Plain(), "largest"),
        study="lockstep",
    )
    assert runtime.traffic.rounds - before == 3
    assert results["counts"].value.tolist() == COUNTS
    assert sorted(results["largest"].value) == sorted(max(values) for values in ROWS.values())


def check_dropouts(runtime: FlowerRuntime) -> None:
    rest = {name: values for name, values in ROWS.items() if name != "c"}
    for trust in (Plain(), SecureSum()):
        released = go(runtime, job(Once(query=Sum(of=CountsUpTo(top=4))), trust), study=BROKEN_STUDY)["task"]
        assert released.clients == 4
        assert released.value.tolist() == [
            sum(min(value, 4) == k for values in rest.values() for value in values) for k in range(5)
        ]
    with pytest.raises(TooFewClients):
        go(
            runtime,
            job(Once(query=Sum(of=CountsUpTo(top=4))), SecureSum(minimum_cohort=5)),
            study=BROKEN_STUDY,
        )


def check_evaluation(runtime: FlowerRuntime) -> None:
    found = go(runtime, job(Evaluate(), SecureSum(), "evaluate"), study="evaluation")["evaluate"]
    expected = fedassay.evaluate(pooled(), client="site", score="score", label="label").results
    assert json.loads(json.dumps(found)) == json.loads(json.dumps(dict(expected)))


@pytest.mark.usefixtures("importable")
def test_every_shape_of_task_runs_on_flower_as_in_this_process(caplog: pytest.LogCaptureFixture) -> None:
    def body(runtime: FlowerRuntime) -> str:
        for trust in (Plain(), SecureSum(), TwoShares()):
            check_a_sum(runtime, trust)
        for trust in (Plain(), SecureSum()):
            check_three_rounds_with_memory(runtime, trust)
        check_lockstep(runtime)
        check_evaluation(runtime)
        check_dropouts(runtime)
        return "done"

    cast = Cast(clients=tuple(ROWS), helpers=("helper",), endpoint=endpoint)
    with caplog.at_level(logging.WARNING, logger="fedassay.flower"):
        assert simulate(cast, body, randomness=SimulatedRandomness(3)) == "done"
    ours = " ".join(record.getMessage() for record in caplog.records if record.name == "fedassay.flower")
    assert "error code 2" in ours  # the broken client was noticed, and only as a code
    assert "nobody else should read" not in ours


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
