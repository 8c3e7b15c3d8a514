"""The cards of Flower: a simulation on Ray, and a release on a SuperLink."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from fedassay.errors import ParameterError
from fedassay.protocol.cards import Named
from fedassay.protocol.parameters import Interval
from fedassay.runtimes.card import ReleaseParameters, RuntimeCard, Seed, SimulationParameters

# --- the parameters of Flower -------------------------------------------------------------------------------

LONGEST_WAIT = 86_400
"""Seconds: a day."""


@dataclass(frozen=True, kw_only=True)
class FlowerSimulation(SimulationParameters):
    """A simulation on Flower, with its clients on Ray."""

    name: ClassVar[str] = "flower"
    seed: Seed | None = None
    """Seed that makes the simulation repeatable."""


@dataclass(frozen=True, kw_only=True)
class FlowerDeployment(ReleaseParameters):
    """A release on a SuperLink."""

    name: ClassVar[str] = "flower-deployment"
    app: Path
    """Folder of the app (`fedassay flower app` writes it)."""
    address: str | None = None
    """Address of the SuperLink, HOST:PORT."""
    root_certificates: Path | None = None
    """Certificates by which the SuperLink is recognised."""
    insecure: bool = False
    """Connect without TLS, for a test on one machine."""
    connection: str | None = None
    """Name of a connection in Flower's own settings, in the place of an address."""
    timeout: Annotated[float, Interval(gt=0, le=LONGEST_WAIT)] = 120.0
    """Seconds that a site has for each leg."""
    wait: Annotated[float, Interval(ge=0, le=LONGEST_WAIT)] = 60.0
    """Seconds to wait for sites that are not there yet."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.address is None) == (self.connection is None):
            raise ParameterError(
                "address", "expected either an address, HOST:PORT, or the name of a connection."
            )
        if self.address is not None and self.insecure == (self.root_certificates is not None):
            raise ParameterError(
                "address",
                "expected root_certificates, by which the SuperLink is recognised, or insecure = true for a test on "
                "one machine.",
            )


# --- the cards of Flower ------------------------------------------------------------------------------------

FLOWER = RuntimeCard(
    order=20, parameters=FlowerSimulation, start=Named("fedassay.runtimes.flower.simulation:start")
)

FLOWER_DEPLOYMENT = RuntimeCard(
    order=40, parameters=FlowerDeployment, carry=Named("fedassay.runtimes.flower.submission:carry")
)
