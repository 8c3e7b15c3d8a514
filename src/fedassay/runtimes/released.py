"""What a release between sites leaves behind: one `Result`, whatever has carried the messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from fedassay.kernel.agenda import Agenda, RunRecord
from fedassay.kernel.journal import Journal
from fedassay.privacy.ledger.charges import Charge, Ledger
from fedassay.privacy.policy.disclosure import Disclosure
from fedassay.protocol.result import Result, describe_cohort, describe_privacy
from fedassay.protocol.vocabulary import Budget, Protection, Setting, TrustModel
from fedassay.runtimes import disclosed
from fedassay.runtimes.messaging import MessagingRuntime
from fedassay.runtimes.simulated import Progress
from fedassay.tasks.card import rows_of


def released(
    name: str,
    agenda: Agenda,
    setting: Setting,
    outcome: Mapping[str, Any],
    *,
    runtime: MessagingRuntime,
    journal: Journal,
    receipts: Mapping[str | bytes, Charge],
    seconds: float,
    profile: Disclosure | None = None,
) -> Result:
    """The result of a study from what `run` has returned.

    Parameters
    ----------
    name : of the study, as sites were told.
    runtime, journal, receipts : those that `run` was given.
    seconds : from the first message to the last, as far as that is known.
    profile : the disclosure profile under which exact totals were read.
    """
    sites = setting.clients
    results = agenda.results(
        outcome, RunRecord(clients=runtime.clients, budget=setting.budget, receipts=receipts)
    )
    return Result(
        task=agenda.name,
        parameters={"study": name, **agenda.parameters},
        results=results,
        privacy=disclosed.stated(describe_privacy(setting, simulated=False), profile),
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
            "seconds": None if setting.trust.private else round(max(0.0, seconds), 3),
        },
        warnings=disclosed.warnings(profile),
    )


# --- a study between sites ----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class StudyRun:
    """One call of `fedassay run` for a study between sites: it begins the study, or goes on with it.

    Parameters
    ----------
    name, agenda, trust, budget, protection : what is asked, under which name and terms.
    ledger, dataset : where the coordinator records what is spent, if its ledger is on this machine.
    require_affordable : call it with the number of sites before anything is announced; it may refuse.
    options : those of the card that were given, as an object of its `options`.
    again : the command that goes on with the study.
    say, warn : tell the person at the terminal.
    progress : makes a progress bar.
    """

    name: str
    agenda: Agenda
    trust: TrustModel
    budget: Budget | None
    protection: Protection
    ledger: Ledger
    dataset: str
    require_affordable: Callable[[int], None]
    options: Any
    again: str
    say: Callable[[str], None]
    warn: Callable[[str], None]
    progress: Callable[[], AbstractContextManager[Progress]]

    def setting(self, clients: int) -> Setting:
        """The setting of the whole study; 0 clients where nobody knows yet how many there are."""
        return Setting(trust=self.trust, protection=self.protection, budget=self.budget, clients=clients)
