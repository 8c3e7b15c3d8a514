"""The clients of a simulation in this process."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from fedassay.runtimes.in_process.aggregate import Aggregate
from fedassay.runtimes.in_process.faithful import Faithful
from fedassay.runtimes.in_process.parameters import InProcess
from fedassay.runtimes.simulated import SimulatedFederation


def start(
    parameters: InProcess, federation: SimulatedFederation
) -> AbstractContextManager[Faithful | Aggregate]:
    """See `RuntimeCard`. Nothing has to be closed."""
    single = federation.single and parameters.mode == "auto"
    passes = parameters.passes_messages(federation.rows.client_count, policy=federation.policy is not None)
    if single or passes:
        return nullcontext(
            Faithful(
                federation.clients(),
                helpers=federation.servers(),
                progress=federation.progress,
                asker=federation.asker,
            )
        )
    return nullcontext(
        Aggregate(
            federation.rows,
            randomness=federation.randomness.child("limit"),
            split_key=federation.split_key,
            holdout=federation.holdout,
        )
    )
