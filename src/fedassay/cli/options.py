"""The options that every data command takes, and the objects they are read into."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fedassay.cli import output
from fedassay.cli.command import Argument, GivenOptions, Option, OptionsOf, takes
from fedassay.errors import ParameterError, PolicyRefusal, UsageError
from fedassay.privacy.policy.disclosure import PROFILES, Disclosure, profile_named
from fedassay.protocol.parameters import in_words, made, meant
from fedassay.protocol.vocabulary import Budget, Protection, Setting
from fedassay.runtimes.card import DEFAULT, simulation_named, simulations
from fedassay.trust import TRUST_MODELS
from fedassay.trust.card import DEFAULT_TRUST, TRUST_CARDS

if TYPE_CHECKING:
    from fedassay.data.partition import Partition
    from fedassay.data.sql import Database
    from fedassay.privacy.policy.file import PolicyFile
    from fedassay.protocol.result import Result
    from fedassay.study.simulation import Simulation

    Source = Path | Database
    """Place of the rows."""

    Client = str | Partition | None
    """Assignment of rows to clients: by a column, dealt out, or each row by itself."""

ClientColumn = Annotated[
    str | None,
    Option("--client", help="Column that names the client. Without it every row is its own client."),
]
JsonFile = Annotated[
    str | None, Option("--json", metavar="FILE", help="Write the result as JSON; - for standard output.")
]
MissingRows = Annotated[
    Literal["refuse", "report"],
    Option("--missing", help="Rows in which a value is missing: an error, or left out and counted."),
]
Quiet = Annotated[bool, Option("--quiet", "-q", help="Print nothing but errors.")]


def data(
    data: Annotated[
        str,
        Argument(
            metavar="DATA",
            help="A .parquet, .csv or .npz file, a folder with one file per site, or a database URL with --query.",
        ),
    ],
    query: Annotated[str | None, Option(help="With a database URL: the SELECT whose rows are used.")] = None,
) -> Source:
    """Return the place of the rows; nothing is opened yet."""
    from fedassay.data.sources import source_named

    return source_named(data, query)


def client(
    client: ClientColumn = None,
    partition: Annotated[
        str | None,
        Option(
            metavar="SPEC",
            help="In the place of --client: deal the rows to --clients simulated clients, iid or dirichlet:BETA "
            "(skewed labels, 0.1 strongly); or by:COLUMN.",
        ),
    ] = None,
    clients: Annotated[
        int | None, Option(help="With --partition iid or dirichlet:BETA: how many clients.")
    ] = None,
) -> Client:
    """Return the assignment of rows to the clients of a simulation."""
    from fedassay.data.partition import Partition

    if partition is None:
        if clients is not None:
            raise ParameterError(
                "clients", f"got {clients} without a partition, expected both; give --partition iid, say."
            )
        return client
    if client is not None:
        raise ParameterError(
            "partition",
            f"got {partition!r} together with --client {client}, expected one of them; leave one out.",
        )
    return Partition(partition, clients=clients)


@takes(
    OptionsOf("budget", Budget, needed=False),
    OptionsOf("protection", Protection),
    OptionsOf(
        "chosen",
        {name: card.parameters.load() for name, card in TRUST_CARDS.items() if card.parameters is not None},
    ),
)
def terms(
    privacy: Annotated[str, Option(help="Trust model: " + ", ".join(TRUST_MODELS) + ".")] = DEFAULT_TRUST,
    *,
    budget: GivenOptions,
    protection: GivenOptions,
    chosen: GivenOptions,
) -> Setting:
    """Make sense of the privacy options, or say what is wrong with them."""
    if privacy not in TRUST_MODELS:
        raise ParameterError("privacy", f"got {privacy!r}{meant(privacy, TRUST_MODELS)}.")
    trust = made(TRUST_MODELS[privacy], chosen, of=privacy)
    if trust.private and "epsilon" not in budget:
        raise ParameterError(
            "privacy", f"{privacy} adds noise, so it needs a budget; give `epsilon` (1, say)."
        )
    if not trust.private and budget:
        raise ParameterError(
            "privacy",
            f"{privacy} adds no noise, so `epsilon` and `delta` would promise nothing; leave them out or choose "
            '`privacy="server-dp"`.',
        )
    return Setting(
        trust=trust,
        budget=made(Budget, budget) if budget else None,
        protection=made(Protection, protection),
        clients=0,
    )


def disclosure(
    disclosure: Annotated[
        str | None,
        Option(
            metavar="PROFILE",
            help="Hide small counts of exact totals before anything is computed: "
            + ", ".join(PROFILES)
            + ".",
        ),
    ] = None,
) -> Disclosure | None:
    """Return the profile for what is published."""
    return None if disclosure is None else profile_named(disclosure)


@takes(OptionsOf("of_runtime", simulations()), disclosure)
def simulation(
    *,
    runtime: Annotated[str, Option(help=f"What carries the messages: {in_words(simulations())}.")] = DEFAULT,
    of_runtime: GivenOptions,
    policy: Annotated[
        Path | None,
        Option(metavar="FILE", help="Try a policy.toml: every client answers by it, and says why not."),
    ] = None,
    asker: Annotated[
        str | None,
        Option(metavar="KEY", help="With --policy: the public key that clients take for the asker's."),
    ] = None,
    missing: MissingRows = "refuse",
    disclosure: Disclosure | None,
) -> Simulation:
    """How to simulate."""
    from fedassay.kernel.sites import policy_file
    from fedassay.study.simulation import Simulation

    if asker is not None and policy is None:
        raise ParameterError(
            "asker", "got one without a policy, which alone would look at it; give `policy` too."
        )
    rules = None if policy is None else policy_file(policy)
    if rules is not None:
        _require_policy(rules)
    return Simulation(
        runtime=made(simulation_named(runtime), of_runtime, of=runtime),
        policy=rules,
        asker=asker,
        disclosure=disclosure,
        missing=missing,
    )


def _require_policy(rules: PolicyFile) -> None:
    """Report at once what is wrong with a policy, before data are read."""
    try:
        rules.now()
    except PolicyRefusal as error:
        raise UsageError(f"--policy: {error}") from error


def no_seed(seed: Annotated[int | None, Option(hidden=True)] = None) -> None:
    """Refuse a seed: for commands that release."""
    if seed is not None:
        raise UsageError("--seed: this is a release, whose noise must stay secret; leave the seed out.")


# --- a simulated run ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Rows, terms and how a task is simulated on them."""

    data: Source
    client: Client
    terms: Setting
    simulation: Simulation
    delivery: output.Delivery

    def ask(self, entry_point: Callable[..., Result], *, in_rounds: bool = False, **given: Any) -> Result:
        """Return the result of an entry point, with a progress bar over clients or, if a task counts them, rounds."""
        with (output.rounds if in_rounds else output.progress)(quiet=self.delivery.quiet) as advance:
            return entry_point(
                self.data,
                client=self.client,
                privacy=self.terms.trust,
                budget=self.terms.budget,
                protection=self.terms.protection,
                simulation=replace(self.simulation, progress=advance),
                **given,
            )


@takes(data, client, terms, simulation, output.delivery)
def run(
    data: Source, client: Client, terms: Setting, simulation: Simulation, delivery: output.Delivery
) -> RunOptions:
    """The options of every command that runs a task on rows."""
    return RunOptions(data=data, client=client, terms=terms, simulation=simulation, delivery=delivery)
