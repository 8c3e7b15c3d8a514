"""The contract of runtimes on Flower's simulation: through real Flower messages on Ray.

In the full tier: the ordinary suite has a deployment, and the command on Ray.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="Flower is not installed; pip install 'fedassay[flower]'")
pytest.importorskip("ray", reason="Ray is not installed; pip install 'fedassay[flower]'")

from flower_toys import SECRET, endpoint
from runtime_contract import WholeContract
from scenarios import HELPER, ROWS, Outcome, Scenario, play

from fedassay.privacy.randomness import SimulatedRandomness
from fedassay.runtimes.flower.simulation import Cast, simulated

# Flower and Ray warn about each other's deprecated corners, in threads of their own.
pytestmark = pytest.mark.filterwarnings("ignore")

HERE = Path(__file__).parent


def played(scenarios: Sequence[Scenario], folder: Path) -> dict[str, Outcome]:
    """What comes of scenarios in one simulation; what it logs is in the folder."""
    cast = Cast(clients=tuple(ROWS), helpers=(HELPER,), endpoint=endpoint)
    log = logging.getLogger("fedassay.flower")
    heard = logging.FileHandler(folder / "log")
    log.addHandler(heard)
    try:
        with pytest.MonkeyPatch.context() as patch:
            # Ray's processes import the toys by name.
            patch.setenv("PYTHONPATH", os.pathsep.join([str(HERE), str(HERE.parent)]))
            source = SimulatedRandomness(1)
            with simulated(cast, randomness=SimulatedRandomness(3)) as runtime:
                return {one.name: play(one, runtime, source.child(one.name)) for one in scenarios}
    finally:
        log.removeHandler(heard)
        heard.close()


@pytest.mark.full
class TestFlowerSimulation(WholeContract):
    """All scenarios in one simulation."""

    @classmethod
    def play(cls, scenarios: Sequence[Scenario], folder: Path) -> dict[str, Outcome]:
        return played(scenarios, folder)

    def test_a_broken_client_is_noticed_and_only_as_a_code(self, folder: Path) -> None:
        text = (folder / "log").read_text()
        assert "error code 2" in text
        assert SECRET not in text
