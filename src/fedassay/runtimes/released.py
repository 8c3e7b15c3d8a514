"""A study between sites: its terms, and the one `Result` that it leaves, whatever carried the messages."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from fedassay.kernel import publication
from fedassay.kernel.agenda import Agenda
from fedassay.kernel.journal import Journal
from fedassay.kernel.run import FEDERATION, run
from fedassay.privacy.ledger.charges import Charge, Ledger
from fedassay.privacy.policy.disclosure import Disclosure
from fedassay.privacy.randomness import SecureRandomness
from fedassay.protocol.result import Result, describe_cohort, describe_privacy
from fedassay.protocol.vocabulary import Budget, Protection, Setting, TrustModel
from fedassay.runtimes.messaging import MessagingRuntime
from fedassay.runtimes.simulated import Progress
from fedassay.tasks.card import rows_of


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """Tasks of a study, with its name and terms."""

    name: str
    agenda: Agenda
    trust: TrustModel
    budget: Budget | None
    protection: Protection

    def setting(self, clients: int) -> Setting:
        """Return the setting of the whole study; 0 clients where their number is not known yet."""
        return Setting(trust=self.trust, protection=self.protection, budget=self.budget, clients=clients)


@dataclass(frozen=True, kw_only=True)
class StudyRun(Proposal):
    """One call of `fedassay run` for a study between sites: it begins the study, or goes on with it.

    Parameters
    ----------
    ledger, dataset : ledger and data set of the coordinator's charges, if its ledger is on this machine.
    require_affordable : call it with the number of sites before anything is announced; it may refuse.
    options : those of the card that were given, as an object of its `options`.
    again : the command that goes on with the study.
    say, warn : tell the person at the terminal.
    progress : makes a progress bar.
    """

    ledger: Ledger
    dataset: str
    require_affordable: Callable[[int], None]
    options: Any
    again: str
    say: Callable[[str], None]
    warn: Callable[[str], None]
    progress: Callable[[], AbstractContextManager[Progress]]


def release(
    name: str,
    agenda: Agenda,
    setting: Setting,
    *,
    runtime: MessagingRuntime,
    ledger: Ledger,
    journal: Journal,
    seconds: Callable[[], float],
    dataset: str = FEDERATION,
    profile: Disclosure | None = None,
) -> Result:
    """Run a study between sites, or go on with it, and describe what it has released.

    Parameters
    ----------
    name : name of the study that sites receive.
    ledger, dataset : ledger of the coordinator's charges, and its name for the rows.
    journal : journal of the run; the same whenever the study goes on.
    seconds : from the first message to the last, as far as that is known; called when all are answered.
    profile : the disclosure profile under which exact totals are read.
    """
    sites, receipts = setting.clients, dict[str | bytes, Charge]()
    outcome = run(
        agenda.jobs(setting),
        runtime=runtime,
        ledger=ledger,
        randomness=SecureRandomness(),
        study=name,
        dataset=dataset,
        journal=journal,
        receipts=receipts,
        profile=profile,
    )
    took = seconds()
    results = agenda.results(
        outcome, clients=runtime.clients, budget=setting.budget, charges=receipts.values()
    )
    return Result(
        task=agenda.name,
        parameters={"study": name, **agenda.parameters},
        results=results,
        privacy=publication.stated(describe_privacy(setting, simulated=False), profile),
        cohort=describe_cohort(
            rows=rows_of(agenda.name, results),
            asked=sites,
            answered=journal.answered(sites),
            truncated=None,
            openings=journal.openings(),
        ),
        runtime={
            "name": runtime.name,
            "mode": runtime.mode,
            "rounds": runtime.rounds,
            "bytes_per_client": runtime.bytes_in_all // max(1, sites),
            # How long clients take depends on their rows, which noise does not hide.
            "seconds": None if setting.trust.private else round(max(0.0, took), 3),
        },
        warnings=publication.warnings(profile),
    )
