"""The clients of a simulation on Flower."""

from __future__ import annotations

from contextlib import AbstractContextManager

from fedassay.runtimes import flower
from fedassay.runtimes.flower.parameters import FlowerSimulation
from fedassay.runtimes.simulated import SimulatedFederation, SimulatedRuntime


def start(
    parameters: FlowerSimulation, federation: SimulatedFederation
) -> AbstractContextManager[SimulatedRuntime]:
    """See `RuntimeCard`; Flower and Ray are an extra."""
    flower.require("flwr", "ray")
    from fedassay.runtimes.flower.simulation import simulated_federation

    return simulated_federation(federation)
