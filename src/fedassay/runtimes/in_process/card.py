"""The card of the simulation in this process."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from fedassay.protocol.cards import Named
from fedassay.runtimes.card import RuntimeCard, Seed, SimulationParameters

if TYPE_CHECKING:
    from fedassay.protocol.vocabulary import Query


# --- the parameters of a simulation in this process ---------------------------------------------------------

Mode = Literal["auto", "faithful", "aggregate"]

LARGEST_FAITHFUL = 250
"""Largest number of clients that mode "auto" simulates by messages; above, it draws totals in aggregate."""


@dataclass(frozen=True, kw_only=True)
class InProcess(SimulationParameters):
    """A simulation in this process."""

    name: ClassVar[str] = "in-process"
    mode: Mode = "auto"
    """In-process: messages (faithful) or totals drawn from their law (aggregate); auto is faithful for few clients."""
    seed: Seed | None = None
    """Seed that makes the simulation repeatable."""

    @property
    def tries_policies(self) -> bool:
        """True unless totals are drawn: then there are no clients to remember anything."""
        return self.mode != "aggregate"

    def passes_messages(self, clients: int, *, policy: bool) -> bool:
        """Return whether messages are passed: in mode "auto" only of few clients, or to try a policy."""
        return self.mode == "faithful" or (self.mode == "auto" and (clients <= LARGEST_FAITHFUL or policy))

    def require(self, queries: Iterable[Query[Any]]) -> None:
        """Refuse what cannot be drawn in aggregate, if it would be."""
        if self.mode == "aggregate":
            from fedassay.runtimes.in_process.runtime import require_sum

            for query in queries:
                require_sum(query)


# --- the card of the simulation in this process -------------------------------------------------------------

IN_PROCESS = RuntimeCard(
    order=10,
    parameters=InProcess,
    start=Named("fedassay.runtimes.in_process.runtime:start"),
    in_this_process=True,
)
