"""Points that are asked for later: from what servers keep, without clients, for nothing, on the same noise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedassay.data.federation import load
from fedassay.errors import BudgetExceeded, FederationError, UnsupportedQuery
from fedassay.kernel.client import Client
from fedassay.kernel.helper import Helper
from fedassay.kernel.journal import MemoryJournal
from fedassay.kernel.run import Job, run
from fedassay.privacy.ledger.charges import MemoryLedger
from fedassay.privacy.randomness import SimulatedRandomness
from fedassay.protocol.vocabulary import Budget, Protection, Setting
from fedassay.runtimes.in_process.runtime import Faithful
from fedassay.runtimes.simulated import SERVERS
from fedassay.tasks.distribution.search import SearchQuantiles
from fedassay.trust.server_dp import ServerDP
from fedassay.trust.two_server.model import TwoServer
from simulated_clients import open_site

ROWS = 40
RNG = np.random.default_rng(5)
DATA = {"site": np.repeat(["a", "b", "c"], ROWS), "x": RNG.random(3 * ROWS) * 100}
BUDGET = Budget(epsilon=2.0)


class Town:
    """Three clients and two servers; `asleep` clients answer nothing."""

    def __init__(self, seed: int = 1, budget: Budget = BUDGET) -> None:
        self.budget = budget
        source, federation = SimulatedRandomness(seed), load(DATA, client="site", columns={"value": "x"})
        self.asleep = False
        clients = [
            Client(
                open_site(
                    name,
                    lambda name=name: federation.rows_of(name),
                    source.child(name),
                    ledger=MemoryLedger(budget),
                )
            )
            for name in federation.clients
        ]
        helpers = [Helper(name, randomness=source.child(name)) for name in SERVERS]
        self.runtime = Faithful(
            clients, helpers=helpers, drops=lambda name, leg: self.asleep and name not in SERVERS
        )
        self.journal, self.ledger = MemoryJournal(), MemoryLedger(budget)
        self.source = source

    def quantiles(self, *quantiles: float, trust: Any = None, points: int = 256) -> dict[str, Any]:
        task = SearchQuantiles(lower=0.0, upper=100.0, points=points, quantiles=quantiles)
        setting = Setting(
            trust=trust or TwoServer(),
            protection=Protection(rows_per_client=ROWS),
            budget=self.budget,
            clients=3,
        )
        job = Job(name="quantiles", task=task, setting=setting)
        results: dict[str, Any] = run(
            [job],
            runtime=self.runtime,
            ledger=self.ledger,
            randomness=self.source.child("server"),
            study="s",
            journal=self.journal,
        )["quantiles"]
        return results


def test_a_later_question_needs_no_client_and_costs_nothing() -> None:
    town = Town()
    first = town.quantiles(0.5)
    rounds = town.runtime.traffic.rounds
    town.asleep = True
    later = town.quantiles(0.5, 0.9)
    assert later["quantiles"][0] == first["quantiles"][0]
    assert later["rows"] == first["rows"]
    assert town.runtime.traffic.rounds > rounds
    assert town.quantiles(0.5, 0.9) == later
    charged = [entry for entry in town.journal.entries() if entry["kind"] == "begun"]
    assert len(charged) == 1


def test_what_is_known_already_is_not_asked_again() -> None:
    town = Town()
    first = town.quantiles(0.5)
    rounds = town.runtime.traffic.rounds
    assert town.quantiles(0.5) == first
    assert town.runtime.traffic.rounds == rounds


def test_another_grid_is_another_release_that_must_be_paid_for() -> None:
    town = Town()
    town.quantiles(0.5)
    with pytest.raises(BudgetExceeded):
        town.quantiles(0.5, points=128)


def test_the_quantile_is_near_and_in_its_interval() -> None:
    """How often intervals hold is measured elsewhere: here there is hardly any noise."""
    found = Town(seed=3, budget=Budget(epsilon=200.0)).quantiles(0.25, 0.5, 0.75)["quantiles"]
    for entry, truth in zip(found, np.quantile(DATA["x"], [0.25, 0.5, 0.75]), strict=True):
        low, high = entry["interval"]
        assert low <= truth <= high
        assert high - low < 25


def test_asleep_from_the_start_is_a_failure() -> None:
    town = Town()
    town.asleep = True
    with pytest.raises(FederationError):
        town.quantiles(0.5)


def test_a_server_that_misses_a_message_is_asked_again_when_the_run_goes_on() -> None:
    town = Town()
    lost = town.runtime.helpers[1]
    town.runtime._drops = lambda name, leg: name == lost and leg == 3
    with pytest.raises(FederationError, match=lost):
        town.quantiles(0.5)
    town.runtime._drops = lambda name, leg: False
    assert town.quantiles(0.5)["quantiles"][0]["value"] is not None
    town.asleep = True
    town.runtime._drops = lambda name, leg: name == lost and leg > 3
    with pytest.raises(FederationError, match=lost):
        town.quantiles(0.5, 0.9)
    town.runtime._drops = lambda name, leg: name not in SERVERS
    assert len(town.quantiles(0.5, 0.9)["quantiles"]) == 2


def test_other_trust_models_refuse_points_before_a_row_is_read() -> None:
    with pytest.raises(UnsupportedQuery):
        Town().quantiles(0.5, trust=ServerDP())
