"""Clients in this process, for tests that drive `run` themselves."""

from __future__ import annotations

from fedassay.data.federation import Federation
from fedassay.runtimes.simulated import SimulatedRuntime
from fedassay.study.simulation import Simulation


def clients_of(federation: Federation, **simulation: object) -> SimulatedRuntime:
    """The runtime of a simulation in this process, of which nothing has to be closed."""
    with Simulation(**simulation).start(federation) as runtime:  # type: ignore[arg-type]
        return runtime
