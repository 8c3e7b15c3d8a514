"""`fedassay contribute` at a site: what a study asks by signed files, and the answer."""

from __future__ import annotations

import json as json_module
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from rich.console import Console
from rich.prompt import Confirm

from fedassay.cli import options, output
from fedassay.cli.aggregate import DropFolder
from fedassay.cli.command import Option, command
from fedassay.cli.output import say
from fedassay.crypto.identity import fingerprint
from fedassay.errors import FedassayError, FederationError, PolicyRefusal, Refused, UsageError
from fedassay.kernel import envelope
from fedassay.kernel.client import Client
from fedassay.kernel.endpoint import FileStore
from fedassay.kernel.envelope import Refusal
from fedassay.kernel.sites import SiteFile
from fedassay.privacy.ledger.book import copy_book
from fedassay.privacy.ledger.place import Place
from fedassay.protocol import wire
from fedassay.protocol.texts import printable
from fedassay.protocol.vocabulary import COORDINATOR
from fedassay.runtimes.file_drop import letters
from fedassay.runtimes.file_drop.coordinator import require_folder
from fedassay.runtimes.file_drop.participant import CheckedRequest, Participant, announcement_fingerprint
from fedassay.runtimes.file_drop.study import Announcement

_SHOWN = 12
"""Number of values of an array that are printed; --json writes all of them."""

_LONGEST = 60
"""Largest number of characters of a parameter."""

# --- `fedassay contribute` ----------------------------------------------------------------------------------


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
        asked = _open_request(participant, file, console)
        if asked is not None:
            _rehearse(participant, asked, file, console, json=json)
        return
    with letters.locked(file.state):
        asked = _open_request(participant, file, console)
        if asked is None:
            return
        path = _decline(participant, asked) if decline else _send(participant, asked, file, yes=yes)
    say(
        console,
        f"The reply to request {asked.number} is in {path}.",
        "Next: bring the folder back to the coordinator. When `fedassay aggregate` has run there, fetch it and run "
        "this again, until it says that the study is finished.",
    )


def _open_request(participant: Participant, file: SiteFile, console: Console) -> CheckedRequest | None:
    """Show the request, or report that there is none."""
    asked = participant.asked()
    if isinstance(asked, CheckedRequest):
        _show_request(asked, file, console)
        return asked
    if asked is None:
        text = (
            f"{participant.drop}: holds nothing for {file.name} yet. Next: wait until the coordinator has run "
            "`fedassay aggregate`, fetch the folder, and run this again."
        )
    elif asked.reason == "finished":
        text = f"The study {asked.announcement.study} is finished; there is nothing left to do."
    else:
        text = (
            f"The coordinator has gone on without this site's last reply in {asked.announcement.study}; there is "
            "nothing to do now."
        )
    say(console, text)
    return None


# --- the answer ---------------------------------------------------------------------------------------------


def _send(participant: Participant, asked: CheckedRequest, file: SiteFile, *, yes: bool) -> Path:
    """Answer and put the reply into the drop; an answered request gets its reply again."""
    if asked.answered is not None:
        return participant.send(asked, b"")
    with _opened(_as_announced(file, asked)) as client:
        if asked.opened.request.exchange not in client.store.conversations:
            client.site.rows()  # who was charged and finds bad rows then cannot answer later
            if not yes:  # one yes covers all passes of one question
                _confirm()
        return participant.send(asked, _answer(participant, asked, client))


def _decline(participant: Participant, asked: CheckedRequest) -> Path:
    """Put a signed refusal into the drop."""
    if asked.answered is not None:
        raise UsageError(f"--decline: this site has answered request {asked.number} already.")
    reply = envelope.pack_refusal(sender=participant.name, code=Refusal.POLICY)
    return participant.send(asked, reply)


def _rehearse(
    participant: Participant, asked: CheckedRequest, file: SiteFile, console: Console, *, json: str | None
) -> None:
    """Answer on a copy of the site's state, show the reply, and forget both."""
    if asked.answered is not None:
        say(
            console, f"Request {asked.number} is answered already; contribute would send the same file again."
        )
        return
    with _copy_of(file.state) as copy:
        copied = replace(file, state=copy, ledger=_copy_of_ledger(file, copy))
        with _opened(_as_announced(copied, asked), rehearsal=True) as client:
            client.site.rows()
            _answer(participant, asked, client)
            assert client.unsealed is not None
            reply = wire.decode(client.unsealed)
    output.write(json_module.dumps(reply, indent=2, default=_plain) + "\n", json)
    _show_reply(reply, console)


def _as_announced(file: SiteFile, asked: CheckedRequest) -> SiteFile:
    """Return the site, trusting only the parties of the announcement: that is what the user agreed to."""
    return replace(file, credentials=file.credentials.among([COORDINATOR, *asked.announcement.roster]))


@contextmanager
def _opened(file: SiteFile, *, rehearsal: bool = False) -> Iterator[Client]:
    """Open the site's client, for as long as it is needed: its store has one owner at a time."""
    client = file.open(rehearsal=rehearsal)
    try:
        yield client
    finally:
        if isinstance(client.store, FileStore):
            client.store.close()


def _answer(participant: Participant, asked: CheckedRequest, client: Client) -> bytes:
    """Return the reply, or raise the reason why there is none, as an error of its own kind."""
    reply = participant.answer(asked, client)
    reason = client.reason
    if reason is None:
        return reply
    end = "Nothing was sent. --decline tells the coordinator that this site will not answer."
    if isinstance(reason, FedassayError):
        raise type(reason)(f"{reason} {end}") from reason
    raise FederationError(f"the request could not be answered ({reason!r}). {end}") from reason


