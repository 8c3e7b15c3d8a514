"""What a release between sites leaves behind: one `Result`, whatever has carried the messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedassay.agenda import Agenda, Run
from fedassay.journal import Journal
from fedassay.privacy.disclosure import Disclosure
from fedassay.privacy.ledger import Charge
from fedassay.protocol import Setting
from fedassay.result import Result, describe_cohort, describe_privacy
from fedassay.runtimes import disclosed
from fedassay.runtimes.messaging import MessagingRuntime
from fedassay.tasks.catalogue import rows_of


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
    results = agenda.results(outcome, Run(clients=runtime.clients, budget=setting.budget, receipts=receipts))
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
