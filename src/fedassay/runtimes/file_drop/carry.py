"""A study by files, call by call."""

from __future__ import annotations

from fedassay.crypto.identity import Identity
from fedassay.errors import UsageError
from fedassay.protocol.result import Result
from fedassay.runtimes.file_drop import letters, outcome
from fedassay.runtimes.file_drop.card import FileDrop
from fedassay.runtimes.file_drop.outcome import conclude
from fedassay.runtimes.file_drop.proposal import Proposal, opened_study, require_folder
from fedassay.runtimes.file_drop.runtime import FileDropRuntime, Waiting
from fedassay.runtimes.released import StudyRun


def carry(parameters: FileDrop, study: StudyRun) -> Result | None:
    """Announce the study, or go on with it; its result, or None while replies are missing."""
    require_folder(parameters.drop)
    identity = Identity.load(parameters.key)
    proposal = Proposal(
        name=study.name,
        agenda=study.agenda,
        trust=study.trust,
        budget=study.budget,
        protection=study.protection,
    )
    with letters.locked(parameters.home):
        begun = opened_study(
            parameters.drop,
            parameters.home,
            identity,
            proposal,
            parameters.roster,
            study.say,
            before=study.require_affordable,
        )
        if begun.announcement.study.rpartition("-")[0] != study.name:  # a suffix makes it unlike all others
            raise UsageError(
                f"{parameters.drop}: holds the study {begun.announcement.study}, expected {study.name}; give each "
                "study a drop of its own."
            )
        runtime = FileDropRuntime(begun, close=study.options.close)
        try:
            result = conclude(begun, runtime, ledger=study.ledger, dataset=study.dataset)
            runtime.finish()
        except Waiting as waiting:
            outcome.waiting(waiting, runtime, study.again, study.say)
            return None
        finally:
            runtime.close()
    outcome.refusals(runtime, study.say)
    return result
