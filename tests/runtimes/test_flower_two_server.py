"""Two servers on Flower: the first beside the coordinator, the second a node that holds no rows."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("flwr", reason="Flower is not installed; pip install 'fedassay[flower]'")
pytest.importorskip("ray", reason="Ray is not installed; pip install 'fedassay[flower]'")

from dataclasses import replace

from flower_lab import Lab, hospitals, parsed, pooled, running

import fedassay
from fedassay.errors import FederationError
from fedassay.kernel.agenda import Agenda
from fedassay.kernel.helper import DAYS_KEPT, ServerStore
from fedassay.protocol.vocabulary import Budget, Protection
from fedassay.runtimes.flower.server_app import Coordinator
from fedassay.runtimes.flower.study import FlowerStudy
from fedassay.runtimes.flower.submission import submit
from fedassay.trust.two_server.model import TwoServer

pytestmark = pytest.mark.filterwarnings("ignore")

EPSILON = 3000.0
"""So large that no draw of the noise differs from zero, but for a probability of 1e-100."""

POLICY = f'trust_models = ["two-server"]\n\n[policy.total]\nepsilon = {3 * EPSILON}'


@pytest.mark.full
def test_a_simulation_on_flower_equals_the_pooled_rows() -> None:
    sites = hospitals(["a", "b", "c"], rows=60)
    columns = {"client": "site", "score": "score", "label": "label", "height": 6}
    result = fedassay.evaluate(
        pooled(sites),
        **columns,
        privacy=TwoServer(),
        budget=Budget(epsilon=EPSILON),
        protection=Protection(rows_per_client=60),
        simulation=fedassay.Simulation(seed=1, runtime="flower"),
    )
    exact = fedassay.evaluate(pooled(sites), **columns)
    assert result.runtime["name"] == "flower"
    assert result.cohort["clients"] == 3
    assert result["roc_auc"]["value"] == pytest.approx(exact["roc_auc"]["value"], abs=0.02)
    assert result["histogram"]["rows"] == pytest.approx(180, abs=1e-6)


def test_the_coordinator_clears_the_stores_of_all_its_studies(tmp_path: Path) -> None:
    """Nobody opens the store of a finished study again, and it may hold one half of every row."""
    stores = {name: tmp_path / "first-server" / name for name in ("old", "recent", "this")}
    for name in ("old", "recent"):
        ServerStore(stores[name]).close()
        (stores[name] / "ab.talk").write_bytes(b"keys")
    long_ago = time.time() - (DAYS_KEPT + 1) * 86_400
    os.utime(stores["old"] / "ab.talk", (long_ago, long_ago))
    coordinator: Any = Coordinator(file=SimpleNamespace(state=tmp_path, credentials=None))
    setting = SimpleNamespace(trust=TwoServer())
    with coordinator._first_server(SimpleNamespace(name="this"), setting) as server:
        assert isinstance(server.store, ServerStore)
        assert server.store.folder == stores["this"]
    assert not (stores["old"] / "ab.talk").exists()
    assert (stores["recent"] / "ab.talk").exists()


@pytest.mark.full
def test_a_deployment_with_a_second_server_survives_its_restart(tmp_path: Path) -> None:
    sites = hospitals(["a", "b", "c"], rows=60)
    lab = Lab(tmp_path / "lab", sites, policy=POLICY, helpers=("helper",))
    study = FlowerStudy(
        name="s",
        agenda=Agenda.of("evaluate", {"height": 6}),
        trust=TwoServer(),
        budget=Budget(epsilon=EPSILON),
        protection=Protection(rows_per_client=60),
        timeout=60,
        wait=60,
    )
    with running(lab):
        document = parsed(submit(lab.app, study, lab.connection))
        assert document["cohort"]["clients"] == 3
        assert document["results"]["histogram"]["rows"] == pytest.approx(180, abs=1e-6)
        again = parsed(submit(lab.app, study, lab.connection))
        assert again == document
        lab.kill("helper")
        other = replace(study, name="t", timeout=20, wait=5)
        with pytest.raises(FederationError):
            submit(lab.app, other, lab.connection)
