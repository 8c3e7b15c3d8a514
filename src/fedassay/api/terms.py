"""What all entry points share: who is trusted with what, which columns are read, how it is simulated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from fedassay.data.schema import Columns
from fedassay.protocol import Budget, Protection, Setting, TrustModel
from fedassay.result import Result
from fedassay.simulation import Simulation, simulate
from fedassay.trust.secure_sum import SecureSum


@dataclass(frozen=True, kw_only=True)
class Terms:
    """Who is trusted with what, and how it is simulated: the same for every task."""

    trust: TrustModel
    budget: Budget | None
    protection: Protection
    simulation: Simulation

    @classmethod
    def of(
        cls,
        trust: TrustModel | None,
        budget: Budget | None,
        protection: Protection | None,
        simulation: Simulation | None,
    ) -> Terms:
        """What was given, and the defaults of the rest: a secure sum, one example, a faithful simulation."""
        return cls(
            trust=SecureSum() if trust is None else trust,
            budget=budget,
            protection=Protection() if protection is None else protection,
            simulation=Simulation() if simulation is None else simulation,
        )

    @property
    def setting(self) -> Setting:
        """What can be known before the data are opened: not how many clients there are."""
        return Setting(trust=self.trust, protection=self.protection, budget=self.budget, clients=0)

    def simulate(
        self, name: str, task: Any, data: Any, columns: Columns, more: Mapping[str, Any] | None = None
    ) -> Result:
        """Run a task; its parameters are the columns, the task's own fields, and `more`."""
        return simulate(
            name,
            task,
            data,
            columns=columns.names,
            client=columns.client,
            trust=self.trust,
            budget=self.budget,
            protection=self.protection,
            parameters={"client": columns.client, **columns.names, **asdict(task), **(more or {})},
            simulation=self.simulation,
        )


def columns_of(client: str | None, **roles: str | None) -> Columns:
    """The columns that were named, by role."""
    return Columns(names={role: name for role, name in roles.items() if name is not None}, client=client)
