"""What fedassay needs to know of the two runtimes: read at every start, so it imports little."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from fedassay.protocol.cards import Named
from fedassay.protocol.parameters import Interval
from fedassay.runtimes.card import ReleaseParameters, RuntimeCard, Seed, SimulationParameters


@dataclass(frozen=True, kw_only=True)
class Lossy(SimulationParameters):
    """A simulation in this process in which clients fall silent: does the trust model stand it?"""

    name: ClassVar[str] = "lossy"
    loss: Annotated[float, Interval(ge=0, lt=1)] = 0.1
    """Lossy: the chance that a client is lost at a leg."""
    seed: Seed | None = None
    """Makes a simulation repeatable."""

    @property
    def tries_policies(self) -> bool:
        """Its clients live as long as the run, and remember what they have allowed."""
        return True


@dataclass(frozen=True, kw_only=True)
class SiteFiles(ReleaseParameters):
    """A release over sites whose files lie on this machine."""

    name: ClassVar[str] = "site-files"
    sites: Path
    """A folder with one folder for each site, and a site.toml in each."""
    key: Path
    """The coordinator's private key (`fedassay keys` makes one)."""

    @property
    def home(self) -> Path:
        """Beside the key: the ledger, and what is needed to go on."""
        return self.key.absolute().parent / "fedassay-state"

    @property
    def signer(self) -> Path:
        """The coordinator's key."""
        return self.key

    @property
    def begun(self) -> bool:
        """Whether a journal has been begun."""
        return any(self.home.glob("*.journal"))


LOSSY = RuntimeCard(
    order=110,
    parameters=Lossy,
    start=Named("fedassay_desk.lossy:start"),
    in_this_process=True,
)

SITE_FILES = RuntimeCard(
    order=120,
    parameters=SiteFiles,
    carry=Named("fedassay_desk.site_files:carry"),
)
