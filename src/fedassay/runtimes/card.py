"""Card of a runtime: its description for every face.

Parameters of runtimes: the section [runtime] of a study, and the options and arguments that say the same.

Each runtime declares its own as a frozen dataclass that inherits one of the classes here, in its package, next to its
card. It must be light to import: whatever carries messages stands elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from fedassay.errors import ParameterError
from fedassay.protocol.cards import Catalogue, Named
from fedassay.protocol.parameters import Checked, Interval, meant

if TYPE_CHECKING:
    from fedassay.protocol.result import Result
    from fedassay.protocol.vocabulary import Query
    from fedassay.runtimes.released import StudyRun
    from fedassay.runtimes.simulated import SimulatedFederation, SimulatedRuntime

    Start = Callable[[Any, SimulatedFederation], AbstractContextManager[SimulatedRuntime]]
    Carry = Callable[[Any, StudyRun], Result | None]


# --- parameters of runtimes ---------------------------------------------------------------------------------

Seed = Annotated[int, Interval(ge=0)]
"""Seed that makes a simulation repeatable."""


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
        """True if its clients remember what they have allowed, so that a policy can be tried."""
        return False

    def passes_messages(self, clients: int, *, policy: bool) -> bool:
        """Return whether single messages are passed if there are `clients` clients, with or without a policy to try."""
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
        """True if an earlier call has begun a study here, as far as this machine can tell."""
        return False


# --- the card of a runtime ----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class RuntimeCard:
    """Description of a runtime for the faces.

    Parameters
    ----------
    order : place in lists and help.
    parameters : its section of a study, and its options.
    start : for a simulation, starts its clients: called with the parameters and a `SimulatedFederation`. The value of
        the context manager is the runtime, which `run` drives.
    carry : for a release, runs a study between sites: called with the parameters and a `StudyRun`. It returns the
        result, or None while sites have yet to answer.
    options : more options of `fedassay run`, which `StudyRun.options` then has.
    in_this_process : for a simulation, True if clients are objects of this process, so that code of one's own reaches
        them.
    anew : things that a study needs in addition to another name to begin anew.
    """

    order: int
    parameters: type[RuntimeParameters]
    start: Named[Start] | None = None
    carry: Named[Carry] | None = None
    options: type[Checked] | None = None
    in_this_process: bool = False
    anew: str = ""

    def __post_init__(self) -> None:
        kind = ReleaseParameters if self.start is None else SimulationParameters
        if (self.start is None) == (self.carry is None) or not issubclass(self.parameters, kind):
            raise TypeError(
                f"{self.name}: expected `start` with SimulationParameters, or `carry` with ReleaseParameters."
            )

    @property
    def name(self) -> str:
        """The name of the runtime."""
        return self.parameters.name

    @property
    def simulated(self) -> bool:
        """True if it simulates clients; otherwise it asks real ones."""
        return self.parameters.simulated


RUNTIME_CARDS: Catalogue[RuntimeCard] = Catalogue(
    "fedassay.runtimes", ("fedassay.runtimes.*.card",), what="runtime"
)
"""Runtimes that are installed."""

DEFAULT = "in-process"
"""Runtime where none is named."""


def simulations() -> dict[str, type[SimulationParameters]]:
    """Return the parameters of the runtimes that simulate clients, by name."""
    return {
        name: card.parameters
        for name, card in RUNTIME_CARDS.items()
        if issubclass(card.parameters, SimulationParameters)
    }


def simulation_named(name: str) -> type[SimulationParameters]:
    """Return the parameters of the runtime of this name, if it simulates clients."""
    known = simulations()
    if name not in known:
        raise ParameterError("runtime", f"got {name!r}{meant(name, known)}.")
    return known[name]
