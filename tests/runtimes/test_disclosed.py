"""What is published under a disclosure profile: protected before a task reads it, and said so."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pandas as pd
import pytest

import fedassay
from fedassay.errors import Refused, UnsupportedQuery, UsageError
from fedassay.kernel.agenda import Agenda, Item
from fedassay.kernel.journal import MemoryJournal
from fedassay.kernel.publication import profile_of, require, settled
from fedassay.privacy.policy.disclosure import PROFILES
from fedassay.privacy.policy.rules import SitePolicy
from fedassay.protocol.vocabulary import Budget, Protection, Setting
from fedassay.study.simulation import Simulation, simulate
from fedassay.trust.plain import Plain
from fedassay.trust.secure_sum import SecureSum
from fedassay.trust.server_dp import ServerDP
from file_drop_town import Town
from policy_sites import Direct, Sites

SCHEMA = json.loads((files("fedassay") / "documents" / "result.schema.json").read_text())
FIVE = PROFILES["minimum-5"]
ASKED: dict[str, Any] = {
    **{"client": "site", "score": "p", "label": "y"},
    **{"height": 3, "transform": "uniform", "buckets": 4},
}


def rows(seed: int = 3, count: int = 150) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    score = rng.beta(2, 4, count)
    return pd.DataFrame(
        {"site": rng.integers(0, 4, count), "p": score, "y": (rng.random(count) < score).astype(int)}
    )


def without_small_cells(data: pd.DataFrame, least: int = 5, cells: int = 8) -> pd.DataFrame:
    """The rows whose cell (score bin and label) has enough of them."""
    sizes = data.groupby([(data["p"] * cells).astype(int), "y"])["p"].transform("size")
    kept = data[sizes >= least]
    assert 0 < len(kept) < len(data)  # or nothing would be hidden
    return kept


@pytest.mark.parametrize("trust", [SecureSum(), Plain()])
@pytest.mark.parametrize("mode", ["faithful", "aggregate"])
def test_metrics_are_those_of_the_rows_in_cells_that_are_large_enough(trust: Any, mode: Any) -> None:
    data = rows()
    simulation = Simulation(seed=1, mode=mode, disclosure=FIVE)
    published = fedassay.evaluate(data, **ASKED, privacy=trust, simulation=simulation)
    oracle = fedassay.evaluate(
        without_small_cells(data), **ASKED, privacy=trust, simulation=Simulation(seed=1)
    )
    document = json.loads(published.to_json())
    jsonschema.validate(document, SCHEMA)
    assert document["results"] == json.loads(oracle.to_json())["results"]
    assert (
        document["results"]
        != json.loads(fedassay.evaluate(data, **ASKED, privacy=trust).to_json())["results"]
    )
    assert document["privacy"]["disclosure"] == "minimum-5"
    assert "counts of 1 to 4 rows were replaced by 0" in document["privacy"]["statement"]
    assert any("every number here is biased" in warning for warning in document["warnings"])
    assert "disclosure" not in oracle.privacy


def test_noise_needs_no_profile_and_what_is_not_counts_cannot_have_one() -> None:
    simulation = Simulation(seed=1, disclosure=FIVE)
    with pytest.raises(UsageError, match="server-dp adds noise, which protects more"):
        fedassay.evaluate(
            rows(), **ASKED, privacy=ServerDP(), budget=Budget(epsilon=1), simulation=simulation
        )
    with pytest.raises(UnsupportedQuery, match="it is not made of counts of rows"):
        fedassay.evaluate(rows(), **ASKED, per_site=True, simulation=simulation)


def test_a_study_goes_on_with_the_profile_that_it_began_with() -> None:
    journal = MemoryJournal()
    settled(journal, FIVE)
    settled(journal, FIVE)
    assert profile_of(journal) == FIVE
    for other in (None, PROFILES["minimum-11"]):
        with pytest.raises(UsageError, match="began with minimum-5"):
            settled(journal, other)
    began = MemoryJournal()
    settled(began, None)
    assert began.entries() == []
    began.append({"kind": "begun"})
    with pytest.raises(UsageError, match="got minimum-5, but this study began with none"):
        settled(began, FIVE)


def test_file_drop_publishes_protected_totals_and_keeps_to_the_profile(tmp_path: Path, capsys: Any) -> None:
    town = Town(tmp_path)
    assert town.begin("--privacy", "plain", "--disclosure", "minimum-3") == 2
    assert town.begin("--privacy", "server-dp", "--epsilon", "1", "--disclosure", "minimum-5") == 2
    assert "adds noise, which protects more" in capsys.readouterr().err
    assert not list(town.drop.iterdir())  # refused before anything was announced
    assert town.begin("--privacy", "plain", "--disclosure", "minimum-11") == 0
    assert town.aggregate("--disclosure", "minimum-5") == 2
    assert "this study began with minimum-11" in capsys.readouterr().err
    document = town.finish(passes=1)
    jsonschema.validate(document, SCHEMA)
    assert document["privacy"]["disclosure"] == "minimum-11"
    frames = [pd.read_csv(town.root / name / "scores.csv").assign(site=name) for name in town.names]
    oracle = fedassay.evaluate(
        pd.concat(frames),
        client="site",
        score="p",
        label="y",
        thresholds=(0.3, 0.5),
        height=6,
        privacy=Plain(),
        simulation=Simulation(disclosure=PROFILES["minimum-11"]),
    )
    assert document["results"] == json.loads(oracle.to_json())["results"]


def test_a_coordinator_on_flower_publishes_protected_totals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("flwr", reason="Flower is not installed; pip install 'fedassay[flower]'")
    from flower_direct import ByFlower

    from fedassay.crypto.identity import key_to_text
    from fedassay.runtimes.flower.coordinator_file import CoordinatorFile
    from fedassay.runtimes.flower.server_app import Coordinator
    from fedassay.runtimes.flower.study import FlowerStudy

    sites = Sites(tmp_path)
    sites.identities["coordinator"].save(tmp_path / "c.key")
    roster = "".join(f'{name} = "{key_to_text(sites.identities[name].public)}"\n' for name in sites.names)
    path = tmp_path / "coordinator.toml"

    def written(profile: str) -> CoordinatorFile:
        path.write_text(f'key = "c.key"\nstate = "state"\ndisclosure = {profile}\n[roster]\n{roster}')
        return CoordinatorFile.read(path)

    with pytest.raises(UsageError, match="coordinator.toml: disclosure: got 'five', expected one of"):
        written('"five"')
    file = written('"minimum-5"')
    direct = Direct(ByFlower(sites, monkeypatch), sites.names)
    monkeypatch.setattr(Coordinator, "runtime", lambda *_, **__: direct)
    study = FlowerStudy(
        name="spring",
        trust=Plain(),
        agenda=Agenda.of("evaluate", {"height": 3, "transform": "uniform", "buckets": 4}),
    )
    quiet: Any = {"progress": lambda *_: None, "warn": lambda _: None}
    document = json.loads(Coordinator(file=file).release(study, None, **quiet)[0])  # type: ignore[arg-type]
    jsonschema.validate(document, SCHEMA)
    assert document["privacy"]["disclosure"] == "minimum-5"
    data = pd.concat([pd.read_csv(tmp_path / name / "rows.csv").assign(site=name) for name in sites.names])
    oracle = fedassay.evaluate(data, **ASKED, privacy=Plain(), simulation=Simulation(disclosure=FIVE))
    assert document["results"] == json.loads(oracle.to_json())["results"]
    with pytest.raises(UsageError, match="began with minimum-5"):
        Coordinator(file=written('"minimum-11"')).release(study, None, **quiet)  # type: ignore[arg-type]


def study(*tasks: str) -> Agenda:
    return Agenda(items=tuple(Item(name=task, task=task, parameters={}, share=0.5) for task in tasks))


def test_what_could_be_subtracted_is_not_asked_together() -> None:
    """Counts of the held-out rows that are hidden are those of all rows less those of the fit rows."""
    setting = Setting(trust=SecureSum(), protection=Protection(), budget=None, clients=5)
    for tasks in (("evaluate", "hosmer-lemeshow"), ("calibrate",)):
        require(FIVE, SecureSum(), study(*tasks).rehearse(setting))
    with pytest.raises(UsageError, match="could be subtracted"):
        require(FIVE, SecureSum(), study("evaluate", "calibrate").rehearse(setting))


@pytest.mark.parametrize("hides", [True, False])
def test_a_site_that_hides_small_counts_answers_no_questions_that_undo_it(hides: bool) -> None:
    data = rows()
    rules = SitePolicy(trust_models=frozenset({"plain"}), disclosure=FIVE if hides else None)
    simulation = Simulation(seed=1, mode="faithful", policy=rules)
    terms: dict[str, Any] = {
        **{"columns": {"score": "p", "label": "y"}, "client": "site", "trust": Plain(), "budget": None},
        **{"protection": Protection(), "parameters": {}, "simulation": simulation},
    }
    if not hides:
        assert simulate(study("evaluate", "calibrate"), data, **terms).cohort["dropped"] == 0
        return
    with pytest.raises(Refused, match="could be subtracted"):
        simulate(study("evaluate", "calibrate"), data, **terms)
