"""Shuffling on Flower: the analyst beside the coordinator, the shuffler a node that holds no rows."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="Flower is not installed; pip install 'fedassay[flower]'")
pytest.importorskip("ray", reason="Ray is not installed; pip install 'fedassay[flower]'")

from flower_lab import Lab, hospitals, parsed, pooled, running

import fedassay
from fedassay.errors import FederationError
from fedassay.kernel.agenda import Agenda
from fedassay.protocol.vocabulary import Budget
from fedassay.runtimes.flower.study import FlowerStudy
from fedassay.runtimes.flower.submission import submit
from fedassay.trust.shuffle.model import Shuffle

pytestmark = [pytest.mark.full, pytest.mark.filterwarnings("ignore")]

EPSILON = 3000.0
"""So large that no draw of the noise differs from zero, but for a probability of 1e-100."""

POLICY = f'trust_models = ["shuffle"]\n\n[policy.total]\nepsilon = {3 * EPSILON}'


def test_a_simulation_on_flower_equals_the_pooled_rows() -> None:
    sites = hospitals(["a", "b", "c"], rows=60)
    columns = {"client": "site", "score": "score", "label": "label", "height": 6}
    result = fedassay.evaluate(
        pooled(sites),
        **columns,
        privacy=Shuffle(),
        budget=Budget(epsilon=EPSILON),
        simulation=fedassay.Simulation(seed=1, runtime="flower"),
    )
    exact = fedassay.evaluate(pooled(sites), **columns)
    assert (result.runtime["name"], result.runtime["rounds"]) == ("flower", 4)
    assert result.cohort["clients"] == 3
    assert result["roc_auc"]["value"] == pytest.approx(exact["roc_auc"]["value"], abs=0.02)
    assert result["histogram"]["rows"] == pytest.approx(180, abs=1e-6)


def test_a_deployment_with_a_shuffler_survives_its_loss(tmp_path: Path) -> None:
    sites = hospitals(["a", "b", "c"], rows=60)
    lab = Lab(tmp_path / "lab", sites, policy=POLICY, helpers=("helper",))

    def study(name: str, **limits: float) -> FlowerStudy:
        return FlowerStudy(
            name=name,
            agenda=Agenda.of("evaluate", {"height": 6}),
            trust=Shuffle(),
            budget=Budget(epsilon=EPSILON),
            **limits,
        )

    with running(lab):
        document = parsed(submit(lab.app, study("s", timeout=60, wait=60), lab.connection))
        assert document["cohort"]["clients"] == 3
        assert document["results"]["histogram"]["rows"] == pytest.approx(180, abs=1e-6)
        assert "shuffler" in document["privacy"]["statement"]
        lab.kill("helper")
        with pytest.raises(FederationError):
            submit(lab.app, study("t", timeout=20, wait=5), lab.connection)
