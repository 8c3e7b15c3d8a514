"""How a study by files that has all its replies becomes a result."""

from __future__ import annotations

import time

from fedassay.errors import TooFewClients
from fedassay.journal import FileJournal
from fedassay.privacy.disclosure import Disclosure
from fedassay.privacy.ledger import Charge, Ledger
from fedassay.privacy.randomness import SecureRandomness
from fedassay.result import Result
from fedassay.run import run
from fedassay.runtimes import disclosed
from fedassay.runtimes.file_drop.runtime import FileDropRuntime
from fedassay.runtimes.file_drop.study import Study
from fedassay.runtimes.released import released


def conclude(
    study: Study,
    runtime: FileDropRuntime,
    *,
    ledger: Ledger,
    dataset: str = "federation",
    profile: Disclosure | None = None,
) -> Result:
    """Run the study as far as its replies allow: its result, or `Waiting`.

    `profile` is what was said in this call: a study keeps the one that it began with.
    """
    announced, receipts = study.announcement, dict[str | bytes, Charge]()
    journal = FileJournal(study.home / "journal")
    try:
        if profile is not None:
            disclosed.settled(journal, profile)
        profile = disclosed.profile_of(journal)
        begun = _first_time(journal, "opened")
        outcome = run(
            announced.agenda.jobs(announced.setting),
            runtime=disclosed.published(runtime, profile),
            ledger=ledger,
            randomness=SecureRandomness(),
            study=announced.study,
            dataset=dataset,
            journal=journal,
            receipts=receipts,
        )
    except TooFewClients as error:
        raise TooFewClients(f"{error} {_how_to_go_on(runtime)}") from error
    else:
        seconds = _first_time(journal, "ended") - begun
        return released(
            announced.study,
            announced.agenda,
            announced.setting,
            outcome,
            runtime=runtime,
            journal=journal,
            receipts=receipts,
            seconds=seconds,
            profile=profile,
        )
    finally:
        journal.close()


def _how_to_go_on(runtime: FileDropRuntime) -> str:
    """What to do when too few have answered: the pass is still open."""
    refused = [f"{name} ({code})" for name, code in sorted(runtime.refusals.items())]
    who = f"Refused: {', '.join(refused)}. " if refused else ""
    return (
        f"{who}The pass stays open for sites that have not replied; without them, begin a new study in another "
        "folder."
    )


def _first_time(journal: FileJournal, kind: str) -> float:
    """When this was first noted: now, or in an earlier call."""
    noted = journal.find(kind)
    if noted is None:
        noted = {"kind": kind, "time": time.time()}
        journal.append(noted)
    return float(noted["time"])
