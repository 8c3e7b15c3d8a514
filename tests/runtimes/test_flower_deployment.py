"""A real Flower deployment on loopback: everything that can go wrong.

That it gives the right answers when nothing does is in `test_contract_flower_deployment.py`.
"""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="Flower is not installed; pip install 'fedassay[flower]'")

from flower_lab import READY, Lab, hospitals, parsed, pooled, running, until
from flower_liars import SECRET

import fedassay
from fedassay.errors import FederationError, Refused
from fedassay.runtimes.flower.study import FlowerStudy
from fedassay.runtimes.flower.submission import RunEvent, submit
from fedassay.trust.plain import Plain
from ledgers import recorded

pytestmark = pytest.mark.filterwarnings("ignore")

HERE = Path(__file__).parent


def in_process(sites: Any, **options: Any) -> dict[str, Any]:
    result = fedassay.evaluate(pooled(sites), client="site", score="score", label="label", **options)
    results: dict[str, Any] = json.loads(result.to_json())["results"]
    return results


def without(sites: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: columns for name, columns in sites.items() if name not in names}


def ledger_lines(folder: Path) -> int:
    return len(recorded(folder / "state"))


@pytest.mark.full
@pytest.mark.parametrize("leg", [0, 1])
def test_a_node_killed_between_legs_is_a_dropout(tmp_path: Path, leg: int) -> None:
    sites = hospitals(["a", "b", "c", "d", "e"])
    lab = Lab(tmp_path / "lab", sites)

    def kill_when_due(event: RunEvent) -> None:
        if event["event"] == "progress" and event["leg"] == leg and "d" in lab.processes:
            lab.kill("d")

    with running(lab):
        document = parsed(
            submit(lab.app, FlowerStudy(name="s", timeout=45), lab.connection, heard=kill_when_due)
        )
    assert "d" not in lab.processes
    # Flower may have handed the leg's message to the node in the moment before it died.
    expected = {5: sites, 4: without(sites, "d")}[document["cohort"]["clients"]]
    assert document["results"] == in_process(expected)
    assert document["cohort"]["dropped"] == 5 - len(expected)
    if leg == 1:
        assert document["cohort"]["clients"] == 5  # it had spoken; the others open the total that it is in


@pytest.mark.full
def test_a_site_that_never_comes_is_a_dropout_and_too_few_are_a_clear_refusal(tmp_path: Path) -> None:
    sites = hospitals(["a", "b", "c", "d"])
    lab = Lab(tmp_path / "lab", sites)
    try:
        lab.start_superlink()
        with pytest.raises(FederationError, match="no site is connected"):
            submit(lab.app, FlowerStudy(name="s", timeout=20, wait=3), lab.connection)
        for name in ("a", "b", "c"):
            lab.start_node(name)
        for name in ("a", "b", "c"):
            until(partial(lab.is_connected, name), seconds=READY, what=f"{name} does not connect")
        heard: list[RunEvent] = []
        study = FlowerStudy(name="s", timeout=60, wait=5)
        document = parsed(submit(lab.app, study, lab.connection, heard=heard.append))
        assert document["cohort"]["dropped"] == 1
        assert document["results"] == in_process(without(sites, "d"))
        warnings = [event["message"] for event in heard if event["event"] == "warning"]
        assert warnings == ["no connected node with a valid prekey answers for d: left out."]
        with pytest.raises(FederationError, match="asked something else"):
            submit(lab.app, FlowerStudy(name="s", trust=Plain(), timeout=60, wait=5), lab.connection)
        lab.kill("c")
        study = FlowerStudy(name="t", timeout=30, wait=5)
        with pytest.raises(FederationError, match="under the same name") as failure:
            submit(lab.app, study, lab.connection)
        assert failure.value.exit_code == 4
        lab.start_node("c")
        document = parsed(submit(lab.app, replace(study, wait=30), lab.connection))
        assert document["results"] == in_process(without(sites, "d"))
    finally:
        lab.stop()


