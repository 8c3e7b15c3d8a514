"""A study between real sites: by signed files, pass by pass, or on a SuperLink in one go."""

from __future__ import annotations

from shlex import quote

from rich.console import Console

from fedassay.agenda import Agenda
from fedassay.cli import file_drop_words as words
from fedassay.cli.file_drop import opened_study, require_folder
from fedassay.cli.file_drop_study import Proposal, conclude
from fedassay.cli.flower import submitted
from fedassay.cli.options import Terms
from fedassay.crypto.identity import Identity
from fedassay.errors import UsageError
from fedassay.result import Result
from fedassay.runtimes.file_drop import FileDropRuntime, Waiting, folders
from fedassay.runtimes.flower.study import Study
from fedassay.runtimes.flower.submission import Connection
from fedassay.study.afford import opened_books, require_affordable
from fedassay.study.file import StudyFile
from fedassay.study.runtimes import FileDrop, FlowerDeployment


def by_files(
    file: StudyFile, runtime: FileDrop, agenda: Agenda, *, close: bool, console: Console
) -> Result | None:
    """Announce the study, or go on with it; its result, or None while replies are missing."""
    require_folder(runtime.drop)
    identity = Identity.load(runtime.key)
    terms = Terms(trust=file.trust, budget=file.budget, protection=file.protection)
    proposal = Proposal(name=file.name, agenda=agenda, terms=terms)
    books = opened_books(file)
    with folders.locked(runtime.home):
        begun = opened_study(
            runtime.drop,
            runtime.home,
            identity,
            proposal,
            runtime.roster,
            console,
            before=lambda clients: require_affordable(file, agenda, books, file.setting(clients)),
        )
        if begun.announcement.study.rpartition("-")[0] != file.name:  # a suffix makes it unlike all others
            raise UsageError(
                f"{runtime.drop}: holds the study {begun.announcement.study}, expected {file.name}; give each study "
                "a drop of its own."
            )
        carrier = FileDropRuntime(begun, close=close)
        try:
            result = conclude(begun, carrier, ledger=books.ledger, dataset=books.dataset)
            carrier.finish()
        except Waiting as waiting:
            words.waiting(waiting, carrier, f"fedassay run {quote(str(file.path))}", console)
            return None
        finally:
            carrier.close()
    words.refusals(carrier, console)
    return result


def on_flower(file: StudyFile, runtime: FlowerDeployment, agenda: Agenda, *, quiet: bool) -> Result:
    """Submit the study to a SuperLink and bring its result back; the same name goes on with what broke off."""
    asked = Study.under(
        file.name, agenda, file.setting(clients=0), timeout=runtime.timeout, wait=runtime.wait
    )
    reached = Connection(
        address=runtime.address,
        root_certificates=runtime.root_certificates,
        insecure=runtime.insecure,
        name=runtime.connection,
    )
    return Result.from_json(submitted(runtime.app, asked, reached, quiet=quiet))
