"""A whole study between sites: `fedassay run` at the coordinator, `fedassay contribute` at each site."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any
from unittest import mock

import jsonschema
import pandas as pd
import pytest

from command_line import call
from fedassay.artefacts.verified import check
from fedassay.privacy.ledger.charges import compose
from fedassay.protocol.vocabulary import Part
from fedassay.study import folder as folder_module
from fedassay.study.simulation import Simulation
from file_drop_town import Town
from ledgers import recorded
from study_runs import conducted

KEY = b"a key that all the sites have".ljust(32, b".")
TASKS = """\
[tasks.evaluate]
share = 0.3
height = 5
[tasks.calibrate]
share = 0.3
method = "platt"
height = 6
[tasks.conformal]
share = 0.3
level = 0.8
bins = 256
"""
SITES = """\
name = "spring"
title = "A study by files"
[runtime]
name = "file-drop"
drop = "drop"
key = "coordinator/coordinator.key"
roster = "coordinator/roster.toml"
"""
SIMULATED = """\
name = "spring"
[data]
path = "rows.csv"
client = "site"
[data.columns]
score = "p"
label = "y"
[runtime]
seed = 1
"""
DISTRIBUTED = '[privacy]\nprivacy = "distributed-dp"\nepsilon = 2.5\n'


@pytest.fixture
def town(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Town:
    """Three sites whose split keys are alike, so that a simulation can split the same rows in the same way."""
    monkeypatch.setattr(folder_module, "page", lambda document: "<!doctype html>\n")
    town = Town(tmp_path, names=("a", "b", "c"))
    for name in town.names:
        (tmp_path / name / "state").mkdir()
        (tmp_path / name / "state" / "split.key").write_bytes(KEY)
    return town


def written(town: Town, privacy: str = "", tasks: str = TASKS) -> Path:
    between = tasks.replace("level = 0.8", 'level = 0.8\nsets = "binary"')
    path = town.root / "study.toml"
    path.write_text(SITES + privacy + between)
    return path


def finish(town: Town, path: Path, capsys: Any, *, passes: int = 40) -> dict[str, Any]:
    """Go to and fro until there is a result."""
    for _ in range(passes):
        code, out, error = call(capsys, "run", path)
        assert code == 0, error
        if (town.root / "spring" / "certificate.json").exists():
            return json.loads((town.root / "spring" / "result.json").read_text())  # type: ignore[no-any-return]
        assert "fedassay run" in " ".join(out.split())  # how to go on
        town.contribute_all()
    raise AssertionError("it never ended")


def schema(kind: str) -> Any:
    return json.loads((files("fedassay") / "documents" / f"{kind}.schema.json").read_text())


def simulated(town: Town) -> dict[str, Any]:
    """The same study in one process, with the sites' own key for the split."""
    frames = [pd.read_csv(town.root / name / "scores.csv").assign(site=name) for name in town.names]
    pd.concat(frames).to_csv(town.root / "rows.csv", index=False)
    path = town.root / "simulated.toml"
    path.write_text(SIMULATED + TASKS)
    with mock.patch.object(Simulation, "key_of_split", return_value=KEY):
        return json.loads(conducted(path).to_json())  # type: ignore[no-any-return]


