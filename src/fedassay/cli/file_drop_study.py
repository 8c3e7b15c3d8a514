"""What a coordinator proposes, and how a study that has all its replies becomes a result."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedassay.cli.options import Terms
from fedassay.crypto.identity import Identity
from fedassay.errors import UsageError
from fedassay.journal import FileJournal
from fedassay.privacy.database_ledger import DatabaseLedger
from fedassay.privacy.disclosure import Disclosure
from fedassay.privacy.randomness import SecureRandomness
from fedassay.protocol import Message, Protection, Setting
from fedassay.result import Result, describe_cohort, describe_privacy
from fedassay.run import Job, rehearse, run
from fedassay.runtimes import disclosed
from fedassay.runtimes.file_drop import Announcement, FileDropRuntime, Study
from fedassay.tasks.catalogue import TASKS, task_of, with_defaults
from fedassay.tasks.evaluation import with_site_names
from fedassay.trust.secure_sum import SecureSum

_DEFAULT_TERMS = Terms(trust=SecureSum(), budget=None, protection=Protection())


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """A task and its terms, as the options of the first call say."""

    name: str
    task: str
    parameters: Message
    terms: Terms

    @classmethod
    def of(cls, task: str | None, given: Message, *, terms: Terms, name: str | None) -> Proposal | None:
        """A proposal from the options that were given, or None if there is no task."""
        if task is None:
            if terms != _DEFAULT_TERMS or name is not None or given:
                raise UsageError(
                    "options of the study: they belong to the first call; name the task, or leave them out."
                )
            return None
        return cls(name=name or task, task=task, parameters=with_defaults(task, given), terms=terms)

    def announce(
        self,
        drop: Path,
        *,
        state: Path,
        identity: Identity,
        roster: dict[str, bytes],
        profile: Disclosure | None = None,
    ) -> Study:
        """Announce the study; what cannot be answered, or published, is refused before anything is written."""
        terms = self.terms
        setting = Setting(
            trust=terms.trust, protection=terms.protection, budget=terms.budget, clients=len(roster)
        )
        first = rehearse(task_of(self.task, self.parameters), setting)
        if profile is not None:
            disclosed.require(profile, terms.trust, first)
        return Study.begin(
            drop,
            state=state,
            identity=identity,
            name=self.name,
            task=self.task,
            parameters=self.parameters,
            trust=terms.trust,
            protection=terms.protection,
            budget=terms.budget,
            roster=roster,
            randomness=SecureRandomness(),
        )

    def check(self, announced: Announcement) -> None:
        """Refuse options that differ from what was announced: a study cannot change."""
        terms = self.terms
        mine = (self.task, self.parameters, terms.trust, terms.protection, terms.budget)
        theirs = (
            announced.task,
            announced.parameters,
            announced.trust,
            announced.protection,
            announced.budget,
        )
        if mine != theirs:
            raise UsageError(
                f"study {announced.study}: it was announced with other options, and they cannot change; leave "
                "the task and its options out, or begin a new study in another folder."
            )


def conclude(
    study: Study, runtime: FileDropRuntime, *, ledger: DatabaseLedger, profile: Disclosure | None = None
) -> Result:
    """Run the study as far as its replies allow: its result, or `Waiting`.

    `profile` is what was said in this call: a study keeps the one that it began with.
    """
    announced = study.announcement
    if announced.task not in TASKS:
        raise UsageError(
            f"study {announced.study}: the task {announced.task!r} is not known to this version."
        )
    task = task_of(announced.task, announced.parameters)
    journal = FileJournal(study.home / "journal")
    try:
        if profile is not None:
            disclosed.settled(journal, profile)
        profile = disclosed.profile_of(journal)
        begun = _first_time(journal, "opened")
        results = run(
            [Job(name=announced.task, task=task, setting=announced.setting)],
            runtime=disclosed.published(runtime, profile),
            ledger=ledger,
            randomness=SecureRandomness(),
            study=announced.study,
            journal=journal,
        )[announced.task]
        seconds = _first_time(journal, "ended") - begun
        return _result(announced, runtime, results, journal, seconds, profile)
    finally:
        journal.close()


def _first_time(journal: FileJournal, kind: str) -> float:
    """When this was first noted: now, or in an earlier call."""
    noted = journal.find(kind)
    if noted is None:
        noted = {"kind": kind, "time": time.time()}
        journal.append(noted)
    return float(noted["time"])


def _result(
    announced: Announcement,
    runtime: FileDropRuntime,
    results: dict[str, Any],
    journal: FileJournal,
    seconds: float,
    profile: Disclosure | None,
) -> Result:
    return Result(
        task=announced.task,
        parameters={"study": announced.study, **announced.parameters},
        results=with_site_names(results, runtime.clients),
        privacy=disclosed.stated(describe_privacy(announced.setting, simulated=False), profile),
        cohort=describe_cohort(
            results,
            asked=len(announced.roster),
            answered=journal.answered(len(announced.roster)),
            truncated=None,
        ),
        runtime={
            "name": runtime.name,
            "mode": runtime.mode,
            "rounds": runtime.rounds,
            "bytes_per_client": runtime.bytes_in_all // len(announced.roster),
            # How long clients take depends on their rows, which noise does not hide.
            "seconds": None if announced.setting.trust.private else round(max(0.0, seconds), 3),
        },
        warnings=disclosed.warnings(profile),
    )
