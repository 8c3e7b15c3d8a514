"""A whole study on Flower: its tasks in one run, with the same numbers as in one process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="Flower is not installed; pip install 'fedassay[flower]'")

from flower_lab import READY, Lab, hospitals, pooled, running, until
from test_flower_study import Nodes, lab, run  # noqa: F401 - a fixture

from command_line import call
from fedassay.artefacts.verified import ANY_KEY, check
from fedassay.errors import Refused
from fedassay.kernel.agenda import Agenda, Item
from fedassay.protocol.vocabulary import Part, Protection
from fedassay.runtimes.flower.study import FlowerStudy
from fedassay.study.simulation import Simulation, simulate
from fedassay.trust.secure_sum import SecureSum
from ledgers import recorded
from stated import Verify

KEY = b"a key that all the sites have".ljust(32, b".")
SITES = hospitals(["a", "b", "c", "d"], rows=60)  # those of the fixture
SETS = {"sets": "binary", "classes": 2, "holdout": 0.3, "level": 0.8}
AGENDA = Agenda(
    items=(
        Item(name="evaluate", task="evaluate", parameters={"height": 5}, share=0.3),
        Item(name="calibrate", task="calibrate", parameters={"method": "platt"}, share=0.3),
        Item(name="conformal", task="conformal", parameters=SETS, share=0.3, after="calibrate"),
    )
)


def split_alike(lab: Lab) -> None:  # noqa: F811
    for name in lab.sites:
        (lab.folder / name / "state").mkdir(exist_ok=True)
        (lab.folder / name / "state" / "split.key").write_bytes(KEY)


def in_process() -> dict[str, Any]:
    result = simulate(
        AGENDA,
        pooled(SITES),
        columns={"score": "score", "label": "label"},
        client="site",
        trust=SecureSum(),
        budget=None,
        protection=Protection(),
        parameters={},
        simulation=Simulation(split_key=KEY, seed=1),
    )
    results: dict[str, Any] = json.loads(result.to_json())["results"]
    return results


def test_a_study_of_three_tasks(lab: Lab, capsys: Any) -> None:  # noqa: F811
    split_alike(lab)
    document, warnings = run(lab, FlowerStudy(name="s", agenda=AGENDA, wait=0), "abcd", capsys)
    wanted = in_process()
    assert document["task"] == "study"
    assert document["results"]["tasks"] == wanted["tasks"]
    assert document["results"]["verdict"] == wanted["verdict"]
    assert not warnings
    for name in "abcd":
        assert {(one.task, one.part) for one in recorded(lab.folder / name / "state")} == {
            ("evaluate", Part.ALL),
            ("calibrate", Part.FIRST_FIT),
            ("calibrate", Part.HELD_OUT),
            ("conformal", Part.SECOND_FIT),
            ("conformal", Part.HELD_OUT),
        }


def test_sites_that_allow_no_prediction_sets_refuse_these_only(lab: Lab, capsys: Any) -> None:  # noqa: F811
    for name in "abcd":
        rules = lab.folder / name / "site.toml"
        rules.write_text(
            rules.read_text().replace("[policy]\n", '[policy]\ntasks = ["evaluate", "calibrate"]\n')
        )
    with pytest.raises(Refused, match=r"Refused: a \(policy\), b \(policy\), c \(policy\), d \(policy\)."):
        run(lab, FlowerStudy(name="s", agenda=AGENDA, wait=0), "abcd", capsys)
    for name in "abcd":
        assert {one.task for one in recorded(lab.folder / name / "state")} == {"evaluate", "calibrate"}


STUDY = """\
name = "spring"
[runtime]
name = "flower-deployment"
app = "lab/app"
address = "{address}"
insecure = true
[tasks.evaluate]
share = 0.3
height = 5
[tasks.calibrate]
share = 0.3
method = "platt"
[tasks.conformal]
share = 0.3
sets = "binary"
level = 0.8
"""


@pytest.mark.full
def test_one_command_runs_a_study_on_a_superlink(tmp_path: Path, capsys: Any, verify: Verify) -> None:
    lab = Lab(tmp_path / "lab", SITES)  # noqa: F811
    split_alike(lab)
    path = tmp_path / "study.toml"
    path.write_text(STUDY.format(address=lab.address))
    with running(lab):
        for name in lab.sites:
            until(lambda name=name: lab.is_connected(name), seconds=READY, what=f"{name} does not connect")
        code, _, error = call(capsys, "run", path, "-q")
    assert code == 0, error
    document = json.loads((tmp_path / "spring" / "result.json").read_text())
    wanted = in_process()["tasks"]
    assert document["results"]["tasks"].keys() == wanted.keys()
    for name, task in document["results"]["tasks"].items():
        assert task["results"] == wanted[name]["results"], name
    assert document["privacy"]["simulated"] is False
    assert check(tmp_path / "spring", key=ANY_KEY).holds
    verify(
        "`fedassay run` of three tasks on a real SuperLink gives the numbers of one process",
        "equal, certified",
    )
