"""What the coordinator of a study by files is told, and what to do next."""

from __future__ import annotations

from collections.abc import Callable

from fedassay.runtimes.file_drop.participant import announcement_fingerprint
from fedassay.runtimes.file_drop.runtime import FileDropRuntime, Waiting
from fedassay.runtimes.file_drop.study import Study

Say = Callable[[str], None]


def announced(study: Study, say: Say) -> None:
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
