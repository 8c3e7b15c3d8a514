"""The card of the simulation in this process."""

from __future__ import annotations

from fedassay.cards import Named
from fedassay.runtimes.card import RuntimeCard
from fedassay.runtimes.in_process.parameters import InProcess

IN_PROCESS = RuntimeCard(
    order=10,
    parameters=InProcess,
    start=Named("fedassay.runtimes.in_process.start:start"),
    in_this_process=True,
)
