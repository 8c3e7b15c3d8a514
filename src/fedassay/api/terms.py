"""Common terms of all entry points: trust model, columns, simulation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedassay.data.partition import Partition
from fedassay.data.schema import Columns
from fedassay.errors import ParameterError
from fedassay.kernel.agenda import Agenda, Alone
from fedassay.protocol.parameters import meant, parameters, shown, values_of
from fedassay.protocol.result import Result
from fedassay.protocol.vocabulary import Budget, Protection, Setting, TrustModel
from fedassay.study.simulation import Simulation, simulate
from fedassay.tasks.card import KINDS, task_of
from fedassay.trust import TRUST_MODELS, SecureSum


def declared(kind: type[Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of an entry point that are parameters of this kind of task: they have the same names.

    Parameters
    ----------
    arguments : the result of `locals` at the beginning of an entry point.
    """
    names = {one.name for one in parameters(kind)}
    return {name: value for name, value in arguments.items() if name in names}


def parameters_of(
    kind: type[Any], other: type[Any], given: Mapping[str, Any], *, instead: str
) -> dict[str, Any]:
    """Return the parameters of the first of two kinds of tasks; those of the other must have their defaults.

    Parameters
    ----------
    given : the arguments of an entry point for both kinds; None stands for the default of either.
    instead : the error for an argument of the other kind.
    """
    own = declared(kind, given)
    for one in parameters(other):
        if one.name not in own and given.get(one.name, one.default) != one.default:
            raise ParameterError(one.name, f"{instead}; leave out `{one.name}`.")
    return own


def trust_model(privacy: TrustModel | str | None) -> TrustModel:
    """Return the trust model of a name, with its defaults; an object unchanged; a secure sum for None.

    Examples
    --------
    >>> trust_model("server-dp").name, trust_model(None).name
    ('server-dp', 'secure-sum')
    >>> trust_model("securesum")
    Traceback (most recent call last):
    fedassay.errors.ParameterError: privacy: got 'securesum' (did you mean 'secure-sum'?); expected plain, secure-sum, \
distributed-dp, local-dp, server-dp, two-server, shuffle.
    """
    name = SecureSum.name if privacy is None else privacy
    if isinstance(name, TrustModel):
        return name
    if not isinstance(name, str):
        raise ParameterError(
            "privacy", f"got {shown(name)}, expected a name such as 'server-dp', or an object."
        )
    if name not in TRUST_MODELS:
        raise ParameterError("privacy", f"got {name!r}{meant(name, TRUST_MODELS)}.")
    return TRUST_MODELS[name]()


@dataclass(frozen=True, kw_only=True)
class Roles:
    """Columns by role, and the rule by which rows become clients; see `data.federation.load`."""

    names: Mapping[str, str]
    client: str | Partition | None = None

    def __post_init__(self) -> None:
        column = self.client
        if isinstance(column, Partition):
            column.label_role(self.names)
            column = column.column
        object.__setattr__(self, "names", Columns(names=self.names, client=column).names)

    def to_json(self) -> dict[str, Any]:
        """Return the roles as they were given, for the parameters of a result."""
        if not isinstance(self.client, Partition):
            return {"client": self.client, **self.names}
        size = {} if self.client.clients is None else {"clients": self.client.clients}
        return {"client": self.client.column, "partition": self.client.spec, **size, **self.names}


@dataclass(frozen=True, kw_only=True)
class EntryTerms:
    """Trust model, budget, protection and simulation: the same for every task."""

    trust: TrustModel
    budget: Budget | None
    protection: Protection
    simulation: Simulation

    @classmethod
    def of(
        cls,
        privacy: TrustModel | str | None,
        budget: Budget | None,
        protection: Protection | None,
        simulation: Simulation | None,
    ) -> EntryTerms:
        """Return the given terms, and defaults for the rest: a secure sum, one example, a faithful simulation."""
        for name, given, kind, such_as in (
            ("budget", budget, Budget, "Budget(epsilon=1.0)"),
            ("protection", protection, Protection, 'Protection(unit="example")'),
            ("simulation", simulation, Simulation, "Simulation(seed=1)"),
        ):
            if given is not None and not isinstance(given, kind):
                raise ParameterError(
                    name, f"got {shown(given)}, expected an object such as fedassay.{such_as}."
                )
        return cls(
            trust=trust_model(privacy),
            budget=budget,
            protection=Protection() if protection is None else protection,
            simulation=Simulation() if simulation is None else simulation,
        )

    @property
    def setting(self) -> Setting:
        """Setting that is known before the data are opened; the number of clients is not."""
        return Setting(trust=self.trust, protection=self.protection, budget=self.budget, clients=0)

    def roles(self, client: str | Partition | None, **named: str | None) -> Roles:
        """Return the named columns by role; a partition without a seed gets that of the simulation, or a fresh seed.

        Entry points may read the data several times: rows must be dealt alike each time.
        """
        owner = client.seeded(self.simulation.seed) if isinstance(client, Partition) else client
        return Roles(names={role: name for role, name in named.items() if name is not None}, client=owner)

    def rows(self, data: Any, columns: Roles) -> Any:
        """Return the data, without rows with missing values if the simulation leaves these out."""
        return self.simulation.rows(data, columns.names)

    def simulate(
        self, name: str, task: Any, data: Any, columns: Roles, more: Mapping[str, Any] | None = None
    ) -> Result:
        """Run a task; its parameters are the columns, the task's own fields, and `more`."""
        given = {**columns.to_json(), **values_of(task), **(more or {})}
        return self.simulated(Alone(name=name, task=task), data, columns, given)

    def simulated(
        self, agenda: Agenda | Alone, data: Any, columns: Roles, parameters: Mapping[str, Any], **study: Any
    ) -> Result:
        """Run an agenda; `study` holds the arguments of `simulate` that only a study has."""
        return simulate(
            agenda,
            data,
            columns=columns.names,
            client=columns.client,
            trust=self.trust,
            budget=self.budget,
            protection=self.protection,
            parameters=parameters,
            simulation=self.simulation,
            **study,
        )


# --- entry point for kinds of tasks without their own -------------------------------------------------------


def run_task(
    kind: str,
    data: Any,
    *,
    columns: Mapping[str, str],
    client: str | Partition | None = None,
    privacy: TrustModel | str | None = None,
    budget: Budget | None = None,
    protection: Protection | None = None,
    simulation: Simulation | None = None,
    **parameters: Any,
) -> Result:
    """Run any kind of task that is installed over the rows of simulated clients.

    Parameters
    ----------
    kind : its name, such as ``"evaluate"`` or that of a kind from another package.
    columns : role to column, such as ``{"score": "p", "label": "y"}``.
    data, client, privacy, budget, protection, simulation : as in `evaluate`.
    parameters : of the task, by their names; unknown ones are refused.

    Examples
    --------
    >>> import numpy as np
    >>> score = np.linspace(0.05, 0.95, 400)
    >>> data = {"p": score, "y": (np.arange(400) % 10 < 10 * score).astype(int), "site": np.arange(400) % 4}
    >>> result = run_task("evaluate", data, columns={"score": "p", "label": "y"}, client="site", thresholds=[0.3])
    >>> result["thresholds"][0]["threshold"]
    0.3
    """
    terms = EntryTerms.of(privacy, budget, protection, simulation)
    card = KINDS.named(kind)
    roles = terms.roles(client, **columns)
    return terms.simulate(card.name, task_of(card.name, parameters), terms.rows(data, roles), roles)
