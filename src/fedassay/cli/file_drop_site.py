"""How a site answers: for real, or on copies to see what would leave."""

from __future__ import annotations

import json as json_module
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.prompt import Confirm

from fedassay import envelope, wire
from fedassay.cli import file_drop_words as words
from fedassay.cli import output
from fedassay.client import Client
from fedassay.endpoint import FileStore
from fedassay.envelope import Refusal
from fedassay.errors import FedassayError, FederationError, Refused, UsageError
from fedassay.privacy.book import copy_book
from fedassay.privacy.ledger_place import Place
from fedassay.protocol import COORDINATOR, Message
from fedassay.runtimes.file_drop import Asked, Participant
from fedassay.sites import SiteFile


def send_answer(participant: Participant, asked: Asked, file: SiteFile, *, yes: bool) -> Path:
    """Answer and put the reply into the drop; an answered request gets its reply again."""
    if asked.answered is not None:
        return participant.send(asked, b"")
    with _opened(_as_announced(file, asked)) as client:
        if asked.opened.request.exchange not in client.store.conversations:
            _check_rows(client)
            if not yes:  # one yes covers all passes of one question
                _confirm()
        return participant.send(asked, _answer(participant, asked, client))


def decline_it(participant: Participant, asked: Asked) -> Path:
    """Put a signed no into the drop."""
    if asked.answered is not None:
        raise UsageError(f"--decline: this site has answered request {asked.number} already.")
    reply = envelope.pack_refusal(sender=participant.name, code=Refusal.POLICY)
    return participant.send(asked, reply)


def rehearse_answer(
    participant: Participant, asked: Asked, file: SiteFile, console: Console, *, json: str | None
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


def _as_announced(file: SiteFile, asked: Asked) -> SiteFile:
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


def _answer(participant: Participant, asked: Asked, client: Client) -> bytes:
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
        raise UsageError("contribute: nobody is there to confirm; read what is asked and give --yes.")
    if not Confirm.ask("Answer this request?"):
        raise Refused("contribute: not confirmed; nothing was sent or charged.")


def _as_json(reply: Message) -> str:
    return json_module.dumps(reply, indent=2, default=_plain) + "\n"


def _plain(value: object) -> object:
    return value.hex() if isinstance(value, bytes) else value.tolist()  # type: ignore[attr-defined]
