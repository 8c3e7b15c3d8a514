"""The card of the file drop."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from fedassay.protocol.cards import Named
from fedassay.protocol.parameters import Checked
from fedassay.runtimes.card import ReleaseParameters, RuntimeCard

# --- the parameters of a study by files ---------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class FileDrop(ReleaseParameters):
    """A release by signed files in a folder that is carried to and from the sites."""

    name: ClassVar[str] = "file-drop"
    drop: Path
    """Folder that carries the files."""
    key: Path
    """Private key of the coordinator (`fedassay keys` makes one)."""
    roster: Path
    """Names and public keys of the sites (roster.toml)."""
    state: Path | None = None
    """Private folder of the coordinator. Default: fedassay-state next to the key."""

    @property
    def home(self) -> Path:
        """The private folder of the coordinator."""
        return self.key.absolute().parent / "fedassay-state" if self.state is None else self.state

    @property
    def signer(self) -> Path:
        """The coordinator's key."""
        return self.key

    @property
    def begun(self) -> bool:
        """True if a study has been announced in the drop."""
        from fedassay.runtimes.file_drop.letters import ANNOUNCEMENT

        return (self.drop / ANNOUNCEMENT).exists()


@dataclass(frozen=True, kw_only=True)
class Passes(Checked):
    """What a call may decide about the pass that is open."""

    close: bool = False
    """By files: go on without the sites that have not answered the open pass."""


# --- the card of the file drop ------------------------------------------------------------------------------

FILE_DROP = RuntimeCard(
    order=30,
    parameters=FileDrop,
    carry=Named("fedassay.runtimes.file_drop.coordinator:carry"),
    options=Passes,
    anew="another drop",
)
