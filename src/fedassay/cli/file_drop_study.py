"""What a coordinator proposes, and how a study that has all its replies becomes a result."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedassay.agenda import Agenda, Run
from fedassay.cli.options import Terms
from fedassay.crypto.identity import Identity
from fedassay.errors import UsageError
from fedassay.journal import FileJournal
from fedassay.privacy.disclosure import Disclosure
from fedassay.privacy.ledger import Charge, Ledger
from fedassay.privacy.randomness import SecureRandomness
from fedassay.protocol import Message, Protection, Setting
from fedassay.result import Result, describe_cohort, describe_privacy
from fedassay.run import run
from fedassay.runtimes import disclosed
from fedassay.runtimes.file_drop import Announcement, FileDropRuntime, Study
from fedassay.trust.secure_sum import SecureSum

_DEFAULT_TERMS = Terms(trust=SecureSum(), budget=None, protection=Protection())


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """What is asked, and its terms, as the options of the first call or the file of a study say."""

    name: str
    agenda: Agenda
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
        return cls(name=name or task, agenda=Agenda.of(task, given), terms=terms)

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
        first = self.agenda.rehearse(setting)
        if profile is not None:
            disclosed.require(profile, terms.trust, first)
        return Study.begin(
            drop,
            state=state,
            identity=identity,
            name=self.name,
            agenda=self.agenda,
            trust=terms.trust,
            protection=terms.protection,
            budget=terms.budget,
            roster=roster,
            randomness=SecureRandomness(),
        )

    def check(self, announced: Announcement) -> None:
        """Refuse options that differ from what was announced: a study cannot change."""
        terms = self.terms
        mine = (self.agenda, terms.trust, terms.protection, terms.budget)
        theirs = (announced.agenda, announced.trust, announced.protection, announced.budget)
        if mine != theirs:
            raise UsageError(
                f"study {announced.study}: it was announced with other options, and they cannot change; leave "
                "the task and its options out, or begin a new study in another folder."
            )


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
        seconds = _first_time(journal, "ended") - begun
        results = announced.agenda.results(
            outcome, Run(clients=runtime.clients, budget=announced.budget, receipts=receipts)
        )
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
        task=announced.agenda.name,
        parameters={"study": announced.study, **announced.agenda.parameters},
        results=results,
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
