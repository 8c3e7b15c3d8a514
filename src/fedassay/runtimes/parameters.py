"""Parameters of runtimes: the section [runtime] of a study, and the options and arguments that say the same.

Each runtime declares its own as a frozen dataclass that inherits one of the classes here, in its package, next to its
card. It must be light to import: whatever carries messages stands elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from fedassay.parameters import Checked, Interval

if TYPE_CHECKING:
    from fedassay.protocol import Query

Seed = Annotated[int, Interval(ge=0)]
"""What makes a simulation repeatable."""


class RuntimeParameters(Checked):
    """The parameters of a runtime; a subclass is a frozen dataclass."""

    name: ClassVar[str]
    """Of the runtime, in studies, options and arguments."""
    simulated: ClassVar[bool]
    """Whether one process holds all rows, so that nothing is really protected."""


class SimulationParameters(RuntimeParameters):
    """The parameters of a runtime that simulates clients; `seed` must be one of them (``seed: Seed | None = None``)."""

    simulated = True
    seed: int | None

    @property
    def tries_policies(self) -> bool:
        """Whether its clients remember what they have allowed, so that a policy can be tried."""
        return False

    def passes_messages(self, clients: int, *, policy: bool) -> bool:
        """Whether messages of single clients are passed if there are so many, with or without a policy to try."""
        return True

    def require(self, queries: Iterable[Query[Any]]) -> None:
        """Refuse queries that these parameters do not allow; called before data are read."""


class ReleaseParameters(RuntimeParameters):
    """The parameters of a runtime between real sites."""

    simulated = False

    @property
    def home(self) -> Path | None:
        """The coordinator's private folder with its ledger; None if the coordinator's ledger is on another machine."""
        return None

    @property
    def signer(self) -> Path | None:
        """The private key that signs the certificate if no other is named."""
        return None

    @property
    def begun(self) -> bool:
        """Whether an earlier call has begun a study here, as far as this machine can tell."""
        return False
