"""The options that every data command takes, and what they mean as objects."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from fedassay.data.partition import Partition
from fedassay.data.sources import source_named
from fedassay.data.sql import Database
from fedassay.errors import PolicyRefusal, UsageError
from fedassay.privacy.disclosure import PROFILES, Disclosure, profile_named
from fedassay.privacy.policy_file import PolicyFile
from fedassay.protocol import Budget, Neighbours, Protection, TrustModel, Unit
from fedassay.simulation import Simulation
from fedassay.sites import policy_file
from fedassay.trust import TRUST_MODELS


class Mode(StrEnum):
    """How the in-process runtime simulates clients."""

    AUTO = "auto"
    FAITHFUL = "faithful"
    AGGREGATE = "aggregate"


T = TypeVar("T")
Source = Path | Database
"""Where rows are."""

Client = str | Partition | None
"""How rows become clients: by a column, dealt out, or each row by itself."""

ClientColumn = Annotated[
    str | None,
    typer.Option("--client", help="Column that names the client. Without it every row is its own client."),
]
JsonFile = Annotated[
    str | None,
    typer.Option("--json", metavar="FILE", help="Write the result as JSON; - for standard output."),
]
ReportFile = Annotated[
    Path | None, typer.Option("--report", metavar="FILE.html", help="Write a page with tables and plots.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]


@dataclass(frozen=True, kw_only=True)
class Terms:
    """The trust model, the budget and the protection that the options ask for."""

    trust: TrustModel
    budget: Budget | None
    protection: Protection


def takes(*groups: Callable[..., Any]) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Give a command shared options: where it has a parameter named like a group, it gets what the group makes.

    A group is a function from options to an object, such as `terms`. Its options stand in the place of the
    parameter, in the help too. A group may be made of groups.
    """
    signatures = {group.__name__: inspect.signature(group, eval_str=True) for group in groups}

    def decorate(command: Callable[..., T]) -> Callable[..., T]:
        @wraps(command)
        def called(**given: Any) -> T:
            made = {
                group.__name__: group(
                    **{name: given.pop(name) for name in signatures[group.__name__].parameters}
                )
                for group in groups
            }
            return command(**given, **made)

        parameters: list[inspect.Parameter] = []
        for parameter in inspect.signature(command, eval_str=True).parameters.values():
            shared = signatures.get(parameter.name)
            parameters += [parameter] if shared is None else shared.parameters.values()
        parameters = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters]
        # Typer reads both.
        called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        called.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return called

    return decorate


def data(
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA",
            help="A .parquet, .csv or .npz file, a folder with one file per site, or a database URL with --query.",
        ),
    ],
    query: Annotated[
        str | None, typer.Option(help="With a database URL: the SELECT whose rows are used.")
    ] = None,
) -> Source:
    """Where the rows are; nothing is opened yet."""
    return source_named(data, query)


def client(
    client: ClientColumn = None,
    partition: Annotated[
        str | None,
        typer.Option(
            metavar="SPEC",
            help="In the place of --client: deal the rows to --clients simulated clients, iid or dirichlet:BETA "
            "(skewed labels, 0.1 strongly); or by:COLUMN.",
        ),
    ] = None,
    clients: Annotated[
        int | None, typer.Option(help="With --partition iid or dirichlet:BETA: how many clients.")
    ] = None,
) -> Client:
    """How rows become the clients of a simulation."""
    if partition is None:
        if clients is not None:
            raise UsageError(
                f"--clients: got {clients} without a partition, expected both; give --partition iid, say."
            )
        return client
    if client is not None:
        raise UsageError(
            f"--partition: got {partition!r} together with --client {client}, expected one of them; leave one out."
        )
    return Partition(partition, clients=clients)


