"""The contract of runtimes on a real Flower deployment on loopback: TLS, node keys, four sites and a helper.

A leg costs seconds here, so the ordinary suite plays each shape once; `--full` plays everything.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import pytest

pytest.importorskip("flwr", reason="Flower is not installed; pip install 'fedassay[flower]'")

from flower_lab import Lab, running
from flower_toy_apps import COMPONENTS
from runtime_contract import RuntimeContract, WholeContract, evaluation_in_process
from scenarios import HELPER, ROWS, THRESHOLD, Outcome, Scenario, columns_of

import fedassay
from fedassay.cli import run_command
from fedassay.runtimes.flower.study import FlowerStudy
from fedassay.runtimes.flower.submission import submit, write_app
from fedassay.trust.plain import Plain
from ledgers import recorded

pytestmark = pytest.mark.filterwarnings("ignore")

HERE = Path(__file__).parent
SCHEMA = json.loads(
    (Path(fedassay.__file__).parent / "documents" / "result.schema.json").read_text(encoding="utf-8")
)


@dataclass
class Deployment:
    """A lab whose nodes hold the toys' scores and labels, and can run the toys' app too."""

    folder: Path

    def __post_init__(self) -> None:
        sites = {
            name: {role: column for role, column in columns_of(name).items() if role != "value"}
            for name in ROWS
        }
        self.lab = Lab(self.folder / "lab", sites, tls=True, helpers=(HELPER,))
        write_app(self.folder / "toys", components=COMPONENTS)

    def play(self, programme: str) -> dict[str, Outcome]:
        study = FlowerStudy(name=programme, trust=Plain(), timeout=90, wait=90)
        played = json.loads(submit(self.folder / "toys", study, self.lab.connection))
        return {name: Outcome(**outcome) for name, outcome in played.items()}

    def evaluate(self, out: Path) -> None:
        """The evaluation as a user would submit it, by secure sums."""
        connection = ["--address", self.lab.address, "--root-certificates", str(self.lab.folder / "ca.crt")]
        command = ["submit", str(self.lab.app), "--study", "spring", *connection, "-q", "--json", str(out)]
        assert run_command(["flower", *command, "--threshold", str(THRESHOLD)]) == 0


def importable() -> str:
    """The path on which the SuperLink, the nodes and whoever submits find the toys, and the package under test."""
    return os.pathsep.join([str(HERE), str(HERE.parent), str(Path(fedassay.__file__).parents[1])])


class TestFlowerDeployment(RuntimeContract):
    """The toys' app and the real one at the same time, in one deployment: neither may disturb the other."""

    @classmethod
    def play(cls, scenarios: Sequence[Scenario], folder: Path) -> dict[str, Outcome]:
        deployment = Deployment(folder)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PYTHONPATH", importable())
            with running(deployment.lab), ThreadPoolExecutor() as threads:
                evaluated = threads.submit(deployment.evaluate, folder / "result.json")
                outcomes = deployment.play(cls.programme)
                evaluated.result()
        return outcomes

    def test_the_command_gives_the_in_process_answer(self, folder: Path) -> None:
        document: dict[str, Any] = json.loads((folder / "result.json").read_text())
        jsonschema.validate(document, SCHEMA)
        assert document["results"] == evaluation_in_process()
        rows = sum(map(len, ROWS.values()))
        (opening,) = document["cohort"].pop("openings")
        assert opening["clients"] == sorted(ROWS)
        assert opening["asked"] == len(ROWS)
        assert document["cohort"] == {"clients": len(ROWS), "dropped": 0, "truncated": None, "rows": rows}
        assert document["runtime"]["name"] == "flower"
        assert document["runtime"]["mode"] == "deployment"
        assert document["runtime"]["rounds"] == 2
        assert document["privacy"]["simulated"] is False

    def test_the_command_leaves_one_charge_everywhere_and_the_result(self, folder: Path) -> None:
        lab = folder / "lab"
        assert (lab / "state" / "results" / "spring.json").read_text() == (folder / "result.json").read_text()
        for place in (lab, *(lab / name for name in ROWS)):
            assert len(recorded(place / "state")) == 1


@pytest.mark.full
class TestWholeFlowerDeployment(WholeContract):
    """All scenarios in one deployment: about 45 legs."""

    @classmethod
    def play(cls, scenarios: Sequence[Scenario], folder: Path) -> dict[str, Outcome]:
        deployment = Deployment(folder)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PYTHONPATH", importable())
            with running(deployment.lab):
                return deployment.play(cls.programme)