@pytest.mark.full
def test_a_restarted_superlink_goes_on_from_the_journal(tmp_path: Path) -> None:
    sites = hospitals(["a", "b", "c"])
    lab, study = Lab(tmp_path / "lab", sites, tls=True), FlowerStudy(name="s", timeout=60, wait=60)

    def kill_in_the_middle(event: RunEvent) -> None:
        if event["event"] == "progress" and event["leg"] == 1 and "superlink" in lab.processes:
            lab.kill("superlink")

    with running(lab):
        with pytest.raises(FederationError, match="submit the same study again"):
            submit(lab.app, study, lab.connection, heard=kill_in_the_middle)
        before = (lab.folder / "a" / "state" / "store").read_bytes()
        lab.start_superlink(register=False)
        document = parsed(submit(lab.app, study, lab.connection))
        assert document["results"] == in_process(sites)
        assert document["cohort"]["clients"] == 3
        assert ledger_lines(lab.folder) == 1
        assert all(ledger_lines(lab.folder / name) == 1 for name in sites)
        assert before != (lab.folder / "a" / "state" / "store").read_bytes()  # only the second leg is new
        for name in sites:
            lab.kill(name)  # a finished study needs nobody
        assert parsed(submit(lab.app, study, lab.connection)) == document
        assert ledger_lines(lab.folder) == 1


@pytest.mark.full
def test_late_lying_and_broken_sites_are_dropouts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(HERE), prepend=os.pathsep)  # whoever submits must have the app too
    bad = ["late", "shapes", "nan", "replay", "crash"]
    sites = hospitals(["a", "b", "c", *bad], rows=100)
    lab = Lab(
        tmp_path / "lab",
        sites,
        components={"serverapp": "fedassay.runtimes.flower.server_app:app", "clientapp": "flower_liars:app"},
        node_config={name: f'behaviour="{name}"' for name in bad},
    )
    with running(lab):
        first = parsed(submit(lab.app, FlowerStudy(name="s", trust=Plain(), timeout=60), lab.connection))
        assert first["results"] == in_process(
            without(sites, "late", "shapes", "nan", "crash"), privacy=Plain()
        )
        assert first["cohort"]["dropped"] == 4
        (lab.folder / "late" / "s.over").touch()  # only now its reply leaves, while the next study runs
        second = parsed(submit(lab.app, FlowerStudy(name="t", trust=Plain(), timeout=60), lab.connection))
        assert second["results"] == in_process(without(sites, *bad), privacy=Plain())
        assert second["cohort"]["clients"] == 3
        assert SECRET not in (lab.folder / "state" / "results" / "t.json").read_text()
        assert SECRET not in lab.log_of("superlink")


@pytest.mark.full
def test_a_site_whose_policy_says_no_ends_the_study_with_its_reason(tmp_path: Path) -> None:
    sites = hospitals(["a", "b", "c"])
    lab = Lab(tmp_path / "lab", sites, policy='trust_models = ["plain"]')
    with running(lab), pytest.raises(Refused, match=r"a \(policy\), b \(policy\), c \(policy\)") as failure:
        submit(lab.app, FlowerStudy(name="s", timeout=60), lab.connection)
    assert failure.value.exit_code == 3


@pytest.mark.full
def test_two_studies_at_once_do_not_disturb_each_other(tmp_path: Path) -> None:
    sites = hospitals(["a", "b", "c"])
    lab = Lab(tmp_path / "lab", sites)

    def run(name: str) -> dict[str, Any]:
        study = FlowerStudy(name=name, timeout=90, wait=60)
        return parsed(submit(lab.app, study, lab.connection))

    with running(lab), ThreadPoolExecutor() as threads:
        documents = list(threads.map(run, ["s", "t"], timeout=300))
    for document in documents:
        assert document["cohort"]["dropped"] == 0
        assert document["results"] == in_process(sites)
