"""`fedassay contribute` at a site and `fedassay aggregate` at the coordinator: a study by signed files."""

from __future__ import annotations

import json as json_module
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

from rich.console import Console
from rich.prompt import Confirm

from fedassay.cli import file_drop_words as words
from fedassay.cli import options, output
from fedassay.cli.command import Argument, Option, command, takes
from fedassay.cli.study import Wanted, wanted
from fedassay.crypto.identity import Identity
from fedassay.errors import FedassayError, FederationError, Refused, UsageError
from fedassay.kernel import envelope
from fedassay.kernel.agenda import Agenda
from fedassay.kernel.client import Client
from fedassay.kernel.endpoint import FileStore
from fedassay.kernel.envelope import Refusal
from fedassay.kernel.sites import SiteFile
from fedassay.privacy.ledger.book import copy_book
from fedassay.privacy.ledger.database import DatabaseLedger
from fedassay.privacy.ledger.place import Place
from fedassay.privacy.policy.disclosure import Disclosure
from fedassay.protocol import wire
from fedassay.protocol.vocabulary import COORDINATOR, Message, Protection
from fedassay.runtimes.file_drop import (
    CheckedRequest,
    FileDropRuntime,
    Over,
    Participant,
    Waiting,
    letters,
    outcome,
)
from fedassay.runtimes.file_drop.outcome import conclude
from fedassay.runtimes.file_drop.proposal import Proposal, opened_study, require_folder
from fedassay.tasks.card import TASKS
from fedassay.trust.secure_sum import SecureSum

# --- how a site answers -------------------------------------------------------------------------------------


def send_answer(participant: Participant, asked: CheckedRequest, file: SiteFile, *, yes: bool) -> Path:
    """Answer and put the reply into the drop; an answered request gets its reply again."""
    if asked.answered is not None:
        return participant.send(asked, b"")
    with _opened(_as_announced(file, asked)) as client:
        if asked.opened.request.exchange not in client.store.conversations:
            _check_rows(client)
            if not yes:  # one yes covers all passes of one question
                _confirm()
        return participant.send(asked, _answer(participant, asked, client))


def decline_it(participant: Participant, asked: CheckedRequest) -> Path:
    """Put a signed no into the drop."""
    if asked.answered is not None:
        raise UsageError(f"--decline: this site has answered request {asked.number} already.")
    reply = envelope.pack_refusal(sender=participant.name, code=Refusal.POLICY)
    return participant.send(asked, reply)


def rehearse_answer(
    participant: Participant, asked: CheckedRequest, file: SiteFile, console: Console, *, json: str | None
) -> None:
    """Answer on a copy of the site's state, show the reply, and forget both."""
    if asked.answered is not None:
        console.print(
            f"Request {asked.number} is answered already; contribute would send the same file again."
        )
        return
    with _copy_of(file.state) as copy:
        copied = replace(file, state=copy, ledger=_copy_of_ledger(file, copy))
        with _opened(_as_announced(copied, asked), rehearsal=True) as client:
            _check_rows(client)
            _answer(participant, asked, client)
            assert client.unsealed is not None
            reply = wire.decode(client.unsealed)
    output.write(_as_json(reply), json)
    words.reply(reply, asked, console)


def _as_announced(file: SiteFile, asked: CheckedRequest) -> SiteFile:
    """The site, believing nobody but those whom the announcement names: that is what somebody agreed to."""
    return replace(file, credentials=file.credentials.among([COORDINATOR, *asked.announcement.roster]))


@contextmanager
def _opened(file: SiteFile, *, rehearsal: bool = False) -> Iterator[Client]:
    """The site's client, for as long as it is needed: its store has one owner at a time."""
    client = file.open(rehearsal=rehearsal)
    try:
        yield client
    finally:
        if isinstance(client.store, FileStore):
            client.store.close()


def _check_rows(client: Client) -> None:
    """Find bad rows before anything is charged: who was charged and could not answer cannot answer later."""
    client.site.rows()


def _answer(participant: Participant, asked: CheckedRequest, client: Client) -> bytes:
    """The reply, or the reason why there is none, as an error of its own kind."""
    reply = participant.answer(asked, client)
    reason = client.reason
    if reason is None:
        return reply
    end = "Nothing was sent. --decline tells the coordinator that this site will not answer."
    if isinstance(reason, FedassayError):
        raise type(reason)(f"{reason} {end}") from reason
    raise FederationError(f"the request could not be answered ({reason!r}). {end}") from reason


def _copy_of_ledger(file: SiteFile, folder: Path) -> Path:
    """A copy of the ledger in this folder, wherever the ledger is: a rehearsal must not be charged for real."""
    for one in folder.glob("ledger.*"):
        one.unlink()
    copy_book(Place.of(file.ledger), file.state / "ledger.head", folder / "ledger.sqlite")
    return folder / "ledger.sqlite"


@contextmanager
def _copy_of(state: Path) -> Iterator[Path]:
    """A copy of the state folder beside it, where secrets are no less safe; removed afterwards."""
    parent = next(folder for folder in state.absolute().parents if folder.is_dir())
    try:
        folder = Path(tempfile.mkdtemp(prefix=".dry-run-", dir=parent))
        if state.is_dir():
            shutil.copytree(state, folder / "state")
    except OSError as error:
        raise UsageError(f"{parent}: cannot hold a copy of the state ({error.strerror}).") from error
    try:
        yield folder / "state"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _confirm() -> None:
    if not sys.stdin.isatty():
        raise UsageError("contribute: this is not a terminal; read what is asked and give --yes.")
    if not Confirm.ask("Answer this request?"):
        raise Refused("contribute: not confirmed; nothing was sent or charged.")


def _as_json(reply: Message) -> str:
    return json_module.dumps(reply, indent=2, default=_plain) + "\n"


def _plain(value: object) -> object:
    return value.hex() if isinstance(value, bytes) else value.tolist()  # type: ignore[attr-defined]


# --- `fedassay contribute` at a site and `fedassay aggregate` at the ----------------------------------------

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
    with letters.locked(file.state):
        asked = _what_is_asked(participant, file, console)
        if asked is None:
            return
        if decline:
            words.sent(decline_it(participant, asked), asked, console)
        else:
            words.sent(send_answer(participant, asked, file, yes=yes), asked, console)


def _what_is_asked(participant: Participant, file: SiteFile, console: Console) -> CheckedRequest | None:
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
    terms: options.TermOptions,
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
    with letters.locked(state):
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
            outcome.waiting(waiting, runtime, again, say)
            return
        finally:
            runtime.close()
    outcome.refusals(runtime, say)
    wanted.deliver(result, delivery)


def _proposal(
    task: str | None, given: Message, *, terms: options.TermOptions, name: str | None
) -> Proposal | None:
    """A proposal from the options that were given, or None if there is no task."""
    if task is None:
        default = options.TermOptions(trust=SecureSum(), budget=None, protection=Protection())
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
