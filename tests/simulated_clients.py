"""Clients in this process, for tests that drive `run` themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fedassay.data.federation import Federation
from fedassay.kernel.client import Site
from fedassay.privacy.ledger.charges import MemoryLedger
from fedassay.privacy.policy.judgement import AllowAll
from fedassay.protocol.vocabulary import Randomness, Rows
from fedassay.runtimes.simulated import SimulatedRuntime
from fedassay.study.simulation import Simulation


def clients_of(federation: Federation, **simulation: object) -> SimulatedRuntime:
    """The runtime of a simulation in this process, of which nothing has to be closed."""
    with Simulation(**simulation).start(federation) as runtime:  # type: ignore[arg-type]
        return runtime


def open_site(name: str, rows: Callable[[], Rows], randomness: Randomness, **other: Any) -> Site:
    """A site that allows everything, and can pay for it."""
    given = {"policy": AllowAll(), "ledger": MemoryLedger(None), "split_key": bytes(32), **other}
    return Site(name=name, dataset=name, rows=rows, randomness=randomness, **given)
