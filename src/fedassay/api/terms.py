"""What all entry points share: who is trusted with what, which columns are read, how it is simulated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from fedassay.agenda import Alone
from fedassay.data.partition import Partition
from fedassay.data.schema import Columns
from fedassay.errors import UsageError
from fedassay.protocol import Budget, Protection, Setting, TrustModel
from fedassay.result import Result
from fedassay.simulation import Simulation, simulate
from fedassay.trust.secure_sum import SecureSum


@dataclass(frozen=True, kw_only=True)
class Roles:
    """Which column plays which role, and how rows become clients; see `data.federation.load`."""

    names: Mapping[str, str]
    client: str | Partition | None = None

    def __post_init__(self) -> None:
        column = self.client
        if isinstance(column, Partition):
            column.label_role(self.names)
            column = column.column
        object.__setattr__(self, "names", Columns(names=self.names, client=column).names)

    def to_json(self) -> dict[str, Any]:
        """As they were given, for the parameters of a result."""
        if not isinstance(self.client, Partition):
            return {"client": self.client, **self.names}
        size = {} if self.client.clients is None else {"clients": self.client.clients}
        return {"client": self.client.column, "partition": self.client.spec, **size, **self.names}


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
        for name, given, kind in (("trust", trust, TrustModel), ("budget", budget, Budget)):
            if given is not None and not isinstance(given, kind):
                raise UsageError(
                    f"{name}: got {given!r}, expected an object such as "
                    + ("fedassay.ServerDP()." if name == "trust" else "fedassay.Budget(epsilon=1.0).")
                )
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

    def roles(self, client: str | Partition | None, **named: str | None) -> Roles:
        """The columns that were named, by role; a partition without a seed gets that of the simulation, or a fresh one.

        Entry points may read the data several times: rows must be dealt alike each time.
        """
        owner = client.seeded(self.simulation.seed) if isinstance(client, Partition) else client
        return Roles(names={role: name for role, name in named.items() if name is not None}, client=owner)

    def simulate(
        self, name: str, task: Any, data: Any, columns: Roles, more: Mapping[str, Any] | None = None
    ) -> Result:
        """Run a task; its parameters are the columns, the task's own fields, and `more`."""
        return simulate(
            Alone(name=name, task=task),
            data,
            columns=columns.names,
            client=columns.client,
            trust=self.trust,
            budget=self.budget,
            protection=self.protection,
            parameters={**columns.to_json(), **asdict(task), **(more or {})},
            simulation=self.simulation,
        )
