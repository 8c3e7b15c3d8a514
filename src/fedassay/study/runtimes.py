"""The section [runtime] of a study file: one dataclass for each way to carry messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from fedassay.errors import UsageError

MODES = ("auto", "faithful", "aggregate")
LONGEST_WAIT = 86_400.0


@dataclass(frozen=True, kw_only=True)
class InProcess:
    """A simulation in this process.

    Parameters
    ----------
    seed : makes the simulation repeatable.
    mode : faithful passes every message, aggregate draws totals from their law, auto is faithful for few clients.
    """

    name: ClassVar[str] = "in-process"
    simulated: ClassVar[bool] = True
    seed: int | None = None
    mode: str = "auto"

    def __post_init__(self) -> None:
        _check_seed(self.seed)
        if self.mode not in MODES:
            raise UsageError(f"mode: got {self.mode!r}, expected one of {', '.join(MODES)}.")


@dataclass(frozen=True, kw_only=True)
class FlowerSimulation:
    """A simulation on Flower, with its clients on Ray.

    Parameters
    ----------
    seed : makes the simulation repeatable.
    """

    name: ClassVar[str] = "flower"
    simulated: ClassVar[bool] = True
    seed: int | None = None

    def __post_init__(self) -> None:
        _check_seed(self.seed)


@dataclass(frozen=True, kw_only=True)
class FileDrop:
    """A release by signed files in a folder that is carried to and from the sites.

    Parameters
    ----------
    drop : the folder that carries the files.
    key : the coordinator's private key (`fedassay keys` makes one).
    roster : the names and public keys of the sites (roster.toml).
    state : a private folder of the coordinator; fedassay-state beside the key if nothing is said.
    """

    name: ClassVar[str] = "file-drop"
    simulated: ClassVar[bool] = False
    drop: Path
    key: Path
    roster: Path
    state: Path | None = None

    @property
    def home(self) -> Path:
        """The private folder of the coordinator."""
        return self.key.absolute().parent / "fedassay-state" if self.state is None else self.state


@dataclass(frozen=True, kw_only=True)
class FlowerDeployment:
    """A release on a SuperLink.

    Parameters
    ----------
    app : the folder of the app (`fedassay flower app` writes it).
    address : the SuperLink, HOST:PORT.
    root_certificates : by which the SuperLink is recognised.
    insecure : without TLS, for a test on one machine.
    connection : in the place of an address, a connection in Flower's own settings.
    timeout : seconds that a site has for each leg.
    wait : seconds to wait for sites that are not there yet.
    """

    name: ClassVar[str] = "flower-deployment"
    simulated: ClassVar[bool] = False
    app: Path
    address: str | None = None
    root_certificates: Path | None = None
    insecure: bool = False
    connection: str | None = None
    timeout: float = 120.0
    wait: float = 60.0

    def __post_init__(self) -> None:
        if (self.address is None) == (self.connection is None):
            raise UsageError("address: expected either an address, HOST:PORT, or the name of a connection.")
        if self.address is not None and self.insecure == (self.root_certificates is not None):
            raise UsageError(
                "address: expected root_certificates, by which the SuperLink is recognised, or insecure = true for a "
                "test on one machine."
            )
        if not 0 < self.timeout <= LONGEST_WAIT:
            raise UsageError(f"timeout: got {self.timeout:g}, expected seconds above 0, at most a day.")
        if not 0 <= self.wait <= LONGEST_WAIT:
            raise UsageError(f"wait: got {self.wait:g}, expected seconds from 0, at most a day.")


Runtime = InProcess | FlowerSimulation | FileDrop | FlowerDeployment
"""What carries the messages."""

RUNTIMES: Mapping[str, type[Runtime]] = {
    kind.name: kind for kind in (InProcess, FlowerSimulation, FileDrop, FlowerDeployment)
}


def _check_seed(seed: int | None) -> None:
    if seed is not None and seed < 0:
        raise UsageError(f"seed: got {seed}, expected a whole number of at least 0.")
