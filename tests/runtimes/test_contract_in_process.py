"""The contract of runtimes in this process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from runtime_contract import WholeContract
from scenarios import HELPER, ROWS, SUMMARIES, TRUSTED, Outcome, Scenario, ToyRows, play

from fedassay.kernel.client import Client
from fedassay.kernel.helper import Helper
from fedassay.privacy.randomness import SimulatedRandomness
from fedassay.runtimes.in_process.runtime import Faithful
from simulated_clients import open_site


class TestInProcess(WholeContract):
    """A new set of clients for each scenario."""

    @classmethod
    def play(cls, scenarios: Sequence[Scenario], folder: Path) -> dict[str, Outcome]:
        source = SimulatedRandomness(1)
        return {one.name: play(one, federation(one.lost), source.child(one.name)) for one in scenarios}


def federation(lost: str | None, *, kind: type[Faithful] = Faithful) -> Faithful:
    source = SimulatedRandomness(7)
    clients = [
        Client(
            open_site(name, lambda values=values: ToyRows(values), source.child(name)),
            summaries=SUMMARIES,
            trust_models=TRUSTED,
        )
        for name, values in ROWS.items()
    ]
    helper = Helper(HELPER, randomness=source.child(HELPER), summaries=SUMMARIES, trust_models=TRUSTED)
    return kind(clients, helpers=[helper], drops=lambda name, leg: name == lost)
