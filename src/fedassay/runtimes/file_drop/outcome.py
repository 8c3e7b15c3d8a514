"""How a study by files becomes a result, and what its participants are told on the way."""

from __future__ import annotations

import time
from collections.abc import Callable

from fedassay.errors import TooFewClients
from fedassay.kernel.journal import FileJournal
from fedassay.kernel.run import run
from fedassay.privacy.ledger.charges import Charge, Ledger
from fedassay.privacy.policy.disclosure import Disclosure
from fedassay.privacy.randomness import SecureRandomness
from fedassay.protocol.result import Result
from fedassay.runtimes import disclosed
from fedassay.runtimes.file_drop.participant import announcement_fingerprint
from fedassay.runtimes.file_drop.runtime import FileDropRuntime, Waiting
from fedassay.runtimes.file_drop.study import FileDropStudy
from fedassay.runtimes.released import released


def conclude(
    study: FileDropStudy,
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


# --- what the coordinator of a study by files is told -------------------------------------------------------

Say = Callable[[str], None]


def announced(study: FileDropStudy, say: Say) -> None:
    """After the first call."""
    announcement = study.announcement
    say(f"Announced the study {announcement.study} to {', '.join(announcement.roster)}.")
    say(f"Fingerprint of the announcement: {announcement_fingerprint(announcement)}")
    attendance = announcement.trust.attendance(len(announcement.roster))
    if attendance:
        say(attendance)
    say(f"Private state, to be kept until the result is there: {study.home}")


def waiting(state: Waiting, runtime: FileDropRuntime, again: str, say: Say) -> None:
    """While replies are missing."""
    refusals(runtime, say)
    total = len(state.answered) + len(state.missing)
    answered = f" (answered: {', '.join(state.answered)})" if state.answered else ""
    say(
        f"Pass {state.number}: {len(state.answered)} of {total} replies are there{answered}; waiting for "
        f"{', '.join(state.missing)}.",
    )
    say(
        f"Next: bring {runtime.study.drop} to these sites; each runs `fedassay contribute DROP --site site.toml`. "
        f"Then run here `{again}`; with --close it goes on without those who are missing.",
    )


def refusals(runtime: FileDropRuntime, say: Say) -> None:
    """Files and sites that do not count."""
    for note in runtime.notes:
        say(f"Refused: {note}")
    for name, code in runtime.refusals.items():
        say(f"{name} did not answer: {code}.")
