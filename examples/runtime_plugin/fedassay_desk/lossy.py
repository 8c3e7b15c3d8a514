"""Simulated clients that fall silent now and then."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from fedassay.protocol.vocabulary import Randomness
from fedassay.runtimes.in_process.runtime import Faithful
from fedassay.runtimes.simulated import SERVERS, SimulatedFederation
from fedassay_desk.card import Lossy


class LossyRuntime(Faithful):
    """Clients of this process, of whom some are lost."""

    name = "lossy"


def start(parameters: Lossy, federation: SimulatedFederation) -> AbstractContextManager[LossyRuntime]:
    """See `fedassay.runtimes.card.RuntimeCard`. Nothing has to be closed."""
    return nullcontext(
        LossyRuntime(
            federation.clients(),
            helpers=federation.servers(),
            drops=losses(parameters.loss, federation.randomness.child("loss")),
            progress=federation.progress,
            asker=federation.asker,
        )
    )


def losses(share: float, randomness: Randomness) -> Callable[[str, int], bool]:
    """Whether a client is lost at a leg of an exchange; servers never are."""

    def lost(name: str, leg: int) -> bool:
        return name not in SERVERS and int(randomness.words(1)[0]) < share * 2**64

    return lost