def test_exact_numbers_are_those_of_a_simulation(town: Town, capsys: Any) -> None:
    document, wanted = finish(town, written(town), capsys), simulated(town)
    assert document["results"]["tasks"].keys() == {"evaluate", "calibrate", "conformal"}
    for name, task in document["results"]["tasks"].items():
        assert task["results"] == wanted["results"]["tasks"][name]["results"], name
    assert document["results"]["verdict"] == wanted["results"]["verdict"]
    assert document["privacy"]["simulated"] is False
    # Six passes: three exchanges, since what can be asked together is, of two legs each.
    assert document["runtime"]["rounds"] == 6
    for name in town.names:
        assert sorted(path.name for path in (town.drop / f"from-{name}").iterdir()) == [
            f"{number}.fedassay" for number in range(1, 7)
        ]
    assert (document["parameters"]["title"], document["parameters"]["data"]) == ("A study by files", None)
    assert document["parameters"]["study"].startswith("spring-")
    out = town.root / "spring"
    assert check(out, key=town.identities["coordinator"].public).holds
    certificate = json.loads((out / "certificate.json").read_text())
    assert certificate["key"]["made_for_this_study"] is False
    assert certificate["ledger"]["head"] is not None
    for opening in certificate["openings"]:
        assert opening["clients"] == list(opening["members"]) == ["a", "b", "c"]
        assert opening["statement"].endswith("none spare. False rows could not be noticed.")
    assert len(certificate["openings"]) == 3
    jsonschema.validate(certificate, schema("certificate"))
    jsonschema.validate(document, schema("result"))
    again = (out / "result.json").read_bytes()
    assert call(capsys, "run", town.root / "study.toml", "-q")[0] == 0
    assert (out / "result.json").read_bytes() == again


def test_sites_book_the_parts_that_they_were_asked_about(town: Town, capsys: Any) -> None:
    document = finish(town, written(town, DISTRIBUTED), capsys)
    mine = recorded(town.root / "coordinator" / "fedassay-state")
    budget = document["results"]["budget"]
    assert [one.id for one in mine] == [one["id"] for one in budget["charges"]]
    assert budget["spent"] == pytest.approx(compose(mine, 0.0))
    assert budget["spent"] <= 2.5
    for name in town.names:
        books = recorded(town.root / name / "state")
        assert [(one.task, one.part) for one in books] == [
            ("evaluate", Part.ALL),
            ("calibrate", Part.FIRST_FIT),
            ("calibrate", Part.HELD_OUT),
            ("conformal", Part.SECOND_FIT),
            ("conformal", Part.HELD_OUT),
        ]
        assert compose(books, 0.0) == pytest.approx(budget["spent"])
    assert check(town.root / "spring", key=town.identities["coordinator"].public).holds


def test_a_policy_judges_all_tasks_by_their_kinds_before_any_is_paid(town: Town, capsys: Any) -> None:
    """Strict sets are still prediction sets, whatever they are called, and are asked last."""
    for name in town.names:
        town.write_site(name, policy='tasks = ["evaluate", "calibrate"]')
    tasks = TASKS.replace("[tasks.conformal]", '[tasks.strict]\ntask = "conformal"')
    path = written(town, tasks=tasks)
    assert call(capsys, "run", path, "-q")[0] == 0
    assert [town.contribute(name) for name in town.names] == [3] * 3
    refusal = " ".join(capsys.readouterr().err.split())
    assert "policy: got the task conformal, expected one of calibrate, evaluate." in refusal
    assert not any(recorded(town.root / name / "state") for name in town.names)


def test_another_study_needs_a_drop_of_its_own(town: Town, capsys: Any) -> None:
    path = written(town)
    assert call(capsys, "run", path, "-q")[0] == 0
    path.write_text(path.read_text().replace('name = "spring"', 'name = "autumn"'))
    code, _, error = call(capsys, "run", path, "-q")
    assert code == 2
    assert "expected autumn; give each study a drop of its own" in " ".join(error.split())
    path.write_text(path.read_text().replace('name = "autumn"', 'name = "spring"').replace("0.8", "0.9"))
    code, _, error = call(capsys, "run", path, "-q")
    assert code == 2
    assert "it was announced with other options" in " ".join(error.split())


def test_a_study_that_cannot_be_afforded_is_not_announced(town: Town, capsys: Any) -> None:
    path = written(town, DISTRIBUTED + "[ledger]\nepsilon = 1.5\n")
    code, _, error = call(capsys, "run", path, "-q")
    assert code == 3
    assert "no site was asked" in " ".join(error.split())
    assert not any(town.drop.iterdir())
    assert not recorded(town.root / "coordinator" / "fedassay-state")
