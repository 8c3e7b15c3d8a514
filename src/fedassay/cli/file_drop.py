"""`fedassay contribute` at a site and `fedassay aggregate` at the coordinator: a study by signed files."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from fedassay.cli import file_drop_words as words
from fedassay.cli import options, output
from fedassay.cli.file_drop_site import decline_it, rehearse_answer, send_answer
from fedassay.cli.file_drop_study import Proposal, conclude
from fedassay.cli.study import Wanted, wanted
from fedassay.crypto.identity import Identity, key_from_text
from fedassay.errors import UsageError
from fedassay.privacy.database_ledger import DatabaseLedger
from fedassay.privacy.disclosure import Disclosure
from fedassay.runtimes.file_drop import Asked, FileDropRuntime, Over, Participant, Study, Waiting, folders
from fedassay.sites import COORDINATOR, SiteFile
from fedassay.tasks.catalogue import TASKS

DropFolder = Annotated[
    Path, typer.Argument(metavar="DROP", help="The folder that carries the files: SFTP, a USB stick.")
]


def contribute(
    drop: DropFolder,
    site: Annotated[Path, typer.Option(help="This site's own file, site.toml.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would leave this site; send and charge nothing.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Answer without asking for confirmation.")] = False,
    decline: Annotated[
        bool, typer.Option("--decline", help="Tell the coordinator that this site will not answer.")
    ] = False,
    json: Annotated[
        str | None,
        typer.Option(
            "--json", metavar="FILE", help="With --dry-run: all that would leave, as JSON; - for stdout."
        ),
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


@options.takes(wanted, options.terms, options.disclosure, options.no_seed, output.delivery)
def aggregate(
    drop: DropFolder,
    task: Annotated[
        str | None,
        typer.Argument(
            metavar="[TASK]", help="The first time: what to ask, one of " + ", ".join(TASKS) + "."
        ),
    ] = None,
    key: Annotated[Path | None, typer.Option(help="The coordinator's private key.")] = None,
    roster: Annotated[
        Path | None, typer.Option(help="The first time: the sites' names and public keys (roster.toml).")
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(help="Private folder of the coordinator. Default: fedassay-state beside the key."),
    ] = None,
    close: Annotated[
        bool, typer.Option("--close", help="Go on without the sites that have not answered the open pass.")
    ] = False,
    study: Annotated[str | None, typer.Option(help="The first time: a name for the study.")] = None,
    ledger: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|URL", help="Where to record what is spent. Default: ledger.sqlite in --state."
        ),
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
    proposal = Proposal.of(task, wanted.of(task or ""), terms=terms, name=study)
    beside = key.absolute().parent / "fedassay-state"
    state = beside if state is None else state
    console = delivery.console
    with folders.locked(state):
        begun = opened_study(drop, state, identity, proposal, roster, console, profile=disclosure)
        runtime = FileDropRuntime(begun, close=close)
        try:
            books = DatabaseLedger(ledger or state / "ledger.sqlite", None, anchor=state / "ledger.head")
            result = conclude(begun, runtime, ledger=books, profile=disclosure)
            runtime.finish()
        except Waiting as waiting:
            again = f"fedassay aggregate {drop} --key {key}" + (
                f" --state {state}" if state != beside else ""
            )
            words.waiting(waiting, runtime, again, console)
            return
        finally:
            runtime.close()
    words.refusals(runtime, console)
    wanted.deliver(result, delivery)


def opened_study(
    drop: Path,
    state: Path,
    identity: Identity,
    proposal: Proposal | None,
    roster: Path | None,
    console: Console,
    *,
    profile: Disclosure | None = None,
    before: Callable[[int], None] | None = None,
) -> Study:
    """The study of this folder, announced now if there is none; `before` may refuse that, given how many sites."""
    study = Study.resume(drop, state=state, identity=identity)
    keys = None if roster is None else read_roster(roster, identity)
    if study is not None:
        if proposal is not None:
            proposal.check(study.announcement)
        if keys is not None and keys != study.announcement.roster:
            raise UsageError(f"{roster}: is not the roster of the study in {drop}; leave it out.")
        return study
    if proposal is None or keys is None:
        raise UsageError(
            f"{drop}: holds no study yet; the first call needs a task and the sites: "
            f"fedassay aggregate {drop} {next(iter(TASKS))} --key KEY --roster roster.toml"
        )
    if before is not None:
        before(len(keys))
    study = proposal.announce(drop, state=state, identity=identity, roster=keys, profile=profile)
    words.announced(study, console)
    return study


def read_roster(path: Path, identity: Identity) -> dict[str, bytes]:
    """The sites of a roster file: a section [roster] of names and public keys, as in a site's file."""
    try:
        content: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror}).") from error
    except ValueError as error:
        raise UsageError(f"{path}: is not TOML ({error}); correct the line it names.") from error
    if set(content) != {"roster"} or not isinstance(content["roster"], dict):
        raise UsageError(f"{path}: expected one section, [roster], with names and public keys.")
    keys = {name: key_from_text(text, whose=name) for name, text in content["roster"].items()}
    if keys.pop(COORDINATOR, identity.public) != identity.public:
        raise UsageError(
            f"{path}: the key of {COORDINATOR} is not the one given as --key; correct one of them."
        )
    if identity.public in keys.values():
        raise UsageError(f"{path}: a site has the key of the coordinator; each needs its own.")
    return keys


def require_folder(drop: Path) -> None:
    """Refuse what is no folder."""
    if not drop.is_dir():
        raise UsageError(f"{drop}: is not a folder; create it, or mount what carries the files.")