def _copy_of_ledger(file: SiteFile, folder: Path) -> Path:
    """Copy the ledger into this folder, wherever the ledger is: a rehearsal must not be charged for real."""
    for one in folder.glob("ledger.*"):
        one.unlink()
    copy_book(Place.of(file.ledger), file.state / "ledger.head", folder / "ledger.sqlite")
    return folder / "ledger.sqlite"


@contextmanager
def _copy_of(state: Path) -> Iterator[Path]:
    """Copy the state folder to a sibling folder, where secrets are no less safe; remove it afterwards."""
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


def _plain(value: object) -> object:
    return value.hex() if isinstance(value, bytes) else value.tolist()  # type: ignore[attr-defined]


# --- what is shown ------------------------------------------------------------------------------------------


def _show_request(asked: CheckedRequest, file: SiteFile, console: Console) -> None:
    """Show the request, before the user agrees to it."""
    announcement, opened = asked.announcement, asked.opened
    table = output.titled(f"Request {asked.number} to {file.name}", "", "")
    table.show_header, table.title_style, table.columns[0].style = False, "", "bold"
    for title, value in _facts(announcement, asked, file):
        table.add_row(title, printable(value))
    console.print(table)
    say(console, opened.trust.statement(announcement.setting))


def _facts(announcement: Announcement, asked: CheckedRequest, file: SiteFile) -> Iterator[tuple[str, str]]:
    opened = asked.opened
    budget, protection = announcement.budget, announcement.protection
    yield "study", announcement.study
    yield "announcement", announcement_fingerprint(announcement)
    yield "coordinator", f"key {fingerprint(file.credentials.roster[COORDINATOR])}"
    for item in announcement.agenda.items:
        share = "" if item.share == 1 else f", {item.share:.3g} of the budget"
        yield "task", f"{item.label}{share}"
        yield "parameters", ", ".join(f"{key} {value}" for key, value in item.parameters.items())
    for plan in opened.request.plans:
        summary = plan.query.of
        columns = ", ".join(f"{role} ({file.columns.get(role, 'missing')})" for role in summary.columns)
        yield (
            "measured",
            f"{summary.name}: {summary.length:,} whole numbers from {columns}; {plan.query.part} rows",
        )
        yield "its parameters", ", ".join(_parameters(summary)) or "none"
    yield "trust model", f"{opened.trust.name}, leg {opened.request.leg + 1} of this question"
    yield "protected unit", f"{protection.unit}, {protection.neighbours}"
    if protection.rows_per_client is not None:
        yield "rows used", f"at most {protection.rows_per_client:,}"
    try:
        profile = file.policy.now().disclosure
    except PolicyRefusal:  # then nothing leaves at all
        profile = None
    if profile is not None and opened.trust.shows_measurements:
        yield "small counts", f"{profile.words} before they leave ({profile.name})"
    price = "no noise" if budget is None else f"epsilon {budget.epsilon:.3g}, delta {budget.delta:.3g}"
    yield "budget", f"{price}; recorded in the ledger of {file.dataset}"
    yield "cohort", f"{len(announcement.roster)} sites: {', '.join(announcement.roster)}"
    attendance = opened.trust.attendance(len(announcement.roster))
    if attendance:
        yield "attendance", attendance


def _parameters(summary: Any) -> Iterator[str]:
    """Yield the public fields of a summary, which a policy judges; long ones shortened."""
    for entry in fields(summary):
        text = repr(getattr(summary, entry.name))
        yield f"{entry.name} {text if len(text) <= _LONGEST else text[:_LONGEST] + '…'}"


def _show_reply(content: dict[str, Any], console: Console) -> None:
    """Show a decoded reply: everything that would leave."""
    table = output.titled("What would leave this site", "field", "what", "bytes", "content")
    for path, value in _leaves(content):
        table.add_row(*map(printable, (path, *_described(value))))
    console.print(table)
    say(
        console,
        "The file also holds the study, the names of sender and recipient, the number of the request and "
        "a signature; the reply is sealed so that only the coordinator can read it.",
        "This was a dry run on copies: nothing was sent, charged or kept. Keys and noise will be drawn anew. Next: "
        "the same command without --dry-run.",
    )


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            yield from _leaves(item, f"{path}.{key}" if path else str(key))
    else:
        yield path, value


def _described(value: Any) -> tuple[str, str, str]:
    if isinstance(value, np.ndarray):
        shape = " × ".join(f"{length:,}" for length in value.shape)
        return f"{shape} numbers ({value.dtype})", f"{value.nbytes:,}", _numbers(value)
    if isinstance(value, bytes):
        return "bytes", f"{len(value):,}", value[:16].hex() + ("…" if len(value) > 16 else "")
    return type(value).__name__, f"{len(str(value).encode()):,}", str(value)


def _numbers(value: np.ndarray[Any, Any]) -> str:
    places = np.flatnonzero(value)
    shown = ", ".join(f"{place}: {value.flat[place]}" for place in places[:_SHOWN])
    more = f", … ({len(places):,} are not zero)" if len(places) > _SHOWN else ""
    return f"{shown}{more}; all others are 0" if len(places) < value.size else f"{shown}{more}"
