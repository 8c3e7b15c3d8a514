"""`fedassay contribute` at a site and `fedassay aggregate` at the coordinator: a study by signed files."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

from rich.console import Console

from fedassay.agenda import Agenda
from fedassay.cli import file_drop_words as words
from fedassay.cli import options, output
from fedassay.cli.command import Argument, Option, command, takes
from fedassay.cli.file_drop_site import decline_it, rehearse_answer, send_answer
from fedassay.cli.study import Wanted, wanted
from fedassay.crypto.identity import Identity
from fedassay.errors import UsageError
from fedassay.privacy.database_ledger import DatabaseLedger
from fedassay.privacy.disclosure import Disclosure
from fedassay.protocol import Message, Protection
from fedassay.runtimes.file_drop import Asked, FileDropRuntime, Over, Participant, Waiting, folders, notices
from fedassay.runtimes.file_drop.conclusion import conclude
from fedassay.runtimes.file_drop.proposal import Proposal, opened_study, require_folder
from fedassay.sites import SiteFile
from fedassay.tasks.catalogue import TASKS
from fedassay.trust.secure_sum import SecureSum

DropFolder = Annotated[
    Path, Argument(metavar="DROP", help="The folder that carries the files: SFTP, a USB stick.")
]


@command
def contribute(
    drop: DropFolder,
    site: Annotated[Path, Option(help="This site's own file, site.toml.")],
    dry_run: Annotated[
        bool, Option("--dry-run", help="Show what would leave this site; send and charge nothing.")
    ] = False,
    yes: Annotated[bool, Option("--yes", "-y", help="Answer without asking for confirmation.")] = False,
    decline: Annotated[
        bool, Option("--decline", help="Tell the coordinator that this site will not answer.")
    ] = False,
    json: Annotated[
        str | None,
        Option("--json", metavar="FILE", help="With --dry-run: all that would leave, as JSON; - for stdout."),
    ] = None,
    quiet: options.Quiet = False,
) -> None:
    """Answer what a study asks of this site: check it, show it, measure, and put the signed reply into DROP."""
    if (dry_run and decline) or (json is not None and not dry_run):
        raise UsageError("contribute: --json goes with --dry-run, and --decline with neither.")
    require_folder(drop)
    output.check_writable(json)
    file = SiteFile.read(site)
    console = Console(quiet=quiet, stderr=json == "-")
    participant = Participant(drop=drop, name=file.name, credentials=file.credentials, state=file.state)
    if dry_run:
        asked = _what_is_asked(participant, file, console)
        if asked is not None:
            rehearse_answer(participant, asked, file, console, json=json)
        return
    with folders.locked(file.state):
        asked = _what_is_asked(participant, file, console)
        if asked is None:
            return
        if decline:
            words.sent(decline_it(participant, asked), asked, console)
        else:
            words.sent(send_answer(participant, asked, file, yes=yes), asked, console)


def _what_is_asked(participant: Participant, file: SiteFile, console: Console) -> Asked | None:
    asked = participant.asked()
    if asked is None:
        words.nothing_asked(participant.drop, file.name, console)
        return None
    if isinstance(asked, Over):
        words.over(asked, console)
        return None
    words.request(asked, file, console)
    return asked


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
    terms: options.Terms,
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
    say = partial(words.say, delivery.console)
    with folders.locked(state):
        begun = opened_study(drop, state, identity, proposal, roster, say, profile=disclosure)
        runtime = FileDropRuntime(begun, close=close)
        try:
            books = DatabaseLedger(ledger or state / "ledger.sqlite", None, anchor=state / "ledger.head")
            result = conclude(begun, runtime, ledger=books, profile=disclosure)
            runtime.finish()
        except Waiting as waiting:
            again = f"fedassay aggregate {drop} --key {key}" + (
                f" --state {state}" if state != beside else ""
            )
            notices.waiting(waiting, runtime, again, say)
            return
        finally:
            runtime.close()
    notices.refusals(runtime, say)
    wanted.deliver(result, delivery)


def _proposal(task: str | None, given: Message, *, terms: options.Terms, name: str | None) -> Proposal | None:
    """A proposal from the options that were given, or None if there is no task."""
    if task is None:
        default = options.Terms(trust=SecureSum(), budget=None, protection=Protection())
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