def terms(
    privacy: Annotated[
        str, typer.Option(help="Trust model: " + ", ".join(TRUST_MODELS) + ".")
    ] = "secure-sum",
    epsilon: Annotated[
        float | None, typer.Option(help="Privacy budget; required by trust models that add noise.")
    ] = None,
    delta: Annotated[
        float, typer.Option(help="Failure probability of the privacy guarantee; 0 is pure.")
    ] = 0.0,
    unit: Annotated[
        Unit, typer.Option(help="What privacy protects: one example, or one client.")
    ] = Unit.EXAMPLE,
    neighbours: Annotated[
        Neighbours, typer.Option(help="Which data sets must look alike.")
    ] = Neighbours.ADD_REMOVE,
    rows_per_client: Annotated[
        int | None,
        typer.Option(
            help="Bound on the rows of one client (required for unit client); excess rows are left out."
        ),
    ] = None,
    dropout: Annotated[
        float | None,
        typer.Option(help="secure-sum, distributed-dp, shuffle: the share of clients that may fall silent."),
    ] = None,
    collusion: Annotated[
        float | None,
        typer.Option(
            help="secure-sum, distributed-dp, shuffle: the share of clients that may help the server."
        ),
    ] = None,
    minimum_cohort: Annotated[
        int | None,
        typer.Option(
            help="secure-sum, distributed-dp, shuffle: the fewest clients over which there is a release (3)."
        ),
    ] = None,
) -> Terms:
    """Make sense of the privacy options, or say what is wrong with them."""
    if privacy not in TRUST_MODELS:
        available = ", ".join(TRUST_MODELS)
        raise UsageError(f"--privacy: {privacy!r} is not a trust model; expected one of {available}.")
    chosen = {"dropout": dropout, "collusion": collusion, "minimum_cohort": minimum_cohort}
    trust = _trust_model(privacy, chosen)
    if trust.private and epsilon is None:
        raise UsageError(
            f"--privacy {privacy}: it adds noise, so it needs a budget; give --epsilon (1, say)."
        )
    if not trust.private and (epsilon is not None or delta):
        raise UsageError(
            f"--privacy {privacy}: it adds no noise, so --epsilon and --delta would promise nothing; "
            "leave them out or choose --privacy server-dp."
        )
    budget = None if epsilon is None else Budget(epsilon=epsilon, delta=delta)
    protection = Protection(unit=unit, neighbours=neighbours, rows_per_client=rows_per_client)
    return Terms(trust=trust, budget=budget, protection=protection)


def _trust_model(name: str, given: Mapping[str, float | None]) -> TrustModel:
    kind = TRUST_MODELS[name]
    wanted = {option: value for option, value in given.items() if value is not None}
    known = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    for option in wanted:
        if option not in known:
            raise UsageError(f"--{option.replace('_', '-')}: {name} has no such parameter; leave it out.")
    return kind(**wanted)


def disclosure(
    disclosure: Annotated[
        str | None,
        typer.Option(
            metavar="PROFILE",
            help="Hide small counts of exact totals before anything is computed: "
            + ", ".join(PROFILES)
            + ".",
        ),
    ] = None,
) -> Disclosure | None:
    """The profile for what is published."""
    return None if disclosure is None else profile_named(disclosure)


@takes(disclosure)
def simulation(
    runtime: Annotated[
        str, typer.Option(help="What carries the messages: in-process or flower.")
    ] = "in-process",
    mode: Annotated[
        Mode, typer.Option(help="In-process: real messages, or totals drawn from their law.")
    ] = Mode.AUTO,
    seed: Annotated[int | None, typer.Option(help="Makes a simulation repeatable.")] = None,
    policy: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Try a policy.toml: every client answers by it, and says why not."),
    ] = None,
    asker: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="With --policy: the public key that clients take for the asker's."),
    ] = None,
    *,
    disclosure: Disclosure | None,
) -> Simulation:
    """How to simulate."""
    if runtime not in ("in-process", "flower"):
        raise UsageError(f"--runtime: got {runtime!r}, expected in-process or flower.")
    if asker is not None and policy is None:
        raise UsageError(
            "--asker: got one without a policy, which alone would look at it; give --policy too."
        )
    rules = None if policy is None else policy_file(policy)
    if rules is not None:
        _require_policy(rules)
    return Simulation(
        seed=seed,
        mode=mode.value,
        carrier="flower" if runtime == "flower" else "in-process",
        policy=rules,
        asker=asker,
        disclosure=disclosure,
    )


def _require_policy(rules: PolicyFile) -> None:
    """Say at once what is wrong with a policy, before data are read."""
    try:
        rules.now()
    except PolicyRefusal as error:
        raise UsageError(f"--policy: {error}") from error


def no_seed(seed: Annotated[int | None, typer.Option(hidden=True)] = None) -> None:
    """Refuse a seed: for commands that release."""
    if seed is not None:
        raise UsageError("--seed: this is a release, whose noise nobody may know; leave the seed out.")
