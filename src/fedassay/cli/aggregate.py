"""`fedassay aggregate` at the coordinator: a study by signed files; and the options of all tasks together."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from fedassay.cli import options, output
from fedassay.cli.command import Argument, GivenOptions, Option, OptionsOf, takes
from fedassay.crypto.identity import Identity
from fedassay.errors import ParameterError, UsageError
from fedassay.kernel.agenda import Agenda
from fedassay.privacy.ledger.database import DatabaseLedger
from fedassay.privacy.policy.disclosure import Disclosure
from fedassay.protocol.vocabulary import Message, Protection, Setting
from fedassay.runtimes.file_drop.coordinator import FileCoordinator, require_folder
from fedassay.runtimes.released import Proposal
from fedassay.tasks.card import KINDS, PARAMETERS, TASKS
from fedassay.tasks.command import ARTEFACT_FILE
from fedassay.tasks.shared_parameters import HOLDOUT
from fedassay.trust.secure_sum import SecureSum

# --- what is asked of sites ---------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Options that were given: the parameters of the task, and the file of its artefact."""

    parameters: GivenOptions
    out: Path | None

    def of(self, task: str) -> dict[str, Any]:
        """Return the parameters for this task, with public knowledge that the user has to state."""
        if task in KINDS:  # else the task is refused where it is made
            KINDS[task].study_rules.require_public(self.parameters)
        if self.parameters.get("holdout", 0) not in (0, HOLDOUT):
            raise ParameterError(
                "holdout",
                f"got {self.parameters['holdout']:g}, but sites hold out {HOLDOUT:g} of their units; give that, or "
                "leave it out.",
            )
        return self.parameters


@takes(
    OptionsOf(
        "parameters",
        PARAMETERS,
        panels={name: f"Only for {name}" for name in PARAMETERS},
        without=("target",),
    )
)
def wanted(
    out: Annotated[Path | None, Option(metavar=ARTEFACT_FILE.metavar, help=ARTEFACT_FILE.sentence)] = None,
    *,
    parameters: GivenOptions,
) -> Wanted:
    """What is asked of a study; parameters that its task does not have are refused where the task is made."""
    output.check_writable(out)
    return Wanted(parameters=parameters, out=out)


# --- `fedassay aggregate` -----------------------------------------------------------------------------------

DropFolder = Annotated[
    Path, Argument(metavar="DROP", help="The folder that carries the files: SFTP, a USB stick.")
]


@takes(wanted, options.terms, options.disclosure, options.no_seed, output.delivery)
def aggregate(
    drop: DropFolder,
    task: Annotated[
        str | None,
        Argument(metavar="[TASK]", help="The first time: what to ask, one of " + ", ".join(TASKS) + "."),
    ] = None,
    key: Annotated[Path | None, Option(help="The coordinator's private key.")] = None,
    roster: Annotated[
        Path | None, Option(help="The first time: the sites' names and public keys (roster.toml).")
    ] = None,
    state: Annotated[
        Path | None,
        Option(help="Private folder of the coordinator. Default: fedassay-state next to the key."),
    ] = None,
    close: Annotated[
        bool, Option("--close", help="Go on without the sites that have not answered the open pass.")
    ] = False,
    study: Annotated[str | None, Option(help="The first time: a name for the study.")] = None,
    ledger: Annotated[
        str | None,
        Option(metavar="FILE|URL", help="Where to record what is spent. Default: ledger.sqlite in --state."),
    ] = None,
    *,
    wanted: Wanted,
    terms: Setting,
    disclosure: Disclosure | None,
    no_seed: None,
    delivery: output.Delivery,
) -> None:
    """Run a study by files: the first call announces it, each later call takes the replies and goes on."""
    if key is None:
        raise UsageError("--key: missing; give the coordinator's private key (`fedassay keys` makes one).")
    require_folder(drop)
    identity = Identity.load(key)
    proposal = _proposal(task, wanted.of(task or ""), terms=terms, name=study)
    beside = key.absolute().parent / "fedassay-state"
    state = beside if state is None else state
    coordinator = FileCoordinator(
        drop=drop,
        home=state,
        identity=identity,
        roster=roster,
        say=partial(output.say, delivery.console),
        again=f"fedassay aggregate {drop} --key {key}" + (f" --state {state}" if state != beside else ""),
        close=close,
        profile=disclosure,
    )
    books = ledger or state / "ledger.sqlite"
    result = coordinator.call(proposal, lambda: DatabaseLedger(books, None, anchor=state / "ledger.head"))
    if result is not None:
        delivery.deliver(result, out=wanted.out)


def _proposal(task: str | None, given: Message, *, terms: Setting, name: str | None) -> Proposal | None:
    """Make a proposal from the options that were given, or None if there is no task."""
    if task is None:
        default = Setting(trust=SecureSum(), budget=None, protection=Protection(), clients=0)
        if terms != default or name is not None or given:
            raise UsageError(
                "options of the study: they belong to the first call; name the task, or leave them out."
            )
        return None
    return Proposal(
        name=name or task,
        agenda=Agenda.of(task, given),
        trust=terms.trust,
        budget=terms.budget,
        protection=terms.protection,
    )
