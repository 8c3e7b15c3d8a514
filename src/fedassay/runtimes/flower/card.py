"""The cards of Flower: a simulation on Ray, and a release on a SuperLink."""

from __future__ import annotations

from fedassay.cards import Named
from fedassay.runtimes.card import RuntimeCard
from fedassay.runtimes.flower.parameters import FlowerDeployment, FlowerSimulation

FLOWER = RuntimeCard(
    order=20,
    parameters=FlowerSimulation,
    start=Named("fedassay.runtimes.flower.start:start"),
)

FLOWER_DEPLOYMENT = RuntimeCard(
    order=40,
    parameters=FlowerDeployment,
    carry=Named("fedassay.runtimes.flower.deployment:carry"),
)
